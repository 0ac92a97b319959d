//! Exact sums of floats, by the simplest method.
//!
//! In: floats, or wide elements, which are sums of floats. Out: the wide element of their sum, and the nearest float.
//! Positive and negative numbers are summed separately, as integers in units of the format's smallest subnormal; the
//! nearest float is found by a search among all floats.

use std::cmp::Ordering;

use crate::big_uint::BigUint;
use crate::reduction::ReductionElement;

const NAN: u8 = 1;
const PLUS_INFINITY: u8 = 2;
const MINUS_INFINITY: u8 = 4;
const NOT_MINUS_ZERO: u8 = 8;

/// A sum that is rounded only on request. Numbers are passed and returned as `f64`, which represents every `f32`.
#[derive(Clone, Debug)]
pub struct ExactSum {
    format: FloatFormat,
    positive: BigUint,
    negative_sum: BigUint,
    flags: u8,
}

impl ExactSum {
    /// An empty sum of the wide type `element`.
    ///
    /// # Panics
    /// The type is not wide.
    pub fn new(element: ReductionElement) -> Self {
        let format = match element {
            ReductionElement::WideF32 => FloatFormat { fraction_bits: 23, exponent_bits: 8, wide_bytes: 40 },
            ReductionElement::WideF64 => FloatFormat { fraction_bits: 52, exponent_bits: 11, wide_bytes: 272 },
            _ => panic!("{element} is not an exact sum"),
        };
        Self { format, positive: BigUint::ZERO, negative_sum: BigUint::ZERO, flags: 0 }
    }

    /// Adds a number of the sum's own format.
    pub fn add(&mut self, number: f64) {
        if number.to_bits() != (-0.0_f64).to_bits() {
            self.flags |= NOT_MINUS_ZERO;
        }
        if number.is_nan() {
            self.flags |= NAN;
        } else if number == f64::INFINITY {
            self.flags |= PLUS_INFINITY;
        } else if number == f64::NEG_INFINITY {
            self.flags |= MINUS_INFINITY;
        } else if number > 0.0 {
            self.positive = self.positive.plus(&self.format.count(number));
        } else if number < 0.0 {
            self.negative_sum = self.negative_sum.plus(&self.format.count(-number));
        }
    }

    /// Adds the value of a wide element.
    ///
    /// # Panics
    /// The number of bytes is not that of the type.
    pub fn add_wide(&mut self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.format.wide_bytes, "wrong length of a wide element");
        let (flags, integer) = bytes.split_last().expect("a wide element is not empty");
        self.flags |= flags;
        let pattern = BigUint::from_bytes(integer);
        if integer.last().is_some_and(|highest| highest & 0x80 != 0) {
            self.negative_sum = self.negative_sum.plus(&self.format.modulus().distance(&pattern));
        } else {
            self.positive = self.positive.plus(&pattern);
        }
    }

    /// The wide element of this sum. Like every integer, it wraps.
    pub fn wide_bytes(&self) -> Vec<u8> {
        let integer_bytes = self.format.wide_bytes - 1;
        // In two's complement, the negative of a number is its difference from the modulus.
        let below = BigUint::from_bytes(&self.negative_sum.low_bytes(integer_bytes));
        let negative = self.format.modulus().distance(&below);
        let mut bytes = self.positive.plus(&negative).low_bytes(integer_bytes);
        bytes.push(self.flags);
        bytes
    }

    /// The nearest number of the sum's own format; of two equally near ones, the one whose last bit is zero.
    pub fn round(&self) -> f64 {
        let has = |flag: u8| self.flags & flag != 0;
        if has(NAN) || (has(PLUS_INFINITY) && has(MINUS_INFINITY)) {
            return f64::from_bits(0x7ff8_0000_0000_0000);
        }
        if has(PLUS_INFINITY) {
            return f64::INFINITY;
        }
        if has(MINUS_INFINITY) {
            return f64::NEG_INFINITY;
        }
        let distance = self.positive.distance(&self.negative_sum);
        let magnitude = self.format.nearest(&distance);
        let only_minus_zeros = distance.is_zero() && !has(NOT_MINUS_ZERO);
        if self.negative_sum > self.positive || only_minus_zeros { -magnitude } else { magnitude }
    }
}

/// A format of floats. Its positive numbers have the same order as their bit patterns.
#[derive(Clone, Copy, Debug)]
struct FloatFormat {
    fraction_bits: u32,
    exponent_bits: u32,
    wide_bytes: usize,
}

