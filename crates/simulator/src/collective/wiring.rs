//! The wiring of an aggregation tree: its machines, their edges, and the channels between them.

use protocol::aggregation::{AggregationMember, AggregationNode, EdgeIndex, Plane};

use crate::network::MulticastForwardingTable;
use crate::packet::ChannelId;
use crate::packet_body::{EdgeEnd, ParticipantIndex, RootIndex};

/// The far end of an edge: an edge of another machine, over a cable or inside a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EdgeLink {
    /// The cable's channel; none between nodes on the same switch.
    pub channel: Option<ChannelId>,
    pub peer: EdgeEnd,
}

/// All machines and their links.
pub(super) struct TreeWiring {
    pub nodes: Vec<AggregationNode>,
    pub members: Vec<AggregationMember>,
    /// Of participant `p`: `links[first_link[p]..first_link[p + 1]]`, one per edge.
    pub(super) links: Vec<EdgeLink>,
    pub(super) first_link: Vec<u32>,
    pub(super) ends: ChannelEnds,
    /// The multicast branches of each root.
    pub branches: Vec<MulticastForwardingTable>,
    /// The multicast branches of the members, if they multicast themselves: up to the root, and from there to all.
    pub member_branches: Option<MulticastForwardingTable>,
    /// For each node, its first root (a root is its own): multicasts that start at the node follow that root's tree.
    pub root_of: Vec<RootIndex>,
    pub(super) is_root: Vec<bool>,
    /// For each node: its links to children, by plane.
    pub(super) down: Vec<Vec<(Plane, EdgeLink)>>,
    /// For each node: the nodes below it on the same switch.
    pub(super) co_located: Vec<Vec<EdgeEnd>>,
}

impl TreeWiring {
    pub(super) fn link(&self, participant: ParticipantIndex, edge: EdgeIndex) -> EdgeLink {
        self.links[self.first_link[participant as usize] as usize + usize::from(edge.0)]
    }

    /// The links of a machine, one per edge.
    pub(super) fn links_of(&self, participant: ParticipantIndex) -> &[EdgeLink] {
        let bounds = &self.first_link[participant as usize..];
        &self.links[bounds[0] as usize..bounds[1] as usize]
    }

    /// The edges to which a channel leads: one, unless trees share the cable.
    pub(super) fn ends(&self, channel: ChannelId) -> impl Iterator<Item = EdgeEnd> + '_ {
        self.ends.of(channel).iter().map(|(end, _)| *end)
    }

    /// The edge that receives a root's multicast on a channel; none for a multicast on its way up.
    #[inline]
    pub(super) fn multicast_receiver(&self, channel: ChannelId, root: RootIndex) -> Option<EdgeEnd> {
        self.end_of_multicast(channel, root).filter(|end| !self.is_from_below(*end))
    }

    /// Whether an edge leads to a child.
    fn is_from_below(&self, end: EdgeEnd) -> bool {
        self.down.get(end.participant as usize).is_some_and(|children| usize::from(end.edge.0) < children.len())
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

    /// The links of a multicast that starts at this node, through nodes on the same switch; to hosts on the lane of the plane.
    pub(super) fn down(&self, node: ParticipantIndex, plane: Plane) -> Vec<EdgeLink> {
        let mut links = Vec::new();
        self.collect_down(node, plane, &mut links);
        links
    }

    fn collect_down(&self, node: ParticipantIndex, plane: Plane, into: &mut Vec<EdgeLink>) {
        let links = self.down[node as usize].iter();
        for (_, link) in links.filter(|(of, _)| *of == plane || *of == ALL_PLANES) {
            into.push(*link);
            if link.channel.is_none() {
                self.collect_down(link.peer.participant, plane, into);
            }
        }
    }

    /// Whether a node has no parent.
    pub(super) fn is_root(&self, node: ParticipantIndex) -> bool {
        self.is_root[node as usize]
    }

    /// The nodes below this one on the same switch, at all levels.
    pub(super) fn co_located(&self, node: ParticipantIndex) -> &[EdgeEnd] {
        &self.co_located[node as usize]
    }
}

/// The edges to which each channel leads, with the roots above each where several share the channel.
#[derive(Default)]
pub(super) struct ChannelEnds {
    /// The edge of each channel that leads to exactly one, as most do.
    only: Vec<Option<EdgeEnd>>,
    first: Vec<u32>,
    ends: Vec<(EdgeEnd, Vec<RootIndex>)>,
}

impl ChannelEnds {
    pub(super) fn new(channels: u32, mut found: Vec<(ChannelId, EdgeEnd, Vec<RootIndex>)>) -> Self {
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

/// The plane of links that do not belong to a split adapter.
pub(super) const ALL_PLANES: Plane = Plane(u8::MAX);
