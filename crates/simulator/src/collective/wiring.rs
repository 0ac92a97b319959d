//! From an aggregation tree to machines and channels: who speaks to whom, over which edge, on which channel.

use protocol::aggregation::{
    AggregationMember, AggregationNode, EdgeIndex, ImplicitAck, MemberConfig, ParentLink, Plane, RepairTimeoutMode,
    SeatConfig,
};
use protocol::connection::ConnectionPolicy;
use topology::{AggregationTree, ChildNode, NodeId, NodePort, TreeIndex};
use units::{ChildIndex, Epoch, GroupId, Lane};

use super::parameters::{CollectiveParameters, LaneFeeds, Replication};
use crate::network::{ChannelId, MulticastForwardingTable, SimulatedNetwork};

/// A machine's number: tree nodes first, then members by rank.
pub(super) type ParticipantIndex = u32;

/// Where an edge of a machine leads: to an edge of another machine, over a cable or inside a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EdgeLink {
    /// The cable's channel; none between nodes on the same switch.
    pub channel: Option<ChannelId>,
    pub far: EdgeEnd,
}

/// An edge of a machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct EdgeEnd {
    pub party: ParticipantIndex,
    pub edge: EdgeIndex,
}

/// All machines and how they are joined.
pub(super) struct TreeWiring {
    pub nodes: Vec<AggregationNode>,
    pub members: Vec<AggregationMember>,
    /// Of party `p`: `wires[first_wire[p]..first_wire[p + 1]]`, one per edge.
    wires: Vec<EdgeLink>,
    first_wire: Vec<u32>,
    ends: Ends,
    /// For each root, in the order of [`Self::roots`], where its multicasts go.
    pub branches: Vec<MulticastForwardingTable>,
    /// Where the multicasts of members go, if they speak to all themselves: up to the root, and from there to everyone.
    pub casts: Option<MulticastForwardingTable>,
    /// For each node, its first root (a root is its own): multicasts that start at the node follow that root's tree.
    pub root_of: Vec<RootIndex>,
    is_root: Vec<bool>,
    /// For each node: its ways down, by plane.
    down: Vec<Vec<(Plane, EdgeLink)>>,
    /// For each node: those below it on the same switch.
    inside: Vec<Vec<EdgeEnd>>,
}

/// A root's position among the roots.
pub(crate) type RootIndex = u32;

impl TreeWiring {
    pub(super) fn wire(&self, party: ParticipantIndex, edge: EdgeIndex) -> EdgeLink {
        self.wires[self.first_wire[party as usize] as usize + usize::from(edge.0)]
    }

    /// The wires of a machine, one per edge.
    pub(super) fn wires_of(&self, party: ParticipantIndex) -> &[EdgeLink] {
        let bounds = &self.first_wire[party as usize..];
        &self.wires[bounds[0] as usize..bounds[1] as usize]
    }

    /// The edges that a channel leads to: one, unless trees share the cable.
    pub(super) fn ends(&self, channel: ChannelId) -> impl Iterator<Item = EdgeEnd> + '_ {
        self.ends.of(channel).iter().map(|(end, _)| *end)
    }

    /// The edge over which a root's multicast is heard on a channel. On its way up nobody hears it.
    #[inline]
    pub(super) fn hearer(&self, channel: ChannelId, root: RootIndex) -> Option<EdgeEnd> {
        self.end_of_multicast(channel, root).filter(|end| !self.is_from_below(*end))
    }

    /// Whether an edge leads to a child.
    fn is_from_below(&self, end: EdgeEnd) -> bool {
        self.down.get(end.party as usize).is_some_and(|children| usize::from(end.edge.0) < children.len())
    }

    #[inline]
    fn end_of_multicast(&self, channel: ChannelId, root: RootIndex) -> Option<EdgeEnd> {
        if let Some(end) = self.ends.only[channel as usize] {
            return Some(end);
        }
        match self.ends.of(channel) {
            [(end, _)] => Some(*end),
            several => several.iter().find(|(_, roots)| roots.contains(&root)).map(|(end, _)| *end),
        }
    }

    /// Where a multicast that starts at this node goes, through nodes on the same switch; to hosts on the lane of the
    /// plane.
    pub(super) fn down(&self, node: ParticipantIndex, plane: Plane) -> Vec<EdgeLink> {
        let mut wires = Vec::new();
        self.collect_down(node, plane, &mut wires);
        wires
    }

    fn collect_down(&self, node: ParticipantIndex, plane: Plane, into: &mut Vec<EdgeLink>) {
        let wires = self.down[node as usize].iter();
        for (_, wire) in wires.filter(|(of, _)| *of == plane || *of == EVERY_PLANE) {
            into.push(*wire);
            if wire.channel.is_none() {
                self.collect_down(wire.far.party, plane, into);
            }
        }
    }

    /// Whether a node has nobody above it.
    pub(super) fn is_root(&self, node: ParticipantIndex) -> bool {
        self.is_root[node as usize]
    }

    /// The nodes below this one on the same switch, all the way down.
    pub(super) fn inside(&self, node: ParticipantIndex) -> &[EdgeEnd] {
        &self.inside[node as usize]
    }
}

