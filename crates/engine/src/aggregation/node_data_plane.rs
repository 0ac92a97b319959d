//! The data plane of an aggregation node: one machine for each group that it serves.
//!
//! In: seats to install and to remove, packets, time. Out: packets. Groups do not affect each other: each has its own machine,
//! its own connections, its own key and the resources that the manager reserved for it.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use manager::message::{GroupKey, NodeReport};
use manager::{AggregationNodeId, ControlError, DistributionSpec as Spread, SeatChild, SeatSpec};
use protocol::aggregation::{
    AggregationAction, AggregationNode, DownwardDelivery, EdgeIndex, ImplicitAck, LostNeighbour, NodeCounters,
    NodeLoad, Outbox, ParentLink, Plane, SeatConfig,
};
use protocol::connection::Paths;
use protocol::connection::path::{MigrationRole, PathPolicy};
use units::{Epoch, GroupId, QpNumber, Time};

use super::edge_policy;
use super::node_pace::NodePace;
use control::{DataPlane, SeatFailure};
use transport::edges::MulticastRole;
use transport::edges::{EdgeSide, TreeEdge, TreeEdgeEvent, TreeEdges};
use transport::timer_queue::TimerQueue;
use transport::udp::FaultInjector;

/// One group's machine and its edges.
struct InstalledSeat {
    epoch: Epoch,
    node: AggregationNode,
    /// The number of each edge, by index.
    edges: Vec<QpNumber>,
    /// The names of neighbours, `node rack3` or a host, by their numbers.
    names: BTreeMap<u32, String>,
    /// The loss of a neighbour is reported.
    loss_reported: bool,
}

/// The seats of a node, and the sockets that they share.
pub struct NodeDataPlane {
    tree_edges: TreeEdges,
    seats: BTreeMap<GroupId, InstalledSeat>,
    owners: BTreeMap<QpNumber, (GroupId, EdgeIndex)>,
    timers: TimerQueue<GroupId>,
    inputs: Vec<TreeEdgeEvent>,
    outbox: Outbox,
    /// Groups that lost a neighbour and are not reported yet.
    troubles: Vec<SeatFailure>,
    /// The totals of removed seats.
    past: NodeTotals,
    pace: NodePace,
}

#[derive(Clone, Copy, Default)]
struct NodeTotals {
    load: NodeLoad,
    dropped: NodeCounters,
}

impl NodeDataPlane {
    /// Opens a socket at each address.
    ///
    /// # Errors
    /// If the kernel does not bind an address.
    pub fn open(addresses: &[SocketAddr], fault_injector: FaultInjector) -> io::Result<Self> {
        Ok(Self {
            tree_edges: TreeEdges::open(addresses, fault_injector)?,
            seats: BTreeMap::new(),
            owners: BTreeMap::new(),
            timers: TimerQueue::default(),
            inputs: Vec::new(),
            outbox: Outbox::default(),
            troubles: Vec::new(),
            past: NodeTotals::default(),
            pace: NodePace::default(),
        })
    }

    /// The bound addresses.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.tree_edges.addresses()
    }

    /// True if no group uses this node.
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// Does all that can be done now; true if there was anything.
    pub fn turn(&mut self) -> bool {
        let mut inputs = std::mem::take(&mut self.inputs);
        let mut busy = self.tree_edges.receive(&mut inputs);
        self.tree_edges.poll_links(&mut inputs);
        for input in inputs.drain(..) {
            self.handle(input);
        }
        self.inputs = inputs;
        let now = self.tree_edges.now();
        while let Some(group) = self.timers.pop_expired(now) {
            busy = true;
            let Some(seat) = self.seats.get_mut(&group) else { continue };
            let (edges, tree_edges) = (&seat.edges, &self.tree_edges);
            seat.node.extend_retries(now, |edge, since| tree_edges.has_responded(edges[usize::from(edge.0)], since));
            seat.node.handle_timeout(now, &mut self.outbox);
            self.troubles.extend(seat.trouble(group));
            self.carry_out(group);
        }
        self.tree_edges.flush();
        busy
    }

    /// The descriptors to wait on.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.tree_edges.sockets()
    }

    /// The time until the next timer; none if no timer is armed.
    pub fn next_timeout(&self) -> Option<Duration> {
        let at = self.timers.earliest();
        let timer = (at != Time::NEVER).then(|| self.tree_edges.clock().until(at));
        timer.into_iter().chain(self.tree_edges.next_timeout()).min()
    }

    fn handle(&mut self, input: TreeEdgeEvent) {
        let now = self.tree_edges.now();
        let owner = match &input {
            TreeEdgeEvent::Frame { edge, .. }
            | TreeEdgeEvent::Damage { edge }
            | TreeEdgeEvent::PathDown { edge, .. }
            | TreeEdgeEvent::PathUp { edge, .. } => self.owners.get(edge).copied(),
            // A multicast comes from the parent, and the edge to the parent is the last one.
            TreeEdgeEvent::Multicast { group, .. } => {
                let seat = self.seats.get(group);
                seat.map(|seat| (*group, EdgeIndex(seat.edges.len() as u16 - 1)))
            }
        };
        let Some((group, index)) = owner else { return };
        let Some(seat) = self.seats.get_mut(&group) else { return };
        let (node, out) = (&mut seat.node, &mut self.outbox);
        match input {
            TreeEdgeEvent::Multicast { message, .. } => node.handle_multicast(now, index, &message, out),
            TreeEdgeEvent::Frame { frame_path, frame, .. } => node.handle_frame(now, index, frame_path, &frame, out),
            TreeEdgeEvent::Damage { .. } => node.handle_damage(now, index, protocol::aggregation::Damage::Here, out),
            TreeEdgeEvent::PathDown { path, .. } => node.handle_path_down(now, index, path, out),
            TreeEdgeEvent::PathUp { path, .. } => node.handle_path_up(now, index, path),
        }
        self.carry_out(group);
    }

    fn carry_out(&mut self, group: GroupId) {
        let Some(seat) = self.seats.get_mut(&group) else { return };
        for action in self.outbox.drain() {
            match action {
                AggregationAction::Transmit { edge, outgoing } => {
                    self.tree_edges.transmit(seat.edges[usize::from(edge.0)], &outgoing)
                }
                AggregationAction::Reduced { .. } => {}
                AggregationAction::Multicast { message, copies } => {
                    self.tree_edges.multicast(group, &message, copies)
                }
                AggregationAction::Complete { .. } | AggregationAction::Failed { .. } => {
                    unreachable!("only members complete operations")
                }
            }
        }
        self.timers.set(group, seat.node.deadline());
    }

    fn totals(&self) -> NodeTotals {
        self.seats.values().fold(self.past, |total, seat| total.plus(seat))
    }
}

