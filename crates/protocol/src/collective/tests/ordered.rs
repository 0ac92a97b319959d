//! Prescribed orders reproduce the bits of any tree.

use std::sync::Arc;

use faults::RandomStream;
use oracle::{ReferenceOrder, reference_of};
use proptest::prelude::*;
use units::Rank;

use super::harness::{DeliveryModel, contribution, contributions, order_sensitive_sum, reduction_of, run_collective};
use crate::Payload;
use crate::collective::{
    CollectiveAlgorithm, CollectiveOperation, CollectiveSchedule, FoldOrder, FoldOrderError, FoldTreeNode,
};

/// A tree as nested vectors.
#[derive(Clone, Debug)]
enum Nested {
    Rank(u32),
    Node(Vec<Nested>),
}

fn fold_order(size: u32, tree: Nested) -> Result<FoldOrder, FoldOrderError> {
    FoldOrder::from_tree(size, tree, |place| match place {
        Nested::Rank(rank) => FoldTreeNode::Rank(Rank(rank)),
        Nested::Node(children) => FoldTreeNode::Node(children),
    })
}

fn oracle_order(tree: &Nested) -> ReferenceOrder {
    match tree {
        Nested::Rank(rank) => ReferenceOrder::rank(Rank(*rank)),
        Nested::Node(children) => ReferenceOrder::node(children.iter().map(oracle_order)),
    }
}

fn node(children: impl IntoIterator<Item = Nested>) -> Nested {
    Nested::Node(children.into_iter().collect())
}

fn leaves(ranks: impl IntoIterator<Item = u32>) -> Nested {
    node(ranks.into_iter().map(Nested::Rank))
}

/// A random tree over `0..size`: ranks in random order, adjacent ones grouped under nodes until one is left.
fn random_tree(size: u32, seed: u64) -> Nested {
    let random = RandomStream::new(seed, 2);
    let mut places: Vec<_> = random.permutation(size).into_iter().map(Nested::Rank).collect();
    let mut draws = u64::from(size);
    while places.len() > 1 || draws == u64::from(size) {
        draws += 2;
        let start = random.below(draws, places.len() as u64) as usize;
        let end = (start + 1 + random.below(draws + 1, 6) as usize).min(places.len());
        let group: Vec<_> = places.drain(start..end).collect();
        places.insert(start, Nested::Node(group));
    }
    places.remove(0)
}

fn check(tree: &Nested, size: u32, count: usize, network: DeliveryModel, seed: u64) {
    let telling = order_sensitive_sum(count);
    let kind = reduction_of(&telling);
    let order = Arc::new(fold_order(size, tree.clone()).expect("every rank once"));
    let expected = reference_of(&telling, &oracle_order(tree), |rank| contribution(seed, rank.0, &telling));
    let given: Vec<_> = (0..size).map(|rank| contribution(seed, rank, &telling)).collect();
    assert_eq!(order.fold(kind, |rank| &given[rank.index()]).as_ref(), Ok(&expected), "the evaluator");
    let root = Rank((seed % u64::from(size)) as u32);
    for algorithm in [CollectiveAlgorithm::OrderedTree, CollectiveAlgorithm::OrderedBlocks] {
        for collective in [CollectiveOperation::AllReduce { kind }, CollectiveOperation::Reduce { root, kind }] {
            let schedule = |rank| {
                CollectiveSchedule::ordered(algorithm, collective, Rank(rank), order.clone(), telling.bytes() as u32)
            };
            let schedules = (0..size).map(|rank| schedule(rank).expect("it supports")).collect();
            let outcome = run_collective(schedules, contributions(seed, size, &telling), network, seed);
            for (rank, result) in outcome.results.iter().enumerate() {
                if collective.root().is_none_or(|root| root.index() == rank) {
                    assert_eq!(
                        result.bytes(),
                        Some(&expected[..]),
                        "{algorithm}, {collective}, rank {rank} of {size}"
                    );
                } else {
                    assert!(result.is_empty());
                }
            }
        }
    }
}

#[test]
fn every_size_gives_the_bits_of_a_flat_node_and_of_random_trees() {
    for size in (1..=33).chain([64, 100]) {
        check(&leaves(0..size), size, 7, DeliveryModel::Once, u64::from(size));
        check(&random_tree(size, u64::from(size)), size, 130, DeliveryModel::Duplicating, u64::from(size));
    }
}

