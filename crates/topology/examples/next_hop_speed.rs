//! How long one routing decision takes: `cargo run --release -p topology --example next_hop_speed`.

use std::hint::black_box;
use std::time::Instant;

use topology::{DragonflyShape, Fabric, NodeId, TreeRequest, place_tree};

const IMPORTED: &str = include_str!("../fixtures/two-level-fat-tree.txt");

fn main() {
    let dragonfly = DragonflyShape {
        groups: 33,
        leaves_per_group: 16,
        spines_per_group: 16,
        hosts_per_leaf: 16,
        global_ports_per_spine: 16,
    };
    let fabrics = [
        Fabric::xgft(&[24, 12, 6], &[1, 12, 6]),
        Fabric::xgft(&[32, 32, 32, 32], &[1, 32, 32, 32]),
        Fabric::dragonfly_plus(dragonfly),
        Fabric::torus(&[16, 16, 16], 4),
        Fabric::hypercube(10, 8),
    ];
    for fabric in fabrics {
        measure(&fabric.expect("a good shape"));
    }
    measure(&Fabric::import_ibnetdiscover(IMPORTED).expect("a good text"));

    let fabric = Fabric::xgft(&[32, 32, 32, 32], &[1, 32, 32, 32]).expect("a good shape");
    let start = Instant::now();
    let tree = place_tree(&fabric, &TreeRequest::all()).expect("a tree");
    println!("tree over {} hosts: {} nodes in {:?}", fabric.hosts(), tree.nodes.len(), start.elapsed());
    let fabric = Fabric::hypercube(16, 16).expect("a good shape");
    let start = Instant::now();
    let tree = place_tree(&fabric, &TreeRequest::all()).expect("a tree");
    println!(
        "tree over {} hosts of a hypercube: {} nodes in {:?}",
        fabric.hosts(),
        tree.nodes.len(),
        start.elapsed()
    );
}

fn measure(fabric: &Fabric) {
    // Every decision of many routes, in an order a simulator might meet them in.
    let mut questions: Vec<(NodeId, NodeId)> = Vec::new();
    for turn in 0..1_024u32 {
        let from = NodeId(turn.wrapping_mul(2_654_435_761) % fabric.hosts());
        let to = NodeId(turn.wrapping_mul(2_246_822_519) % fabric.hosts());
        questions.extend(fabric.route(from, to, 0).into_iter().map(|hop| (hop.node, to)));
    }
    questions.sort_by_key(|(at, to)| (at.0 ^ to.0).wrapping_mul(2_654_435_761));
    // Tables of imported fabrics are made on first use; the first round is not counted.
    let mut rounds: Vec<f64> = (0..101).map(|_| nanoseconds_per_hop(fabric, &questions)).skip(1).collect();
    rounds.sort_by(f64::total_cmp);
    println!("{fabric}: {:.1} ns per hop (median; fastest {:.1})", rounds[rounds.len() / 2], rounds[0]);
}

fn nanoseconds_per_hop(fabric: &Fabric, questions: &[(NodeId, NodeId)]) -> f64 {
    let start = Instant::now();
    for &(at, to) in questions {
        black_box(fabric.next_hop(black_box(at), black_box(to), 0));
    }
    start.elapsed().as_nanos() as f64 / questions.len() as f64
}
