//! The reference against cases computed by hand, and the sensitivity of contributions to defects.

use oracle::{
    ContributionTable, Reduction, ReductionElement, ReductionOperator, ReferenceOrder, ReferenceOrderNode,
    contribution, edge_contribution, reference, reference_of,
};
use proptest::prelude::*;
use units::{OpId, Rank};

fn operation(name: &str, count: usize) -> Reduction {
    let (element, operator) = name.split_once(' ').expect("an element and an operator");
    Reduction { element: element.parse().unwrap(), operator: operator.parse().unwrap(), count }
}

/// Folds one element per rank, in the order of ranks.
fn fold(name: &str, inputs: &[&[u8]]) -> Vec<u8> {
    let order = ReferenceOrder::flat(inputs.len() as u32);
    reference_of(&operation(name, 1), &order, |rank| inputs[rank.index()].to_vec())
}

fn fold_f64(operator: &str, inputs: &[f64]) -> f64 {
    let bytes: Vec<[u8; 8]> = inputs.iter().map(|input| input.to_le_bytes()).collect();
    let slices: Vec<&[u8]> = bytes.iter().map(|input| &input[..]).collect();
    f64::from_le_bytes(fold(&format!("f64 {operator}"), &slices).try_into().unwrap())
}

#[test]
fn integers_wrap_at_their_width() {
    assert_eq!(fold("i8 sum", &[&[100], &[100], &[100]]), [44]);
    assert_eq!(fold("u8 prod", &[&[200], &[200]]), [64]);
    assert_eq!(fold("i16 min", &[&[0xff, 0xff], &[1, 0]]), [0xff, 0xff]);
    assert_eq!(fold("u16 min", &[&[0xff, 0xff], &[1, 0]]), [1, 0]);
    let result = fold("u64 prod", &[&u64::MAX.to_le_bytes(), &u64::MAX.to_le_bytes()]);
    assert_eq!(result, 1_u64.to_le_bytes());
    assert_eq!(fold("i64 xor", &[&(-1_i64).to_le_bytes(), &5_i64.to_le_bytes()]), (-6_i64).to_le_bytes());
    assert_eq!(fold("u8 and", &[&[0b1100], &[0b1010]]), [0b1000]);
    assert_eq!(fold("u8 or", &[&[0b1100], &[0b1010]]), [0b1110]);
}

#[test]
fn floats_are_folded_in_the_order_given() {
    // 1e16 + 1 loses the 1; it depends on the tree whether that happens.
    let inputs = [1e16, 1.0, -1e16];
    assert_eq!(fold_f64("sum", &inputs), 0.0);
    let tree = ReferenceOrder::from_tree(9, |place| match place {
        9 => ReferenceOrderNode::Node(vec![0, 2, 1]),
        rank => ReferenceOrderNode::Rank(Rank(rank)),
    });
    let result = reference_of(&operation("f64 sum", 1), &tree, |rank| inputs[rank.index()].to_le_bytes().to_vec());
    assert_eq!(result, 1.0_f64.to_le_bytes());
}

#[test]
fn nested_nodes_are_folded_before_their_parents() {
    let inputs = [1.0_f64, 1e16, 1.0, -1e16];
    let bytes = |rank: Rank| inputs[rank.index()].to_le_bytes().to_vec();
    let pair = |a, b| ReferenceOrder::node([ReferenceOrder::rank(Rank(a)), ReferenceOrder::rank(Rank(b))]);
    let sum = operation("f64 sum", 1);
    assert_eq!(reference_of(&sum, &ReferenceOrder::node([pair(0, 2), pair(1, 3)]), bytes), 2.0_f64.to_le_bytes());
    assert_eq!(reference_of(&sum, &ReferenceOrder::node([pair(0, 1), pair(2, 3)]), bytes), 0.0_f64.to_le_bytes());
    let with_empty = ReferenceOrder::node([ReferenceOrder::node([]), ReferenceOrder::node([pair(0, 2)])]);
    assert_eq!(reference_of(&sum, &with_empty, bytes), 2.0_f64.to_le_bytes());
}

