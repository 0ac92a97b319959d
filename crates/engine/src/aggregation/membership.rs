//! A process's place in one group: its member machine and the edge to the seat above it.

use std::fmt;
use std::sync::Arc;

use manager::{DistributionSpec, GroupDescriptor};
use protocol::aggregation::{
    AggregationAction, AggregationMember, Contribution, Damage, EdgeIndex, ImplicitAck, MemberConfig, OperationMode,
    OperationStartError, Outbox, ParentLink, Plane, RepairTimeoutMode,
};
use protocol::connection::Paths;
use protocol::connection::path::{MigrationRole, PathPolicy};
use units::{GroupId, OpId, QpNumber, Time};

use super::{MULTICAST_RESULT_REQUEST_AFTER, RESULT_REQUEST_AFTER, edge_policy};
use transport::edges::{MulticastRole, MulticastSocket};
use transport::edges::{TreeEdge, TreeEdgeEvent, TreeEdges};

/// So many results in a row had to be asked for: no loss of packets explains that.
const MULTICAST_LOST_AFTER: u32 = 32;
/// The only edge of a member.
const PARENT_EDGE: EdgeIndex = EdgeIndex(0);

/// A group's plan has no place for this leader, or no way to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotInGroupPlan {
    /// Position among the leaders.
    pub leader: usize,
}

impl fmt::Display for NotInGroupPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the group's plan has no place for leader {}", self.leader)
    }
}

impl std::error::Error for NotInGroupPlan {}

/// A place in a group.
pub struct Membership {
    member: AggregationMember,
    group: GroupId,
    edge: QpNumber,
    outbox: Outbox,
    /// Where results come, if nothing else brings them unasked.
    ear: Option<Arc<MulticastSocket>>,
    depends_on_multicast: bool,
}

impl Membership {
    /// Takes the place of a leader.
    ///
    /// # Errors
    /// If the plan has none for it. If its results come by multicast and cannot be heard here, each is asked for.
    pub fn join(wires: &mut TreeEdges, group: &GroupDescriptor, leader: usize) -> Result<Self, NotInGroupPlan> {
        let parent = group.parent_of(leader).ok_or(NotInGroupPlan { leader })?;
        let routes = wires.routes_to(&parent.addresses);
        let plan = MemberConfig {
            group: group.group,
            epoch: group.epoch,
            parents: vec![ParentLink { edge: PARENT_EDGE, child: parent.child, plane: Plane(0) }],
            peers: vec![parent.node.0],
            result_proves: ImplicitAck::Arrival,
            window: group.window,
            // A connection brings every result; a multicast may get lost.
            repair_after: match group.distribution {
                DistributionSpec::Multicast { .. } => MULTICAST_RESULT_REQUEST_AFTER,
                DistributionSpec::Edges | DistributionSpec::Both { .. } => RESULT_REQUEST_AFTER,
            },
            patience: RepairTimeoutMode::Measured,
        };
        let mut member = AggregationMember::new(edge_policy(), plan);
        if routes.len() > 1 {
            let now = wires.clock().now();
            member.set_paths(
                PARENT_EDGE,
                Paths::new(PathPolicy::default(), MigrationRole::Follower, routes.len(), now),
            );
        }
        wires.string(parent.edge, TreeEdge { remote: parent.edge, routes, key: group.key });
        if let Some(to) = group.distribution.address() {
            let _ = wires.join_circle(group.group, to, group.key, MulticastRole::Open);
        }
        let depends_on_multicast = matches!(group.distribution, DistributionSpec::Multicast { .. });
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
    pub fn leave(self, wires: &mut TreeEdges) {
        wires.cut(self.edge);
        wires.leave_circle(self.group);
    }

    /// The number of its edge.
    pub fn edge(&self) -> QpNumber {
        self.edge
    }

    /// Where results come, if they come by multicast and can be heard.
    pub fn ear(&self) -> Option<&Arc<MulticastSocket>> {
        self.ear.as_ref()
    }

    /// Multicasts that came.
    pub fn heard(&self) -> u64 {
        self.member.heard()
    }

    /// True if multicasts are not heard any more, though results depend on them.
    pub fn is_deaf(&self) -> bool {
        self.depends_on_multicast && self.member.unheard() >= MULTICAST_LOST_AFTER
    }

    /// Contributes to the next operation.
    ///
    /// # Errors
    /// If the window is full or the seat above is lost; nothing has happened then.
    pub fn start(&mut self, wires: &mut TreeEdges, contribution: Contribution) -> Result<OpId, OperationStartError> {
        self.start_as(wires, contribution, OperationMode::Folded, &mut Vec::new())
    }

    /// Begins the next operation in some manner; what is over at once is added to `done`.
    ///
    /// # Errors
    /// If it must wait or the seat above is lost; nothing has happened then.
    pub fn start_as(
        &mut self,
        wires: &mut TreeEdges,
        contribution: Contribution,
        manner: OperationMode,
        done: &mut Vec<AggregationAction>,
    ) -> Result<OpId, OperationStartError> {
        let started = self.member.start_as(wires.look_at_clock(), contribution, manner, &mut self.outbox);
        self.carry_out(wires, done);
        started
    }

    /// True if nobody can still need anything of this place.
    pub fn is_settled(&self) -> bool {
        self.member.is_settled()
    }

    /// Takes what came over its edge; completions and failures are added to `done`.
    pub fn handle(&mut self, wires: &mut TreeEdges, input: TreeEdgeEvent, done: &mut Vec<AggregationAction>) {
        let (now, out) = (wires.now(), &mut self.outbox);
        match input {
            TreeEdgeEvent::Frame { came, frame, .. } => self.member.handle_frame(now, PARENT_EDGE, came, &frame, out),
            TreeEdgeEvent::Multicast { message, .. } => self.member.handle_multicast(now, PARENT_EDGE, &message, out),
            TreeEdgeEvent::Damage { .. } => self.member.handle_damage(now, PARENT_EDGE, Damage::Here, out),
            TreeEdgeEvent::PathDown { path, .. } => self.member.handle_path_down(now, PARENT_EDGE, path, out),
            TreeEdgeEvent::PathUp { path, .. } => self.member.handle_path_up(now, PARENT_EDGE, path),
        }
        self.carry_out(wires, done);
    }

    /// When it wants to be called although nothing comes.
    pub fn deadline(&self) -> Time {
        self.member.deadline()
    }

    /// Repeats what is overdue and asks for what is late.
    pub fn handle_timeout(&mut self, wires: &mut TreeEdges, done: &mut Vec<AggregationAction>) {
        self.member.handle_timeout(wires.now(), &mut self.outbox);
        self.carry_out(wires, done);
    }

    fn carry_out(&mut self, wires: &mut TreeEdges, done: &mut Vec<AggregationAction>) {
        for duty in self.outbox.drain() {
            match duty {
                AggregationAction::Transmit { outgoing, .. } => wires.transmit(self.edge, &outgoing),
                AggregationAction::Multicast { message, copies } => wires.multicast(self.group, &message, copies),
                duty => done.push(duty),
            }
        }
    }
}
