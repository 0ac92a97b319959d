//! Builds the wiring of an aggregation tree: its machines, their edges and the channels between them.

use protocol::aggregation::{
    AggregationMember, AggregationNode, EdgeIndex, ImplicitAck, MemberConfig, ParentLink, Plane, RepairTimeoutMode,
    SeatConfig,
};
use protocol::connection::ConnectionPolicy;
use topology::{AggregationTree, ChildNode, NodeId, NodePort, TreeIndex};
use units::{AdapterLane, ChildIndex, Epoch, GroupId};

use super::parameters::{CollectiveParameters, LaneFeeds, Replication};
use super::wiring::{ALL_PLANES, ChannelEnds, EdgeLink, TreeWiring};
use crate::network::{MulticastForwardingTable, SimulatedNetwork};
use crate::packet::ChannelId;
use crate::packet_body::{EdgeEnd, ParticipantIndex, RootIndex};

/// Builds the wiring of a tree.
pub(super) fn build_wiring(
    tree: &AggregationTree,
    network: &SimulatedNetwork,
    parameters: &CollectiveParameters,
) -> TreeWiring {
    let mut builder = WiringBuilder::new(tree, network, parameters);
    for index in 0..tree.nodes.len() {
        builder.edges_of_node(TreeIndex(index as u32));
    }
    builder.edges_of_members();
    builder.finish()
}

struct WiringBuilder<'a> {
    tree: &'a AggregationTree,
    network: &'a SimulatedNetwork,
    parameters: &'a CollectiveParameters,
    lanes: u8,
    /// Uplinks of hosts into the tree, sorted by host.
    uplinks: Vec<HostUplink>,
    /// The roots above each node.
    roots_above: Vec<Vec<RootIndex>>,
    links: Vec<EdgeLink>,
    first_link: Vec<u32>,
    ends: Vec<(ChannelId, EdgeEnd, Vec<RootIndex>)>,
    down: Vec<Vec<(Plane, EdgeLink)>>,
}

/// A host's link to a node of the tree.
struct HostUplink {
    host: NodeId,
    node: TreeIndex,
    child: ChildIndex,
    /// The switch port to the host.
    port: NodePort,
    /// The member, and the first of its edges that belongs to this uplink.
    peer: EdgeEnd,
}

impl<'a> WiringBuilder<'a> {
    fn new(tree: &'a AggregationTree, network: &'a SimulatedNetwork, parameters: &'a CollectiveParameters) -> Self {
        let lanes = network.parameters().adapter_lanes;
        Self {
            tree,
            network,
            parameters,
            lanes,
            uplinks: host_uplinks(tree, lanes),
            roots_above: roots_above(tree),
            links: Vec::new(),
            first_link: Vec::new(),
            ends: Vec::new(),
            down: Vec::new(),
        }
    }

    /// Adds the edges of a node: for each child its lanes, then the parents.
    fn edges_of_node(&mut self, index: TreeIndex) {
        let node = self.tree.node(index);
        let first = self.links.len();
        self.first_link.push(first as u32);
        let mut down = Vec::new();
        for child in &node.children {
            let lanes = lanes_of(child.node, self.lanes);
            let peer = match child.node {
                ChildNode::Host(host) => self.uplink(host, index).peer,
                ChildNode::Node(below) => EdgeEnd { participant: below.0, edge: self.parent_edge(below, index) },
            };
            for lane in 0..lanes {
                let peer = EdgeEnd { participant: peer.participant, edge: EdgeIndex(peer.edge.0 + u16::from(lane)) };
                let near = EdgeEnd { participant: index.0, edge: EdgeIndex((self.links.len() - first) as u16) };
                let port = child.port.map(|port| NodePort { node: node.switch, port });
                let link = self.join(near, peer, port, AdapterLane(lane), &[]);
                down.push((if lanes > 1 { Plane(lane) } else { ALL_PLANES }, link));
            }
        }
        for uplink in &node.parents {
            let peer = EdgeEnd { participant: uplink.parent.0, edge: self.child_edge(uplink.parent, uplink.child) };
            let near = EdgeEnd { participant: index.0, edge: EdgeIndex((self.links.len() - first) as u16) };
            let roots = self.roots_above[uplink.parent.index()].clone();
            let port = uplink.port.map(|port| NodePort { node: node.switch, port });
            self.join(near, peer, port, AdapterLane(0), &roots);
        }
        self.down.push(down);
    }