/// The edges that each channel leads to, and for each the roots above it where several share the channel.
#[derive(Default)]
struct Ends {
    /// The edge of each channel that leads to just one, as most do.
    only: Vec<Option<EdgeEnd>>,
    first: Vec<u32>,
    ends: Vec<(EdgeEnd, Vec<RootIndex>)>,
}

impl Ends {
    fn new(channels: u32, mut found: Vec<(ChannelId, EdgeEnd, Vec<RootIndex>)>) -> Self {
        found.sort_unstable();
        let mut first = vec![0u32; channels as usize + 1];
        for (channel, _, _) in &found {
            first[*channel as usize + 1] += 1;
        }
        for channel in 0..channels as usize {
            first[channel + 1] += first[channel];
        }
        let mut only = vec![None; channels as usize];
        for alike in found.chunk_by(|a, b| a.0 == b.0) {
            if let [(channel, end, _)] = alike {
                only[*channel as usize] = Some(*end);
            }
        }
        Self { only, first, ends: found.into_iter().map(|(_, end, roots)| (end, roots)).collect() }
    }

    fn of(&self, channel: ChannelId) -> &[(EdgeEnd, Vec<RootIndex>)] {
        &self.ends[self.first[channel as usize] as usize..self.first[channel as usize + 1] as usize]
    }
}

/// For wires that are not of a split adapter.
const EVERY_PLANE: Plane = Plane(u8::MAX);

/// Builds the machines.
pub(super) fn build_wiring(
    tree: &AggregationTree,
    network: &SimulatedNetwork,
    parameters: &CollectiveParameters,
) -> TreeWiring {
    let mut builder = Builder::new(tree, network, parameters);
    for index in 0..tree.nodes.len() {
        builder.edges_of_node(TreeIndex(index as u32));
    }
    builder.edges_of_members();
    builder.finish()
}

struct Builder<'a> {
    tree: &'a AggregationTree,
    network: &'a SimulatedNetwork,
    parameters: &'a CollectiveParameters,
    lanes: u8,
    /// Ways of hosts into the tree, by host; a host's are next to each other.
    ways: Vec<HostWay>,
    /// The roots above each node.
    roots_above: Vec<Vec<RootIndex>>,
    wires: Vec<EdgeLink>,
    first_wire: Vec<u32>,
    ends: Vec<(ChannelId, EdgeEnd, Vec<RootIndex>)>,
    down: Vec<Vec<(Plane, EdgeLink)>>,
}

/// A member's host and its place below a node.
struct HostWay {
    host: NodeId,
    node: TreeIndex,
    child: ChildIndex,
    /// The switch port to the host.
    port: NodePort,
    /// The member's number, and the first of its edges that belongs to this way.
    far: EdgeEnd,
}

impl<'a> Builder<'a> {
    fn new(tree: &'a AggregationTree, network: &'a SimulatedNetwork, parameters: &'a CollectiveParameters) -> Self {
        let lanes = network.parameters().adapter_lanes;
        Self {
            tree,
            network,
            parameters,
            lanes,
            ways: host_ways(tree, lanes),
            roots_above: roots_above(tree),
            wires: Vec::new(),
            first_wire: Vec::new(),
            ends: Vec::new(),
            down: Vec::new(),
        }
    }

