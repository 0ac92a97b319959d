//! Where the paths of a connection leave a host and enter it.
//!
//! In: a fabric, two hosts and a path's number. Out: the route of the path, and its first and last channel at one end.

use topology::{Fabric, FlowPath, NodeId};
use units::{AdapterLane, PathId};

use crate::network::SimulatedNetwork;
use crate::packet::ChannelId;

/// The channels of one path at one end of a connection.
pub(crate) struct PathChannels {
    /// Packets leave here.
    pub leaves: ChannelId,
    /// The other direction of the same cable.
    pub reverse: ChannelId,
    /// Packets of the other end enter here.
    pub enters: ChannelId,
    /// The flow label that selects the route.
    pub flow: u32,
}

impl PathChannels {
    /// None if no route leads from `here` to `there`.
    pub(crate) fn new(network: &SimulatedNetwork, here: NodeId, there: NodeId, path: PathId) -> Option<Self> {
        let fabric = network.topology();
        let [out, back] = path_route(fabric, here, there, path)?;
        let (first, last) = (*out.hops.first()?, *back.hops.last()?);
        let peer = fabric.peer(first.node, first.port).expect("a route uses cabled ports");
        let channel = |port| network.channel(port, AdapterLane(0));
        Some(Self { leaves: channel(first), reverse: channel(peer), enters: channel(last), flow: out.flow })
    }

    /// Whether a channel is one direction of the path's cable at this end.
    pub(crate) fn uses_cable_of(&self, channel: ChannelId) -> bool {
        self.leaves == channel || self.reverse == channel
    }
}

/// The route of a path from `from` to `to`, and the route back: the most disjoint routes of the topology (P-15). Paths beyond the
/// last route reuse them in order; none if no route exists.
pub fn path_route(fabric: &Fabric, from: NodeId, to: NodeId, path: PathId) -> Option<[FlowPath; 2]> {
    let routes = fabric.disjoint_paths(from, to, path.index() + 1);
    routes.get(path.index() % routes.len().max(1)).cloned()
}
