//! Alternate paths for the edges of a tree.
//!
//! In: the wiring. Out: for each edge that has one, another port of the same switch or host from which a route leads to the same
//! neighbour without the edge's own cable. An edge has an alternate path only if both its ends do (P-15).

use std::collections::BTreeMap;

use protocol::aggregation::EdgeIndex;
use protocol::connection::Paths;
use protocol::connection::path::MigrationRole;
use topology::{Fabric, NodeId, NodePort};
use units::{AdapterLane, Time};

use super::parameters::AlternatePathParameters;
use super::wiring::TreeWiring;
use crate::network::SimulatedNetwork;
use crate::packet::ChannelId;
use crate::packet_body::EdgeEnd;

/// Flow labels to try from a port.
const FLOWS: u32 = 16;

/// The start of an edge's alternate path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AlternatePath {
    pub channel: ChannelId,
    pub flow: u32,
}

/// Gives every edge an alternate path where the fabric has one.
pub(super) fn find_alternate_paths(
    wiring: &mut TreeWiring,
    network: &SimulatedNetwork,
    alternates: &AlternatePathParameters,
) -> BTreeMap<EdgeEnd, AlternatePath> {
    let fabric = network.topology();
    let mut found = BTreeMap::new();
    for (end, link) in wiring.all_links() {
        let Some(channel) = link.channel else { continue };
        // Lanes of a split adapter share one cable, so they have no alternate.
        if network.parameters().adapter_lanes == 1
            && let Some((port, flow)) = alternate(fabric, network.origin(channel).0, network.destination(channel))
        {
            found.insert(end, AlternatePath { channel: network.channel(port, AdapterLane(0)), flow });
        }
    }
    let joined: Vec<(EdgeEnd, EdgeEnd)> =
        wiring.all_links().map(|(end, link)| (end, link.peer)).filter(|(end, _)| found.contains_key(end)).collect();
    for (end, peer) in joined {
        if !found.contains_key(&peer) {
            found.remove(&end);
            continue;
        }
        let role = if end < peer { MigrationRole::Leader } else { MigrationRole::Follower };
        set_paths(wiring, end, Paths::new(alternates.policy, role, 2, Time::ZERO));
    }
    found
}

fn set_paths(wiring: &mut TreeWiring, EdgeEnd { participant, edge }: EdgeEnd, paths: Paths) {
    let nodes = wiring.nodes.len();
    match wiring.nodes.get_mut(participant as usize) {
        Some(node) => node.set_paths(edge, paths),
        None => wiring.members[participant as usize - nodes].set_paths(edge, paths),
    }
}

/// The shortest route from a node to its neighbour that leaves by another port and avoids their cable.
fn alternate(fabric: &Fabric, own: NodePort, to: NodeId) -> Option<(NodePort, u32)> {
    let cable = fabric.cable(own)?;
    let uplinks = fabric.neighbours(own.node).filter(|(port, peer)| *port != own.port && !fabric.is_host(peer.node));
    let routes = uplinks.flat_map(|(port, peer)| {
        (0..FLOWS).filter_map(move |flow| {
            let hops = fabric.route(peer.node, to, flow);
            let arrives = peer.node == to || !hops.is_empty();
            let is_another = hops.iter().all(|hop| fabric.cable(*hop) != Some(cable));
            (arrives && is_another).then_some((hops.len(), NodePort::new(own.node, port), flow))
        })
    });
    routes.min_by_key(|(length, ..)| *length).map(|(_, port, flow)| (port, flow))
}

impl TreeWiring {
    /// The edges whose path starts with one of these channels, and the number of that path.
    pub(super) fn paths_on<'a>(
        &'a self,
        alternate_paths: &'a BTreeMap<EdgeEnd, AlternatePath>,
        channels: &'a [ChannelId],
    ) -> impl Iterator<Item = (EdgeEnd, u8)> + 'a {
        alternate_paths.iter().flat_map(move |(end, alternate)| {
            let own = self.link(end.participant, end.edge).channel;
            let is_on = |channel: Option<ChannelId>| channel.is_some_and(|channel| channels.contains(&channel));
            let on = [is_on(own), is_on(Some(alternate.channel))];
            (0..2).filter(move |path| on[usize::from(*path)]).map(|path| (*end, path))
        })
    }

    /// Migrations of the edges of all machines.
    pub(super) fn migrations(&self) -> u32 {
        let paths = |EdgeEnd { participant, edge }: EdgeEnd| match self.nodes.get(participant as usize) {
            Some(node) => node.paths(edge),
            None => self.members[participant as usize - self.nodes.len()].paths(edge),
        };
        self.all_links().filter_map(|(end, _)| paths(end)).map(Paths::migrations).sum()
    }

    /// Every edge and its link.
    fn all_links(&self) -> impl Iterator<Item = (EdgeEnd, super::wiring::EdgeLink)> + '_ {
        let parties = (self.nodes.len() + self.members.len()) as u32;
        (0..parties).flat_map(move |participant| {
            self.links_of(participant)
                .iter()
                .enumerate()
                .map(move |(edge, link)| (EdgeEnd { participant, edge: EdgeIndex(edge as u16) }, *link))
        })
    }
}
