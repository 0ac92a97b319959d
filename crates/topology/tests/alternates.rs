//! Alternate paths: valid, new, and as disjoint as the graph allows.

mod sample;

use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;
use sample::*;
use topology::{Cable, DisjointPath, Fabric, NodeId, NodePort};

fn cables(fabric: &Fabric, hops: &[NodePort]) -> BTreeSet<Cable> {
    hops.iter().map(|&hop| fabric.cable(hop).expect("a cabled port")).collect()
}

fn switches(fabric: &Fabric, hops: &[NodePort]) -> BTreeSet<NodeId> {
    let ends = cables(fabric, hops).into_iter().flat_map(|cable| [cable.a.node, cable.b.node]);
    ends.filter(|&node| !fabric.is_host(node)).collect()
}

/// The least number of primary cables that any path must use, found by an independent search.
fn least_shared(fabric: &Fabric, from: NodeId, to: NodeId, primary: &BTreeSet<Cable>) -> u32 {
    let mut least = vec![u32::MAX; fabric.nodes() as usize];
    least[from.index()] = 0;
    let mut queue = VecDeque::from([from]);
    while let Some(at) = queue.pop_front() {
        if fabric.is_host(at) && at != from {
            continue;
        }
        for (port, peer) in fabric.neighbours(at) {
            let cable = fabric.cable(NodePort::new(at, port)).unwrap();
            let shared = least[at.index()] + u32::from(primary.contains(&cable));
            if shared < least[peer.node.index()] {
                least[peer.node.index()] = shared;
                queue.push_back(peer.node);
            }
        }
    }
    least[to.index()]
}

fn check(fabric: &Fabric, from: NodeId, to: NodeId, count: usize) -> Vec<DisjointPath> {
    let primary = fabric.route(from, to, 0);
    let alternates = fabric.alternate_paths(from, to, count);
    assert!(alternates.len() <= count);
    let mut seen = BTreeSet::from([primary.clone()]);
    for path in &alternates {
        let mut at = from;
        let mut visited = BTreeSet::from([from]);
        for hop in &path.hops {
            assert_eq!(hop.node, at);
            at = fabric.peer(at, hop.port).unwrap().node;
            assert!(visited.insert(at), "a path visits no node twice");
            assert!(at == to || !fabric.is_host(at));
        }
        assert_eq!(at, to);
        assert!(seen.insert(path.hops.clone()), "every path is different");
        let shared = cables(fabric, &primary).intersection(&cables(fabric, &path.hops)).count();
        assert_eq!(path.shared_cables as usize, shared);
        let shared = switches(fabric, &primary).intersection(&switches(fabric, &path.hops)).count();
        assert_eq!(path.shared_switches as usize, shared);
    }
    assert!(alternates.is_sorted_by_key(|path| (path.shared_cables, path.shared_switches)));
    alternates
}

proptest! {
    #[test]
    fn the_first_alternate_is_as_disjoint_as_the_graph_allows(
        fabric in any_small(), from in any::<u32>(), to in any::<u32>(), count in 1usize..6,
    ) {
        let (from, to) = (NodeId(from % fabric.hosts()), NodeId(to % fabric.hosts()));
        let alternates = check(&fabric, from, to, count);
        if let Some(best) = alternates.first() {
            let primary = cables(&fabric, &fabric.route(from, to, 0));
            prop_assert_eq!(best.shared_cables, least_shared(&fabric, from, to, &primary));
        }
    }

    #[test]
    fn switches_have_alternates_too(fabric in any_small(), from in any::<u32>(), to in any::<u32>()) {
        let [from, to] = [from, to].map(|node| NodeId(node % fabric.nodes()));
        check(&fabric, from, to, 3);
    }
}

#[test]
fn fat_tree_alternates_share_only_the_leaves() {
    let fabric = xgft(&[24, 12, 6], &[1, 12, 6]);
    let alternates = check(&fabric, NodeId(0), NodeId(1_727), 11);
    assert_eq!(alternates.len(), 11);
    assert!(alternates.iter().all(|path| (path.shared_cables, path.shared_switches) == (2, 2)));
    // They are disjoint from each other as well.
    for (index, one) in alternates.iter().enumerate() {
        for other in &alternates[index + 1..] {
            assert_eq!(cables(&fabric, &one.hops).intersection(&cables(&fabric, &other.hops)).count(), 2);
        }
    }
}

#[test]
fn hosts_with_two_ports_have_alternates_that_share_nothing() {
    let fabric = xgft(&[4, 4], &[2, 2]);
    let best = &check(&fabric, NodeId(0), NodeId(15), 1)[0];
    assert_eq!((best.shared_cables, best.shared_switches), (0, 0));
}

#[test]
fn hosts_of_one_leaf_have_no_alternate() {
    let fabric = xgft(&[4, 4], &[1, 4]);
    assert!(check(&fabric, NodeId(0), NodeId(1), 4).is_empty());
}

#[test]
fn a_ring_goes_the_other_way_round() {
    let fabric = imported(RING);
    let (from, to) = (fabric.find("edge0a mlx5_0").unwrap(), fabric.find("edge2a mlx5_0").unwrap());
    let best = &check(&fabric, from, to, 1)[0];
    assert_eq!((best.shared_cables, best.shared_switches), (2, 2));
    assert_eq!(best.hops.len() + fabric.route(from, to, 0).len(), 6 + 4);
}

#[test]
fn a_dragonfly_with_one_cable_per_pair_detours_through_a_third_group() {
    let fabric = dragonfly(4, 2, 3, 2, 1);
    let best = &check(&fabric, NodeId(0), NodeId(15), 1)[0];
    assert_eq!((best.shared_cables, best.shared_switches), (2, 2));
}
