//! From an aggregation tree to machines and channels: who speaks to whom, over which edge, on which channel.

use protocol::aggregation::{EdgeIndex, Member, MemberPlan, Node, Plane, ResultProves, SeatPlan, Upward};
use protocol::connection::Policy;
use topology::{AggregationTree, ChildNode, Endpoint, NodeId, TreeIndex};
use units::{ChildIndex, Epoch, GroupId, Lane};

use super::parameters::{CollectiveParameters, LaneFeeds, Replication};
use crate::network::{Branches, ChannelId, Network};

/// A machine's number: tree nodes first, then members by rank.
pub(super) type PartyIndex = u32;

/// Where an edge of a machine leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wire {
    /// Over a cable, to the switch or host at its end.
    Channel(ChannelId),
    /// To another node on the same switch.
    Inside { party: PartyIndex, edge: EdgeIndex },
}

/// The receiving end of a channel that belongs to the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct End {
    pub party: PartyIndex,
    pub edge: EdgeIndex,
}

/// All machines and how they are joined.
pub(super) struct Wiring {
    pub nodes: Vec<Node>,
    pub members: Vec<Member>,
    /// The host of each member.
    pub hosts: Vec<NodeId>,
    /// Of party `p`: `wires[first_wire[p]..first_wire[p + 1]]`, one per edge.
    wires: Vec<Wire>,
    first_wire: Vec<u32>,
    ends: Vec<Option<End>>,
    pub branches: Branches,
    /// For each node: the wires on which a multicast that starts there goes out, by plane.
    down: Vec<Vec<(Plane, Wire)>>,
    /// For each node: nodes on the same switch that hear what it hears.
    pub housemates: Vec<Vec<PartyIndex>>,
}

impl Wiring {
    pub(super) fn wire(&self, party: PartyIndex, edge: EdgeIndex) -> Wire {
        self.wires[self.first_wire[party as usize] as usize + usize::from(edge.0)]
    }

    pub(super) fn end(&self, channel: ChannelId) -> Option<End> {
        self.ends[channel as usize]
    }

    /// Where a multicast that starts at this node goes; to hosts on the lane of the plane.
    pub(super) fn down(&self, node: PartyIndex, plane: Plane) -> impl Iterator<Item = Wire> + '_ {
        let wires = self.down[node as usize].iter();
        wires.filter(move |(of, _)| *of == plane || *of == EVERY_PLANE).map(|(_, wire)| *wire)
    }
}

/// For wires that are not of a split adapter.
const EVERY_PLANE: Plane = Plane(u8::MAX);

/// Builds the machines.
pub(super) fn wire_up(tree: &AggregationTree, network: &Network, parameters: &CollectiveParameters) -> Wiring {
    let mut builder = Builder::new(tree, network, parameters);
    for index in 0..tree.nodes.len() {
        builder.edges_of_node(TreeIndex(index as u32));
    }
    builder.edges_of_members();
    builder.finish()
}

struct Builder<'a> {
    tree: &'a AggregationTree,
    network: &'a Network,
    parameters: &'a CollectiveParameters,
    lanes: u8,
    members: Vec<HostWay>,
    wires: Vec<Wire>,
    first_wire: Vec<u32>,
    ends: Vec<Option<End>>,
    down: Vec<Vec<(Plane, Wire)>>,
}

/// A member's host and its place below a node.
struct HostWay {
    host: NodeId,
    node: TreeIndex,
    child: ChildIndex,
    /// The switch port to the host.
    port: Endpoint,
}

impl<'a> Builder<'a> {
    fn new(tree: &'a AggregationTree, network: &'a Network, parameters: &'a CollectiveParameters) -> Self {
        let mut members = Vec::new();
        for (index, node) in tree.nodes.iter().enumerate() {
            for (position, child) in node.children.iter().enumerate() {
                if let (ChildNode::Host(host), Some(port)) = (child.who, child.port) {
                    members.push(HostWay {
                        host,
                        node: TreeIndex(index as u32),
                        child: ChildIndex::from_position(position),
                        port: Endpoint { node: node.switch, port },
                    });
                }
            }
        }
        members.sort_by_key(|way| (way.host, way.node));
        Self {
            tree,
            network,
            parameters,
            lanes: parameters.spatial_copies(),
            members,
            wires: Vec::new(),
            first_wire: Vec::new(),
            ends: vec![None; network.channel_count() as usize],
            down: Vec::new(),
        }
    }

