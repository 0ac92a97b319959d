//! Which code covers a parcel, and which codes are believed (P-82).

use checksum::tuning::{Choice, Tuning, Way};
use checksum::{Algorithm, Strength, Target};

/// How parcels are covered. Both ends use the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sealing {
    /// Not at all: to measure what it costs, and for memory that is trusted.
    Off,
    /// By the strong code that is fastest for each size.
    Tuned(Tuning),
    /// By this one, however strong it is.
    Named(Algorithm),
}

/// The code of a parcel is none that its receiver believes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unbelievable;

impl Default for Sealing {
    fn default() -> Self {
        Self::Tuned(Tuning::default())
    }
}

impl Sealing {
    /// How a body of so many bytes is sealed; none if not at all.
    #[inline]
    pub(super) fn choice(&self, bytes: usize) -> Option<Choice> {
        match self {
            Self::Off => None,
            Self::Tuned(tuning) => Some(tuning.choose(bytes)),
            Self::Named(algorithm) => Some(of(*algorithm)),
        }
    }

    /// How to check a body whose header says that this code covers it. A header that says "none" where seals are wanted, or a
    /// code that is not strong where strong ones are wanted, is not believed.
    #[inline]
    pub(super) fn check(&self, number: u8) -> Result<Option<Choice>, Unbelievable> {
        let algorithm = Algorithm::with_number(number);
        match (self, algorithm) {
            (Self::Off, None) if number == 0 => Ok(None),
            (Self::Tuned(_), Some(found)) if found.strength() == Strength::Strong => Ok(Some(of(found))),
            (Self::Named(wanted), Some(found)) if found == *wanted => Ok(Some(of(found))),
            _ => Err(Unbelievable),
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

fn of(algorithm: Algorithm) -> Choice {
    Choice { algorithm, way: Way::Fused }
}

/// Copies bytes and gives their value, or zero where there is no code.
#[inline]
pub(super) fn copy(choice: Option<Choice>, from: &[u8], to: &mut [u8]) -> u64 {
    copy_to(choice, from, to, Target::Own)
}

/// The same, where it is known whose cache has the lines of the target.
#[inline]
pub(super) fn copy_to(choice: Option<Choice>, from: &[u8], to: &mut [u8], target: Target) -> u64 {
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
pub(super) fn value(choice: Option<Choice>, bytes: &[u8]) -> u64 {
    choice.map_or(0, |choice| choice.value(bytes))
}

/// The number of the code in headers.
pub(super) fn number(choice: Option<Choice>) -> u8 {
    choice.map_or(0, |choice| choice.algorithm.number())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_agreed_is_believed() {
        let tuned = Sealing::default();
        assert!(tuned.check(Algorithm::Xxh3.number()).is_ok());
        assert_eq!(tuned.check(Algorithm::Sum32.number()), Err(Unbelievable));
        assert_eq!(tuned.check(0), Err(Unbelievable), "a header that denies its seal");
        assert_eq!(tuned.check(200), Err(Unbelievable));
        assert_eq!(Sealing::Off.check(0), Ok(None));
        assert_eq!(Sealing::Off.check(Algorithm::Crc32c.number()), Err(Unbelievable));
        let named = Sealing::Named(Algorithm::Knuth);
        assert!(named.check(Algorithm::Knuth.number()).is_ok() && named.check(Algorithm::Crc32c.number()).is_err());
    }
}