#[test]
fn nan_is_canonical_and_zeros_have_an_order() {
    let nan = f64::from_bits(0xfff0_0000_0000_0001);
    for operator in ["sum", "prod", "min", "max"] {
        assert_eq!(fold_f64(operator, &[1.0, nan]).to_bits(), 0x7ff8_0000_0000_0000);
    }
    assert_eq!(fold_f64("sum", &[f64::INFINITY, f64::NEG_INFINITY]).to_bits(), 0x7ff8_0000_0000_0000);
    assert_eq!(fold_f64("min", &[0.0, -0.0]).to_bits(), 1 << 63);
    assert_eq!(fold_f64("max", &[-0.0, 0.0]).to_bits(), 0);
    assert_eq!(fold("f32 max", &[&[1, 0, 0x80, 0xff], &[0; 4]]), 0x7fc0_0000_u32.to_le_bytes());
}

#[test]
fn small_floats_round_at_every_step() {
    let (large, one) = (0x6800_u16.to_le_bytes(), 0x3c00_u16.to_le_bytes());
    assert_eq!(fold("f16 sum", &[&large, &one, &one]), large);
    let (large, one) = (0x4380_u16.to_le_bytes(), 0x3f80_u16.to_le_bytes());
    assert_eq!(fold("bf16 sum", &[&large, &one, &one]), large);
    assert_eq!(fold("f32 sum", &[&16_777_216_f32.to_le_bytes(), &1_f32.to_le_bytes()]), 16_777_216_f32.to_le_bytes());
}

#[test]
fn of_equal_values_the_smaller_index_wins() {
    let pair = |value: i32, index: i32| [value.to_le_bytes(), index.to_le_bytes()].concat();
    assert_eq!(fold("i32 minloc", &[&pair(-3, 9), &pair(-3, 4), &pair(5, 0)]), pair(-3, 4));
    assert_eq!(fold("i32 maxloc", &[&pair(-3, 9), &pair(5, 7), &pair(5, 8)]), pair(5, 7));
    let nan = [f32::NAN.to_le_bytes(), 6_i32.to_le_bytes()].concat();
    let zero = [0_f32.to_le_bytes(), 1_i32.to_le_bytes()].concat();
    assert_eq!(fold("f32 minloc", &[&zero, &nan]), nan);
    assert_eq!(fold("u8 minloc", &[&[7, 1, 2, 3, 4, 0, 0, 0], &[9; 8]]), [7, 0, 0, 0, 4, 0, 0, 0]);
}

#[test]
#[should_panic(expected = "is not defined")]
fn the_maximum_of_exact_sums_is_not_defined() {
    reference(1, OpId(0), &operation("wide-f64 max", 1), &ReferenceOrder::flat(2));
}

#[test]
#[should_panic(expected = "is not defined")]
fn bitwise_operators_on_floats_are_not_defined() {
    reference(1, OpId(0), &operation("f64 and", 1), &ReferenceOrder::flat(2));
}

#[test]
fn contributions_depend_on_every_argument_and_on_nothing_else() {
    let base = operation("f64 sum", 4);
    let first = contribution(1, Rank(2), OpId(3), &base);
    assert_eq!(first, contribution(1, Rank(2), OpId(3), &base));
    assert_eq!(first.len(), base.bytes());
    assert_ne!(first, contribution(2, Rank(2), OpId(3), &base));
    assert_ne!(first, contribution(1, Rank(3), OpId(3), &base));
    assert_ne!(first, contribution(1, Rank(2), OpId(4), &base));
    assert_ne!(first, contribution(1, Rank(3), OpId(2), &base));
}