    /// Adds a link from `near` to `peer`, and the reverse channel's end.
    fn join(
        &mut self,
        near: EdgeEnd,
        peer: EdgeEnd,
        port: Option<NodePort>,
        lane: AdapterLane,
        roots: &[RootIndex],
    ) -> EdgeLink {
        let link = EdgeLink { channel: port.map(|port| self.network.channel(port, lane)), peer };
        if let Some(port) = port {
            let other = self.network.topology().peer(port.node, port.port).expect("tree edges follow cables");
            self.ends.push((self.network.channel(other, lane), near, roots.to_vec()));
        }
        self.links.push(link);
        link
    }

    fn uplink(&self, host: NodeId, node: TreeIndex) -> &HostUplink {
        let place = self.uplinks.binary_search_by_key(&(host, node), |uplink| (uplink.host, uplink.node));
        &self.uplinks[place.expect("every host below a node has an uplink to it")]
    }

    /// The first edge of a child at its parent.
    fn child_edge(&self, parent: TreeIndex, child: ChildIndex) -> EdgeIndex {
        let before = &self.tree.node(parent).children[..child.index()];
        EdgeIndex(before.iter().map(|child| u16::from(lanes_of(child.node, self.lanes))).sum())
    }

    /// The edge of a node that leads to this parent.
    fn parent_edge(&self, node: TreeIndex, parent: TreeIndex) -> EdgeIndex {
        let children: u16 =
            self.tree.node(node).children.iter().map(|child| u16::from(lanes_of(child.node, self.lanes))).sum();
        let position = self.tree.node(node).parents.iter().position(|uplink| uplink.parent == parent);
        EdgeIndex(children + position.expect("parents and children agree") as u16)
    }

    /// Adds the edges of the members: for each uplink its lanes.
    fn edges_of_members(&mut self) {
        let uplinks = std::mem::take(&mut self.uplinks);
        for uplinks in uplinks.chunk_by(|a, b| a.host == b.host) {
            self.first_link.push(self.links.len() as u32);
            for uplink in uplinks {
                let port =
                    self.network.topology().peer(uplink.port.node, uplink.port.port).expect("hosts are cabled");
                let first = self.child_edge(uplink.node, uplink.child);
                let roots = self.roots_above[uplink.node.index()].clone();
                for lane in 0..self.lanes {
                    let near = EdgeEnd {
                        participant: uplink.peer.participant,
                        edge: EdgeIndex(uplink.peer.edge.0 + u16::from(lane)),
                    };
                    let peer = EdgeEnd { participant: uplink.node.0, edge: EdgeIndex(first.0 + u16::from(lane)) };
                    self.join(near, peer, Some(port), AdapterLane(lane), &roots);
                }
            }
        }
        self.first_link.push(self.links.len() as u32);
        self.uplinks = uplinks;
    }

    fn policy(&self) -> ConnectionPolicy {
        ConnectionPolicy { copies: self.parameters.temporal_copies(), ..self.parameters.policy }
    }

    fn implicit_ack(&self) -> ImplicitAck {
        match self.parameters.replication {
            Replication::Spatial { .. } => ImplicitAck::Never,
            Replication::None | Replication::Temporal { .. } => ImplicitAck::ByResult,
        }
    }

    /// Whether a node reduces each lane of its hosts separately. It must then have a parent for each lane, or be a root: a node that
    /// was split to limit its children has one parent, on the same switch.
    fn separate_planes(&self, node: TreeIndex) -> bool {
        let node = self.tree.node(node);
        let has_hosts = node.children.iter().any(|child| matches!(child.node, ChildNode::Host(_)));
        let has_ways = node.parents.is_empty() || node.parents.len() == usize::from(self.lanes);
        self.lanes > 1 && has_hosts && has_ways && self.parameters.lane_feeds == LaneFeeds::OwnPlane
    }

