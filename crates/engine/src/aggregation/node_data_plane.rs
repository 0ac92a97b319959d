//! The data plane of an aggregation node: one machine for each group that it serves.
//!
//! In: seats to take and to give up, packets, time. Out: packets. What one group does or suffers does not reach another:
//! each has its own machine, its own connections, its own key and what the manager reserved for it.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use manager::message::{GroupKey, NodeReport};
use manager::{ControlError, DistributionSpec as Spread, SeatChild, SeatSpec};
use protocol::aggregation::{
    AggregationAction, AggregationNode, DownwardDelivery, EdgeIndex, ImplicitAck, NodeCounters, NodeLoad, Outbox,
    ParentLink, Plane, SeatConfig,
};
use protocol::connection::Paths;
use protocol::connection::path::{MigrationRole, PathPolicy};
use units::{Epoch, GroupId, QpNumber};

use super::edge_policy;
use control::{DataPlane, SeatFailure};
use transport::edges::MulticastRole;
use transport::edges::timer_queue::TimerQueue;
use transport::edges::{TreeEdge, TreeEdgeEvent, TreeEdges};
use transport::udp::FaultInjector;

/// One group's machine and its edges.
struct InstalledSeat {
    epoch: Epoch,
    node: AggregationNode,
    /// The number of each edge, by index.
    edges: Vec<QpNumber>,
    /// The names of neighbours that are nodes, by their numbers.
    names: Vec<(u32, String)>,
    /// The loss of a neighbour has been told.
    told: bool,
}

/// The seats of a node, and the sockets that they share.
pub struct NodeDataPlane {
    wires: TreeEdges,
    seats: BTreeMap<GroupId, InstalledSeat>,
    owners: BTreeMap<QpNumber, (GroupId, EdgeIndex)>,
    alarms: TimerQueue<GroupId>,
    inputs: Vec<TreeEdgeEvent>,
    outbox: Outbox,
    /// Groups that lost a neighbour, until somebody asks.
    troubles: Vec<SeatFailure>,
    /// Of seats that are gone.
    past: NodeTotals,
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
    /// If an address cannot be had.
    pub fn open(addresses: &[SocketAddr], mischief: FaultInjector) -> io::Result<Self> {
        Ok(Self {
            wires: TreeEdges::open(addresses, mischief)?,
            seats: BTreeMap::new(),
            owners: BTreeMap::new(),
            alarms: TimerQueue::default(),
            inputs: Vec::new(),
            outbox: Outbox::default(),
            troubles: Vec::new(),
            past: NodeTotals::default(),
        })
    }

    /// Where packets may be sent.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.wires.addresses()
    }

    /// True if no group needs it.
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// Does everything that can be done now; true if something was.
    pub fn turn(&mut self) -> bool {
        let mut inputs = std::mem::take(&mut self.inputs);
        let mut busy = self.wires.receive(&mut inputs);
        self.wires.look_at_links(&mut inputs);
        for input in inputs.drain(..) {
            self.handle(input);
        }
        self.inputs = inputs;
        let now = self.wires.now();
        while let Some(group) = self.alarms.ring(now) {
            busy = true;
            let Some(seat) = self.seats.get_mut(&group) else { continue };
            seat.node.handle_timeout(now, &mut self.outbox);
            self.troubles.extend(seat.trouble(group));
            self.carry_out(group);
        }
        self.wires.flush();
        busy
    }

    /// What to wait on.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.wires.sockets()
    }

    /// How long nothing is to be done if nothing comes.
    pub fn patience(&self) -> Option<Duration> {
        let alarm = self.alarms.next().map(|at| self.wires.clock().until(at));
        alarm.into_iter().chain(self.wires.due()).min()
    }

    fn handle(&mut self, input: TreeEdgeEvent) {
        let now = self.wires.now();
        let owner = match &input {
            TreeEdgeEvent::Frame { edge, .. }
            | TreeEdgeEvent::Damage { edge }
            | TreeEdgeEvent::PathDown { edge, .. }
            | TreeEdgeEvent::PathUp { edge, .. } => self.owners.get(edge).copied(),
            // What comes to everyone comes from above, and the edge there is the last one.
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
            TreeEdgeEvent::Frame { came, frame, .. } => node.handle_frame(now, index, came, &frame, out),
            TreeEdgeEvent::Damage { .. } => node.handle_damage(now, index, protocol::aggregation::Damage::Here, out),
            TreeEdgeEvent::PathDown { path, .. } => node.handle_path_down(now, index, path, out),
            TreeEdgeEvent::PathUp { path, .. } => node.handle_path_up(now, index, path),
        }
        self.carry_out(group);
    }

    fn carry_out(&mut self, group: GroupId) {
        let Some(seat) = self.seats.get_mut(&group) else { return };
        for duty in self.outbox.drain() {
            match duty {
                AggregationAction::Transmit { edge, outgoing } => {
                    self.wires.transmit(seat.edges[usize::from(edge.0)], &outgoing)
                }
                AggregationAction::Reduced { .. } => {}
                AggregationAction::Multicast { message, copies } => self.wires.multicast(group, &message, copies),
                AggregationAction::Complete { .. } | AggregationAction::Failed { .. } => {
                    unreachable!("only members complete")
                }
            }
        }
        self.alarms.set(group, seat.node.deadline());
    }

    fn totals(&self) -> NodeTotals {
        self.seats.values().fold(self.past, |total, seat| total.plus(seat))
    }
}