    /// Edges of a node: for each child its lanes, then the parents.
    fn edges_of_node(&mut self, index: TreeIndex) {
        let node = self.tree.node(index);
        let first = self.wires.len();
        self.first_wire.push(first as u32);
        let mut down = Vec::new();
        for child in &node.children {
            let lanes = lanes_of(child.who, self.lanes);
            let far = match child.who {
                ChildNode::Host(host) => self.way(host, index).far,
                ChildNode::Node(below) => EdgeEnd { party: below.0, edge: self.parent_edge(below, index) },
            };
            for lane in 0..lanes {
                let far = EdgeEnd { party: far.party, edge: EdgeIndex(far.edge.0 + u16::from(lane)) };
                let near = EdgeEnd { party: index.0, edge: EdgeIndex((self.wires.len() - first) as u16) };
                let port = child.port.map(|port| NodePort { node: node.switch, port });
                let wire = self.join(near, far, port, Lane(lane), &[]);
                down.push((if lanes > 1 { Plane(lane) } else { EVERY_PLANE }, wire));
            }
        }
        for uplink in &node.parents {
            let far = EdgeEnd { party: uplink.parent.0, edge: self.child_edge(uplink.parent, uplink.child) };
            let near = EdgeEnd { party: index.0, edge: EdgeIndex((self.wires.len() - first) as u16) };
            let roots = self.roots_above[uplink.parent.index()].clone();
            let port = uplink.port.map(|port| NodePort { node: node.switch, port });
            self.join(near, far, port, Lane(0), &roots);
        }
        self.down.push(down);
    }

    /// Notes a wire, and that what arrives from its far end belongs to its near one.
    fn join(
        &mut self,
        near: EdgeEnd,
        far: EdgeEnd,
        port: Option<NodePort>,
        lane: Lane,
        roots: &[RootIndex],
    ) -> EdgeLink {
        let wire = EdgeLink { channel: port.map(|port| self.network.channel(port, lane)), far };
        if let Some(port) = port {
            let other = self.network.topology().peer(port.node, port.port).expect("tree edges follow cables");
            self.ends.push((self.network.channel(other, lane), near, roots.to_vec()));
        }
        self.wires.push(wire);
        wire
    }

