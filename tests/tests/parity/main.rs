//! One scenario in both worlds: the same inputs, tree, algorithm and faults give the same bits at every host, in the simulator and over
//! sockets. The inputs are floats whose sum depends on the order of additions.

mod processes;
mod simulation;

use std::collections::BTreeMap;
use std::sync::Arc;

use faults::FaultPlan;
use protocol::collective::CollectiveAlgorithm;
use reduce::{ElementType, Operator, ReductionKind};
use topology::Fabric;
use units::{OpId, Rank, splitmix64};

/// Not a power of two, and not the same number below each leaf.
const HOSTS: u32 = 6;
const OPERATIONS: u32 = 6;
/// Not a multiple of the number of hosts, between which a ring divides them.
const ELEMENTS: usize = 32;
const LOSSY: &str =
    "[[fault]]\nkind = \"lose\"\nprobability = 0.03\n[[fault]]\nkind = \"flip\"\nprobability = 0.03\n";

/// What each host got of each operation.
type Results = BTreeMap<(OpId, Rank), Vec<u8>>;

/// The hosts' switches: two leaves with four hosts each, below one root. Leaves of three would add in the order of recursive doubling.
fn fabric() -> Arc<Fabric> {
    Arc::new(Fabric::xgft(&[4, 2], &[1, 1]).expect("the shape is within the bounds"))
}

fn sum() -> ReductionKind {
    ReductionKind::new(ElementType::F64, Operator::Sum).expect("they go together")
}

/// A vector whose sum depends on the order of additions.
fn input(rank: Rank, op: OpId) -> Vec<u8> {
    let value = |index: u32| {
        let mut state = u64::from(rank.0) << 40 | u64::from(op.0) << 20 | u64::from(index);
        let drawn = splitmix64(&mut state);
        // All bits of the fraction, and magnitudes that differ by up to a million: each order rounds differently.
        let fraction = 1.0 + (drawn >> 12) as f64 / (1_u64 << 52) as f64;
        fraction * f64::from(1_u32 << (drawn % 20)) * if index.is_multiple_of(2) { 1.0 } else { -1.0 }
    };
    (0..ELEMENTS as u32).flat_map(|index| value(index).to_le_bytes()).collect()
}

fn lossy() -> FaultPlan {
    FaultPlan::parse(LOSSY).expect("a plan")
}

/// Every host has the same result, and these are those of the other world.
#[track_caller]
fn assert_same(simulated: &Results, real: &Results) {
    assert_eq!(simulated.len(), (HOSTS * OPERATIONS) as usize, "every operation completes at every host");
    for ((op, rank), bits) in simulated {
        assert!(bits == &simulated[&(*op, Rank(0))], "{op}: {rank} and rank 0 of the simulation differ");
        assert!(real.get(&(*op, *rank)) == Some(bits), "{op}, {rank}: the worlds differ");
    }
    assert_eq!(simulated.len(), real.len());
}

#[track_caller]
fn assert_same_among_hosts(algorithm: CollectiveAlgorithm) {
    for plan in [FaultPlan::default(), lossy()] {
        assert_same(&simulation::among_hosts(algorithm, &plan), &processes::among_hosts(algorithm, &plan));
    }
}

#[test]
fn a_tree_of_nodes_gives_the_same_bits_in_both_worlds() {
    for plan in [FaultPlan::default(), lossy()] {
        let (tree, simulated) = simulation::through_tree(&plan);
        assert_eq!(tree.nodes.len(), 3, "two leaves below a root");
        assert_same(&simulated, &processes::through_tree(&tree, &plan));
    }
}

#[test]
fn a_ring_gives_the_same_bits_in_both_worlds() {
    assert_same_among_hosts(CollectiveAlgorithm::Ring);
}

#[test]
fn recursive_doubling_gives_the_same_bits_in_both_worlds() {
    assert_same_among_hosts(CollectiveAlgorithm::RecursiveDoubling);
}

/// Otherwise equal bits would show nothing.
#[test]
fn the_order_of_additions_shows_in_the_bits() {
    let ring = simulation::among_hosts(CollectiveAlgorithm::Ring, &FaultPlan::default());
    let doubling = simulation::among_hosts(CollectiveAlgorithm::RecursiveDoubling, &FaultPlan::default());
    let (_, tree) = simulation::through_tree(&FaultPlan::default());
    assert!(ring != doubling && doubling != tree && tree != ring);
}
