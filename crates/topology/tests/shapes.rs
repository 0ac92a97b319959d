//! Shapes: counts, cables, names, and rejected parameters.

mod sample;

use proptest::prelude::*;
use sample::*;
use topology::{Cable, Fabric, FabricPort, MAX_NODES, NodeId, NodePort, ShapeError};

proptest! {
    #[test]
    fn a_fat_tree_has_the_counts_of_the_formula(
        shape in prop::collection::vec((1u32..=5, 1u32..=4), 1..=4),
    ) {
        let (m, w): (Vec<u32>, Vec<u32>) = shape.into_iter().unzip();
        let fabric = xgft(&m, &w);
        let switches = |level: usize| m[level..].iter().product::<u32>() * w[..level].iter().product::<u32>();
        prop_assert_eq!(fabric.hosts(), switches(0));
        prop_assert_eq!(fabric.switches(), (1..=m.len()).map(switches).sum::<u32>());
        let cables: u64 = (0..m.len()).map(|level| u64::from(switches(level) * w[level])).sum();
        prop_assert_eq!(fabric.cable_count(), cables);
        for node in every_node(&fabric) {
            let level = usize::from(fabric.level(node));
            let down = if level == 0 { 0 } else { m[level - 1] };
            let up = w.get(level).copied().unwrap_or(0);
            prop_assert_eq!(u32::from(fabric.port_count(node)), down + up);
            for port in 0..down + up {
                let peer = fabric.peer(node, FabricPort(port as u16)).unwrap();
                let expected = if port < down { level - 1 } else { level + 1 };
                prop_assert_eq!(usize::from(fabric.level(peer.node)), expected);
            }
        }
    }

    #[test]
    fn both_ends_of_a_cable_see_each_other(fabric in any_small()) {
        for node in every_node(&fabric) {
            for (port, peer) in fabric.neighbours(node) {
                prop_assert_eq!(fabric.peer(peer.node, peer.port), Some(NodePort::new(node, port)));
            }
            prop_assert_eq!(fabric.peer(node, FabricPort(fabric.port_count(node))), None);
            prop_assert_eq!(fabric.is_host(node), fabric.level(node) == 0);
        }
    }

    #[test]
    fn every_cable_is_listed_once_with_its_lower_end_first(fabric in any_small()) {
        let cables: Vec<Cable> = fabric.cables().collect();
        prop_assert_eq!(cables.len() as u64, fabric.cable_count());
        prop_assert!(cables.is_sorted());
        let ends: usize = every_node(&fabric).map(|node| fabric.neighbours(node).count()).sum();
        prop_assert_eq!(ends, 2 * cables.len());
        for cable in cables {
            prop_assert!(fabric.level(cable.a.node) <= fabric.level(cable.b.node));
            prop_assert_eq!(fabric.cable(cable.b), Some(cable));
        }
    }

    #[test]
    fn names_find_their_nodes(fabric in any_small()) {
        for node in every_node(&fabric) {
            prop_assert_eq!(fabric.find(&fabric.name(node)), Some(node));
        }
        prop_assert_eq!(fabric.find(&format!("S{}", fabric.switches())), None);
        prop_assert_eq!(fabric.find(&format!("H{}", fabric.hosts())), None);
    }

    #[test]
    fn arbitrary_names_never_panic(name in ".{0,8}") {
        let _ = xgft(&[4, 4], &[1, 4]).find(&name);
    }

    #[test]
    fn any_numbers_make_a_bounded_fabric_or_an_error(
        children in prop::collection::vec(0u32.., 0..20),
        parents in prop::collection::vec(0u32..=3, 0..20),
    ) {
        for result in [Fabric::xgft(&children, &parents), Fabric::torus(&children, 3), Fabric::mesh(&children, u32::MAX)] {
            match result {
                Ok(fabric) => prop_assert!(fabric.nodes() <= MAX_NODES),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}

#[test]
fn a_kary_ntree_is_its_fat_tree() {
    for (k, n) in [(2, 1), (2, 3), (3, 2), (4, 3)] {
        let tree = Fabric::kary_ntree(k, n).unwrap();
        let mut parents = vec![k; n as usize];
        parents[0] = 1;
        let fat_tree = xgft(&vec![k; n as usize], &parents);
        assert_eq!(tree.hosts(), k.pow(n));
        assert_eq!(tree.switches(), n * k.pow(n - 1));
        assert!(tree.cables().eq(fat_tree.cables()));
    }
}

/// SE-11: the fabric of the evaluation.
#[test]
fn the_evaluated_fabric_has_1728_hosts_and_36_port_leaves() {
    let fabric = xgft(&[24, 12, 6], &[1, 12, 6]);
    assert_eq!(fabric.hosts(), 1_728);
    let at_level = |level| every_node(&fabric).filter(|&node| fabric.level(node) == level).count();
    assert_eq!([at_level(1), at_level(2), at_level(3)], [72, 72, 72]);
    assert_eq!(fabric.cable_count(), 1_728 + 864 + 432);
    assert_eq!(fabric.port_count(fabric.find("S0").unwrap()), 36);
    assert_eq!(fabric.to_string(), "XGFT(3;24,12,6;1,12,6)");
}

/// SE-10: the text calls the drawn example XGFT(3;4,4,2;1,4,2). By the formula that has eight
/// switches on every level. The drawing has 8, 4 and 4, and two up ports per leaf (S0 to S8 and S9;
/// S8 to S12 and S13), which is XGFT(3;4,4,2;1,2,2): same hosts, same leaves, w2 halved. Both have
/// 32 hosts; the application of the example uses 16 of them, on four leaves.
#[test]
fn the_drawn_example_has_switches_s0_to_s15() {
    let named = xgft(&[4, 4, 2], &[1, 4, 2]);
    assert_eq!((named.hosts(), named.switches()), (32, 24));
    assert_eq!(named.level(named.find("S7").unwrap()), 1);
    assert_eq!(named.level(named.find("S8").unwrap()), 2);

    let drawn = xgft(&[4, 4, 2], &[1, 2, 2]);
    assert_eq!((drawn.hosts(), drawn.switches()), (32, 16));
    let above = |name: &str| -> Vec<String> {
        let switch = drawn.find(name).unwrap();
        let up = drawn.neighbours(switch).filter(|(_, peer)| drawn.level(peer.node) > drawn.level(switch));
        up.map(|(_, peer)| drawn.name(peer.node)).collect()
    };
    assert_eq!(above("S0"), ["S8", "S9"]);
    assert_eq!(above("S7"), ["S10", "S11"]);
    assert_eq!(above("S8"), ["S12", "S13"]);
    assert_eq!(above("S9"), ["S14", "S15"]);
    assert_eq!(above("S10"), ["S12", "S13"]);
    assert_eq!(above("S12"), [""; 0]);
}

#[test]
fn other_shapes_have_the_counts_of_their_formulas() {
    let hypercube = Fabric::hypercube(4, 3).unwrap();
    assert_eq!((hypercube.hosts(), hypercube.switches(), hypercube.cable_count()), (48, 16, 48 + 32));
    let torus = Fabric::torus(&[4, 3, 2], 2).unwrap();
    assert_eq!((torus.hosts(), torus.switches(), torus.cable_count()), (48, 24, 48 + 3 * 24));
    let mesh = Fabric::mesh(&[4, 3], 1).unwrap();
    assert_eq!((mesh.hosts(), mesh.switches(), mesh.cable_count()), (12, 12, 12 + 9 + 8));
    let dragonfly = dragonfly(5, 2, 4, 3, 2);
    assert_eq!((dragonfly.hosts(), dragonfly.switches()), (30, 30));
    assert_eq!(dragonfly.cable_count(), 30 + 5 * 8 + 5 * 8 / 2);
}

#[test]
fn errors_state_the_allowed_range() {
    let rejection = |result: Result<Fabric, ShapeError>| result.unwrap_err().to_string();
    assert_eq!(Fabric::xgft(&[4, 0], &[1, 2]).unwrap_err(), ShapeError::Zero { what: "children per node (m)" });
    assert_eq!(Fabric::xgft(&[4], &[1, 2]).unwrap_err(), ShapeError::UnequalLists { children: 1, parents: 2 });
    assert!(rejection(Fabric::xgft(&[], &[])).contains("between 1 and 16"));
    assert!(rejection(Fabric::xgft(&[1 << 14; 3], &[1; 3])).contains("268435456"));
    assert!(rejection(Fabric::xgft(&[u32::MAX], &[1])).contains("268435456"));
    assert!(rejection(Fabric::xgft(&[40_000, 2], &[1, 2])).contains("40002 ports"));
    assert!(rejection(Fabric::kary_ntree(2, u32::MAX)).contains("switch levels"));
    assert!(rejection(Fabric::hypercube(40, 1)).contains("dimensions"));
    assert!(rejection(Fabric::torus(&[8], 0)).contains("hosts per switch is zero"));
    let uneven = topology::DragonflyShape {
        groups: 4,
        leaves_per_group: 2,
        spines_per_group: 2,
        hosts_per_leaf: 2,
        global_ports_per_spine: 2,
    };
    assert!(rejection(Fabric::dragonfly_plus(uneven)).contains("multiple"));
}

/// 1,048,576 hosts: nothing is stored per host, so this tests only formulas.
#[test]
fn a_fabric_of_a_million_hosts_needs_no_tables() {
    let fabric = xgft(&[32, 32, 32, 32], &[1, 32, 32, 32]);
    assert_eq!(fabric.hosts(), 1 << 20);
    for turn in 0..4_000u32 {
        let from = NodeId(turn.wrapping_mul(2_654_435_761) % fabric.hosts());
        let to = NodeId(turn.wrapping_mul(40_503).wrapping_add(12_345) % fabric.hosts());
        let route = fabric.route(from, to, turn);
        assert!(route.len() <= 8 && (from == to) == route.is_empty());
    }
}
