//! Many elements as numbers of 64 bits, for references over thousands of ranks: one plain loop for each operator.
//!
//! In: the bytes of a table, and windows of it. Out: their fold in a [`ReferenceOrder`], as bytes. The arithmetic is that of
//! `value`, one type at a time: integers wrap at 64 bits and are truncated at the end, floats are `f64` and rounded to their own
//! format after every step. A test compares both for every element type and operator.

use crate::reduction::{Reduction, ReductionElement, ReductionOperator};
use crate::reference_order::{ReferenceOrder, ReferenceOrderStep};
use crate::small_float;
use crate::value::{ElementValue, ScalarValue};

/// A list of elements of one type.
#[derive(Clone, Debug)]
pub(crate) enum Column {
    Signed(Vec<i64>),
    Unsigned(Vec<u64>),
    Float(Vec<f64>),
    Pair(Vec<ElementValue>),
}

impl Column {
    /// Decodes whole elements; none for exact sums.
    pub(crate) fn decode(operation: &Reduction, bytes: &[u8]) -> Option<Self> {
        let values =
            || bytes.chunks(operation.element_bytes()).map(|element| ElementValue::decode(operation, element));
        let integer = |value: ElementValue| match value.number {
            ScalarValue::Integer(integer) => integer,
            ScalarValue::Float(_) => unreachable!("integers decode to integers"),
        };
        let float = |value: ElementValue| match value.number {
            ScalarValue::Float(float) => float,
            ScalarValue::Integer(_) => unreachable!("floats decode to floats"),
        };
        Some(match operation.element {
            element if element.is_wide() => return None,
            _ if operation.operator.is_located() => Self::Pair(values().collect()),
            element if element.is_float() => Self::Float(values().map(float).collect()),
            element if element.is_signed_integer() => {
                Self::Signed(values().map(|value| integer(value) as i64).collect())
            }
            _ => Self::Unsigned(values().map(|value| integer(value) as u64).collect()),
        })
    }

    /// Folds the window of each rank of `order`; `start_of` returns its first element.
    pub(crate) fn fold(
        &self,
        operation: &Reduction,
        order: &ReferenceOrder,
        start_of: impl Fn(units::Rank) -> usize,
    ) -> Self {
        let window = |rank| {
            let start = start_of(rank);
            start..start + operation.count
        };
        let operator = operation.operator;
        match self {
            Self::Signed(all) => {
                Self::Signed(fold_tree(order, |rank| &all[window(rank)], |sum, next| signed(operator, sum, next)))
            }
            Self::Unsigned(all) => {
                Self::Unsigned(fold_tree(order, |rank| &all[window(rank)], |sum, next| unsigned(operator, sum, next)))
            }
            Self::Float(all) => {
                Self::Float(fold_tree(order, |rank| &all[window(rank)], |sum, next| floats(operation, sum, next)))
            }
            Self::Pair(all) => Self::Pair(fold_tree(
                order,
                |rank| &all[window(rank)],
                |sum, next| each(sum, next, |left, right| left.fold(operation, right)),
            )),
        }
    }

    /// The elements' bytes.
    pub(crate) fn encode(self, operation: &Reduction) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(operation.bytes());
        let scalar = |number| ElementValue { number, index: 0 };
        match self {
            Self::Signed(all) => {
                all.iter()
                    .for_each(|number| scalar(ScalarValue::Integer((*number).into())).encode(operation, &mut bytes));
            }
            Self::Unsigned(all) => {
                all.iter()
                    .for_each(|number| scalar(ScalarValue::Integer((*number).into())).encode(operation, &mut bytes));
            }
            Self::Float(all) => {
                all.iter().for_each(|number| scalar(ScalarValue::Float(*number)).encode(operation, &mut bytes));
            }
            Self::Pair(all) => all.iter().for_each(|value| value.encode(operation, &mut bytes)),
        }
        bytes
    }
}

