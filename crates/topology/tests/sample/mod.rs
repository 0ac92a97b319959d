//! Fabrics for tests, and a plain breadth-first search to compare routes with.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::VecDeque;

use proptest::prelude::*;
use topology::{DragonflyShape, Fabric, NodeId};

pub(crate) const TWO_LEVEL: &str = include_str!("../../fixtures/two-level-fat-tree.txt");
pub(crate) const MISSING_CABLE: &str = include_str!("../../fixtures/three-level-missing-cable.txt");
pub(crate) const RING: &str = include_str!("../../fixtures/ring-of-six.txt");

pub(crate) fn xgft(children: &[u32], parents: &[u32]) -> Fabric {
    Fabric::xgft(children, parents).expect("the shape is valid")
}

pub(crate) fn dragonfly(groups: u32, leaves: u32, spines: u32, hosts: u32, global_ports: u32) -> Fabric {
    Fabric::dragonfly_plus(DragonflyShape {
        groups,
        leaves_per_group: leaves,
        spines_per_group: spines,
        hosts_per_leaf: hosts,
        global_ports_per_spine: global_ports,
    })
    .expect("the shape is valid")
}

pub(crate) fn imported(text: &str) -> Fabric {
    Fabric::import_ibnetdiscover(text).expect("the text is valid")
}

/// Small fat trees, also irregular ones and hosts with several ports.
pub(crate) fn small_xgft() -> impl Strategy<Value = Fabric> {
    (1usize..=3)
        .prop_flat_map(|levels| (prop::collection::vec(1u32..=4, levels), prop::collection::vec(1u32..=3, levels)))
        .prop_map(|(children, parents)| xgft(&children, &parents))
}

/// Small fabrics of every regular shape except the fat tree.
pub(crate) fn small_other() -> impl Strategy<Value = Fabric> {
    let dragonflies =
        (1u32..=4, 1u32..=3, 1u32..=4, 1u32..=2, 1u32..=3).prop_map(|(groups, leaves, spines, hosts, copies)| {
            // The least number of ports per spine that the other groups divide evenly.
            let others = groups - 1;
            let even = (1..=others).find(|ports| (spines * ports).is_multiple_of(others)).unwrap_or(0);
            dragonfly(groups, leaves, spines, hosts, even * copies)
        });
    let sizes = || prop::collection::vec(1u32..=5, 1..=3);
    prop_oneof![
        dragonflies,
        (1u32..=4, 1u32..=3).prop_map(|(dimensions, hosts)| Fabric::hypercube(dimensions, hosts).unwrap()),
        (sizes(), 1u32..=2).prop_map(|(sizes, hosts)| Fabric::torus(&sizes, hosts).unwrap()),
        (sizes(), 1u32..=2).prop_map(|(sizes, hosts)| Fabric::mesh(&sizes, hosts).unwrap()),
    ]
}

pub(crate) fn small_imported() -> impl Strategy<Value = Fabric> {
    prop_oneof![Just(TWO_LEVEL), Just(MISSING_CABLE), Just(RING)].prop_map(imported)
}

pub(crate) fn any_small() -> impl Strategy<Value = Fabric> {
    prop_oneof![small_xgft(), small_other(), small_imported()]
}

pub(crate) fn every_node(fabric: &Fabric) -> impl Iterator<Item = NodeId> + use<> {
    (0..fabric.nodes()).map(NodeId)
}

pub(crate) fn every_host(fabric: &Fabric) -> impl Iterator<Item = NodeId> + use<> {
    (0..fabric.hosts()).map(NodeId)
}

/// Hops from a node to every other; packets do not pass through hosts.
pub(crate) fn distances(fabric: &Fabric, from: NodeId) -> Vec<Option<usize>> {
    let mut distances = vec![None; fabric.nodes() as usize];
    distances[from.index()] = Some(0);
    let mut queue = VecDeque::from([(from, 0)]);
    while let Some((at, distance)) = queue.pop_front() {
        if fabric.is_host(at) && at != from {
            continue;
        }
        for (_, peer) in fabric.neighbours(at) {
            if distances[peer.node.index()].is_none() {
                distances[peer.node.index()] = Some(distance + 1);
                queue.push_back((peer.node, distance + 1));
            }
        }
    }
    distances
}