impl FloatFormat {
    /// A positive number in units of the smallest subnormal.
    fn count(&self, number: f64) -> BigUint {
        let (exponent, fraction) = (number.to_bits() >> 52, number.to_bits() & ((1 << 52) - 1));
        let (mantissa, exponent) = if exponent == 0 { (fraction, 1) } else { (fraction | (1 << 52), exponent) };
        // The number is mantissa * 2^(exponent - 1075), and the smallest subnormal is 2^-smallest:
        let smallest = (1 << (self.exponent_bits - 1)) - 2 + u64::from(self.fraction_bits);
        match (exponent + smallest).checked_sub(1075) {
            Some(places) => BigUint::shifted(mantissa, places as u32),
            None => {
                let places = 1075 - exponent - smallest;
                assert!(places < 64 && mantissa.trailing_zeros() as u64 >= places, "{number:e} is not of the format");
                BigUint::shifted(mantissa >> places, 0)
            }
        }
    }

    fn infinity(&self) -> u64 {
        ((1 << self.exponent_bits) - 1) << self.fraction_bits
    }

    /// The number with these bits, in units of the smallest subnormal. Infinity counts as the number after the largest, since
    /// IEEE 754 rounds as if it were.
    fn count_of_bits(&self, bits: u64) -> BigUint {
        let (exponent, fraction) = (bits >> self.fraction_bits, bits & ((1 << self.fraction_bits) - 1));
        match exponent {
            0 => BigUint::shifted(fraction, 0),
            _ => BigUint::shifted(fraction | (1 << self.fraction_bits), exponent as u32 - 1),
        }
    }

    fn nearest(&self, count: &BigUint) -> f64 {
        // Binary search for the largest number that is not above the count.
        let (mut lower, mut beyond) = (0, self.infinity() + 1);
        while beyond - lower > 1 {
            let middle = lower + (beyond - lower) / 2;
            if self.count_of_bits(middle) <= *count {
                lower = middle;
            } else {
                beyond = middle;
            }
        }
        if lower == self.infinity() {
            return f64::INFINITY;
        }
        let twice = count.plus(count);
        let neighbours = self.count_of_bits(lower).plus(&self.count_of_bits(lower + 1));
        let nearest = match twice.cmp(&neighbours) {
            Ordering::Less => lower,
            Ordering::Greater => lower + 1,
            Ordering::Equal => lower + lower % 2,
        };
        if self.fraction_bits == 52 { f64::from_bits(nearest) } else { f32::from_bits(nearest as u32).into() }
    }

    /// One more than the largest unsigned value of a wide element's integer.
    fn modulus(&self) -> BigUint {
        BigUint::shifted(1, 8 * (self.wide_bytes as u32 - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(element: ReductionElement, numbers: &[f64]) -> f64 {
        let mut sum = ExactSum::new(element);
        numbers.iter().for_each(|number| sum.add(*number));
        sum.round()
    }

    #[test]
    fn every_kind_of_number_alone_is_its_own_sum() {
        let doubles = [0.0, -0.0, 1.0, -1.5, f64::MAX, f64::MIN, f64::from_bits(1), f64::MIN_POSITIVE, f64::INFINITY];
        for number in doubles {
            assert_eq!(sum(ReductionElement::WideF64, &[number]).to_bits(), number.to_bits(), "{number:e}");
        }
        for number in [f32::MAX, f32::from_bits(1), f32::from_bits(0x0080_0001), -0.1, f32::NEG_INFINITY] {
            assert_eq!(sum(ReductionElement::WideF32, &[number.into()]), f64::from(number), "{number:e}");
        }
    }

    #[test]
    fn sums_of_two_agree_with_the_processor() {
        let numbers = [1.0, 1e-300, -3.5e307, f64::MAX, 0.1, -0.1, f64::from_bits(3), 1.0 + f64::EPSILON, 0.0, -0.0];
        for (a, b) in numbers.into_iter().flat_map(|a| numbers.map(|b| (a, b))) {
            assert_eq!(sum(ReductionElement::WideF64, &[a, b]).to_bits(), (a + b).to_bits(), "{a:e} + {b:e}");
        }
        let numbers = [1.0, 1e-40, -3.5e37, f32::MAX, 0.1, -0.1, f32::from_bits(3), 1.0 + f32::EPSILON, 0.0, -0.0];
        for (a, b) in numbers.into_iter().flat_map(|a| numbers.map(|b| (a, b))) {
            assert_eq!(sum(ReductionElement::WideF32, &[a.into(), b.into()]) as f32, a + b, "{a:e} + {b:e}");
        }
    }

    #[test]
    fn wide_elements_preserve_their_sums() {
        for (element, bytes) in [(ReductionElement::WideF32, 40), (ReductionElement::WideF64, 272)] {
            let mut once = ExactSum::new(element);
            [1.5, -7.0, -0.0, 0.25].into_iter().for_each(|number| once.add(number));
            assert_eq!(once.wide_bytes().len(), bytes);
            let mut twice = ExactSum::new(element);
            twice.add_wide(&once.wide_bytes());
            twice.add_wide(&once.wide_bytes());
            assert_eq!((once.round(), twice.round()), (-5.25, -10.5));
            assert_eq!(ExactSum::new(element).wide_bytes(), vec![0; bytes]);
        }
    }
}
