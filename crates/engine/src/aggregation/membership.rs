//! The membership of a process in one group: its member machine and the edge to its parent node.

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
use transport::edges::{EdgeSide, TreeEdge, TreeEdgeEvent, TreeEdges};
use transport::edges::{MulticastRole, MulticastSocket};

/// After so many requested results in a row, multicast is considered lost: packet loss does not explain that many (P-61).
const MULTICAST_LOST_AFTER: u32 = 32;
/// The only edge of a member.
const PARENT_EDGE: EdgeIndex = EdgeIndex(0);

/// The group's plan has no position for this leader, or no parent for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotInGroupPlan {
    /// The index among the leaders.
    pub leader: usize,
}

impl fmt::Display for NotInGroupPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the plan of the group has no position for leader {}", self.leader)
    }
}

impl std::error::Error for NotInGroupPlan {}

/// The membership of a process in a group.
pub struct Membership {
    member: AggregationMember,
    group: GroupId,
    edge: QpNumber,
    outbox: Outbox,
    /// The socket that receives results, if they arrive only by multicast.
    multicast_socket: Option<Arc<MulticastSocket>>,
    depends_on_multicast: bool,
}

impl Membership {
    /// Joins as a leader.
    ///
    /// # Errors
    /// If the plan has no position for it. If results arrive by multicast and the socket cannot be opened, each is requested.
    pub fn join(tree_edges: &mut TreeEdges, group: &GroupDescriptor, leader: usize) -> Result<Self, NotInGroupPlan> {
        let parent = group.parent_of(leader).ok_or(NotInGroupPlan { leader })?;
        let routes = tree_edges.routes_to(&parent.addresses);
        let plan = MemberConfig {
            group: group.group,
            epoch: group.epoch,
            parents: vec![ParentLink { edge: PARENT_EDGE, child: parent.child, plane: Plane(0) }],
            peers: vec![parent.node.0],
            implicit_ack: ImplicitAck::ByResult,
            window: group.window,
            // A connection delivers every result; a multicast may be lost.
            repair_after: match group.distribution {
                DistributionSpec::Multicast { .. } => MULTICAST_RESULT_REQUEST_AFTER,
                DistributionSpec::Edges | DistributionSpec::Both { .. } => RESULT_REQUEST_AFTER,
            },
            repair_timeout_mode: RepairTimeoutMode::Adaptive,
        };
        let mut member = AggregationMember::new(edge_policy(), plan);
        if routes.len() > 1 {
            let now = tree_edges.clock().now();
            member.set_paths(
                PARENT_EDGE,
                Paths::new(PathPolicy::default(), MigrationRole::Follower, routes.len(), now),
            );
        }
        tree_edges
            .add_edge(parent.edge, TreeEdge { remote: parent.edge, routes, key: group.key, end: EdgeSide::Child });
        if let Some(to) = group.distribution.address() {
            let _ = tree_edges.join_multicast(group.group, to, group.key, MulticastRole::Receiver);
        }
        let depends_on_multicast = matches!(group.distribution, DistributionSpec::Multicast { .. });
        let multicast_socket = group
            .distribution
            .address()
            .filter(|_| depends_on_multicast)
            .and_then(|to| tree_edges.multicast_socket(to));
        Ok(Self {
            member,
            group: group.group,
            edge: parent.edge,
            outbox: Outbox::default(),
            multicast_socket,
            depends_on_multicast,
        })
    }

    /// Leaves the group.
    pub fn leave(self, tree_edges: &mut TreeEdges) {
        tree_edges.remove_edge(self.edge);
        tree_edges.leave_multicast(self.group);
    }

    /// The number of its edge.
    pub fn edge(&self) -> QpNumber {
        self.edge
    }

    /// The socket that receives results, if they arrive only by multicast.
    pub fn multicast_socket(&self) -> Option<&Arc<MulticastSocket>> {
        self.multicast_socket.as_ref()
    }

    /// The multicasts received so far.
    pub fn multicasts_received(&self) -> u64 {
        self.member.multicasts_received()
    }

    /// True if results arrive only by multicast and multicasts are no longer received.
    pub fn has_lost_multicast(&self) -> bool {
        self.depends_on_multicast && self.member.results_without_multicast() >= MULTICAST_LOST_AFTER
    }

    /// Contributes to the next operation.
    ///
    /// # Errors
    /// If the window is full or the parent is lost; nothing has changed then.
    pub fn start(
        &mut self,
        tree_edges: &mut TreeEdges,
        contribution: Contribution,
    ) -> Result<OpId, OperationStartError> {
        self.start_with_mode(tree_edges, contribution, OperationMode::Aggregated, &mut Vec::new())
    }

    /// Starts the next operation in a mode; appends what completes at once to `done`.
    ///
    /// # Errors
    /// If it must wait or the parent is lost; nothing has changed then.
    pub fn start_with_mode(
        &mut self,
        tree_edges: &mut TreeEdges,
        contribution: Contribution,
        manner: OperationMode,
        done: &mut Vec<AggregationAction>,
    ) -> Result<OpId, OperationStartError> {
        let started = self.member.start_with_mode(tree_edges.update_clock(), contribution, manner, &mut self.outbox);
        self.carry_out(tree_edges, done);
        started
    }

    /// True if no other member can still need anything from this one.
    pub fn is_settled(&self) -> bool {
        self.member.is_settled()
    }

    /// Handles what arrived over its edge; appends completions and failures to `done`.
    pub fn handle(&mut self, tree_edges: &mut TreeEdges, input: TreeEdgeEvent, done: &mut Vec<AggregationAction>) {
        let (now, out) = (tree_edges.now(), &mut self.outbox);
        match input {
            TreeEdgeEvent::Frame { frame_path, frame, .. } => {
                self.member.handle_frame(now, PARENT_EDGE, frame_path, &frame, out)
            }
            TreeEdgeEvent::Multicast { message, .. } => self.member.handle_multicast(now, PARENT_EDGE, &message, out),
            TreeEdgeEvent::Damage { .. } => self.member.handle_damage(now, PARENT_EDGE, Damage::Here, out),
            TreeEdgeEvent::PathDown { path, .. } => self.member.handle_path_down(now, PARENT_EDGE, path, out),
            TreeEdgeEvent::PathUp { path, .. } => self.member.handle_path_up(now, PARENT_EDGE, path),
        }
        self.carry_out(tree_edges, done);
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn deadline(&self) -> Time {
        self.member.deadline()
    }

    /// Retransmits what is overdue and requests late results.
    pub fn handle_timeout(&mut self, tree_edges: &mut TreeEdges, done: &mut Vec<AggregationAction>) {
        self.member.extend_retries(tree_edges.now(), |_, since| tree_edges.has_responded(self.edge, since));
        self.member.handle_timeout(tree_edges.now(), &mut self.outbox);
        self.carry_out(tree_edges, done);
    }

    fn carry_out(&mut self, tree_edges: &mut TreeEdges, done: &mut Vec<AggregationAction>) {
        for action in self.outbox.drain() {
            match action {
                AggregationAction::Transmit { outgoing, .. } => tree_edges.transmit(self.edge, &outgoing),
                AggregationAction::Multicast { message, copies } => {
                    tree_edges.multicast(self.group, &message, copies)
                }
                action => done.push(action),
            }
        }
    }
}