#[test]
fn a_fabric_of_two_levels_gives_the_bits_of_its_tree() {
    // Eight hosts on each of four leaves; the third leaf comes first because it was placed first.
    let leaf = |leaf: u32| leaves(8 * leaf..8 * leaf + 8);
    let tree = node([leaf(2), leaf(0), leaf(1), leaf(3)]);
    check(&tree, 32, 40, DeliveryModel::Once, 5);
    let order = fold_order(32, tree).expect("every rank once");
    assert_eq!(order.root(), Rank(16));
    let operands: Vec<_> = order.operands_of(Rank(16)).map(|rank| rank.0).collect();
    assert_eq!(operands, [17, 18, 19, 20, 21, 22, 23, 0, 8, 24], "its leaf's hosts, then the other leaves");
    assert_eq!(order.parent_of(Rank(8)), Some(Rank(16)));
    assert_eq!(order.parent_of(Rank(16)), None);
}

#[test]
fn nodes_with_at_most_one_child_change_nothing() {
    let plain = fold_order(3, leaves(0..3)).expect("every rank once");
    let odd = node([node([]), node([node([Nested::Rank(0)])]), Nested::Rank(1), node([]), leaves([2])]);
    assert_eq!(fold_order(3, odd), Ok(plain.clone()));
    assert_eq!(plain.digest(), fold_order(3, leaves(0..3)).expect("every rank once").digest());
    let other = node([Nested::Rank(0), leaves([1, 2])]);
    assert_ne!(plain.digest(), fold_order(3, other).expect("every rank once").digest());
}

#[test]
fn invalid_trees_are_rejected() {
    assert_eq!(fold_order(3, leaves([0, 1])), Err(FoldOrderError::Missing(Rank(2))));
    assert_eq!(fold_order(2, leaves([0, 1, 1])), Err(FoldOrderError::Twice(Rank(1))));
    assert_eq!(fold_order(2, leaves([0, 2])), Err(FoldOrderError::Unknown(Rank(2))));
    assert_eq!(fold_order(0, node([])), Err(FoldOrderError::Size(0)));
    assert_eq!(fold_order(u32::MAX, node([])), Err(FoldOrderError::Size(u32::MAX)));
    assert_eq!(FoldOrder::flat(u32::MAX), Err(FoldOrderError::Size(u32::MAX)));
    let endless = FoldOrder::from_tree(2, (), |()| FoldTreeNode::Node(vec![()]));
    assert_eq!(endless, Err(FoldOrderError::TooManyNodes));
}

#[test]
fn long_chains_need_little_stack_and_time() {
    let size = 100_000;
    let chain = |rank: u32| match rank {
        _ if rank >= size => FoldTreeNode::Rank(Rank(rank - size)),
        _ if rank == size - 1 => FoldTreeNode::Node(vec![2 * size - 1]),
        _ => FoldTreeNode::Node(vec![size + rank, rank + 1]),
    };
    let order = FoldOrder::from_tree(size, 0, chain).expect("every rank once");
    let telling = order_sensitive_sum(1);
    let one = 1.0_f32.to_le_bytes();
    let sum = order.fold(reduction_of(&telling), |_| &one).expect("equal lengths");
    assert_eq!(sum, (size as f32).to_le_bytes());
}

#[test]
fn twenty_thousand_ranks_run_a_flat_node() {
    let size = 20_000;
    let order = Arc::new(FoldOrder::flat(size).expect("not too many"));
    let collective = CollectiveOperation::AllReduce { kind: reduction_of(&order_sensitive_sum(1)) };
    let schedule = |rank| {
        CollectiveSchedule::ordered(CollectiveAlgorithm::OrderedTree, collective, Rank(rank), order.clone(), 4)
            .expect("it supports")
    };
    let schedules = (0..size).map(schedule).collect();
    let outcome =
        run_collective(schedules, vec![Payload::SizeOnly { bytes: 4 }; size as usize], DeliveryModel::Once, 1);
    assert_eq!(outcome.messages as u32, 2 * (size - 1));
}

proptest! {
    #[test]
    fn any_tree_gives_its_bits(size in 1..50_u32, count in 0..90_usize, seed: u64) {
        check(&random_tree(size, seed), size, count, DeliveryModel::Duplicating, seed);
    }
}
