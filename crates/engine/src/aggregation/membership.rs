//! A process's place in one group: its member machine and the edge to the seat above it.

use std::fmt;
use std::sync::Arc;

use protocol::aggregation::{
    Contribution, Damage, Duty, EdgeIndex, Manner, Member, MemberPlan, Outbox, Patience, Plane, ResultProves,
    StartError, Upward,
};
use protocol::connection::Paths;
use protocol::connection::path::{PathPolicy, Role};
use manager::{Distribution, GroupOpened};
use units::{GroupId, OpId, QpNumber, Time};

use transport::edges::{Ear, Hearing};
use transport::edges::{Input, Wire, Wires};
use super::{REPAIR_AFTER, REPAIR_MULTICAST_AFTER, edge_policy};

/// So many results in a row had to be asked for: no loss of packets explains that.
const DEAF_AFTER: u32 = 32;
/// The only edge of a member.
const UP: EdgeIndex = EdgeIndex(0);

/// A group's plan has no place for this leader, or no way to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoPlace {
    /// Position among the leaders.
    pub leader: usize,
}

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the group's plan has no place for leader {}", self.leader)
    }
}

impl std::error::Error for NoPlace {}

/// A place in a group.
pub struct Membership {
    member: Member,
    group: GroupId,
    edge: QpNumber,
    outbox: Outbox,
    /// Where results come, if nothing else brings them unasked.
    ear: Option<Arc<Ear>>,
    depends_on_multicast: bool,
}

impl Membership {
    /// Takes the place of a leader.
    ///
    /// # Errors
    /// If the plan has none for it. If its results come by multicast and cannot be heard here, each is asked for.
    pub fn join(wires: &mut Wires, group: &GroupOpened, leader: usize) -> Result<Self, NoPlace> {
        let parent = group.parent_of(leader).ok_or(NoPlace { leader })?;
        let routes = wires.routes_to(&parent.addresses);
        let plan = MemberPlan {
            group: group.group,
            epoch: group.epoch,
            parents: vec![Upward { edge: UP, child: parent.child, plane: Plane(0) }],
            peers: vec![parent.node.0],
            result_proves: ResultProves::Arrival,
            window: group.window,
            // A connection brings every result; a multicast may get lost.
            repair_after: match group.distribution {
                Distribution::Multicast { .. } => REPAIR_MULTICAST_AFTER,
                Distribution::Edges | Distribution::Both { .. } => REPAIR_AFTER,
            },
            patience: Patience::Measured,
        };
        let mut member = Member::new(edge_policy(), plan);
        if routes.len() > 1 {
            let now = wires.clock().now();
            member.set_paths(UP, Paths::new(PathPolicy::default(), Role::Follower, routes.len(), now));
        }
        wires.string(parent.edge, Wire { remote: parent.edge, routes, key: group.key });
        if let Some(to) = group.distribution.address() {
            let _ = wires.join_circle(group.group, to, group.key, Hearing::Open);
        }
        let depends_on_multicast = matches!(group.distribution, Distribution::Multicast { .. });
        let ear = group.distribution.address().filter(|_| depends_on_multicast).and_then(|to| wires.ear(to));
        Ok(Self {
            member,
            group: group.group,
            edge: parent.edge,
            outbox: Outbox::default(),
            ear,
            depends_on_multicast,
        })
    }

    /// Gives the place up.
    pub fn leave(self, wires: &mut Wires) {
        wires.cut(self.edge);
        wires.leave_circle(self.group);
    }

    /// The number of its edge.
    pub fn edge(&self) -> QpNumber {
        self.edge
    }

    /// Where results come, if they come by multicast and can be heard.
    pub fn ear(&self) -> Option<&Arc<Ear>> {
        self.ear.as_ref()
    }

    /// Multicasts that came.
    pub fn heard(&self) -> u64 {
        self.member.heard()
    }

    /// True if multicasts are not heard any more, though results depend on them.
    pub fn is_deaf(&self) -> bool {
        self.depends_on_multicast && self.member.unheard() >= DEAF_AFTER
    }

    /// Contributes to the next operation.
    ///
    /// # Errors
    /// If the window is full or the seat above is lost; nothing has happened then.
    pub fn start(&mut self, wires: &mut Wires, contribution: Contribution) -> Result<OpId, StartError> {
        self.start_as(wires, contribution, Manner::Folded, &mut Vec::new())
    }

    /// Begins the next operation in some manner; what is over at once is added to `done`.
    ///
    /// # Errors
    /// If it must wait or the seat above is lost; nothing has happened then.
    pub fn start_as(
        &mut self,
        wires: &mut Wires,
        contribution: Contribution,
        manner: Manner,
        done: &mut Vec<Duty>,
    ) -> Result<OpId, StartError> {
        let started = self.member.start_as(wires.look_at_clock(), contribution, manner, &mut self.outbox);
        self.carry_out(wires, done);
        started
    }

    /// True if nobody can still need anything of this place.
    pub fn is_settled(&self) -> bool {
        self.member.is_settled()
    }

    /// Takes what came over its edge; completions and failures are added to `done`.
    pub fn handle(&mut self, wires: &mut Wires, input: Input, done: &mut Vec<Duty>) {
        let (now, out) = (wires.now(), &mut self.outbox);
        match input {
            Input::Frame { came, frame, .. } => self.member.handle_frame(now, UP, came, &frame, out),
            Input::Multicast { message, .. } => self.member.handle_multicast(now, UP, &message, out),
            Input::Damage { .. } => self.member.handle_damage(now, UP, Damage::Here, out),
            Input::PathDown { path, .. } => self.member.handle_path_down(now, UP, path, out),
            Input::PathUp { path, .. } => self.member.handle_path_up(now, UP, path),
        }
        self.carry_out(wires, done);
    }

    /// When it wants to be called although nothing comes.
    pub fn deadline(&self) -> Time {
        self.member.deadline()
    }

    /// Repeats what is overdue and asks for what is late.
    pub fn handle_timeout(&mut self, wires: &mut Wires, done: &mut Vec<Duty>) {
        self.member.handle_timeout(wires.now(), &mut self.outbox);
        self.carry_out(wires, done);
    }

    fn carry_out(&mut self, wires: &mut Wires, done: &mut Vec<Duty>) {
        for duty in self.outbox.drain() {
            match duty {
                Duty::Transmit { outgoing, .. } => wires.transmit(self.edge, &outgoing),
                Duty::Multicast { message, copies } => wires.multicast(self.group, &message, copies),
                duty => done.push(duty),
            }
        }
    }
}
