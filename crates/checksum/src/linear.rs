//! A code that commutes with addition: the value of a sum of vectors is the sum of their values.
//!
//! It checks reductions. Each member sends the value of its vector along; whoever adds vectors adds values, and whoever gets
//! the result compares. No intermediate sum needs to be known, and a wrong addition shows as well as a wrong transfer.
//!
//! A value is the sum of all elements, each times an odd weight that depends on its place, in the arithmetic of the elements:
//! modulo 2^64 for elements of 64 bits, modulo 2^32 (twice, with different weights) for elements of 32 bits. It holds for
//! integers that wrap, signed or not.
//!
//! What it finds: any change of one element, since an odd weight loses nothing; elements exchanged or added twice or not at
//! all. What it cannot find: of elements of 64 bits, two changes of the highest bit in different places. Every weighted sum
//! is blind to them, because modulo 2^64 only the lowest bit of a weight meets the highest of an element; the next bits
//! cancel for one half, one quarter and so on of all pairs of places. So it is no code for messages. Floating-point sums
//! round, and no linear code follows them; their exact sums are integers in limbs that wrap, and may be checked as such.

use crate::pass::{Pass, ReadPass};

/// How wide the elements are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElementWidth {
    /// 32 bits.
    Bits32,
    /// 64 bits.
    Bits64,
}

/// Weights before they repeat; from then on they are multiplied by [`STRIDE`] once more for each repetition.
const PERIOD: usize = 256;
/// Odd, and 5 modulo 8 in both halves: its powers do not come back before the 2^30-th.
const STRIDE: u64 = 0x9e37_79bd_7f4a_7c1d;
static WEIGHTS: [u64; PERIOD] = weights();

/// Odd numbers without a pattern: SplitMix64 (Steele, Lea, Flood 2014). The upper half, which weighs elements of 32 bits once
/// more, need not be odd: one odd half finds any change of one element, the other finds half of what the first cannot.
const fn weights() -> [u64; PERIOD] {
    let mut weights = [0; PERIOD];
    let mut place = 0;
    let mut state = 0u64;
    while place < PERIOD {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        weights[place] = (value ^ (value >> 31)) | 1;
        place += 1;
    }
    weights
}

/// The value of a vector of little-endian integers. Bytes after the last whole element count as one filled with zeros.
pub fn value(width: ElementWidth, bytes: &[u8]) -> u64 {
    match width {
        ElementWidth::Bits64 => crate::value(crate::Algorithm::Linear, bytes),
        ElementWidth::Bits32 => halves(bytes),
    }
}

/// The value of the sum of two vectors of one length, from the values of both.
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

/// The value of 64-bit elements, as they come.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct LinearState {
    sum: u64,
    /// The next element's place in the period.
    place: usize,
}

impl LinearState {
    #[inline(always)]
    pub(crate) fn absorb(&mut self, pass: &mut impl Pass) {
        while pass.left() >= 8 {
            if self.place == 0 {
                self.sum = self.sum.wrapping_mul(STRIDE);
            }
            let mut stretch = pass.split(8 * (PERIOD - self.place));
            let mut weights = &WEIGHTS[self.place..];
            self.place = (self.place + stretch.left() / 8) % PERIOD;
            let mut sums = [0u64; 8];
            stretch.each(|group: &[u8; 64]| {
                let (now, later) = weights.split_at(8);
                weights = later;
                let (elements, _) = group.as_chunks::<8>();
                for ((sum, element), weight) in sums.iter_mut().zip(elements).zip(now) {
                    *sum = sum.wrapping_add(u64::from_le_bytes(*element).wrapping_mul(*weight));
                }
            });
            stretch.each(|element| {
                let (weight, later) = weights.split_at(1);
                weights = later;
                sums[0] = sums[0].wrapping_add(u64::from_le_bytes(*element).wrapping_mul(weight[0]));
            });
            self.sum = sums.iter().fold(self.sum, |sum, part| sum.wrapping_add(*part));
        }
    }

    /// The last element is filled with zeros.
    pub(crate) fn end(mut self, tail: &[u8]) -> u64 {
        if !tail.is_empty() {
            let mut element = [0; 8];
            element[..tail.len()].copy_from_slice(tail);
            self.absorb(&mut ReadPass(&element));
        }
        self.sum
    }
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
    fn two_highest_bits_cancel_as_the_text_says() {
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
        fn so_it_is_for_elements_of_32_bits(
            pairs in proptest::collection::vec((any::<u32>(), any::<u32>()), 0..700)
        ) {
            let (one, other): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
            let both: Vec<u32> = pairs.iter().map(|(a, b)| a.wrapping_add(*b)).collect();
            let [a, b, c] = [&one, &other, &both].map(|elements| value(ElementWidth::Bits32, &bytes_of_halves(elements)));
            prop_assert_eq!(sum(ElementWidth::Bits32, a, b), c);
        }

        #[test]
        fn any_change_of_one_element_shows(
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