impl InstalledSeat {
    /// A lost neighbour, reported once.
    fn trouble(&mut self, group: GroupId) -> Option<SeatFailure> {
        let LostNeighbour { peer, silence } = self.node.lost_peer().filter(|_| !self.loss_reported)?;
        self.loss_reported = true;
        let name = self.names.get(&peer);
        let who = match (AggregationNodeId::from_peer(peer), name) {
            (None, Some(host)) => format!("rank {peer} on {host}"),
            (None, None) => format!("rank {peer}"),
            (Some(_), Some(name)) => name.clone(),
            (Some(number), None) => format!("node {}", number.0),
        };
        let group = GroupKey { group, epoch: self.epoch };
        let seconds = silence.as_nanos() as f64 / 1e9;
        Some(SeatFailure { group, what: format!("{who} does not answer for {seconds:.1} s") })
    }
}

impl NodeTotals {
    fn plus(self, seat: &InstalledSeat) -> Self {
        let (a, b) = (self.dropped, seat.node.counters());
        let (was, is) = (self.load, seat.node.load());
        Self {
            load: NodeLoad {
                folded: was.folded + is.folded,
                in_flight: was.in_flight + is.in_flight,
                bytes: was.bytes + is.bytes,
                migrations: was.migrations + is.migrations,
            },
            dropped: NodeCounters {
                corrupt: a.corrupt + b.corrupt,
                foreign: a.foreign + b.foreign,
                unauthorized_child: a.unauthorized_child + b.unauthorized_child,
                out_of_window: a.out_of_window + b.out_of_window,
                duplicate: a.duplicate + b.duplicate,
                duplicate_result: a.duplicate_result + b.duplicate_result,
                from_lost_peer: a.from_lost_peer + b.from_lost_peer,
            },
        }
    }
}

/// What operators call the neighbours of a seat.
fn neighbour_names(spec: &SeatSpec) -> BTreeMap<u32, String> {
    let children = spec.children.iter().filter_map(|child| match &child.who {
        SeatChild::Member { rank, host, .. } => (!host.is_empty()).then(|| (rank.0, host.clone())),
        SeatChild::Seat { spec, .. } => Some((spec.node.0, format!("node {}", spec.name))),
    });
    let parent = spec.parent.iter().map(|parent| (parent.node.0, format!("node {}", parent.name)));
    children.chain(parent).collect()
}

