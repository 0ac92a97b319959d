//! Which checksum covers a packet, and which ones a receiver accepts (P-64).

use checksum::tuning::{ChecksumChoice, ChecksumTuning, CopyStrategy};
use checksum::{Algorithm, Strength, TargetCache};

/// How packets are covered. Both ends use the same policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChecksumPolicy {
    /// Not at all: to measure the cost of checksums, and for memory that is trusted.
    Off,
    /// By the strong checksum that is fastest for each size.
    Tuned(ChecksumTuning),
    /// By this algorithm, however strong it is.
    Fixed(Algorithm),
}

/// The receiver does not accept the packet's algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UnacceptableAlgorithm;

impl Default for ChecksumPolicy {
    fn default() -> Self {
        Self::Tuned(ChecksumTuning::default())
    }
}

impl ChecksumPolicy {
    /// The checksum for a body of this many bytes; none if checksums are off.
    #[inline]
    pub(super) fn choice(&self, bytes: usize) -> Option<ChecksumChoice> {
        match self {
            Self::Off => None,
            Self::Tuned(tuning) => Some(tuning.choose(bytes)),
            Self::Fixed(algorithm) => Some(fused(*algorithm)),
        }
    }

    /// How to verify a body whose header names this algorithm. A header that says "none" where checksums are on is rejected, as is
    /// a weak algorithm where strong ones are required.
    #[inline]
    pub(super) fn check(&self, number: u8) -> Result<Option<ChecksumChoice>, UnacceptableAlgorithm> {
        let algorithm = Algorithm::with_number(number);
        match (self, algorithm) {
            (Self::Off, None) if number == 0 => Ok(None),
            (Self::Tuned(_), Some(found)) if found.strength() == Strength::Strong => Ok(Some(fused(found))),
            (Self::Fixed(wanted), Some(found)) if found == *wanted => Ok(Some(fused(found))),
            _ => Err(UnacceptableAlgorithm),
        }
    }

    /// Whether the checksum is strong enough that rails need no check of the body (P-28).
    pub fn is_strong(&self) -> bool {
        match self {
            Self::Off => false,
            Self::Tuned(_) => true,
            Self::Fixed(algorithm) => algorithm.strength() == Strength::Strong,
        }
    }

    /// Whether headers carry a CRC.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Whether the policy accepts CRC-32C, which inline packets use.
    #[inline]
    pub(super) fn allows_inline(&self) -> bool {
        match self {
            Self::Off | Self::Tuned(_) => true,
            Self::Fixed(algorithm) => *algorithm == Algorithm::Crc32c,
        }
    }
}

fn fused(algorithm: Algorithm) -> ChecksumChoice {
    ChecksumChoice { algorithm, strategy: CopyStrategy::Fused }
}

/// Copies bytes and returns their checksum, or zero without an algorithm.
#[inline]
pub(super) fn copy(choice: Option<ChecksumChoice>, from: &[u8], to: &mut [u8]) -> u64 {
    copy_to(choice, from, to, TargetCache::Local)
}

/// As [`copy`], with a hint about the cache that holds the target.
#[inline]
pub(super) fn copy_to(choice: Option<ChecksumChoice>, from: &[u8], to: &mut [u8], target: TargetCache) -> u64 {
    match choice {
        Some(choice) => choice.copy_to(from, to, target),
        None => {
            to.copy_from_slice(from);
            0
        }
    }
}

/// The checksum of bytes, or zero without an algorithm.
#[inline]
pub(super) fn value(choice: Option<ChecksumChoice>, bytes: &[u8]) -> u64 {
    choice.map_or(0, |choice| choice.value(bytes))
}

/// The algorithm's number in headers; zero for none.
pub(super) fn algorithm_number(choice: Option<ChecksumChoice>) -> u8 {
    choice.map_or(0, |choice| choice.algorithm.number())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_agreed_algorithms_are_accepted() {
        let tuned = ChecksumPolicy::default();
        assert!(tuned.check(Algorithm::Xxh3.number()).is_ok());
        assert_eq!(tuned.check(Algorithm::Sum32.number()), Err(UnacceptableAlgorithm));
        assert_eq!(tuned.check(0), Err(UnacceptableAlgorithm), "a header that claims to have no checksum");
        assert_eq!(tuned.check(200), Err(UnacceptableAlgorithm));
        assert_eq!(ChecksumPolicy::Off.check(0), Ok(None));
        assert_eq!(ChecksumPolicy::Off.check(Algorithm::Crc32c.number()), Err(UnacceptableAlgorithm));
        let knuth = ChecksumPolicy::Fixed(Algorithm::Knuth);
        assert!(knuth.check(Algorithm::Knuth.number()).is_ok() && knuth.check(Algorithm::Crc32c.number()).is_err());
    }
}
