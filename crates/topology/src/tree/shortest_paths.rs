//! How far every switch is from a root, and by which port it gets there.
//!
//! In: a root, what to avoid, and cables better left alone. Out: a cost and a port per switch.
//! Rules: packets never pass through a host. A used cable costs more than any detour.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use super::placement::ExclusionIndex;
use crate::fabric::Fabric;
use crate::parts::{Cable, FabricPort, NodeId, NodePort};

/// The cost of a cable that an earlier tree uses; longer than any way around it.
const USED: u64 = 1 << 32;

pub(super) struct ShortestPaths {
    hosts: u32,
    /// Per switch; `u64::MAX` if there is no way.
    costs: Vec<u64>,
    /// Per switch: the port toward the root.
    ports: Vec<FabricPort>,
}

impl ShortestPaths {
    pub(super) fn from(fabric: &Fabric, root: NodeId, barred: &ExclusionIndex, used: &BTreeSet<Cable>) -> Self {
        let switches = fabric.switches() as usize;
        let mut reach =
            Self { hosts: fabric.hosts(), costs: vec![u64::MAX; switches], ports: vec![FabricPort(0); switches] };
        reach.costs[(root.0 - reach.hosts) as usize] = 0;
        if used.is_empty() {
            reach.spread_evenly(fabric, root, barred);
        } else {
            reach.spread_by_cost(fabric, root, barred, used);
        }
        reach
    }

    /// Every cable costs one: breadth first.
    fn spread_evenly(&mut self, fabric: &Fabric, root: NodeId, barred: &ExclusionIndex) {
        let mut queue = VecDeque::from([root]);
        while let Some(at) = queue.pop_front() {
            let cost = self.costs[(at.0 - self.hosts) as usize] + 1;
            for (_, peer) in open_cables(fabric, at, barred) {
                if self.improve(peer, cost) {
                    queue.push_back(peer.node);
                }
            }
        }
    }

    /// Used cables cost more: Dijkstra.
    fn spread_by_cost(&mut self, fabric: &Fabric, root: NodeId, barred: &ExclusionIndex, used: &BTreeSet<Cable>) {
        let mut queue = BinaryHeap::from([Reverse((0, root))]);
        while let Some(Reverse((cost, at))) = queue.pop() {
            if cost > self.costs[(at.0 - self.hosts) as usize] {
                continue;
            }
            for (here, peer) in open_cables(fabric, at, barred) {
                let price = if used.contains(&Cable::between(here, peer)) { USED } else { 1 };
                if self.improve(peer, cost + price) {
                    queue.push(Reverse((cost + price, peer.node)));
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

    /// The cost of the way from a switch; none if there is no way.
    pub(super) fn cost(&self, switch: NodeId) -> Option<u64> {
        Some(self.costs[(switch.0 - self.hosts) as usize]).filter(|&cost| cost != u64::MAX)
    }

    /// Cables on the way from a switch, if no used cable is on it.
    pub(super) fn steps(&self, switch: NodeId) -> u64 {
        self.cost(switch).unwrap_or(0) % USED
    }

    /// The port from a switch toward the root; none for the root and where there is no way.
    pub(super) fn toward(&self, switch: NodeId) -> Option<FabricPort> {
        self.cost(switch).filter(|&cost| cost != 0).map(|_| self.ports[(switch.0 - self.hosts) as usize])
    }

    /// Where a host enters: the switch nearest to the root, with the host's cost.
    pub(super) fn entry(&self, fabric: &Fabric, host: NodeId, barred: &ExclusionIndex) -> Option<(NodePort, u64)> {
        let entries = open_cables(fabric, host, barred);
        entries.filter_map(|(_, peer)| Some((peer, self.cost(peer.node)?))).min_by_key(|&(_, cost)| cost)
    }
}

/// Cables from a node to switches, none of them barred: the near end and the far end.
fn open_cables<'a>(
    fabric: &'a Fabric,
    node: NodeId,
    barred: &'a ExclusionIndex,
) -> impl Iterator<Item = (NodePort, NodePort)> + 'a {
    fabric.neighbours(node).map(move |(port, peer)| (NodePort::new(node, port), peer)).filter(move |(here, peer)| {
        !fabric.is_host(peer.node)
            && !barred.has_node(peer.node)
            && !barred.has_cable(*here)
            && !barred.has_cable(*peer)
    })
}
