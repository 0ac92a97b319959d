//! Routes: valid, minimal, spread, free of deadlock.

mod sample;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sample::*;
use topology::{Fabric, FabricKind, NodeId, NodePort};

/// The last node of a route, after a check that its hops are cabled and connected.
fn end_of(fabric: &Fabric, from: NodeId, route: &[NodePort]) -> NodeId {
    route.iter().fold(from, |at, hop| {
        assert_eq!(hop.node, at);
        assert!(at == from || !fabric.is_host(at), "packets do not pass through hosts");
        fabric.peer(at, hop.port).expect("a cabled port").node
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn fat_tree_routes_are_minimal_between_any_two_nodes(fabric in small_xgft(), flow in 0u32..1 << 20) {
        for from in every_node(&fabric) {
            let distances = distances(&fabric, from);
            for to in every_node(&fabric) {
                let route = fabric.route(from, to, flow);
                prop_assert_eq!((!route.is_empty() || from == to).then_some(route.len()), distances[to.index()]);
                if !route.is_empty() {
                    prop_assert_eq!(end_of(&fabric, from, &route), to);
                }
            }
        }
    }

    #[test]
    fn other_routes_are_valid_and_minimal_between_hosts(fabric in small_other(), flow in 0u32..100) {
        let is_dragonfly = fabric.kind() == FabricKind::DragonflyPlus;
        for from in every_node(&fabric) {
            let distances = distances(&fabric, from);
            for to in every_node(&fabric).filter(|&to| to != from) {
                let route = fabric.route(from, to, flow);
                prop_assert_eq!(end_of(&fabric, from, &route), to);
                let spine_at_an_end = fabric.level(from) == 2 || fabric.level(to) == 2;
                if !(is_dragonfly && spine_at_an_end) {
                    prop_assert_eq!(Some(route.len()), distances[to.index()], "{:?} to {:?}", from, to);
                }
            }
        }
    }

    #[test]
    fn tree_routes_are_as_long_there_as_back(fabric in small_xgft(), flow in 0u32..100) {
        for from in every_host(&fabric) {
            for to in every_host(&fabric) {
                prop_assert_eq!(fabric.route(from, to, flow).len(), fabric.route(to, from, 0).len());
            }
        }
    }

    #[test]
    fn imported_routes_reach_every_host_and_never_turn_up_again(fabric in small_imported(), flow in 0u32..9) {
        for from in every_host(&fabric) {
            let distances = distances(&fabric, from);
            for to in every_host(&fabric).filter(|&to| to != from) {
                let route = fabric.route(from, to, flow);
                prop_assert_eq!(end_of(&fabric, from, &route), to);
                prop_assert!(Some(route.len()) >= distances[to.index()]);
                let levels: Vec<u8> = route.iter().map(|hop| fabric.level(hop.node)).collect();
                let top = levels.iter().position(|level| level == levels.iter().max().unwrap()).unwrap();
                prop_assert!(levels[..top].is_sorted() && levels[top..].is_sorted_by(|a, b| a >= b));
            }
        }
    }

    /// The channel dependency graph has no cycle (Dally and Seitz), so packets cannot wait in a cycle.
    #[test]
    fn routes_between_hosts_cannot_deadlock(fabric in any_small(), flow in 0u32..7) {
        prop_assert!(!has_cycle(&waiting_for(&fabric, flow)));
    }
}

type Channel = (NodePort, u8);

/// For each channel (port and lane), the channels for which a packet that holds it may wait.
fn waiting_for(fabric: &Fabric, flow: u32) -> BTreeMap<Channel, BTreeSet<Channel>> {
    let mut waiting: BTreeMap<Channel, BTreeSet<Channel>> = BTreeMap::new();
    for from in every_host(fabric) {
        for to in every_host(fabric) {
            let (mut at, mut held) = (from, None);
            while let Some(hop) = fabric.next_hop(at, to, flow) {
                let channel = (NodePort::new(at, hop.port), hop.lane);
                if let Some(held) = held {
                    waiting.entry(held).or_default().insert(channel);
                }
                held = Some(channel);
                at = fabric.peer(at, hop.port).unwrap().node;
            }
        }
    }
    waiting
}

/// Removes channels for which no other waits, until none is left or a cycle remains.
fn has_cycle(waiting: &BTreeMap<Channel, BTreeSet<Channel>>) -> bool {
    let mut awaited: BTreeMap<Channel, usize> = waiting.keys().map(|&channel| (channel, 0)).collect();
    for next in waiting.values().flatten() {
        *awaited.entry(*next).or_default() += 1;
    }
    let mut free: Vec<Channel> =
        awaited.iter().filter(|(_, count)| **count == 0).map(|(channel, _)| *channel).collect();
    let mut removed = 0;
    while let Some(channel) = free.pop() {
        removed += 1;
        for next in waiting.get(&channel).into_iter().flatten() {
            let count = awaited.get_mut(next).unwrap();
            *count -= 1;
            if *count == 0 {
                free.push(*next);
            }
        }
    }
    removed < awaited.len()
}

#[test]
fn flow_zero_is_destination_mod_k() {
    let fabric = xgft(&[24, 12, 6], &[1, 12, 6]);
    for to in [0, 1, 25, 500, 1_727].map(NodeId) {
        let from = NodeId(if to.0 < 300 { 1_000 } else { 3 });
        let route = fabric.route(from, to, 0);
        assert_eq!(route.len(), 6);
        assert_eq!(u32::from(route[1].port.0), 24 + to.0 % 12);
        assert_eq!(u32::from(route[2].port.0), 12 + to.0 / 12 % 6);
    }
}

#[test]
fn flows_together_use_every_path() {
    let fabric = xgft(&[2, 3, 2], &[2, 3, 2]);
    let routes: BTreeSet<_> = (0..12).map(|flow| fabric.route(NodeId(0), NodeId(11), flow)).collect();
    assert_eq!(routes.len(), 12);
}

#[test]
fn a_torus_packet_changes_lane_after_the_wrap_around() {
    let fabric = Fabric::torus(&[6], 1).unwrap();
    let lanes = |from: u32, to: u32| -> Vec<u8> {
        let route = fabric.route(NodeId(from), NodeId(to), 0);
        route.iter().map(|hop| fabric.next_hop(hop.node, NodeId(to), 0).unwrap().lane).collect()
    };
    assert_eq!(lanes(4, 1), [0, 0, 0, 1, 0], "in, 4 to 5, over the wrap, 0 to 1, out");
    assert_eq!(lanes(1, 3), [0, 1, 1, 0]);
}

#[test]
fn planes_connected_only_by_hosts_have_no_route_between_their_switches() {
    let fabric = xgft(&[4, 2], &[2, 1]);
    let leaves: Vec<NodeId> = fabric.neighbours(NodeId(0)).map(|(_, peer)| peer.node).collect();
    assert_eq!(fabric.next_hop(leaves[0], leaves[1], 0), None);
    assert!(fabric.route(leaves[0], leaves[1], 0).is_empty());
}

#[test]
fn a_damaged_import_still_routes_by_levels() {
    let fabric = imported(MISSING_CABLE);
    let leaf = fabric.find("MF0;rack1-leaf:MSB7800/U1").unwrap();
    let aggregation = fabric.find("MF0;row0-agg0:MSB7800/U1").unwrap();
    // The leaf lost its cable to the other aggregation switch, so all its traffic goes to this one.
    for to in ["n00 HCA-1", "n20 HCA-1", "n31 HCA-1"] {
        let to = fabric.find(to).unwrap();
        let hop = fabric.next_hop(leaf, to, 1).unwrap();
        let next = fabric.peer(leaf, hop.port).unwrap().node;
        assert!(next == aggregation || next == to);
    }
}

#[test]
fn a_host_with_two_ports_uses_the_nearer_one() {
    let fabric = imported(MISSING_CABLE);
    let [two_port, beside_first, beside_second] =
        ["n00 HCA-1", "n01 HCA-1", "n10 HCA-1"].map(|name| fabric.find(name).unwrap());
    for neighbour in [beside_first, beside_second] {
        assert_eq!(fabric.route(two_port, neighbour, 0).len(), 2);
        assert_eq!(fabric.route(neighbour, two_port, 0).len(), 2);
    }
}

#[test]
fn an_imported_fat_tree_routes_minimally_and_spreads() {
    let fabric = imported(TWO_LEVEL);
    for from in every_node(&fabric) {
        let distances = distances(&fabric, from);
        for to in every_node(&fabric) {
            assert_eq!(Some(fabric.route(from, to, 0).len()), distances[to.index()]);
        }
    }
    let up_ports: BTreeSet<_> = (4..16).map(|to| fabric.route(NodeId(0), NodeId(to), 0)[1]).collect();
    assert_eq!(up_ports.len(), 4, "two cables to each of two spines");
}