    /// Edges of a node: for each child its lanes, then the parents.
    fn edges_of_node(&mut self, index: TreeIndex) {
        let node = self.tree.node(index);
        let party = index.0;
        self.first_wire.push(self.wires.len() as u32);
        let mut down = Vec::new();
        let mut edge = 0u16;
        for child in &node.children {
            let lanes = lanes_of(child.who, self.lanes);
            for lane in 0..lanes {
                let wire = match child.port {
                    Some(port) => {
                        let from = Endpoint { node: node.switch, port };
                        self.adopt(from, Lane(lane), party, EdgeIndex(edge));
                        Wire::Channel(self.network.channel(from, Lane(lane)))
                    }
                    None => {
                        let ChildNode::Node(below) = child.who else { unreachable!("a host has a cable") };
                        Wire::Inside { party: below.0, edge: self.parent_edge(below, index) }
                    }
                };
                self.wires.push(wire);
                down.push((if lanes > 1 { Plane(lane) } else { EVERY_PLANE }, wire));
                edge += 1;
            }
        }
        for uplink in &node.parents {
            let wire = match uplink.port {
                Some(port) => {
                    let from = Endpoint { node: node.switch, port };
                    self.adopt(from, Lane(0), party, EdgeIndex(edge));
                    Wire::Channel(self.network.channel(from, Lane(0)))
                }
                None => Wire::Inside { party: uplink.parent.0, edge: self.child_edge(uplink.parent, uplink.child) },
            };
            self.wires.push(wire);
            edge += 1;
        }
        self.down.push(down);
    }

    /// Notes that what arrives from the far end of this port belongs to this edge.
    fn adopt(&mut self, near: Endpoint, lane: Lane, party: PartyIndex, edge: EdgeIndex) {
        let far = self.network.topology().peer(near.node, near.port).expect("tree edges follow cables");
        let channel = self.network.channel(far, lane);
        self.ends[channel as usize] = Some(End { party, edge });
    }

    /// The first edge of a child at its parent.
    fn child_edge(&self, parent: TreeIndex, child: ChildIndex) -> EdgeIndex {
        let before = &self.tree.node(parent).children[..child.index()];
        EdgeIndex(before.iter().map(|child| u16::from(lanes_of(child.who, self.lanes))).sum())
    }

    /// The edge of a node that leads to this parent.
    fn parent_edge(&self, node: TreeIndex, parent: TreeIndex) -> EdgeIndex {
        let children: u16 =
            self.tree.node(node).children.iter().map(|child| u16::from(lanes_of(child.who, self.lanes))).sum();
        let position = self.tree.node(node).parents.iter().position(|uplink| uplink.parent == parent);
        EdgeIndex(children + position.expect("parents and children agree") as u16)
    }

    /// Edges of members: one per lane, or one per node that serves the host.
    fn edges_of_members(&mut self) {
        let mut previous = None;
        let ways = std::mem::take(&mut self.members);
        let mut party = self.tree.nodes.len() as u32;
        for way in &ways {
            if previous.is_some_and(|host| host != way.host) {
                party += 1;
            }
            if previous != Some(way.host) {
                self.first_wire.push(self.wires.len() as u32);
                previous = Some(way.host);
            }
            let near = self.network.topology().peer(way.port.node, way.port.port).expect("hosts are cabled");
            for lane in 0..self.lanes {
                let edge = EdgeIndex((self.wires.len() as u32 - self.first_wire[party as usize]) as u16);
                self.adopt(near, Lane(lane), party, edge);
                self.wires.push(Wire::Channel(self.network.channel(near, Lane(lane))));
            }
        }
        self.first_wire.push(self.wires.len() as u32);
        self.members = ways;
    }

    fn policy(&self) -> Policy {
        Policy { copies: self.parameters.temporal_copies(), ..self.parameters.policy }
    }

    fn result_proves(&self) -> ResultProves {
        match self.parameters.replication {
            Replication::Spatial { .. } => ResultProves::Nothing,
            Replication::None | Replication::Temporal { .. } => ResultProves::Arrival,
        }
    }

    fn separate_planes(&self, node: TreeIndex) -> bool {
        let has_hosts = self.tree.node(node).children.iter().any(|child| matches!(child.who, ChildNode::Host(_)));
        self.lanes > 1 && has_hosts && self.parameters.lane_feeds == LaneFeeds::OwnPlane
    }

