//! Unsigned integers of any size, with schoolbook addition and subtraction.

use std::cmp::Ordering;

/// Digits of 32 bits, the least significant first; the last digit is not zero.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BigUint {
    digits: Vec<u32>,
}

impl BigUint {
    pub(crate) const ZERO: Self = Self { digits: Vec::new() };

    /// `number * 2^places`.
    pub(crate) fn shifted(number: u64, places: u32) -> Self {
        let (digits, bits) = ((places / 32) as usize, places % 32);
        let mut left = u128::from(number) << bits;
        let mut all = vec![0; digits];
        while left != 0 {
            all.push(left as u32);
            left >>= 32;
        }
        Self::trimmed(all)
    }

    /// From little-endian bytes of any number.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let digit = |bytes: &[u8]| bytes.iter().rev().fold(0, |digit, byte| (digit << 8) | u32::from(*byte));
        Self::trimmed(bytes.chunks(4).map(digit).collect())
    }

    /// The `count` least significant bytes, in little-endian order.
    pub(crate) fn low_bytes(&self, count: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.digits.iter().flat_map(|digit| digit.to_le_bytes()).collect();
        bytes.resize(count, 0);
        bytes
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        let mut carry = 0;
        let mut sum = Vec::new();
        for place in 0..self.digits.len().max(other.digits.len()) {
            let digit = u64::from(self.digit(place)) + u64::from(other.digit(place)) + carry;
            sum.push(digit as u32);
            carry = digit >> 32;
        }
        sum.push(carry as u32);
        Self::trimmed(sum)
    }

    /// The absolute difference.
    pub(crate) fn distance(&self, other: &Self) -> Self {
        let (larger, smaller) = if self >= other { (self, other) } else { (other, self) };
        let mut borrow = 0;
        let mut difference = Vec::new();
        for place in 0..larger.digits.len() {
            let digit = i64::from(larger.digit(place)) - i64::from(smaller.digit(place)) - borrow;
            difference.push(digit as u32);
            borrow = i64::from(digit < 0);
        }
        Self::trimmed(difference)
    }

    fn digit(&self, place: usize) -> u32 {
        self.digits.get(place).copied().unwrap_or(0)
    }

    fn trimmed(mut digits: Vec<u32>) -> Self {
        while digits.last() == Some(&0) {
            digits.pop();
        }
        Self { digits }
    }
}

impl Ord for BigUint {
    fn cmp(&self, other: &Self) -> Ordering {
        let longer = self.digits.len().cmp(&other.digits.len());
        longer.then_with(|| self.digits.iter().rev().cmp(other.digits.iter().rev()))
    }
}

impl PartialOrd for BigUint {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn natural(number: u128) -> BigUint {
        BigUint::from_bytes(&number.to_le_bytes())
    }

    #[test]
    fn small_numbers_agree_with_u128() {
        let numbers = [0, 1, 0xffff_ffff, 1 << 32, u128::from(u64::MAX), 1 << 64, (1 << 100) + 5, (1 << 126) - 1];
        for a in numbers {
            for b in numbers {
                assert_eq!(natural(a).plus(&natural(b)), natural(a + b));
                assert_eq!(natural(a).distance(&natural(b)), natural(a.abs_diff(b)));
                assert_eq!(natural(a).cmp(&natural(b)), a.cmp(&b));
            }
            assert_eq!(natural(a).low_bytes(16), a.to_le_bytes());
            assert_eq!(natural(a).low_bytes(3), a.to_le_bytes()[..3]);
            assert_eq!(natural(a).is_zero(), a == 0);
        }
    }

    #[test]
    fn shifting_multiplies_by_a_power_of_two() {
        for places in [0, 1, 31, 32, 33, 63] {
            assert_eq!(BigUint::shifted(0xdead_beef_0000_0001, places), natural(0xdead_beef_0000_0001 << places));
        }
        assert_eq!(BigUint::shifted(1, 2000).low_bytes(251)[250], 1);
        assert!(BigUint::shifted(0, 70).is_zero());
    }
}
