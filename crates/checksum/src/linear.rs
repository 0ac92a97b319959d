//! A checksum that commutes with addition: the checksum of a sum of vectors is the sum of their checksums.
//!
//! It checks reductions. Each member sends the checksum of its vector along; a node that adds vectors adds checksums, and the receiver
//! of the result compares. No intermediate sum needs to be known, and it detects wrong additions as well as wrong transfers.
//!
//! The checksum is the sum of all elements, each times an odd weight that depends on its position, in the arithmetic of the elements:
//! modulo 2^64 for elements of 64 bits, modulo 2^32 (twice, with different weights) for elements of 32 bits. It holds for
//! wrapping integers, signed or not.
//!
//! What it detects: any change of one element, since an odd weight is invertible; elements swapped, added twice or not at all. What it
//! cannot detect: of elements of 64 bits, two changes of the highest bit in different positions. No weighted sum can, because modulo
//! 2^64 only the lowest bit of a weight affects the highest bit of an element; the next bits cancel for one half, one quarter and
//! so on of all pairs of positions. So it is no checksum for messages. Floating-point sums round, and no linear checksum follows
//! them; their exact sums are integers in wrapping limbs, and can be checked as such.

use crate::algorithm::Algorithm;
use crate::linear_state::{PERIOD, STRIDE, WEIGHTS};
use crate::oneshot;

/// The width of the elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElementWidth {
    /// 32 bits.
    Bits32,
    /// 64 bits.
    Bits64,
}

/// The checksum of a vector of little-endian integers. Bytes after the last whole element count as one padded with zeros.
pub fn value(width: ElementWidth, bytes: &[u8]) -> u64 {
    match width {
        ElementWidth::Bits64 => oneshot::value(Algorithm::Linear, bytes),
        ElementWidth::Bits32 => halves(bytes),
    }
}

/// The checksum of the sum of two vectors of one length, from the checksums of both.
pub fn sum(width: ElementWidth, one: u64, other: u64) -> u64 {
    match width {
        ElementWidth::Bits64 => one.wrapping_add(other),
        ElementWidth::Bits32 => by_halves(one, other, u32::wrapping_add),
    }
}

fn by_halves(one: u64, other: u64, operation: fn(u32, u32) -> u32) -> u64 {
    let low = operation(one as u32, other as u32);
    let high = operation((one >> 32) as u32, (other >> 32) as u32);
    u64::from(high) << 32 | u64::from(low)
}

fn halves(bytes: &[u8]) -> u64 {
    bytes.chunks(4 * PERIOD).fold(0, |before, stretch| {
        let before = by_halves(before, STRIDE, u32::wrapping_mul);
        stretch.chunks(4).zip(WEIGHTS).fold(before, |sum, (element, weight)| {
            let element = u64::from(element.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte)));
            by_halves(sum, by_halves(weight, element << 32 | element, u32::wrapping_mul), u32::wrapping_add)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition: each element times its weight.
    fn by_definition(elements: &[u64]) -> u64 {
        let periods = elements.len().div_ceil(PERIOD);
        elements.iter().enumerate().fold(0, |sum, (place, element)| {
            let later = (periods - 1 - place / PERIOD) as u32;
            let weight = WEIGHTS[place % PERIOD].wrapping_mul(STRIDE.wrapping_pow(later));
            sum.wrapping_add(weight.wrapping_mul(*element))
        })
    }

    fn bytes_of(elements: &[u64]) -> Vec<u8> {
        elements.iter().flat_map(|element| element.to_le_bytes()).collect()
    }

    fn bytes_of_halves(elements: &[u32]) -> Vec<u8> {
        elements.iter().flat_map(|element| element.to_le_bytes()).collect()
    }

    #[test]
    fn weights_are_odd_and_differ() {
        let mut sorted = WEIGHTS.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), PERIOD);
        assert!(WEIGHTS.iter().all(|weight| weight & 1 == 1));
        assert_eq!((STRIDE % 8, (STRIDE >> 32) % 8), (5, 5));
    }

    #[test]
    fn two_highest_bits_cancel_as_documented() {
        let mut elements = vec![7u64; 100];
        let before = value(ElementWidth::Bits64, &bytes_of(&elements));
        elements[3] ^= 1 << 63;
        assert_ne!(value(ElementWidth::Bits64, &bytes_of(&elements)), before);
        elements[90] ^= 1 << 63;
        assert_eq!(value(ElementWidth::Bits64, &bytes_of(&elements)), before);
    }

    proptest! {
        #[test]
        fn the_value_is_the_weighted_sum(elements in proptest::collection::vec(any::<u64>(), 0..1100)) {
            prop_assert_eq!(value(ElementWidth::Bits64, &bytes_of(&elements)), by_definition(&elements));
        }

        #[test]
        fn the_value_of_a_sum_is_the_sum_of_the_values(
            pairs in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..700)
        ) {
            let (one, other): (Vec<u64>, Vec<u64>) = pairs.iter().copied().unzip();
            let both: Vec<u64> = pairs.iter().map(|(a, b)| a.wrapping_add(*b)).collect();
            let [a, b, c] = [&one, &other, &both].map(|elements| value(ElementWidth::Bits64, &bytes_of(elements)));
            prop_assert_eq!(sum(ElementWidth::Bits64, a, b), c);
        }

        #[test]
        fn the_same_holds_for_elements_of_32_bits(
            pairs in proptest::collection::vec((any::<u32>(), any::<u32>()), 0..700)
        ) {
            let (one, other): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
            let both: Vec<u32> = pairs.iter().map(|(a, b)| a.wrapping_add(*b)).collect();
            let [a, b, c] = [&one, &other, &both].map(|elements| value(ElementWidth::Bits32, &bytes_of_halves(elements)));
            prop_assert_eq!(sum(ElementWidth::Bits32, a, b), c);
        }

        #[test]
        fn any_change_of_one_element_is_detected(
            elements in proptest::collection::vec(any::<u64>(), 1..700),
            which in any::<proptest::sample::Index>(),
            change in 1u32..
        ) {
            let mut changed = elements.clone();
            let place = which.index(elements.len());
            changed[place] ^= u64::from(change);
            prop_assert_ne!(value(ElementWidth::Bits64, &bytes_of(&elements)), value(ElementWidth::Bits64, &bytes_of(&changed)));
            prop_assert_ne!(value(ElementWidth::Bits32, &bytes_of(&elements)), value(ElementWidth::Bits32, &bytes_of(&changed)));
        }
    }
}
