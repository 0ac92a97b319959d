//! Which code covers a parcel, and which codes are believed (P-82).

use checksum::tuning::{ChecksumChoice, ChecksumTuning, CopyStrategy};
use checksum::{Algorithm, Strength, TargetCache};

/// How parcels are covered. Both ends use the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChecksumPolicy {
    /// Not at all: to measure what it costs, and for memory that is trusted.
    Off,
    /// By the strong code that is fastest for each size.
    Tuned(ChecksumTuning),
    /// By this one, however strong it is.
    Named(Algorithm),
}

/// The code of a parcel is none that its receiver believes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UnacceptableAlgorithm;

impl Default for ChecksumPolicy {
    fn default() -> Self {
        Self::Tuned(ChecksumTuning::default())
    }
}

impl ChecksumPolicy {
    /// How a body of so many bytes is sealed; none if not at all.
    #[inline]
    pub(super) fn choice(&self, bytes: usize) -> Option<ChecksumChoice> {
        match self {
            Self::Off => None,
            Self::Tuned(tuning) => Some(tuning.choose(bytes)),
            Self::Named(algorithm) => Some(fused(*algorithm)),
        }
    }

    /// How to check a body whose header says that this code covers it. A header that says "none" where seals are wanted, or a
    /// code that is not strong where strong ones are wanted, is not believed.
    #[inline]
    pub(super) fn check(&self, number: u8) -> Result<Option<ChecksumChoice>, UnacceptableAlgorithm> {
        let algorithm = Algorithm::with_number(number);
        match (self, algorithm) {
            (Self::Off, None) if number == 0 => Ok(None),
            (Self::Tuned(_), Some(found)) if found.strength() == Strength::Strong => Ok(Some(fused(found))),
            (Self::Named(wanted), Some(found)) if found == *wanted => Ok(Some(fused(found))),
            _ => Err(UnacceptableAlgorithm),
        }
    }

    /// Whether what is sent so needs no other cover on its way (P-99).
    pub fn is_strong(&self) -> bool {
        match self {
            Self::Off => false,
            Self::Tuned(_) => true,
            Self::Named(algorithm) => algorithm.strength() == Strength::Strong,
        }
    }

    /// Whether headers carry a code.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        !matches!(self, Self::Off)
    }
}

fn fused(algorithm: Algorithm) -> ChecksumChoice {
    ChecksumChoice { algorithm, way: CopyStrategy::Fused }
}

/// Copies bytes and gives their value, or zero where there is no code.
#[inline]
pub(super) fn copy(choice: Option<ChecksumChoice>, from: &[u8], to: &mut [u8]) -> u64 {
    copy_to(choice, from, to, TargetCache::Own)
}

/// The same, where it is known whose cache has the lines of the target.
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

/// The value of bytes, or zero where there is no code.
#[inline]
pub(super) fn value(choice: Option<ChecksumChoice>, bytes: &[u8]) -> u64 {
    choice.map_or(0, |choice| choice.value(bytes))
}

/// The number of the code in headers.
pub(super) fn algorithm_number(choice: Option<ChecksumChoice>) -> u8 {
    choice.map_or(0, |choice| choice.algorithm.number())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_agreed_is_believed() {
        let tuned = ChecksumPolicy::default();
        assert!(tuned.check(Algorithm::Xxh3.number()).is_ok());
        assert_eq!(tuned.check(Algorithm::Sum32.number()), Err(UnacceptableAlgorithm));
        assert_eq!(tuned.check(0), Err(UnacceptableAlgorithm), "a header that denies its seal");
        assert_eq!(tuned.check(200), Err(UnacceptableAlgorithm));
        assert_eq!(ChecksumPolicy::Off.check(0), Ok(None));
        assert_eq!(ChecksumPolicy::Off.check(Algorithm::Crc32c.number()), Err(UnacceptableAlgorithm));
        let named = ChecksumPolicy::Named(Algorithm::Knuth);
        assert!(named.check(Algorithm::Knuth.number()).is_ok() && named.check(Algorithm::Crc32c.number()).is_err());
    }
}
