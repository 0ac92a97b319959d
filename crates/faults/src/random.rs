//! Random numbers by name: a number is a pure function of a seed and of its purpose.
//!
//! No two purposes draw from one sequence, so an added rule or host does not change the numbers of the others, and a sweep
//! gives the same numbers on one core or many.

use units::{GOLDEN_GAMMA, mix64};

/// The random numbers of one purpose.
#[derive(Clone, Copy, Debug)]
pub struct RandomStream {
    key: u64,
}

impl RandomStream {
    /// The stream of a seed for a purpose.
    pub const fn new(seed: u64, purpose: u64) -> Self {
        Self { key: mix64(mix64(seed.wrapping_add(GOLDEN_GAMMA)) ^ purpose.wrapping_mul(GOLDEN_GAMMA)) }
    }

    /// The `n`-th number.
    #[inline]
    pub const fn at(self, n: u64) -> u64 {
        mix64(self.key.wrapping_add(n.wrapping_add(1).wrapping_mul(GOLDEN_GAMMA)))
    }

    /// The `n`-th number, in `0..bound` (0 if the bound is 0).
    pub const fn below(self, n: u64, bound: u64) -> u64 {
        ((self.at(n) as u128 * bound as u128) >> 64) as u64
    }

    /// A random permutation of `0..length`.
    pub fn permutation(self, length: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..length).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, self.below(last as u64, last as u64 + 1) as usize);
        }
        order
    }
}

/// A probability as a threshold for a raw 64-bit number: the hop does no floating-point arithmetic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probability(u64);

impl Probability {
    /// From a number; less than 0 counts as 0, more than 1 as 1.
    pub fn new(probability: f64) -> Self {
        Self((probability.clamp(0.0, 1.0) * 18_446_744_073_709_551_615.0) as u64)
    }

    /// Whether a raw random number is below the threshold.
    #[inline]
    pub const fn hits(self, raw: u64) -> bool {
        raw < self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_different_purposes_differ() {
        assert_ne!(RandomStream::new(1, 0).at(0), RandomStream::new(1, 1).at(0));
        assert_ne!(RandomStream::new(0, 1).at(0), RandomStream::new(1, 1).at(0));
        assert_eq!(RandomStream::new(7, 9).at(3), RandomStream::new(7, 9).at(3));
    }

    #[test]
    fn a_probability_hits_as_often_as_it_says() {
        let (stream, probability) = (RandomStream::new(42, 1), Probability::new(0.3));
        let hits = (0..100_000).filter(|n| probability.hits(stream.at(*n))).count();
        assert!((29_000..31_000).contains(&hits), "{hits}");
        assert!(!Probability::new(0.0).hits(0) && Probability::new(1.0).hits(u64::MAX - 1));
    }

    #[test]
    fn a_permutation_contains_every_number_once() {
        let mut order = RandomStream::new(3, 5).permutation(1_000);
        assert_ne!(order, (0..1_000).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..1_000).collect::<Vec<_>>());
    }
}
