//! The distance of every switch from a root, and the port toward the root.
//!
//! In: a root, what to avoid, and cables that earlier trees use. Out: a cost and a port per switch.
//! Rules: packets never pass through a host. A used cable costs more than any detour.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use super::exclusion_index::ExclusionIndex;
use crate::fabric::Fabric;
use crate::parts::{Cable, FabricPort, NodeId, NodePort};

/// The cost of a cable that an earlier tree uses; larger than that of any path around it.
const USED_CABLE_COST: u64 = 1 << 32;

pub(super) struct ShortestPaths {
    hosts: u32,
    /// Per switch; `u64::MAX` if there is no path.
    costs: Vec<u64>,
    /// Per switch: the port toward the root.
    ports: Vec<FabricPort>,
}

impl ShortestPaths {
    pub(super) fn from(fabric: &Fabric, root: NodeId, excluded: &ExclusionIndex, used: &BTreeSet<Cable>) -> Self {
        let switches = fabric.switches() as usize;
        let mut paths =
            Self { hosts: fabric.hosts(), costs: vec![u64::MAX; switches], ports: vec![FabricPort(0); switches] };
        paths.costs[(root.0 - paths.hosts) as usize] = 0;
        if used.is_empty() {
            paths.search_breadth_first(fabric, root, excluded);
        } else {
            paths.search_by_cost(fabric, root, excluded, used);
        }
        paths
    }

    /// Every cable costs one: breadth first.
    fn search_breadth_first(&mut self, fabric: &Fabric, root: NodeId, excluded: &ExclusionIndex) {
        let mut queue = VecDeque::from([root]);
        while let Some(at) = queue.pop_front() {
            let cost = self.costs[(at.0 - self.hosts) as usize] + 1;
            for (_, peer) in open_cables(fabric, at, excluded) {
                if self.improve(peer, cost) {
                    queue.push_back(peer.node);
                }
            }
        }
    }

    /// Used cables cost more: Dijkstra.
    fn search_by_cost(&mut self, fabric: &Fabric, root: NodeId, excluded: &ExclusionIndex, used: &BTreeSet<Cable>) {
        let mut queue = BinaryHeap::from([Reverse((0, root))]);
        while let Some(Reverse((cost, at))) = queue.pop() {
            if cost > self.costs[(at.0 - self.hosts) as usize] {
                continue;
            }
            for (here, peer) in open_cables(fabric, at, excluded) {
                let step = if used.contains(&Cable::between(here, peer)) { USED_CABLE_COST } else { 1 };
                if self.improve(peer, cost + step) {
                    queue.push(Reverse((cost + step, peer.node)));
                }
            }
        }
    }

    fn improve(&mut self, peer: NodePort, cost: u64) -> bool {
        let index = (peer.node.0 - self.hosts) as usize;
        if cost >= self.costs[index] {
            return false;
        }
        self.costs[index] = cost;
        self.ports[index] = peer.port;
        true
    }

    /// The cost of the path from a switch; none if there is no path.
    pub(super) fn cost(&self, switch: NodeId) -> Option<u64> {
        Some(self.costs[(switch.0 - self.hosts) as usize]).filter(|&cost| cost != u64::MAX)
    }

    /// The length of the path from a switch, if it contains no used cable.
    pub(super) fn steps(&self, switch: NodeId) -> u64 {
        self.cost(switch).unwrap_or(0) % USED_CABLE_COST
    }

    /// The port from a switch toward the root; none for the root, and if there is no path.
    pub(super) fn toward(&self, switch: NodeId) -> Option<FabricPort> {
        self.cost(switch).filter(|&cost| cost != 0).map(|_| self.ports[(switch.0 - self.hosts) as usize])
    }

    /// Where a host enters: the switch nearest to the root, with the host's cost.
    pub(super) fn entry(&self, fabric: &Fabric, host: NodeId, excluded: &ExclusionIndex) -> Option<(NodePort, u64)> {
        let entries = open_cables(fabric, host, excluded);
        entries.filter_map(|(_, peer)| Some((peer, self.cost(peer.node)?))).min_by_key(|&(_, cost)| cost)
    }
}

/// Cables from a node to switches, except those to avoid: the near end and the far end.
fn open_cables<'a>(
    fabric: &'a Fabric,
    node: NodeId,
    excluded: &'a ExclusionIndex,
) -> impl Iterator<Item = (NodePort, NodePort)> + 'a {
    fabric.neighbours(node).map(move |(port, peer)| (NodePort::new(node, port), peer)).filter(move |(here, peer)| {
        !fabric.is_host(peer.node)
            && !excluded.has_node(peer.node)
            && !excluded.has_cable(*here)
            && !excluded.has_cable(*peer)
    })
}
