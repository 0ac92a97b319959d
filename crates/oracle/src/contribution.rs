//! What each rank puts in: a pure function of seed, rank, operation number and operation.
//!
//! In: these four. Out: bytes. The values are chosen so that a mistake shows: losing, doubling or garbling
//! a contribution must change the result, and for floats folding in another order should.
//! - Sums and xors of integers: the full range without zero. Products: odd and not one, since odd numbers
//!   stay apart under wrapping multiplication and even ones soon make everything zero.
//! - Sums of floats: both signs, full mantissas, exponents as far apart as the format can bear without
//!   swallowing the small ones, for some ten thousand ranks (`f16`, `bf16`: some dozens per element).
//! - Exact sums: single floats, with exponents from end to end.
//! - Products of floats: on both sides of one, never one, so that thousands neither vanish nor overflow.
//! - Minima and maxima: the full range. Pairs: few distinct values, so that ties occur, under indices that
//!   do not grow with the rank, so that "the first wins" is not mistaken for "the smallest index wins".
//! - And, or: a single bit that differs from all the others.

use units::{OpId, Rank};

use crate::exact_sum::ExactSum;
use crate::reduction::{Element, Operator, Reduction};
use crate::small_float::two_to;
use crate::value::{ElementValue, ScalarValue};

/// The vector that `rank` puts into operation number `op`. Floats are normal numbers: no NaN, infinities or zeros.
///
/// # Panics
/// If the operation has no meaning.
pub fn contribution(seed: u64, rank: Rank, op: OpId, operation: &Reduction) -> Vec<u8> {
    fill(seed, rank, op, operation, plain_number)
}

/// As [`contribution`], but with many NaN, infinities, zeros of both signs, subnormals and largest values.
///
/// # Panics
/// If the operation has no meaning.
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
    assert!(operation.has_meaning(), "{operation} has no meaning");
    let dice_of = |who: u64| KeyedRandom::new([seed, op.0.into(), who]);
    let (own, shared) = (dice_of(rank.0.into()), dice_of(SHARED));
    let few: [KeyedRandom; 8] = std::array::from_fn(|which| dice_of(SHARED + 1 + which as u64));
    let mut bytes = Vec::with_capacity(operation.bytes());
    for position in 0..operation.count as u64 {
        let mut own = own.at(position);
        let value = if operation.operator.is_located() {
            let index = (rank.0 ^ shared.at(position).roll() as u32) as i32 & i32::MAX;
            let mut one_of_few = few[own.roll() as usize % few.len()].at(position);
            ElementValue { number: number(operation, &mut one_of_few), index }
        } else {
            ElementValue { number: number(operation, &mut own), index: 0 }
        };
        match value.number {
            ScalarValue::Float(number) if operation.element.is_wide() => {
                let mut sum = ExactSum::new(operation.element);
                sum.add(number);
                bytes.extend(sum.wide_bytes());
            }
            _ => value.encode(operation, &mut bytes),
        }
    }
    bytes
}

/// Above every rank: what all ranks have in common at a place of their vectors.
const SHARED: u64 = 1 << 32;

fn plain_number(operation: &Reduction, dice: &mut KeyedRandom) -> ScalarValue {
    if operation.element.is_float() || operation.element.is_wide() {
        ScalarValue::Float(plain_float(operation, dice))
    } else {
        ScalarValue::Integer(plain_integer(operation, dice))
    }
}

fn plain_integer(operation: &Reduction, dice: &mut KeyedRandom) -> i128 {
    let width = 8 * operation.element.bytes() as u32;
    let mask = u64::MAX >> (64 - width);
    let bits = match operation.operator {
        Operator::Sum | Operator::Xor => dice.roll_until(|bits| bits & mask != 0),
        Operator::Prod => dice.roll_until(|bits| bits & mask & !1 != 0) | 1,
        Operator::And => !(1 << (dice.roll() % u64::from(width))),
        Operator::Or => 1 << (dice.roll() % u64::from(width)),
        Operator::Min | Operator::Max | Operator::MinLoc | Operator::MaxLoc => dice.roll(),
    };
    number_of_bits(operation.element, bits & mask)
}