    fn node(&self, index: TreeIndex) -> AggregationNode {
        let node = self.tree.node(index);
        let mut peers = Vec::new();
        for child in &node.children {
            let peer = match child.node {
                ChildNode::Host(host) => host.0,
                ChildNode::Node(below) => self.tree.node(below).switch.0,
            };
            peers.extend(std::iter::repeat_n(peer, usize::from(lanes_of(child.node, self.lanes))));
        }
        let first_parent = peers.len() as u16;
        peers.extend(node.parents.iter().map(|uplink| self.tree.node(uplink.parent).switch.0));
        let mut machine = AggregationNode::new(self.policy(), &peers);
        let separate = self.separate_planes(index);
        let planes = if separate { self.lanes } else { 1 };
        for plane in 0..planes {
            let mut edge = 0;
            let children = node.children.iter().map(|child| {
                let lanes = u16::from(lanes_of(child.node, self.lanes));
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
                group: SIMULATED_GROUP,
                epoch: Epoch(0),
                plane: Plane(plane),
                children,
                parents: parents.collect(),
                implicit_ack: self.implicit_ack(),
                distribution: self.parameters.distribution,
                window: self.parameters.window,
            });
        }
        machine
    }

    fn member(&self, uplinks: &[HostUplink]) -> AggregationMember {
        let mut parents = Vec::new();
        for uplink in uplinks {
            for lane in 0..self.lanes {
                let plane = if self.separate_planes(uplink.node) { Plane(lane) } else { Plane(0) };
                parents.push(ParentLink { edge: EdgeIndex(parents.len() as u16), child: uplink.child, plane });
            }
        }
        let switch = |uplink: &HostUplink| std::iter::repeat_n(uplink.port.node.0, usize::from(self.lanes));
        let plan = MemberConfig {
            group: SIMULATED_GROUP,
            epoch: Epoch(0),
            peers: uplinks.iter().flat_map(switch).collect(),
            parents,
            implicit_ack: self.implicit_ack(),
            window: self.parameters.window,
            repair_after: self.parameters.repair_after,
            repair_timeout_mode: RepairTimeoutMode::Fixed,
        };
        AggregationMember::new(self.policy(), plan)
    }

    fn finish(mut self) -> TreeWiring {
        let nodes = (0..self.tree.nodes.len() as u32).map(|index| self.node(TreeIndex(index))).collect();
        let members = self.uplinks.chunk_by(|a, b| a.host == b.host).map(|uplinks| self.member(uplinks)).collect();
        let branches = (0..self.tree.roots().count() as RootIndex).map(|root| self.branches(root)).collect();
        let member_branches = self.parameters.operation.is_by_multicast().then(|| self.member_branches());
        let co_located = self.co_located();
        TreeWiring {
            member_branches,
            nodes,
            members,
            ends: ChannelEnds::new(self.network.channel_count(), std::mem::take(&mut self.ends)),
            links: self.links,
            first_link: self.first_link,
            branches,
            root_of: self.roots_above.iter().map(|roots| roots[0]).collect(),
            co_located,
            is_root: self.tree.nodes.iter().map(|node| node.parents.is_empty()).collect(),
            down: self.down,
        }
    }

    /// For every channel on which a node receives a root's multicast: the channels on which it forwards, to hosts on the lane with the
    /// parent's position.
    fn branches(&self, root: RootIndex) -> MulticastForwardingTable {
        MulticastForwardingTable::new(self.network.channel_count(), self.downward_pairs(root))
    }

    /// For every channel on the way up: the next channel up, and at the root all channels down.
    fn member_branches(&self) -> MulticastForwardingTable {
        let mut pairs = self.downward_pairs(0);
        for (index, node) in self.tree.nodes.iter().enumerate() {
            let forward_channels = self.forward_channels(TreeIndex(index as u32));
            for port in node.children.iter().filter_map(|child| child.port) {
                let peer = self.network.topology().peer(node.switch, port).expect("tree edges follow cables");
                let arrival = self.network.channel(peer, AdapterLane(0));
                pairs.extend(forward_channels.iter().map(|channel| (arrival, *channel)));
            }
        }
        MulticastForwardingTable::new(self.network.channel_count(), pairs)
    }