#[test]
fn pairs_tie_often_and_never_share_an_index() {
    let pairs = operation("i32 maxloc", 1);
    let inputs: Vec<Vec<u8>> = (0..64).map(|rank| contribution(5, Rank(rank), OpId(0), &pairs)).collect();
    let distinct = |range: std::ops::Range<usize>| {
        inputs.iter().map(|pair| &pair[range.clone()]).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert!(distinct(0..4) <= 8);
    assert_eq!(distinct(4..8), 64);
}

#[test]
fn edge_contributions_have_nan_and_plain_ones_do_not() {
    let halves = operation("f16 max", 400);
    let is_nan = |bytes: &[u8]| bytes.chunks(2).any(|half| half == [0x00, 0x7e]);
    assert!(is_nan(&edge_contribution(1, Rank(0), OpId(0), &halves)));
    assert!(!is_nan(&contribution(1, Rank(0), OpId(0), &halves)));
}

/// Folds the ranks of a list, which may omit or repeat some.
fn fold_ranks(seed: u64, operation: &Reduction, ranks: &[u32]) -> Vec<u8> {
    let order = ReferenceOrder::node(ranks.iter().map(|rank| ReferenceOrder::rank(Rank(*rank))));
    reference(seed, OpId(0), operation, &order)
}

fn sensitive_operations() -> impl Strategy<Value = Reduction> {
    let of =
        |elements: Vec<ReductionElement>, operators: Vec<ReductionOperator>| {
            (prop::sample::select(elements), prop::sample::select(operators))
                .prop_map(|(element, operator)| Reduction { element, operator, count: 1 })
        };
    let elements = || ReductionElement::ALL.iter().copied();
    let integers = elements().filter(|element| !element.is_float() && !element.is_wide()).collect();
    let exact = elements().filter(|element| element.is_wide()).collect();
    let long_floats = elements().filter(|element| element.is_float() && element.bytes() >= 4).collect();
    let bits = vec![ReductionOperator::Sum, ReductionOperator::Prod, ReductionOperator::Xor];
    prop_oneof![
        of(integers, bits),
        of(long_floats, vec![ReductionOperator::Sum]),
        of(exact, vec![ReductionOperator::Sum])
    ]
}

proptest! {
    #[test]
    fn losing_or_duplicating_any_rank_changes_even_a_single_element(
        seed: u64,
        operation in sensitive_operations(),
        ranks in 2_u32..300,
        culprit: prop::sample::Index,
    ) {
        let culprit = culprit.index(ranks as usize);
        let all: Vec<u32> = (0..ranks).collect();
        let right = fold_ranks(seed, &operation, &all);
        let mut lost = all.clone();
        lost.remove(culprit);
        prop_assert_ne!(&right, &fold_ranks(seed, &operation, &lost));
        let mut duplicated = all;
        duplicated.insert(culprit, culprit as u32);
        prop_assert_ne!(&right, &fold_ranks(seed, &operation, &duplicated));
    }

    #[test]
    fn losing_any_rank_changes_a_packet_of_small_floats_or_of_products(
        seed: u64,
        name in prop::sample::select(vec!["f16 sum", "bf16 sum", "f16 prod", "bf16 prod", "f32 prod", "f64 prod"]),
        ranks in 2_u32..300,
        culprit: prop::sample::Index,
    ) {
        let operation = operation(name, 32);
        let all: Vec<u32> = (0..ranks).collect();
        let mut lost = all.clone();
        lost.remove(culprit.index(ranks as usize));
        prop_assert_ne!(fold_ranks(seed, &operation, &all), fold_ranks(seed, &operation, &lost));
    }

    #[test]
    fn another_tree_does_not_change_exact_sums(seed: u64, ranks in 1_u32..60, fan_out in 2_u32..8) {
        for name in ["wide-f32 sum", "wide-f64 sum"] {
            let operation = operation(name, 5);
            let flat = reference(seed, OpId(0), &operation, &ReferenceOrder::flat(ranks));
            let leaf = |first: u32| ReferenceOrder::node((first..ranks.min(first + fan_out)).map(|rank| ReferenceOrder::rank(Rank(rank))));
            let tree = ReferenceOrder::node((0..ranks).step_by(fan_out as usize).rev().map(leaf));
            prop_assert_eq!(&flat, &reference(seed, OpId(0), &operation, &tree), "{}", name);
        }
    }

    #[test]
    fn another_tree_changes_a_packet_of_float_sums(seed: u64, ranks in 16_u32..300, fan_out in 2_u32..8) {
        for name in ["f32 sum", "f64 sum"] {
            let operation = operation(name, 32);
            let flat = reference(seed, OpId(0), &operation, &ReferenceOrder::flat(ranks));
            let leaf = |first: u32| ReferenceOrder::node((first..ranks.min(first + fan_out)).map(|rank| ReferenceOrder::rank(Rank(rank))));
            let tree = ReferenceOrder::node((0..ranks).step_by(fan_out as usize).map(leaf));
            prop_assert_ne!(&flat, &reference(seed, OpId(0), &operation, &tree), "{}", name);
            let backwards = ReferenceOrder::node((0..ranks).rev().map(|rank| ReferenceOrder::rank(Rank(rank))));
            prop_assert_ne!(&flat, &reference(seed, OpId(0), &operation, &backwards), "{}", name);
        }
    }
}

#[test]
fn losing_one_of_ten_thousand_ranks_changes_the_result() {
    for name in ["f32 sum", "f64 sum"] {
        let operation = operation(name, 1);
        let all: Vec<u32> = (0..10_000).collect();
        let right = fold_ranks(7, &operation, &all);
        for culprit in [0, 17, 5_000, 9_999] {
            let mut lost = all.clone();
            lost.remove(culprit);
            assert_ne!(right, fold_ranks(7, &operation, &lost), "{name} without rank {culprit}");
        }
    }
}

/// The fast fold of a table's windows and the naive fold of the same bytes give the same result.
#[test]
fn a_table_folds_its_windows_as_the_naive_reference_does() {
    let orders = [
        ReferenceOrder::flat(7),
        ReferenceOrder::node([ReferenceOrder::flat(3), ReferenceOrder::rank(Rank(5)), ReferenceOrder::flat(5)]),
    ];
    for element in ReductionElement::ALL {
        for operator in ReductionOperator::ALL {
            let operation = Reduction { element: *element, operator: *operator, count: 9 };
            if !operation.is_defined() {
                continue;
            }
            let table = ContributionTable::new(3, 7, operation);
            for (order, op) in orders.iter().zip([OpId(0), OpId(41)]) {
                let naive = reference_of(&operation, order, |rank| table.contribution(rank, op).to_vec());
                assert_eq!(table.reference(op, order), naive, "{operation}");
                let bytes = operation.element_bytes();
                assert_eq!(table.reference_range(op, order, 2..6), naive[2 * bytes..6 * bytes], "{operation}");
            }
        }
    }
}

#[test]
fn windows_of_one_operation_differ_between_ranks_and_operations() {
    let table = ContributionTable::new(1, 5_000, operation("u64 sum", 4));
    let window = |rank: u32, op: u32| table.contribution(Rank(rank), OpId(op)).to_vec();
    let distinct: std::collections::BTreeSet<Vec<u8>> = (0..5_000).map(|rank| window(rank, 0)).collect();
    assert_eq!(distinct.len(), 5_000);
    assert_eq!((0..5_000).filter(|rank| window(*rank, 0) == window(*rank, 1)).count(), 0);
}

/// Without any one of the contributions, with one twice, or with one of another operation, the result is another.
#[test]
fn a_lost_doubled_or_stale_window_shows_in_the_result() {
    for name in ["f64 sum", "f32 sum", "bf16 sum", "i32 prod", "u8 xor", "f64 prod"] {
        let operation = operation(name, 32);
        let table = ContributionTable::new(11, 40, operation);
        let order = ReferenceOrder::flat(40);
        let right = table.reference(OpId(1), &order);
        for odd in 0..40 {
            let without = ReferenceOrder::node(
                (0..40).filter(|rank| *rank != odd).map(|rank| ReferenceOrder::rank(Rank(rank))),
            );
            assert_ne!(table.reference(OpId(1), &without), right, "{name} without {odd}");
            let stale = reference_of(&operation, &order, |rank| {
                table.contribution(rank, OpId(u32::from(rank.0 != odd))).to_vec()
            });
            assert_ne!(stale, right, "{name} with a stale {odd}");
        }
    }
}

/// Regression: with as many ranks as windows, the windows of all operations together were the same, and so were the results.
#[test]
fn with_any_number_of_ranks_operations_have_different_results() {
    for (name, ranks) in [("u64 sum", 4096), ("u32 xor", 4096), ("u8 max", 64), ("u64 sum", 65_536)] {
        let table = ContributionTable::new(11, ranks, operation(name, 4));
        let order = ReferenceOrder::flat(ranks);
        assert_ne!(table.reference(OpId(1), &order), table.reference(OpId(2), &order), "{name}, {ranks} ranks");
    }
    let ranks = 1 << 17;
    let table = ContributionTable::new(11, ranks, operation("u64 sum", 2));
    let mut windows: Vec<&[u8]> = (0..ranks).map(|rank| table.contribution(Rank(rank), OpId(3))).collect();
    windows.sort_unstable();
    windows.dedup();
    assert_eq!(windows.len(), ranks as usize, "no two ranks share a window");
}
