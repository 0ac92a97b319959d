//! Elements as wide values: decodes, folds and encodes them.
//!
//! Integers are `i128`: wrapping there and truncating to the width at the end equals wrapping at every step, in any order.
//! Floats are `f64`, rounded to their own format after every step. For `f16` and `f32` that equals computing in the format
//! itself (`f64` has more than twice their bits plus two); `bf16` is defined as computed in `f32`, so it is first rounded to
//! `f32`. Wide elements are not handled here: `exact_sum` adds them.

use std::cmp::Ordering;

use crate::reduction::{Reduction, ReductionElement, ReductionOperator};
use crate::small_float;

/// An element: a number, and its index for the operators on pairs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ElementValue {
    pub(crate) number: ScalarValue,
    pub(crate) index: i32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ScalarValue {
    Integer(i128),
    Float(f64),
}

impl ElementValue {
    #[inline]
    pub(crate) fn decode(operation: &Reduction, bytes: &[u8]) -> Self {
        let width = operation.element.bytes();
        let unsigned = bytes[..width].iter().rev().fold(0_u64, |bits, byte| (bits << 8) | u64::from(*byte));
        let number = match operation.element {
            ReductionElement::F16 => ScalarValue::Float(small_float::F16.decode(unsigned as u16)),
            ReductionElement::Bf16 => ScalarValue::Float(small_float::BF16.decode(unsigned as u16)),
            ReductionElement::F32 => ScalarValue::Float(f32::from_bits(unsigned as u32).into()),
            ReductionElement::F64 => ScalarValue::Float(f64::from_bits(unsigned)),
            element if element.is_signed_integer() && unsigned >> (8 * width - 1) == 1 => {
                ScalarValue::Integer(i128::from(unsigned) - (1 << (8 * width)))
            }
            _ => ScalarValue::Integer(unsigned.into()),
        };
        let index = if operation.operator.is_located() {
            let at = operation.index_offset();
            i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        } else {
            0
        };
        Self { number, index }
    }

    /// Appends the element's bytes; padding is zero, NaN is canonical.
    #[inline]
    pub(crate) fn encode(self, operation: &Reduction, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        let bits = match (self.number, operation.element) {
            (ScalarValue::Integer(integer), _) => integer as u64,
            (ScalarValue::Float(number), ReductionElement::F16) => small_float::F16.encode(number).into(),
            (ScalarValue::Float(number), ReductionElement::Bf16) => small_float::BF16.encode(number).into(),
            (ScalarValue::Float(number), ReductionElement::F32) if number.is_nan() => 0x7fc0_0000,
            (ScalarValue::Float(number), ReductionElement::F32) => (number as f32).to_bits().into(),
            (ScalarValue::Float(number), _) if number.is_nan() => 0x7ff8_0000_0000_0000,
            (ScalarValue::Float(number), _) => number.to_bits(),
        };
        bytes.extend_from_slice(&bits.to_le_bytes()[..operation.element.bytes()]);
        if operation.operator.is_located() {
            bytes.resize(start + operation.index_offset(), 0);
            bytes.extend_from_slice(&self.index.to_le_bytes());
            bytes.resize(start + operation.element_bytes(), 0);
        }
    }

    #[inline]
    pub(crate) fn fold(self, operation: &Reduction, other: Self) -> Self {
        match operation.operator {
            ReductionOperator::MinLoc => self.select_by_order(other, Ordering::Less),
            ReductionOperator::MaxLoc => self.select_by_order(other, Ordering::Greater),
            _ => Self { number: fold_numbers(operation, self.number, other.number), index: 0 },
        }
    }

    /// The pair whose value compares as `wanted`; of two equal values, the one with the smaller index.
    #[inline]
    fn select_by_order(self, other: Self, wanted: Ordering) -> Self {
        let side = match (self.number, other.number) {
            (ScalarValue::Float(a), ScalarValue::Float(b)) if a.is_nan() || b.is_nan() => {
                match (a.is_nan(), b.is_nan()) {
                    (true, true) => Ordering::Equal,
                    (true, false) => wanted,
                    _ => wanted.reverse(),
                }
            }
            (a, b) => compare(a, b),
        };
        match side {
            Ordering::Equal if other.index < self.index => other,
            Ordering::Equal => self,
            side if side == wanted => self,
            _ => other,
        }
    }
}

#[inline]
fn fold_numbers(operation: &Reduction, left: ScalarValue, right: ScalarValue) -> ScalarValue {
    match (left, right) {
        (ScalarValue::Integer(left), ScalarValue::Integer(right)) => ScalarValue::Integer(match operation.operator {
            ReductionOperator::Sum => left.wrapping_add(right),
            ReductionOperator::Prod => left.wrapping_mul(right),
            ReductionOperator::Min => left.min(right),
            ReductionOperator::Max => left.max(right),
            ReductionOperator::And => left & right,
            ReductionOperator::Or => left | right,
            ReductionOperator::Xor => left ^ right,
            ReductionOperator::MinLoc | ReductionOperator::MaxLoc => unreachable!("pairs are handled by the caller"),
        }),
        (ScalarValue::Float(left), ScalarValue::Float(right)) => ScalarValue::Float(match operation.operator {
            _ if left.is_nan() || right.is_nan() => f64::NAN,
            ReductionOperator::Sum => round(operation.element, left + right),
            ReductionOperator::Prod => round(operation.element, left * right),
            ReductionOperator::Min if left.total_cmp(&right).is_lt() => left,
            ReductionOperator::Max if left.total_cmp(&right).is_gt() => left,
            ReductionOperator::Min | ReductionOperator::Max => right,
            operator => panic!("{operator} of {} is not defined", operation.element),
        }),
        _ => unreachable!("both operands have the same element type"),
    }
}

/// Neither is NaN; -0 is below +0.
fn compare(left: ScalarValue, right: ScalarValue) -> Ordering {
    match (left, right) {
        (ScalarValue::Integer(left), ScalarValue::Integer(right)) => left.cmp(&right),
        (ScalarValue::Float(left), ScalarValue::Float(right)) => left.total_cmp(&right),
        _ => unreachable!("both operands have the same element type"),
    }
}

fn round(element: ReductionElement, number: f64) -> f64 {
    match element {
        ReductionElement::F16 => small_float::F16.round(number),
        ReductionElement::Bf16 => small_float::BF16.round((number as f32).into()),
        ReductionElement::F32 => (number as f32).into(),
        _ => number,
    }
}