impl DataPlane for NodeDataPlane {
    fn install(&mut self, spec: &SeatSpec) -> Result<(), ControlError> {
        let mut neighbours: Vec<(QpNumber, u32, &[SocketAddr], MigrationRole)> = Vec::new();
        for child in &spec.children {
            let peer = match &child.who {
                SeatChild::Member { rank, .. } => rank.0,
                SeatChild::Seat { spec, .. } => spec.node.0,
            };
            neighbours.push((child.edge, peer, &child.addresses, MigrationRole::Leader));
        }
        neighbours.extend(
            spec.parent
                .iter()
                .map(|parent| (parent.edge, parent.node.0, parent.addresses.as_slice(), MigrationRole::Follower)),
        );
        let known = neighbours.iter().find(|(edge, ..)| self.owners.contains_key(edge));
        if known.is_some() || self.seats.contains_key(&spec.group) || neighbours.len() > usize::from(u16::MAX) {
            return Err(ControlError::Malformed {
                what: "this node has the group or one of its edges already".to_owned(),
            });
        }
        let now = self.tree_edges.clock().now();
        let peers: Vec<u32> = neighbours.iter().map(|(_, peer, ..)| *peer).collect();
        let mut node = AggregationNode::new(edge_policy(), &peers);
        for (index, (edge, _, addresses, role)) in neighbours.iter().enumerate() {
            let index = EdgeIndex(index as u16);
            let routes = self.tree_edges.routes_to(addresses);
            if routes.len() > 1 {
                node.set_paths(index, Paths::new(PathPolicy::default(), *role, routes.len(), now));
            }
            let end = if usize::from(index.0) < spec.children.len() { EdgeSide::Parent } else { EdgeSide::Child };
            self.tree_edges.add_edge(*edge, TreeEdge { remote: *edge, routes, key: spec.key, end });
            self.owners.insert(*edge, (spec.group, index));
        }
        let up = spec.parent.as_ref().map(|parent| ParentLink {
            edge: EdgeIndex(spec.children.len() as u16),
            child: parent.child,
            plane: Plane(0),
        });
        node.take_seat(SeatConfig {
            group: spec.group,
            epoch: spec.epoch,
            plane: Plane(0),
            children: (0..spec.children.len()).map(|index| vec![EdgeIndex(index as u16)]).collect(),
            parents: up.into_iter().collect(),
            implicit_ack: ImplicitAck::ByResult,
            distribution: match spec.distribution {
                Spread::Edges => DownwardDelivery::Connections,
                Spread::Multicast { .. } => DownwardDelivery::Multicast,
                Spread::Both { .. } => DownwardDelivery::Both,
            },
            window: spec.window,
        });
        if let Some(to) = spec.distribution.address() {
            let role = if spec.parent.is_some() { MulticastRole::Receiver } else { MulticastRole::SendOnly };
            // If the address cannot be joined here, the members below request their results, and so does this seat.
            let _ = self.tree_edges.join_multicast(spec.group, to, spec.key, role);
        }
        let edges = neighbours.iter().map(|(edge, ..)| *edge).collect();
        let names = neighbour_names(spec);
        self.timers.set(spec.group, node.deadline());
        self.seats.insert(spec.group, InstalledSeat { epoch: spec.epoch, node, edges, names, loss_reported: false });
        Ok(())
    }

    fn remove(&mut self, group: GroupKey) {
        if self.seats.get(&group.group).is_none_or(|seat| seat.epoch != group.epoch) {
            return;
        }
        let Some(mut seat) = self.seats.remove(&group.group) else { return };
        seat.node.count_waiting(self.tree_edges.clock().now());
        let with = self.past.plus(&seat);
        self.pace.keep(&seat.node, &seat.names);
        // Its memory is free.
        self.past = NodeTotals { load: NodeLoad { in_flight: 0, bytes: 0, ..with.load }, ..with };
        self.troubles.retain(|trouble| trouble.group != group);
        self.timers.cancel(group.group);
        for edge in seat.edges {
            self.owners.remove(&edge);
            self.tree_edges.remove_edge(edge);
        }
        self.tree_edges.leave_multicast(group.group);
    }

    fn operations(&self, group: GroupKey) -> u64 {
        let seat = self.seats.get(&group.group).filter(|seat| seat.epoch == group.epoch);
        seat.map_or(0, |seat| seat.node.folded())
    }

    fn next_failure(&mut self) -> Option<SeatFailure> {
        self.troubles.pop()
    }

    fn report(&mut self) -> NodeReport {
        let now = self.tree_edges.clock().now();
        self.seats.values_mut().for_each(|seat| seat.node.count_waiting(now));
        let totals = self.totals();
        let (tree_edges, dropped) = (self.tree_edges.counters(), totals.dropped);
        let dropped = [
            ("damaged", tree_edges.damaged),
            ("malformed", tree_edges.malformed),
            ("foreign", tree_edges.foreign + dropped.foreign),
            ("forged", tree_edges.forged),
            ("corrupt", dropped.corrupt),
            ("impostor", dropped.unauthorized_child),
            ("out of window", dropped.out_of_window),
            ("duplicate", dropped.duplicate),
            ("from the lost", dropped.from_lost_peer),
            ("not sent", tree_edges.unsent),
        ];
        NodeReport {
            uptime_ms: now.as_nanos() / 1_000_000,
            operations: totals.load.folded,
            in_flight: totals.load.in_flight,
            bytes: totals.load.bytes,
            sent: tree_edges.sent,
            repeated: tree_edges.repeated,
            received: tree_edges.received,
            migrations: totals.load.migrations,
            dropped: dropped.into_iter().map(|(cause, count)| (cause.to_owned(), count)).collect(),
            times: self.pace.times(self.seats.values().map(|seat| &seat.node)),
            late: self.pace.late(now, self.seats.values().map(|seat| (&seat.node, &seat.names))),
        }
    }
}