    /// The channels on which a node forwards a multicast from below: up, or down if it is a root.
    fn forward_channels(&self, mut index: TreeIndex) -> Vec<ChannelId> {
        loop {
            let node = self.tree.node(index);
            let Some(uplink) = node.parents.first() else {
                let mut all = Vec::new();
                self.below(index.0, Plane(0), &mut |channel| all.push(channel));
                return all;
            };
            if let Some(port) = uplink.port {
                return vec![self.network.channel(NodePort { node: node.switch, port }, AdapterLane(0))];
            }
            index = uplink.parent; // On the same switch.
        }
    }

    fn downward_pairs(&self, root: RootIndex) -> Vec<(ChannelId, ChannelId)> {
        let mut pairs = Vec::new();
        for (index, node) in self.tree.nodes.iter().enumerate() {
            for (position, uplink) in node.parents.iter().enumerate() {
                let Some(port) = uplink.port else { continue };
                if !self.roots_above[uplink.parent.index()].contains(&root) {
                    continue;
                }
                let peer = self.network.topology().peer(node.switch, port).expect("tree edges follow cables");
                let arrival = self.network.channel(peer, AdapterLane(0));
                self.below(index as u32, Plane(position as u8), &mut |channel| pairs.push((arrival, channel)));
            }
        }
        pairs
    }

    /// For each node, the nodes below it on the same switch. Children come first in the tree, so theirs are known.
    fn co_located(&self) -> Vec<Vec<EdgeEnd>> {
        let mut co_located: Vec<Vec<EdgeEnd>> = Vec::with_capacity(self.down.len());
        for links in &self.down {
            let mut found = Vec::new();
            for (_, link) in links.iter().filter(|(_, link)| link.channel.is_none()) {
                found.push(link.peer);
                found.extend_from_slice(&co_located[link.peer.participant as usize]);
            }
            co_located.push(found);
        }
        co_located
    }

    /// The channels down from a node, through nodes on the same switch.
    fn below(&self, node: ParticipantIndex, plane: Plane, each: &mut impl FnMut(ChannelId)) {
        for (of, link) in &self.down[node as usize] {
            if *of != plane && *of != ALL_PLANES {
                continue;
            }
            match link.channel {
                Some(channel) => each(channel),
                None => self.below(link.peer.participant, plane, each),
            }
        }
    }
}

/// The uplinks of all members' hosts, by host, with the numbers of their edges.
fn host_uplinks(tree: &AggregationTree, lanes: u8) -> Vec<HostUplink> {
    let mut uplinks = Vec::new();
    for (index, node) in tree.nodes.iter().enumerate() {
        for (position, child) in node.children.iter().enumerate() {
            if let (ChildNode::Host(host), Some(port)) = (child.node, child.port) {
                uplinks.push(HostUplink {
                    host,
                    node: TreeIndex(index as u32),
                    child: ChildIndex::from_position(position),
                    port: NodePort { node: node.switch, port },
                    peer: EdgeEnd { participant: 0, edge: EdgeIndex(0) },
                });
            }
        }
    }
    uplinks.sort_by_key(|uplink| (uplink.host, uplink.node));
    let parties = tree.nodes.len() as u32..;
    for (participant, uplinks) in parties.zip(uplinks.chunk_by_mut(|a, b| a.host == b.host)) {
        for (position, uplink) in uplinks.iter_mut().enumerate() {
            uplink.peer = EdgeEnd { participant, edge: EdgeIndex(position as u16 * u16::from(lanes)) };
        }
    }
    uplinks
}

/// The roots above each node, a root being above itself.
fn roots_above(tree: &AggregationTree) -> Vec<Vec<RootIndex>> {
    let mut above = vec![Vec::new(); tree.nodes.len()];
    for (root, index) in tree.roots().enumerate() {
        above[index.index()].push(root as RootIndex);
    }
    // Parents come after their children, so going backwards every parent is complete before its children.
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

/// The group of the simulated collective.
pub(super) const SIMULATED_GROUP: GroupId = GroupId(1);

/// Lanes of the cable to a child: adapters of hosts may be split.
fn lanes_of(child: ChildNode, lanes: u8) -> u8 {
    if matches!(child, ChildNode::Host(_)) { lanes } else { 1 }
}
