//! The correct result, computed by the simplest method.
//!
//! In: an operation, the fold order, and the contribution of each rank. Out: the bytes that every rank must get. It folds
//! one element and one contribution at a time, and keeps only the open nodes.

use units::{OpId, Rank};

use crate::contribution::contribution;
use crate::exact_sum::ExactSum;
use crate::reduction::Reduction;
use crate::reference_order::{ReferenceOrder, ReferenceOrderStep};
use crate::value::ElementValue;

/// The result of folding the [`contribution`] of each rank of `order`.
///
/// # Panics
/// As [`reference_of`].
pub fn reference(seed: u64, op: OpId, operation: &Reduction, order: &ReferenceOrder) -> Vec<u8> {
    reference_of(operation, order, |rank| contribution(seed, rank, op, operation))
}

/// The result of folding `contribution_of` each rank of `order`.
///
/// # Panics
/// The order has no rank, a contribution has a wrong length, or the operation is not defined: a defect of the caller's
/// scenario, not of the run.
pub fn reference_of(
    operation: &Reduction,
    order: &ReferenceOrder,
    mut contribution_of: impl FnMut(Rank) -> Vec<u8>,
) -> Vec<u8> {
    assert!(operation.is_defined(), "{operation} is not defined");
    if operation.element.is_wide() {
        return exact_reference_of(operation, order, contribution_of);
    }
    let mut outermost = None;
    let mut open: Vec<Option<Vec<ElementValue>>> = Vec::new();
    for step in order.steps() {
        let operand = match step {
            ReferenceOrderStep::Open => {
                open.push(None);
                continue;
            }
            ReferenceOrderStep::Rank(rank) => Some(decode(operation, *rank, &contribution_of(*rank))),
            ReferenceOrderStep::Close => open.pop().expect("every Close has its Open"),
        };
        if let Some(operand) = operand {
            fold(operation, open.last_mut().unwrap_or(&mut outermost), operand);
        }
    }
    let mut bytes = Vec::with_capacity(operation.bytes());
    for value in outermost.expect("the order has a rank") {
        value.encode(operation, &mut bytes);
    }
    bytes
}

/// An exact sum depends only on the ranks, not on the tree.
fn exact_reference_of(
    operation: &Reduction,
    order: &ReferenceOrder,
    mut contribution_of: impl FnMut(Rank) -> Vec<u8>,
) -> Vec<u8> {
    assert!(order.ranks().next().is_some(), "the order has no rank");
    let mut sums = vec![ExactSum::new(operation.element); operation.count];
    for rank in order.ranks() {
        let bytes = contribution_of(rank);
        check_length(operation, rank, &bytes);
        for (sum, element) in sums.iter_mut().zip(bytes.chunks(operation.element_bytes())) {
            sum.add_wide(element);
        }
    }
    sums.iter().flat_map(ExactSum::wide_bytes).collect()
}

fn check_length(operation: &Reduction, rank: Rank, bytes: &[u8]) {
    assert_eq!(bytes.len(), operation.bytes(), "the contribution of {rank} has a wrong length");
}

fn decode(operation: &Reduction, rank: Rank, bytes: &[u8]) -> Vec<ElementValue> {
    check_length(operation, rank, bytes);
    bytes.chunks(operation.element_bytes()).map(|element| ElementValue::decode(operation, element)).collect()
}

fn fold(operation: &Reduction, accumulator: &mut Option<Vec<ElementValue>>, operand: Vec<ElementValue>) {
    match accumulator {
        None => *accumulator = Some(operand),
        Some(values) => {
            for (value, other) in values.iter_mut().zip(operand) {
                *value = value.fold(operation, other);
            }
        }
    }
}
