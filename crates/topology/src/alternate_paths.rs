//! Alternate paths: where to send when the primary route fails.
//!
//! In: two nodes and how many paths are wanted. Out: paths other than the primary route (flow 0),
//! most disjoint first, each with the cables and switches that it shares with the primary.
//! Rules: the first path shares as few cables, then as few switches, as the graph allows; each
//! further one also avoids the earlier ones. Between hosts of a fat tree the paths are those of
//! other flows, found by formula. Elsewhere they are found by search and guarantee neither lanes nor
//! up*/down* order: they are meant for source routing during a fault.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use crate::fabric::{Fabric, FabricShape};
use crate::parts::{Cable, NodeId, NodePort};

/// A path, and how disjoint it is from the primary route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DisjointPath {
    /// Node and out port of every hop.
    pub hops: Vec<NodePort>,
    /// Cables that it shares with the primary route. A host with one port always shares that port's cable.
    pub shared_cables: u32,
    /// Switches that it shares with the primary route, including the ends if they are switches.
    pub shared_switches: u32,
}

impl Fabric {
    /// Up to `count` paths from `from` to `to` other than the primary route, most disjoint first.
    pub fn alternate_paths(&self, from: NodeId, to: NodeId, count: usize) -> Vec<DisjointPath> {
        let primary = PathFootprint::of(self, &self.route(from, to, 0));
        if primary.hops.is_empty() || count == 0 {
            return Vec::new();
        }
        let between_hosts = self.is_host(from) && self.is_host(to);
        let found = match &self.shape {
            FabricShape::Xgft(_) if between_hosts => self.paths_of_other_flows(from, to, count, &primary),
            _ => self.paths_by_search(from, to, count, &primary),
        };
        let mut paths: Vec<DisjointPath> = found.into_iter().map(|hops| primary.compare(self, hops)).collect();
        paths.sort_by_key(|path| (path.shared_cables, path.shared_switches, path.hops.len()));
        paths.truncate(count);
        paths
    }

    /// The routes of other flows; consecutive flows diverge at the lowest level that has a choice.
    fn paths_of_other_flows(
        &self,
        from: NodeId,
        to: NodeId,
        count: usize,
        primary: &PathFootprint,
    ) -> Vec<Vec<NodePort>> {
        let flows = 4 * count.min(1 << 12) as u32 + 64;
        let mut seen = BTreeSet::from([primary.hops.clone()]);
        let routes = (1..flows).map(|flow| self.route(from, to, flow));
        routes.filter(|route| seen.insert(route.clone())).collect()
    }

    /// Paths that avoid the cables and switches of the primary and the earlier paths as far as possible.
    fn paths_by_search(&self, from: NodeId, to: NodeId, count: usize, primary: &PathFootprint) -> Vec<Vec<NodePort>> {
        let mut usage = PathUsage::default();
        usage.add(primary);
        let mut seen = BTreeSet::from([primary.hops.clone()]);
        let mut found = Vec::new();
        // A repeated path adds to the usage of its links, which moves the next one further away.
        for _ in 0..count.saturating_mul(3) {
            let Some(hops) = cheapest_path(self, from, to, &usage) else {
                break;
            };
            usage.add(&PathFootprint::of(self, &hops));
            if seen.insert(hops.clone()) {
                found.push(hops);
            }
            if found.len() == count {
                break;
            }
        }
        found
    }
}

/// The cables and switches of a path.
#[derive(Clone)]
pub(crate) struct PathFootprint {
    hops: Vec<NodePort>,
    cables: BTreeSet<Cable>,
    switches: BTreeSet<NodeId>,
}

impl PathFootprint {
    pub(crate) fn of(fabric: &Fabric, hops: &[NodePort]) -> Self {
        let cables: BTreeSet<Cable> = hops.iter().filter_map(|&hop| fabric.cable(hop)).collect();
        let ends = cables.iter().flat_map(|cable| [cable.a.node, cable.b.node]);
        let switches = ends.filter(|&node| !fabric.is_host(node)).collect();
        Self { hops: hops.to_vec(), cables, switches }
    }

    fn compare(&self, fabric: &Fabric, hops: Vec<NodePort>) -> DisjointPath {
        let (shared_cables, shared_switches) = self.shares(&Self::of(fabric, &hops));
        DisjointPath { hops, shared_cables, shared_switches }
    }

    /// How many cables and switches two paths share.
    pub(crate) fn shares(&self, other: &Self) -> (u32, u32) {
        let cables = self.cables.intersection(&other.cables).count() as u32;
        (cables, self.switches.intersection(&other.switches).count() as u32)
    }
}

/// How many of the paths so far use each cable and switch.
#[derive(Default)]
struct PathUsage {
    cables: BTreeMap<Cable, u64>,
    switches: BTreeMap<NodeId, u64>,
}

impl PathUsage {
    /// One used cable outweighs any number of used switches, one used switch any length.
    const CABLE_COST: u64 = 1 << 40;
    const SWITCH_COST: u64 = 1 << 20;

    fn add(&mut self, path: &PathFootprint) {
        for &cable in &path.cables {
            *self.cables.entry(cable).or_default() += 1;
        }
        for &switch in &path.switches {
            *self.switches.entry(switch).or_default() += 1;
        }
    }

    /// The cost of a cable and the node behind it.
    fn cost(&self, cable: Cable, node: NodeId) -> u64 {
        let cables = self.cables.get(&cable).copied().unwrap_or(0);
        let switches = self.switches.get(&node).copied().unwrap_or(0);
        1 + cables * Self::CABLE_COST + switches * Self::SWITCH_COST
    }
}

/// Dijkstra from one node to another; memory grows only with the nodes visited.
fn cheapest_path(fabric: &Fabric, from: NodeId, to: NodeId, usage: &PathUsage) -> Option<Vec<NodePort>> {
    let mut best: BTreeMap<NodeId, (u64, Option<NodePort>)> = BTreeMap::from([(from, (0, None))]);
    let mut queue = BinaryHeap::from([Reverse((0, from))]);
    while let Some(Reverse((cost, at))) = queue.pop() {
        if at == to {
            return Some(collect_hops(&best, to));
        }
        if cost > best[&at].0 {
            continue;
        }
        for (port, peer) in fabric.neighbours(at) {
            if fabric.is_host(peer.node) && peer.node != to {
                continue;
            }
            let here = NodePort::new(at, port);
            let total = cost + usage.cost(Cable::between(here, peer), peer.node);
            let known = best.entry(peer.node).or_insert((u64::MAX, None));
            if total < known.0 {
                *known = (total, Some(here));
                queue.push(Reverse((total, peer.node)));
            }
        }
    }
    None
}

fn collect_hops(best: &BTreeMap<NodeId, (u64, Option<NodePort>)>, to: NodeId) -> Vec<NodePort> {
    let mut hops = Vec::new();
    let mut at = to;
    while let Some(hop) = best[&at].1 {
        hops.push(hop);
        at = hop.node;
    }
    hops.reverse();
    hops
}
