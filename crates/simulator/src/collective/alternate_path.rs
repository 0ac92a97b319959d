//! Second paths for the edges of a tree.
//!
//! In: the wiring. Out: for each edge that has one, another port of the same switch or host from which the fabric leads to
//! the same neighbour without the edge's own cable. An edge has a second path only if both its ends do (P-31).

use std::collections::BTreeMap;

use protocol::aggregation::EdgeIndex;
use protocol::connection::Paths;
use protocol::connection::path::MigrationRole;
use topology::{Fabric, NodeId, NodePort};
use units::{Lane, SimTime};

use super::parameters::AlternatePathParameters;
use super::wiring::{EdgeEnd, TreeWiring};
use crate::network::{ChannelId, SimulatedNetwork};

/// Flows that are tried from a port before it is given up.
const FLOWS: u32 = 16;

/// How the second path of an edge begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AlternatePath {
    pub channel: ChannelId,
    pub flow: u32,
}

/// Gives every edge a second path where the fabric has one.
pub(super) fn find_alternate_paths(
    wiring: &mut TreeWiring,
    network: &SimulatedNetwork,
    alternates: &AlternatePathParameters,
) -> BTreeMap<EdgeEnd, AlternatePath> {
    let fabric = network.topology();
    let mut found = BTreeMap::new();
    for (end, wire) in wiring.all_wires() {
        let Some(channel) = wire.channel else { continue };
        // Lanes of a split adapter share their cable: there is no other.
        if network.parameters().adapter_lanes == 1
            && let Some((port, flow)) = detour(fabric, network.origin(channel).0, network.destination(channel))
        {
            found.insert(end, AlternatePath { channel: network.channel(port, Lane(0)), flow });
        }
    }
    let joined: Vec<(EdgeEnd, EdgeEnd)> =
        wiring.all_wires().map(|(end, wire)| (end, wire.far)).filter(|(end, _)| found.contains_key(end)).collect();
    for (end, far) in joined {
        if !found.contains_key(&far) {
            found.remove(&end);
            continue;
        }
        let role = if end < far { MigrationRole::Leader } else { MigrationRole::Follower };
        set_paths(wiring, end, Paths::new(alternates.policy, role, 2, SimTime::ZERO));
    }
    found
}

fn set_paths(wiring: &mut TreeWiring, EdgeEnd { party, edge }: EdgeEnd, paths: Paths) {
    let nodes = wiring.nodes.len();
    match wiring.nodes.get_mut(party as usize) {
        Some(node) => node.set_paths(edge, paths),
        None => wiring.members[party as usize - nodes].set_paths(edge, paths),
    }
}

/// The shortest way from a node to its neighbour that leaves by another port and does without their cable.
fn detour(fabric: &Fabric, own: NodePort, to: NodeId) -> Option<(NodePort, u32)> {
    let cable = fabric.cable(own)?;
    let ways = fabric.neighbours(own.node).filter(|(port, peer)| *port != own.port && !fabric.is_host(peer.node));
    let routes = ways.flat_map(|(port, peer)| {
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
    /// The edges whose path of this number begins with one of these channels, with the number.
    pub(super) fn paths_on<'a>(
        &'a self,
        detours: &'a BTreeMap<EdgeEnd, AlternatePath>,
        channels: &'a [ChannelId],
    ) -> impl Iterator<Item = (EdgeEnd, u8)> + 'a {
        detours.iter().flat_map(move |(end, detour)| {
            let own = self.wire(end.party, end.edge).channel;
            let is_on = |channel: Option<ChannelId>| channel.is_some_and(|channel| channels.contains(&channel));
            let on = [is_on(own), is_on(Some(detour.channel))];
            (0..2).filter(move |path| on[usize::from(*path)]).map(|path| (*end, path))
        })
    }

    /// How often the edges of all machines have moved to another path.
    pub(super) fn migrations(&self) -> u32 {
        let paths = |EdgeEnd { party, edge }: EdgeEnd| match self.nodes.get(party as usize) {
            Some(node) => node.paths(edge),
            None => self.members[party as usize - self.nodes.len()].paths(edge),
        };
        self.all_wires().filter_map(|(end, _)| paths(end)).map(Paths::migrations).sum()
    }

    /// Every wire, with the edge from which it leads.
    fn all_wires(&self) -> impl Iterator<Item = (EdgeEnd, super::wiring::EdgeLink)> + '_ {
        let parties = (self.nodes.len() + self.members.len()) as u32;
        (0..parties).flat_map(move |party| {
            self.wires_of(party)
                .iter()
                .enumerate()
                .map(move |(edge, wire)| (EdgeEnd { party, edge: EdgeIndex(edge as u16) }, *wire))
        })
    }
}