    fn node(&self, index: TreeIndex) -> Node {
        let node = self.tree.node(index);
        let mut peers = Vec::new();
        for child in &node.children {
            let peer = match child.who {
                ChildNode::Host(host) => host.0,
                ChildNode::Node(below) => self.tree.node(below).switch.0,
            };
            peers.extend(std::iter::repeat_n(peer, usize::from(lanes_of(child.who, self.lanes))));
        }
        let first_parent = peers.len() as u16;
        peers.extend(node.parents.iter().map(|uplink| self.tree.node(uplink.parent).switch.0));
        let mut machine = Node::new(self.policy(), &peers);
        let separate = self.separate_planes(index);
        let planes = if separate { self.lanes } else { 1 };
        for plane in 0..planes {
            let mut edge = 0;
            let children = node.children.iter().map(|child| {
                let lanes = u16::from(lanes_of(child.who, self.lanes));
                let edges = if separate { vec![EdgeIndex(edge + u16::from(plane))] } else { (edge..edge + lanes).map(EdgeIndex).collect() };
                edge += lanes;
                edges
            });
            let children = children.collect();
            let ups = node.parents.iter().enumerate();
            let ups = ups.filter(|(position, _)| !separate || *position == usize::from(plane));
            let parents = ups.map(|(position, uplink)| Upward {
                edge: EdgeIndex(first_parent + position as u16),
                child: uplink.child,
                plane: Plane(0),
            });
            machine.take_seat(SeatPlan {
                group: GROUP,
                epoch: Epoch(0),
                plane: Plane(plane),
                children,
                parents: parents.collect(),
                result_proves: self.result_proves(),
                window: self.parameters.window,
            });
        }
        machine
    }

    fn finish(self) -> Wiring {
        let nodes = (0..self.tree.nodes.len() as u32).map(|index| self.node(TreeIndex(index))).collect();
        let mut members = Vec::new();
        let mut hosts = Vec::new();
        for ways in self.members.chunk_by(|a, b| a.host == b.host) {
            let mut parents = Vec::new();
            for way in ways {
                for lane in 0..self.lanes {
                    let plane = if self.separate_planes(way.node) { Plane(lane) } else { Plane(0) };
                    parents.push(Upward { edge: EdgeIndex(parents.len() as u16), child: way.child, plane });
                }
            }
            let switch = |way: &HostWay| std::iter::repeat_n(way.port.node.0, usize::from(self.lanes));
            let plan = MemberPlan {
                group: GROUP,
                epoch: Epoch(0),
                peers: ways.iter().flat_map(switch).collect(),
                parents,
                result_proves: self.result_proves(),
                window: self.parameters.window,
                repair_after: self.parameters.repair_after,
            };
            members.push(Member::new(self.policy(), plan));
            hosts.push(ways[0].host);
        }
        let branches = self.branches();
        let housemates = self.housemates();
        Wiring {
            nodes,
            members,
            hosts,
            wires: self.wires,
            first_wire: self.first_wire,
            ends: self.ends,
            branches,
            down: self.down,
            housemates,
        }
    }

    /// For every channel on which a node hears a parent: the channels on which it goes on, to hosts on the lane that
    /// has the parent's position.
    fn branches(&self) -> Branches {
        let mut pairs = Vec::new();
        for (index, node) in self.tree.nodes.iter().enumerate() {
            for (position, uplink) in node.parents.iter().enumerate() {
                let Some(port) = uplink.port else { continue };
                let far = self.network.topology().peer(node.switch, port).expect("tree edges follow cables");
                let arrival = self.network.channel(far, Lane(0));
                self.below(index as u32, Plane(position as u8), &mut |channel| pairs.push((arrival, channel)));
            }
        }
        Branches::new(self.network.channel_count(), pairs)
    }

    /// The channels down from a node, through nodes on the same switch.
    fn below(&self, node: PartyIndex, plane: Plane, each: &mut impl FnMut(ChannelId)) {
        for (of, wire) in &self.down[node as usize] {
            if *of != plane && *of != EVERY_PLANE {
                continue;
            }
            match wire {
                Wire::Channel(channel) => each(*channel),
                Wire::Inside { party, .. } => self.below(*party, plane, each),
            }
        }
    }

    fn housemates(&self) -> Vec<Vec<PartyIndex>> {
        let inside = |wires: &Vec<(Plane, Wire)>| {
            let inner = wires.iter().filter_map(|(_, wire)| match wire {
                Wire::Inside { party, .. } => Some(*party),
                Wire::Channel(_) => None,
            });
            inner.collect()
        };
        self.down.iter().map(inside).collect()
    }
}

/// The group of a simulation's collective.
pub(super) const GROUP: GroupId = GroupId(1);

/// Lanes of the cable to a child: hosts may have split adapters.
fn lanes_of(child: ChildNode, lanes: u8) -> u8 {
    if matches!(child, ChildNode::Host(_)) { lanes } else { 1 }
}
