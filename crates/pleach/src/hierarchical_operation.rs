//! One operation of a communicator on its way: up within the host, between hosts, down within the host.
//!
//! Teams and networks want every rank's operations in one order. So an operation starts its way between hosts only when all
//! earlier ones have, and likewise its way down; the ways up start when the operation does.

use engine::network::OperationHandle;
use hostmem::team::{CollectiveBuffers, Team, TeamCall, TeamOperation, TeamProgress};
use protocol::collective::{CollectiveOperation, InterHostMethod};
use reduce::{ElementType, Operator, ReductionKind};
use units::{GroupId, Rank};

use crate::Error;
use crate::progress_engine::ProgressEngine;

/// Where an operation stands.
enum HierarchyStage {
    Up(Option<TeamOperation>),
    Between(Option<OperationHandle>),
    Down(Option<TeamOperation>),
    Over,
}

/// Whose bytes an operation works on.
pub(crate) enum OperationBuffer {
    /// The caller's, given with every step.
    Lent,
    /// Its own: the caller gets them back at the end.
    Own(Vec<u8>),
}

/// What this rank does for its host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HostRole {
    /// Speaks for it.
    Leads,
    /// Lets the leader speak.
    Follows,
}

/// An operation as one rank sees it; roots are ranks within the host and places of hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CollectiveRoute {
    /// What goes on within the host before, if anything.
    pub up: Option<TeamCall>,
    /// What goes on between hosts, and how; the leaders do it.
    pub between: (CollectiveOperation, InterHostMethod),
    /// Whether the leader's bytes then go to the others of the host.
    pub down: bool,
    pub duty: HostRole,
    pub context: GroupId,
    /// Our rank within the host.
    pub local: u16,
}

/// The two teams of a host with several ranks: what goes up and what goes down have each their own order.
pub(crate) struct TeamPair {
    pub up: Team,
    pub down: Team,
}

/// The teams that an operation may use.
pub(crate) enum HostTeamsMut<'t> {
    /// All ranks are on this host: everything goes on in one team.
    Whole(&'t mut Team),
    /// Some are.
    Part(&'t mut TeamPair),
}

impl HostTeamsMut<'_> {
    fn up(&mut self) -> &mut Team {
        match self {
            Self::Whole(team) => team,
            Self::Part(teams) => &mut teams.up,
        }
    }

    fn down(&mut self) -> Option<&mut Team> {
        match self {
            Self::Whole(_) => None,
            Self::Part(teams) => Some(&mut teams.down),
        }
    }
}

pub(crate) struct HierarchicalOperation {
    pub id: u64,
    route: CollectiveRoute,
    stage: HierarchyStage,
    pub buffer: OperationBuffer,
}

/// What later operations may not start because this one has not.
#[derive(Clone, Copy, Default)]
pub(crate) struct StartGate {
    pub between_waits: bool,
    pub down_waits: bool,
}

impl HierarchicalOperation {
    pub(crate) fn new(id: u64, route: CollectiveRoute, buffer: OperationBuffer) -> Self {
        Self { id, route, stage: HierarchyStage::Up(None), buffer }
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, HierarchyStage::Over)
    }

    /// Goes as far as it can without waiting. `lent` are the caller's bytes, if it works on those.
    pub(crate) fn advance(
        &mut self,
        lent: Option<&mut [u8]>,
        teams: Option<HostTeamsMut<'_>>,
        engine: &mut ProgressEngine,
        turn: &mut StartGate,
    ) -> Result<(), Error> {
        let mut own = match &mut self.buffer {
            OperationBuffer::Own(bytes) => Some(std::mem::take(bytes)),
            OperationBuffer::Lent => None,
        };
        let bytes = own.as_deref_mut().or(lent).expect("whoever lends gives the bytes with every step");
        let result = self.step(bytes, teams, engine, turn);
        if let (OperationBuffer::Own(place), Some(bytes)) = (&mut self.buffer, own) {
            *place = bytes;
        }
        result
    }

    fn step(
        &mut self,
        bytes: &mut [u8],
        teams: Option<HostTeamsMut<'_>>,
        engine: &mut ProgressEngine,
        turn: &mut StartGate,
    ) -> Result<(), Error> {
        let mut teams = teams;
        if let HierarchyStage::Up(operation) = &mut self.stage {
            if let (Some(call), Some(teams)) = (self.route.up, &mut teams) {
                let mut data = buffers_for(call, self.route.local, bytes);
                if !drive(teams.up(), operation, call, &mut data)? {
                    turn.between_waits |= self.route.duty == HostRole::Leads;
                    turn.down_waits = true;
                    return Ok(());
                }
            }
            self.stage = match self.route.duty {
                HostRole::Leads => HierarchyStage::Between(None),
                HostRole::Follows => HierarchyStage::Down(None),
            };
        }
        if let HierarchyStage::Between(ticket) = &mut self.stage {
            if ticket.is_none() && !turn.between_waits {
                let (collective, method) = self.route.between;
                *ticket = Some(engine.network.start(self.route.context, method, collective, bytes.to_vec()));
            }
            turn.between_waits |= ticket.is_none();
            let Some(end) = ticket.and_then(|ticket| engine.network.take(ticket)) else {
                turn.down_waits = true;
                return Ok(());
            };
            let result = end?;
            // A barrier, and a reduce at all but its root, give nothing back.
            if result.len() == bytes.len() {
                bytes.copy_from_slice(&result);
            }
            self.stage = HierarchyStage::Down(None);
        }
        if let HierarchyStage::Down(operation) = &mut self.stage {
            if let Some(team) = teams.as_mut().filter(|_| self.route.down).and_then(HostTeamsMut::down) {
                if operation.is_none() && turn.down_waits {
                    return Ok(());
                }
                let call = TeamCall::Broadcast { root: 0 };
                let mut data = buffers_for(call, self.route.local, bytes);
                if !drive(team, operation, call, &mut data)? {
                    return Ok(());
                }
            }
            self.stage = HierarchyStage::Over;
        }
        Ok(())
    }
}

/// Starts an operation of a team, or moves it on; true if it is over.
fn drive(
    team: &mut Team,
    operation: &mut Option<TeamOperation>,
    call: TeamCall,
    data: &mut CollectiveBuffers<'_>,
) -> Result<bool, Error> {
    let operation = match operation {
        Some(operation) => operation,
        none => none.insert(team.start(call, data)?),
    };
    Ok(operation.is_over() || team.poll(operation, data)? == TeamProgress::Done)
}

pub(crate) fn buffers_for(call: TeamCall, local: u16, bytes: &mut [u8]) -> CollectiveBuffers<'_> {
    let gives = match call {
        TeamCall::Barrier => return CollectiveBuffers::Nothing,
        TeamCall::Broadcast { root } => root == local,
        TeamCall::Reduce { root, .. } => root != local,
        TeamCall::AllReduce { .. } => false,
    };
    if gives { CollectiveBuffers::Give(bytes) } else { CollectiveBuffers::InPlace(bytes) }
}

/// What a barrier folds within a host: nothing, but of a type.
pub(crate) fn nothing() -> ReductionKind {
    ReductionKind::new(ElementType::U8, Operator::Or).expect("integers have bits")
}

/// The place of a host, as the network counts.
pub(crate) fn place(host: usize) -> Rank {
    Rank(host as u32)
}
