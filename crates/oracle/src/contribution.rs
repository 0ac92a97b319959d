//! The contribution of each rank: a pure function of seed, rank, operation number and operation.
//!
//! In: these four. Out: bytes. The values are chosen so that a defect shows: losing, duplicating or corrupting a
//! contribution must change the result, and for floats another fold order should.
//! - Sums and xors of integers: the full range without zero. Products: odd and not one, since odd numbers stay distinct
//!   under wrapping multiplication and even ones soon make everything zero.
//! - Sums of floats: both signs, full mantissas, exponents as far apart as possible without losing the small ones, for some
//!   ten thousand ranks (`f16`, `bf16`: some dozens per element).
//! - Exact sums: single floats, with exponents over the whole range.
//! - Products of floats: on both sides of one, never one, so that thousands neither vanish nor overflow.
//! - Minima and maxima: the full range. Pairs: few distinct values, so that ties occur, with indices that do not grow with
//!   the rank, so that "the first wins" differs from "the smallest index wins".
//! - And, or: a single bit that differs from all the others.

use units::{GOLDEN_GAMMA, OpId, Rank, mix64, splitmix64};

use crate::exact_sum::ExactSum;
use crate::reduction::{Reduction, ReductionElement, ReductionOperator};
use crate::small_float::two_to;
use crate::value::{ElementValue, ScalarValue};

/// The contribution of `rank` to operation number `op`. Floats are normal numbers: no NaN, infinities or zeros.
///
/// # Panics
/// The operation is not defined for the element type.
pub fn contribution(seed: u64, rank: Rank, op: OpId, operation: &Reduction) -> Vec<u8> {
    fill(seed, rank, op, operation, plain_number)
}

/// As [`contribution`], but with many NaN, infinities, zeros of both signs, subnormals and largest values.
///
/// # Panics
/// The operation is not defined for the element type.
pub fn edge_contribution(seed: u64, rank: Rank, op: OpId, operation: &Reduction) -> Vec<u8> {
    fill(seed, rank, op, operation, edge_number)
}

fn fill(
    seed: u64,
    rank: Rank,
    op: OpId,
    operation: &Reduction,
    number: fn(&Reduction, &mut KeyedRandom) -> ScalarValue,
) -> Vec<u8> {
    assert!(operation.is_defined(), "{operation} is not defined");
    let random_of = |who: u64| KeyedRandom::new([seed, op.0.into(), who]);
    let (own, shared) = (random_of(rank.0.into()), random_of(SHARED));
    let few: [KeyedRandom; 8] = std::array::from_fn(|which| random_of(SHARED + 1 + which as u64));
    let mut bytes = Vec::with_capacity(operation.bytes());
    for position in 0..operation.count as u64 {
        let mut own = own.at(position);
        let value = if operation.operator.is_located() {
            let index = (rank.0 ^ shared.at(position).next_u64() as u32) as i32 & i32::MAX;
            let mut one_of_few = few[own.next_u64() as usize % few.len()].at(position);
            ElementValue { number: number(operation, &mut one_of_few), index }
        } else {
            ElementValue { number: number(operation, &mut own), index: 0 }
        };
        append(operation, value, &mut bytes);
    }
    bytes
}

/// So many elements that are drawn like contributions. Any window of them is a contribution: the few values of pairs are the same
/// at every position, so that ties occur between windows.
pub(crate) fn table_numbers(seed: u64, operation: &Reduction, length: usize) -> Vec<u8> {
    let own = KeyedRandom::new([seed, TABLE, 0]);
    let few: [KeyedRandom; 8] = std::array::from_fn(|which| KeyedRandom::new([seed, TABLE, SHARED + which as u64]));
    let mut bytes = Vec::with_capacity(length * operation.element_bytes());
    for position in 0..length as u64 {
        let mut random = own.at(position);
        let value = if operation.operator.is_located() {
            let (which, index) = (random.next_u64() as usize % few.len(), random.next_u64() as i32 & i32::MAX);
            ElementValue { number: plain_number(operation, &mut few[which].at(0)), index }
        } else {
            ElementValue { number: plain_number(operation, &mut random), index: 0 }
        };
        append(operation, value, &mut bytes);
    }
    bytes
}

/// Appends an element; a float as the exact sum of itself where elements are wide.
fn append(operation: &Reduction, value: ElementValue, bytes: &mut Vec<u8>) {
    match value.number {
        ScalarValue::Float(number) if operation.element.is_wide() => {
            let mut sum = ExactSum::new(operation.element);
            sum.add(number);
            bytes.extend(sum.wide_bytes());
        }
        _ => value.encode(operation, bytes),
    }
}

/// Above every operation number: the key of tables.
const TABLE: u64 = 1 << 32;
/// Above every rank: the key of numbers that all ranks share at a position.
const SHARED: u64 = 1 << 32;

fn plain_number(operation: &Reduction, random: &mut KeyedRandom) -> ScalarValue {
    if operation.element.is_float() || operation.element.is_wide() {
        ScalarValue::Float(plain_float(operation, random))
    } else {
        ScalarValue::Integer(plain_integer(operation, random))
    }
}

