//! The weights of the linear checksum, and its incremental form over 64-bit elements (see [`crate::linear`]).

use crate::pass::{Pass, ReadPass};

/// Weights before they repeat; each repetition multiplies them by [`STRIDE`] once more.
pub(crate) const PERIOD: usize = 256;
/// Odd, and 5 modulo 8 in both halves: its powers do not repeat before the 2^30-th.
pub(crate) const STRIDE: u64 = 0x9e37_79bd_7f4a_7c1d;
pub(crate) static WEIGHTS: [u64; PERIOD] = weights();

/// Pseudo-random odd numbers: SplitMix64 (Steele, Lea, Flood 2014). The upper half, the second weight of elements of 32 bits, need not be
/// odd: the odd half detects any change of one element, the other detects half of what the first cannot.
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

/// The incremental checksum of 64-bit elements.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct LinearState {
    sum: u64,
    /// The next element's position in the period.
    place: usize,
}

impl LinearState {
    #[inline(always)]
    pub(crate) fn absorb(&mut self, pass: &mut impl Pass) {
        while pass.remaining() >= 8 {
            if self.place == 0 {
                self.sum = self.sum.wrapping_mul(STRIDE);
            }
            let mut stretch = pass.split(8 * (PERIOD - self.place));
            let mut weights = &WEIGHTS[self.place..];
            self.place = (self.place + stretch.remaining() / 8) % PERIOD;
            let mut sums = [0u64; 8];
            stretch.for_each_chunk(|group: &[u8; 64]| {
                let (now, later) = weights.split_at(8);
                weights = later;
                let (elements, _) = group.as_chunks::<8>();
                for ((sum, element), weight) in sums.iter_mut().zip(elements).zip(now) {
                    *sum = sum.wrapping_add(u64::from_le_bytes(*element).wrapping_mul(*weight));
                }
            });
            stretch.for_each_chunk(|element| {
                let (weight, later) = weights.split_at(1);
                weights = later;
                sums[0] = sums[0].wrapping_add(u64::from_le_bytes(*element).wrapping_mul(weight[0]));
            });
            self.sum = sums.iter().fold(self.sum, |sum, part| sum.wrapping_add(*part));
        }
    }

    /// The last element is padded with zeros.
    pub(crate) fn end(mut self, tail: &[u8]) -> u64 {
        if !tail.is_empty() {
            let mut element = [0; 8];
            element[..tail.len()].copy_from_slice(tail);
            self.absorb(&mut ReadPass(&element));
        }
        self.sum
    }
}
