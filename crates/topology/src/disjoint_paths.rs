//! Alternate path specification: the paths that two hosts should use for a connection, most disjoint first.
//!
//! In: two hosts and how many paths are wanted. Out: for each path and direction, the port by which the host sends and the
//! flow number that makes switches keep to it. Rules: the first path is the shortest; each further one shares as few
//! cables, then as few switches, with the earlier ones as ports and flows allow; the return direction shares as much as it can
//! with the outward direction, so that a failed cable disables one path and not half of two.

use std::collections::BTreeSet;

use crate::alternate_paths::PathFootprint;
use crate::fabric::Fabric;
use crate::parts::{FabricPort, NodeId, NodePort};

/// The number of flows to try for each port.
const FLOWS: u32 = 16;

/// One direction of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowPath {
    /// The port by which it leaves its host.
    pub port: FabricPort,
    /// The flow number of its packets.
    pub flow: u32,
    /// Node and out port of every hop.
    pub hops: Vec<NodePort>,
}

impl Fabric {
    /// Up to `count` paths between two hosts, most disjoint first: outward and return direction of each. Fewer if fewer exist.
    /// The paths from `b` to `a` are those from `a` to `b` with the directions swapped.
    pub fn disjoint_paths(&self, a: NodeId, b: NodeId, count: usize) -> Vec<[FlowPath; 2]> {
        if a.0 > b.0 {
            return self.disjoint_paths(b, a, count).into_iter().map(|[out, back]| [back, out]).collect();
        }
        let (outward, returns) = (self.candidates(a, b), self.candidates(b, a));
        let mut taken: Vec<PathFootprint> = Vec::new();
        let mut used = BTreeSet::new();
        let mut paths = Vec::new();
        while paths.len() < count {
            let fresh = outward.iter().enumerate().filter(|(index, _)| !used.contains(index));
            let shared = |footprint: &PathFootprint| {
                let all = taken.iter().map(|earlier| earlier.shares(footprint));
                all.fold((0, 0), |(cables, switches), (c, s)| (cables + c, switches + s))
            };
            let best = fresh.min_by_key(|(index, (path, footprint))| (shared(footprint), path.hops.len(), *index));
            let Some((index, (out, footprint))) = best else { break };
            let alike = |(_, (_, back)): &(usize, &(FlowPath, PathFootprint))| {
                let (cables, switches) = footprint.shares(back);
                std::cmp::Reverse((cables, switches))
            };
            let Some((_, (back, returning))) = returns.iter().enumerate().min_by_key(alike) else { break };
            used.insert(index);
            paths.push([out.clone(), back.clone()]);
            taken.extend([footprint.clone(), returning.clone()]);
        }
        paths
    }

    /// Every different path from one host to another that ports and flows allow.
    fn candidates(&self, from: NodeId, to: NodeId) -> Vec<(FlowPath, PathFootprint)> {
        let mut seen = BTreeSet::new();
        let ports: Vec<FabricPort> = self.neighbours(from).map(|(port, _)| port).collect();
        let mut found = Vec::new();
        for flow in 0..FLOWS {
            for port in &ports {
                let hops = self.hops_by_port(from, *port, to, flow);
                if !hops.is_empty() && seen.insert(hops.clone()) {
                    let footprint = PathFootprint::of(self, &hops);
                    found.push((FlowPath { port: *port, flow, hops }, footprint));
                }
            }
        }
        found
    }

    /// The hops of a packet that leaves by a port and is then routed as this flow; empty if it does not reach its destination.
    fn hops_by_port(&self, from: NodeId, port: FabricPort, to: NodeId, flow: u32) -> Vec<NodePort> {
        let first = NodePort::new(from, port);
        let Some(next) = self.peer(from, port).filter(|_| from != to) else { return Vec::new() };
        if next.node == to {
            return vec![first];
        }
        let rest = self.route(next.node, to, flow);
        if rest.is_empty() { rest } else { [vec![first], rest].concat() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn two_ports_give_two_paths_that_share_nothing() {
        let fabric = Fabric::xgft(&[4, 4], &[2, 2]).expect("the shape is within the bounds");
        let paths = fabric.disjoint_paths(NodeId(0), NodeId(15), 4);
        assert_eq!(paths.len(), 4);
        let prints: Vec<PathFootprint> = paths.iter().map(|[out, _]| PathFootprint::of(&fabric, &out.hops)).collect();
        assert_eq!(prints[0].shares(&prints[1]), (0, 0));
        assert!(paths[0][0].port != paths[1][0].port);
    }

    proptest! {
        /// On fat trees of any shape: valid, different, symmetric, and the second as disjoint as possible.
        #[test]
        fn paths_are_valid_and_as_disjoint_as_ports_and_flows_allow(
            m in 2u32..5, w1 in 1u32..4, w2 in 1u32..5, a in 0u32..4, b in 4u32..8, count in 1usize..6
        ) {
            let fabric = Fabric::xgft(&[m, 4], &[w1, w2]).expect("the shape is within the bounds");
            let (a, b) = (NodeId(a % fabric.hosts()), NodeId(b % fabric.hosts()));
            prop_assume!(a != b);
            let paths = fabric.disjoint_paths(a, b, count);
            prop_assert!(!paths.is_empty() && paths.len() <= count);
            let turned: Vec<[FlowPath; 2]> = fabric.disjoint_paths(b, a, count).into_iter().map(|[x, y]| [y, x]).collect();
            prop_assert_eq!(&turned, &paths);
            for (index, [out, back]) in paths.iter().enumerate() {
                prop_assert!(paths[..index].iter().all(|[other, _]| other.hops != out.hops));
                for (path, from, to) in [(out, a, b), (back, b, a)] {
                    let mut at = from;
                    for hop in &path.hops {
                        prop_assert_eq!(hop.node, at);
                        at = fabric.peer(hop.node, hop.port).expect("a hop uses a cabled port").node;
                    }
                    prop_assert_eq!(at, to);
                }
            }
            if let [first, second, ..] = &paths[..] {
                let primary = [PathFootprint::of(&fabric, &first[0].hops), PathFootprint::of(&fabric, &first[1].hops)];
                let shared = |footprint: &PathFootprint| primary.iter().map(|p| p.shares(footprint).0).sum::<u32>();
                let least = fabric.candidates(a.min(b), a.max(b)).iter().map(|(_, f)| shared(f)).min();
                let ours = if a < b { &second[0] } else { &second[1] };
                prop_assert_eq!(least, Some(shared(&PathFootprint::of(&fabric, &ours.hops))));
            }
        }
    }
}