/// Folds windows in an order; a node keeps the fold of its operands so far.
fn fold_tree<'a, T: Copy + 'a>(
    order: &ReferenceOrder,
    window: impl Fn(units::Rank) -> &'a [T],
    fold: impl Fn(&mut [T], &[T]),
) -> Vec<T> {
    let mut outermost: Option<Vec<T>> = None;
    let mut open: Vec<Option<Vec<T>>> = Vec::new();
    for step in order.steps() {
        match step {
            ReferenceOrderStep::Open => open.push(None),
            ReferenceOrderStep::Rank(rank) => match open.last_mut().unwrap_or(&mut outermost) {
                Some(sum) => fold(sum, window(*rank)),
                first => *first = Some(window(*rank).to_vec()),
            },
            ReferenceOrderStep::Close => {
                let Some(inner) = open.pop().expect("every Close has its Open") else { continue };
                match open.last_mut().unwrap_or(&mut outermost) {
                    Some(sum) => fold(sum, &inner),
                    first => *first = Some(inner),
                }
            }
        }
    }
    outermost.expect("the order has a rank")
}

#[inline]
fn each<T: Copy>(sum: &mut [T], next: &[T], fold: impl Fn(T, T) -> T) {
    for (left, right) in sum.iter_mut().zip(next) {
        *left = fold(*left, *right);
    }
}

fn signed(operator: ReductionOperator, sum: &mut [i64], next: &[i64]) {
    match operator {
        ReductionOperator::Sum => each(sum, next, i64::wrapping_add),
        ReductionOperator::Prod => each(sum, next, i64::wrapping_mul),
        ReductionOperator::Min => each(sum, next, i64::min),
        ReductionOperator::Max => each(sum, next, i64::max),
        ReductionOperator::And => each(sum, next, |left, right| left & right),
        ReductionOperator::Or => each(sum, next, |left, right| left | right),
        ReductionOperator::Xor => each(sum, next, |left, right| left ^ right),
        ReductionOperator::MinLoc | ReductionOperator::MaxLoc => unreachable!("pairs have a column of their own"),
    }
}

fn unsigned(operator: ReductionOperator, sum: &mut [u64], next: &[u64]) {
    match operator {
        ReductionOperator::Sum => each(sum, next, u64::wrapping_add),
        ReductionOperator::Prod => each(sum, next, u64::wrapping_mul),
        ReductionOperator::Min => each(sum, next, u64::min),
        ReductionOperator::Max => each(sum, next, u64::max),
        ReductionOperator::And => each(sum, next, |left, right| left & right),
        ReductionOperator::Or => each(sum, next, |left, right| left | right),
        ReductionOperator::Xor => each(sum, next, |left, right| left ^ right),
        ReductionOperator::MinLoc | ReductionOperator::MaxLoc => unreachable!("pairs have a column of their own"),
    }
}

fn floats(operation: &Reduction, sum: &mut [f64], next: &[f64]) {
    match operation.element {
        ReductionElement::F32 => rounded(operation.operator, sum, next, |number| (number as f32).into()),
        ReductionElement::F16 => rounded(operation.operator, sum, next, |number| small_float::F16.round(number)),
        ReductionElement::Bf16 => {
            rounded(operation.operator, sum, next, |number| small_float::BF16.round((number as f32).into()))
        }
        _ => rounded(operation.operator, sum, next, |number| number),
    }
}

/// NaN wins everywhere and becomes canonical when it is encoded.
#[inline]
fn rounded(operator: ReductionOperator, sum: &mut [f64], next: &[f64], round: impl Fn(f64) -> f64) {
    let extreme = |left: f64, right: f64, takes_left: bool| match (left.is_nan() || right.is_nan(), takes_left) {
        (true, _) => f64::NAN,
        (false, true) => left,
        (false, false) => right,
    };
    match operator {
        ReductionOperator::Sum => each(sum, next, |left, right| round(left + right)),
        ReductionOperator::Prod => each(sum, next, |left, right| round(left * right)),
        ReductionOperator::Min => each(sum, next, |left, right| extreme(left, right, left.total_cmp(&right).is_lt())),
        ReductionOperator::Max => each(sum, next, |left, right| extreme(left, right, left.total_cmp(&right).is_gt())),
        operator => unreachable!("{operator} of floats is not defined"),
    }
}