impl InstalledSeat {
    /// A neighbour that the machine has given up, once.
    fn trouble(&mut self, group: GroupId) -> Option<SeatFailure> {
        let peer = self.node.lost_peer().filter(|_| !self.told)?;
        self.told = true;
        let name = self.names.iter().find(|(number, _)| *number == peer).map(|(_, name)| name);
        let who = name.map_or_else(|| format!("rank {peer}"), |name| format!("node {name}"));
        let group = GroupKey { group, epoch: self.epoch };
        Some(SeatFailure { group, what: format!("{who} does not answer") })
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
                impostor: a.impostor + b.impostor,
                out_of_window: a.out_of_window + b.out_of_window,
                duplicate: a.duplicate + b.duplicate,
                known_result: a.known_result + b.known_result,
                from_the_lost: a.from_the_lost + b.from_the_lost,
            },
        }
    }
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
                what: "the group or one of its edges is known here already".to_owned(),
            });
        }
        let now = self.wires.clock().now();
        let peers: Vec<u32> = neighbours.iter().map(|(_, peer, ..)| *peer).collect();
        let mut node = AggregationNode::new(edge_policy(), &peers);
        for (index, (edge, _, addresses, role)) in neighbours.iter().enumerate() {
            let index = EdgeIndex(index as u16);
            let routes = self.wires.routes_to(addresses);
            if routes.len() > 1 {
                node.set_paths(index, Paths::new(PathPolicy::default(), *role, routes.len(), now));
            }
            self.wires.string(*edge, TreeEdge { remote: *edge, routes, key: spec.key });
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
            result_proves: ImplicitAck::Arrival,
            distribution: match spec.distribution {
                Spread::Edges => DownwardDelivery::Connections,
                Spread::Multicast { .. } => DownwardDelivery::Multicast,
                Spread::Both { .. } => DownwardDelivery::Both,
            },
            window: spec.window,
        });
        if let Some(to) = spec.distribution.address() {
            let hearing = if spec.parent.is_some() { MulticastRole::Open } else { MulticastRole::Closed };
            // If it cannot be heard here, members below ask, and so does this seat.
            let _ = self.wires.join_circle(spec.group, to, spec.key, hearing);
        }
        let edges = neighbours.iter().map(|(edge, ..)| *edge).collect();
        let below = spec.seats_below().map(|(_, below)| (below.node.0, below.name.clone()));
        let names = below.chain(spec.parent.iter().map(|parent| (parent.node.0, parent.name.clone()))).collect();
        self.alarms.set(spec.group, node.deadline());
        self.seats.insert(spec.group, InstalledSeat { epoch: spec.epoch, node, edges, names, told: false });
        Ok(())
    }

    fn remove(&mut self, group: GroupKey) {
        if self.seats.get(&group.group).is_none_or(|seat| seat.epoch != group.epoch) {
            return;
        }
        let Some(seat) = self.seats.remove(&group.group) else { return };
        let with = self.past.plus(&seat);
        // What it held is free.
        self.past = NodeTotals { load: NodeLoad { in_flight: 0, bytes: 0, ..with.load }, ..with };
        self.troubles.retain(|trouble| trouble.group != group);
        self.alarms.forget(group.group);
        for edge in seat.edges {
            self.owners.remove(&edge);
            self.wires.cut(edge);
        }
        self.wires.leave_circle(group.group);
    }

    fn operations(&self, group: GroupKey) -> u64 {
        let seat = self.seats.get(&group.group).filter(|seat| seat.epoch == group.epoch);
        seat.map_or(0, |seat| seat.node.folded())
    }

    fn next_trouble(&mut self) -> Option<SeatFailure> {
        self.troubles.pop()
    }

    fn report(&self) -> NodeReport {
        let totals = self.totals();
        let (wires, dropped) = (self.wires.counters(), totals.dropped);
        let dropped = [
            ("damaged", wires.damaged),
            ("malformed", wires.malformed),
            ("foreign", wires.foreign + dropped.foreign),
            ("forged", wires.forged),
            ("corrupt", dropped.corrupt),
            ("impostor", dropped.impostor),
            ("out of window", dropped.out_of_window),
            ("duplicate", dropped.duplicate),
            ("from the lost", dropped.from_the_lost),
            ("not sent", wires.unsent),
        ];
        NodeReport {
            uptime_ms: self.wires.clock().now().as_picos() / 1_000_000_000,
            operations: totals.load.folded,
            in_flight: totals.load.in_flight,
            bytes: totals.load.bytes,
            sent: wires.sent,
            repeated: wires.repeated,
            received: wires.received,
            migrations: totals.load.migrations,
            dropped: dropped.into_iter().map(|(cause, count)| (cause.to_owned(), count)).collect(),
        }
    }
}
