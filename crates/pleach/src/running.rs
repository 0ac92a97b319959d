//! One operation of a communicator on its way: up within the host, between hosts, down within the host.
//!
//! Teams and networks want every rank's operations in one order. So an operation starts its way between hosts only when all
//! earlier ones have, and likewise its way down; the ways up start when the operation does.

use protocol::collective::{Collective, Method};
use reduce::{ElementType, Kind, Operator};
use engine::network::Ticket;
use hostmem::team::{Call, Data, Operation, Progress, Team};
use units::{GroupId, Rank};

use crate::Error;
use crate::engine::Engine;

/// Where an operation stands.
enum Stage {
    Up(Option<Operation>),
    Between(Option<Ticket>),
    Down(Option<Operation>),
    Over,
}

/// Whose bytes an operation works on.
pub(crate) enum Buffer {
    /// The caller's, given with every step.
    Lent,
    /// Its own: the caller gets them back at the end.
    Own(Vec<u8>),
}

/// What this rank does for its host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Duty {
    /// Speaks for it.
    Leads,
    /// Lets the leader speak.
    Follows,
}

/// An operation as one rank sees it; roots are ranks within the host and places of hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// What goes on within the host before, if anything.
    pub up: Option<Call>,
    /// What goes on between hosts, and how; the leaders do it.
    pub between: (Collective, Method),
    /// Whether the leader's bytes then go to the others of the host.
    pub down: bool,
    pub duty: Duty,
    pub context: GroupId,
    /// Our rank within the host.
    pub local: u16,
}

/// The two teams of a host with several ranks: what goes up and what goes down have each their own order.
pub(crate) struct Teams {
    pub up: Team,
    pub down: Team,
}

/// The teams that an operation may use.
pub(crate) enum Places<'t> {
    /// All ranks are on this host: everything goes on in one team.
    Whole(&'t mut Team),
    /// Some are.
    Part(&'t mut Teams),
}

impl Places<'_> {
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

pub(crate) struct Running {
    pub id: u64,
    route: Route,
    stage: Stage,
    pub buffer: Buffer,
}

/// What later operations may not start because this one has not.
#[derive(Clone, Copy, Default)]
pub(crate) struct Turn {
    pub between_waits: bool,
    pub down_waits: bool,
}

impl Running {
    pub(crate) fn new(id: u64, route: Route, buffer: Buffer) -> Self {
        Self { id, route, stage: Stage::Up(None), buffer }
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Goes as far as it can without waiting. `lent` are the caller's bytes, if it works on those.
    pub(crate) fn advance(
        &mut self,
        lent: Option<&mut [u8]>,
        teams: Option<Places<'_>>,
        engine: &mut Engine,
        turn: &mut Turn,
    ) -> Result<(), Error> {
        let mut own = match &mut self.buffer {
            Buffer::Own(bytes) => Some(std::mem::take(bytes)),
            Buffer::Lent => None,
        };
        let bytes = own.as_deref_mut().or(lent).expect("whoever lends gives the bytes with every step");
        let result = self.step(bytes, teams, engine, turn);
        if let (Buffer::Own(place), Some(bytes)) = (&mut self.buffer, own) {
            *place = bytes;
        }
        result
    }

    fn step(
        &mut self,
        bytes: &mut [u8],
        teams: Option<Places<'_>>,
        engine: &mut Engine,
        turn: &mut Turn,
    ) -> Result<(), Error> {
        let mut teams = teams;
        if let Stage::Up(operation) = &mut self.stage {
            if let (Some(call), Some(teams)) = (self.route.up, &mut teams) {
                let mut data = data_of(call, self.route.local, bytes);
                if !drive(teams.up(), operation, call, &mut data)? {
                    turn.between_waits |= self.route.duty == Duty::Leads;
                    turn.down_waits = true;
                    return Ok(());
                }
            }
            self.stage = match self.route.duty {
                Duty::Leads => Stage::Between(None),
                Duty::Follows => Stage::Down(None),
            };
        }
        if let Stage::Between(ticket) = &mut self.stage {
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
            self.stage = Stage::Down(None);
        }
        if let Stage::Down(operation) = &mut self.stage {
            if let Some(team) = teams.as_mut().filter(|_| self.route.down).and_then(Places::down) {
                if operation.is_none() && turn.down_waits {
                    return Ok(());
                }
                let call = Call::Broadcast { root: 0 };
                let mut data = data_of(call, self.route.local, bytes);
                if !drive(team, operation, call, &mut data)? {
                    return Ok(());
                }
            }
            self.stage = Stage::Over;
        }
        Ok(())
    }
}

/// Starts an operation of a team, or moves it on; true if it is over.
fn drive(team: &mut Team, operation: &mut Option<Operation>, call: Call, data: &mut Data<'_>) -> Result<bool, Error> {
    let operation = match operation {
        Some(operation) => operation,
        none => none.insert(team.start(call, data)?),
    };
    Ok(operation.is_over() || team.poll(operation, data)? == Progress::Done)
}

pub(crate) fn data_of(call: Call, local: u16, bytes: &mut [u8]) -> Data<'_> {
    let gives = match call {
        Call::Barrier => return Data::Nothing,
        Call::Broadcast { root } => root == local,
        Call::Reduce { root, .. } => root != local,
        Call::AllReduce { .. } => false,
    };
    if gives { Data::Give(bytes) } else { Data::InPlace(bytes) }
}

/// What a barrier folds within a host: nothing, but of a type.
pub(crate) fn nothing() -> Kind {
    Kind::new(ElementType::U8, Operator::Or).expect("integers have bits")
}

/// The place of a host, as the network counts.
pub(crate) fn place(host: usize) -> Rank {
    Rank(host as u32)
}