/// The number, not the bits, since [`ElementValue`] holds numbers: minima are never taken of raw patterns.
fn number_of_bits(element: Element, bits: u64) -> i128 {
    let width = 8 * element.bytes() as u32;
    if element.is_signed_integer() && bits >> (width - 1) == 1 {
        i128::from(bits) - (1 << width)
    } else {
        bits.into()
    }
}

fn plain_float(operation: &Reduction, dice: &mut KeyedRandom) -> f64 {
    let (lowest, highest) = match (operation.operator, operation.element) {
        (Operator::Prod, _) => return near_one(dice),
        (Operator::Sum, Element::F64) => (-16, 16),
        (Operator::Sum, Element::F32) => (-3, 3),
        (_, Element::WideF32) => (-126, 126),
        (_, Element::WideF64) => (-1022, 1022),
        (Operator::Sum, _) => (0, 1),
        (_, Element::F16) => (-14, 14),
        (_, Element::F64) => (-1022, 1022),
        _ => (-126, 126),
    };
    let exponent = lowest + (dice.roll() % (highest - lowest + 1) as u64) as i32;
    let number = dice.sign() * (1.0 + dice.fraction()) * two_to(exponent);
    if operation.element == Element::WideF32 { (number as f32).into() } else { number }
}

/// A sixteenth to an eighth above or below one; far enough that `bf16` does not round it to one.
fn near_one(dice: &mut KeyedRandom) -> f64 {
    let distance = (1.0 + dice.fraction()) / 16.0;
    let sign = dice.sign();
    sign * (1.0 + dice.sign() * distance)
}

fn edge_number(operation: &Reduction, dice: &mut KeyedRandom) -> ScalarValue {
    let choice = dice.roll() % 12;
    if !operation.element.is_float() && !operation.element.is_wide() {
        let width = 8 * operation.element.bytes() as u32;
        let edges = [0, 1, u64::MAX, 1 << (width - 1), (1 << (width - 1)) - 1];
        return match edges.get(choice as usize) {
            Some(bits) => ScalarValue::Integer(number_of_bits(operation.element, bits & (u64::MAX >> (64 - width)))),
            None => plain_number(operation, dice),
        };
    }
    let (largest, smallest) = match operation.element {
        Element::F16 => (65504.0, two_to(-24)),
        Element::Bf16 => (two_to(127) * (2.0 - two_to(-7)), two_to(-133)),
        Element::F32 | Element::WideF32 => (f64::from(f32::MAX), two_to(-149)),
        _ => (f64::MAX, f64::from_bits(1)),
    };
    let sign = dice.sign();
    ScalarValue::Float(match choice {
        0 => f64::NAN,
        1 => sign * f64::INFINITY,
        2 | 3 => sign * 0.0,
        4 => sign * smallest,
        5 => sign * smallest * 3.0,
        6 => sign * largest,
        _ => plain_float(operation, dice),
    })
}

/// A stream of numbers that depends on nothing but its key.
struct KeyedRandom {
    state: u64,
}

impl KeyedRandom {
    fn new(key: [u64; 3]) -> Self {
        Self { state: key.into_iter().fold(0, |state, part| mix64(state ^ mix64(part.wrapping_add(GOLDEN)))) }
    }

    /// Dice for one place of a vector, independent of those for any other.
    fn at(&self, position: u64) -> Self {
        Self { state: mix64(self.state ^ mix64(position.wrapping_add(GOLDEN))) }
    }

    fn roll(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix64(self.state)
    }

    fn roll_until(&mut self, good: impl Fn(u64) -> bool) -> u64 {
        loop {
            let number = self.roll();
            if good(number) {
                return number;
            }
        }
    }

    fn sign(&mut self) -> f64 {
        if self.roll() >> 63 == 0 { 1.0 } else { -1.0 }
    }

    /// In `0.0..1.0`, all 52 bits at random.
    fn fraction(&mut self) -> f64 {
        (self.roll() >> 12) as f64 / two_to(52)
    }
}

/// Steps of SplitMix64 (Steele, Lea, Flood 2014).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix64(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