    fn way(&self, host: NodeId, node: TreeIndex) -> &HostWay {
        let place = self.ways.binary_search_by_key(&(host, node), |way| (way.host, way.node));
        &self.ways[place.expect("every host below a node has a way to it")]
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

    /// Edges of members: for each way its lanes.
    fn edges_of_members(&mut self) {
        let ways = std::mem::take(&mut self.ways);
        for ways in ways.chunk_by(|a, b| a.host == b.host) {
            self.first_wire.push(self.wires.len() as u32);
            for way in ways {
                let port = self.network.topology().peer(way.port.node, way.port.port).expect("hosts are cabled");
                let first = self.child_edge(way.node, way.child);
                let roots = self.roots_above[way.node.index()].clone();
                for lane in 0..self.lanes {
                    let near = EdgeEnd { party: way.far.party, edge: EdgeIndex(way.far.edge.0 + u16::from(lane)) };
                    let far = EdgeEnd { party: way.node.0, edge: EdgeIndex(first.0 + u16::from(lane)) };
                    self.join(near, far, Some(port), Lane(lane), &roots);
                }
            }
        }
        self.first_wire.push(self.wires.len() as u32);
        self.ways = ways;
    }

    fn policy(&self) -> ConnectionPolicy {
        ConnectionPolicy { copies: self.parameters.temporal_copies(), ..self.parameters.policy }
    }

    fn result_proves(&self) -> ImplicitAck {
        match self.parameters.replication {
            Replication::Spatial { .. } => ImplicitAck::Nothing,
            Replication::None | Replication::Temporal { .. } => ImplicitAck::Arrival,
        }
    }

    /// Whether a node folds each lane of its hosts by itself. It must then have a parent for each, or be a root: a node
    /// that was split to keep its children few has one parent, on the same switch.
    fn separate_planes(&self, node: TreeIndex) -> bool {
        let node = self.tree.node(node);
        let has_hosts = node.children.iter().any(|child| matches!(child.who, ChildNode::Host(_)));
        let has_ways = node.parents.is_empty() || node.parents.len() == usize::from(self.lanes);
        self.lanes > 1 && has_hosts && has_ways && self.parameters.lane_feeds == LaneFeeds::OwnPlane
    }

    fn node(&self, index: TreeIndex) -> AggregationNode {
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
        let mut machine = AggregationNode::new(self.policy(), &peers);
        let separate = self.separate_planes(index);
        let planes = if separate { self.lanes } else { 1 };
        for plane in 0..planes {
            let mut edge = 0;
            let children = node.children.iter().map(|child| {
                let lanes = u16::from(lanes_of(child.who, self.lanes));
                let edges = if separate {
                    vec![EdgeIndex(edge + u16::from(plane))]
                } else {
                    (edge..edge + lanes).map(EdgeIndex).collect()
                };
                edge += lanes;
                edges
            });
            let children = children.collect();
            let ups = node.parents.iter().enumerate();
            let ups = ups.filter(|(position, _)| !separate || *position == usize::from(plane));
            let parents = ups.map(|(position, uplink)| ParentLink {
                edge: EdgeIndex(first_parent + position as u16),
                child: uplink.child,
                plane: Plane(0),
            });
            machine.take_seat(SeatConfig {
                group: GROUP,
                epoch: Epoch(0),
                plane: Plane(plane),
                children,
                parents: parents.collect(),
                result_proves: self.result_proves(),
                distribution: self.parameters.distribution,
                window: self.parameters.window,
            });
        }
        machine
    }

    fn member(&self, ways: &[HostWay]) -> AggregationMember {
        let mut parents = Vec::new();
        for way in ways {
            for lane in 0..self.lanes {
                let plane = if self.separate_planes(way.node) { Plane(lane) } else { Plane(0) };
                parents.push(ParentLink { edge: EdgeIndex(parents.len() as u16), child: way.child, plane });
            }
        }
        let switch = |way: &HostWay| std::iter::repeat_n(way.port.node.0, usize::from(self.lanes));
        let plan = MemberConfig {
            group: GROUP,
            epoch: Epoch(0),
            peers: ways.iter().flat_map(switch).collect(),
            parents,
            result_proves: self.result_proves(),
            window: self.parameters.window,
            repair_after: self.parameters.repair_after,
            patience: RepairTimeoutMode::Fixed,
        };
        AggregationMember::new(self.policy(), plan)
    }

    fn finish(mut self) -> TreeWiring {
        let nodes = (0..self.tree.nodes.len() as u32).map(|index| self.node(TreeIndex(index))).collect();
        let members = self.ways.chunk_by(|a, b| a.host == b.host).map(|ways| self.member(ways)).collect();
        let branches = (0..self.tree.roots().count() as RootIndex).map(|root| self.branches(root)).collect();
        let casts = self.parameters.task.is_by_multicast().then(|| self.casts());
        let inside = self.inside();
        TreeWiring {
            casts,
            nodes,
            members,
            ends: Ends::new(self.network.channel_count(), std::mem::take(&mut self.ends)),
            wires: self.wires,
            first_wire: self.first_wire,
            branches,
            root_of: self.roots_above.iter().map(|roots| roots[0]).collect(),
            inside,
            is_root: self.tree.nodes.iter().map(|node| node.parents.is_empty()).collect(),
            down: self.down,
        }
    }

    /// For every channel on which a node hears a root: the channels on which it goes on, to hosts on the lane that
    /// has the parent's position.
    fn branches(&self, root: RootIndex) -> MulticastForwardingTable {
        MulticastForwardingTable::new(self.network.channel_count(), self.pairs_down(root))
    }

    /// For every channel on which something comes up: the channel on which it goes on, and at the root all channels down.
    fn casts(&self) -> MulticastForwardingTable {
        let mut pairs = self.pairs_down(0);
        for (index, node) in self.tree.nodes.iter().enumerate() {
            let onward = self.onward(TreeIndex(index as u32));
            for port in node.children.iter().filter_map(|child| child.port) {
                let far = self.network.topology().peer(node.switch, port).expect("tree edges follow cables");
                let arrival = self.network.channel(far, Lane(0));
                pairs.extend(onward.iter().map(|channel| (arrival, *channel)));
            }
        }
        MulticastForwardingTable::new(self.network.channel_count(), pairs)
    }

    /// Where a node passes on what came from below: up, or down if nobody is above.
    fn onward(&self, mut index: TreeIndex) -> Vec<ChannelId> {
        loop {
            let node = self.tree.node(index);
            let Some(uplink) = node.parents.first() else {
                let mut all = Vec::new();
                self.below(index.0, Plane(0), &mut |channel| all.push(channel));
                return all;
            };
            if let Some(port) = uplink.port {
                return vec![self.network.channel(NodePort { node: node.switch, port }, Lane(0))];
            }
            index = uplink.parent; // On the same switch.
        }
    }

    fn pairs_down(&self, root: RootIndex) -> Vec<(ChannelId, ChannelId)> {
        let mut pairs = Vec::new();
        for (index, node) in self.tree.nodes.iter().enumerate() {
            for (position, uplink) in node.parents.iter().enumerate() {
                let Some(port) = uplink.port else { continue };
                if !self.roots_above[uplink.parent.index()].contains(&root) {
                    continue;
                }
                let far = self.network.topology().peer(node.switch, port).expect("tree edges follow cables");
                let arrival = self.network.channel(far, Lane(0));
                self.below(index as u32, Plane(position as u8), &mut |channel| pairs.push((arrival, channel)));
            }
        }
        pairs
    }

    /// For each node, the nodes below it on the same switch; children come first, so theirs are known.
    fn inside(&self) -> Vec<Vec<EdgeEnd>> {
        let mut inside: Vec<Vec<EdgeEnd>> = Vec::with_capacity(self.down.len());
        for wires in &self.down {
            let mut found = Vec::new();
            for (_, wire) in wires.iter().filter(|(_, wire)| wire.channel.is_none()) {
                found.push(wire.far);
                found.extend_from_slice(&inside[wire.far.party as usize]);
            }
            inside.push(found);
        }
        inside
    }

    /// The channels down from a node, through nodes on the same switch.
    fn below(&self, node: ParticipantIndex, plane: Plane, each: &mut impl FnMut(ChannelId)) {
        for (of, wire) in &self.down[node as usize] {
            if *of != plane && *of != EVERY_PLANE {
                continue;
            }
            match wire.channel {
                Some(channel) => each(channel),
                None => self.below(wire.far.party, plane, each),
            }
        }
    }
}

/// The ways of all members' hosts into the tree, by host, and the numbers of their edges.
fn host_ways(tree: &AggregationTree, lanes: u8) -> Vec<HostWay> {
    let mut ways = Vec::new();
    for (index, node) in tree.nodes.iter().enumerate() {
        for (position, child) in node.children.iter().enumerate() {
            if let (ChildNode::Host(host), Some(port)) = (child.who, child.port) {
                ways.push(HostWay {
                    host,
                    node: TreeIndex(index as u32),
                    child: ChildIndex::from_position(position),
                    port: NodePort { node: node.switch, port },
                    far: EdgeEnd { party: 0, edge: EdgeIndex(0) },
                });
            }
        }
    }
    ways.sort_by_key(|way| (way.host, way.node));
    let parties = tree.nodes.len() as u32..;
    for (party, ways) in parties.zip(ways.chunk_by_mut(|a, b| a.host == b.host)) {
        for (position, way) in ways.iter_mut().enumerate() {
            way.far = EdgeEnd { party, edge: EdgeIndex(position as u16 * u16::from(lanes)) };
        }
    }
    ways
}

/// The roots above each node, a root being above itself.
fn roots_above(tree: &AggregationTree) -> Vec<Vec<RootIndex>> {
    let mut above = vec![Vec::new(); tree.nodes.len()];
    for (root, index) in tree.roots().enumerate() {
        above[index.index()].push(root as RootIndex);
    }
    // Children come before parents, so parents are settled first when going backwards.
    for index in (0..tree.nodes.len()).rev() {
        let mut roots: Vec<RootIndex> = above[index].clone();
        for uplink in &tree.nodes[index].parents {
            roots.extend(&above[uplink.parent.index()]);
        }
        roots.sort_unstable();
        roots.dedup();
        above[index] = roots;
    }
    above
}

/// The group of a simulation's collective.
pub(super) const GROUP: GroupId = GroupId(1);

/// Lanes of the cable to a child: hosts may have split adapters.
fn lanes_of(child: ChildNode, lanes: u8) -> u8 {
    if matches!(child, ChildNode::Host(_)) { lanes } else { 1 }
}