fn plain_integer(operation: &Reduction, random: &mut KeyedRandom) -> i128 {
    let width = 8 * operation.element.bytes() as u32;
    let mask = u64::MAX >> (64 - width);
    let bits = match operation.operator {
        ReductionOperator::Sum | ReductionOperator::Xor => random.next_until(|bits| bits & mask != 0),
        ReductionOperator::Prod => random.next_until(|bits| bits & mask & !1 != 0) | 1,
        ReductionOperator::And => !(1 << (random.next_u64() % u64::from(width))),
        ReductionOperator::Or => 1 << (random.next_u64() % u64::from(width)),
        ReductionOperator::Min | ReductionOperator::Max | ReductionOperator::MinLoc | ReductionOperator::MaxLoc => {
            random.next_u64()
        }
    };
    number_of_bits(operation.element, bits & mask)
}

/// The number, not the bits, since [`ElementValue`] holds numbers: a minimum is never one of raw patterns.
fn number_of_bits(element: ReductionElement, bits: u64) -> i128 {
    let width = 8 * element.bytes() as u32;
    if element.is_signed_integer() && bits >> (width - 1) == 1 {
        i128::from(bits) - (1 << width)
    } else {
        bits.into()
    }
}

fn plain_float(operation: &Reduction, random: &mut KeyedRandom) -> f64 {
    let (lowest, highest) = match (operation.operator, operation.element) {
        (ReductionOperator::Prod, _) => return near_one(random),
        (ReductionOperator::Sum, ReductionElement::F64) => (-16, 16),
        (ReductionOperator::Sum, ReductionElement::F32) => (-3, 3),
        (_, ReductionElement::WideF32) => (-126, 126),
        (_, ReductionElement::WideF64) => (-1022, 1022),
        (ReductionOperator::Sum, _) => (0, 1),
        (_, ReductionElement::F16) => (-14, 14),
        (_, ReductionElement::F64) => (-1022, 1022),
        _ => (-126, 126),
    };
    let exponent = lowest + (random.next_u64() % (highest - lowest + 1) as u64) as i32;
    let number = random.sign() * (1.0 + random.fraction()) * two_to(exponent);
    if operation.element == ReductionElement::WideF32 { (number as f32).into() } else { number }
}

/// Between 1/16 and 1/8 above or below one: far enough that `bf16` does not round it to one.
fn near_one(random: &mut KeyedRandom) -> f64 {
    let distance = (1.0 + random.fraction()) / 16.0;
    let sign = random.sign();
    sign * (1.0 + random.sign() * distance)
}

fn edge_number(operation: &Reduction, random: &mut KeyedRandom) -> ScalarValue {
    let choice = random.next_u64() % 12;
    if !operation.element.is_float() && !operation.element.is_wide() {
        let width = 8 * operation.element.bytes() as u32;
        let edges = [0, 1, u64::MAX, 1 << (width - 1), (1 << (width - 1)) - 1];
        return match edges.get(choice as usize) {
            Some(bits) => ScalarValue::Integer(number_of_bits(operation.element, bits & (u64::MAX >> (64 - width)))),
            None => plain_number(operation, random),
        };
    }
    let (largest, smallest) = match operation.element {
        ReductionElement::F16 => (65504.0, two_to(-24)),
        ReductionElement::Bf16 => (two_to(127) * (2.0 - two_to(-7)), two_to(-133)),
        ReductionElement::F32 | ReductionElement::WideF32 => (f64::from(f32::MAX), two_to(-149)),
        _ => (f64::MAX, f64::from_bits(1)),
    };
    let sign = random.sign();
    ScalarValue::Float(match choice {
        0 => f64::NAN,
        1 => sign * f64::INFINITY,
        2 | 3 => sign * 0.0,
        4 => sign * smallest,
        5 => sign * smallest * 3.0,
        6 => sign * largest,
        _ => plain_float(operation, random),
    })
}

/// A generator of random numbers that depends only on its key.
struct KeyedRandom {
    state: u64,
}

impl KeyedRandom {
    fn new(key: [u64; 3]) -> Self {
        Self { state: key.into_iter().fold(0, |state, part| mix64(state ^ mix64(part.wrapping_add(GOLDEN_GAMMA)))) }
    }

    /// The generator for one position of a vector, independent of all others.
    fn at(&self, position: u64) -> Self {
        Self { state: mix64(self.state ^ mix64(position.wrapping_add(GOLDEN_GAMMA))) }
    }

    fn next_u64(&mut self) -> u64 {
        splitmix64(&mut self.state)
    }

    fn next_until(&mut self, good: impl Fn(u64) -> bool) -> u64 {
        loop {
            let number = self.next_u64();
            if good(number) {
                return number;
            }
        }
    }

    fn sign(&mut self) -> f64 {
        if self.next_u64() >> 63 == 0 { 1.0 } else { -1.0 }
    }

    /// In `0.0..1.0`, with 52 random bits.
    fn fraction(&mut self) -> f64 {
        (self.next_u64() >> 12) as f64 / two_to(52)
    }
}
