//! Which code to use and how, by size of message (claim CK-3).
//!
//! In: nothing, or what the tuner has found on this kind of processor. Out: an algorithm and a way for each size. Only strong
//! codes are ever chosen. Without a tuning there is a default that needs no timing.

mod cache;
mod timing;

use std::fmt;
use std::sync::OnceLock;

pub use cache::{TuningCache, processor_identity};
pub use timing::{SizeTiming, TimingCandidate, TimingSample, time_candidates};

use crate::{Algorithm, Strength, TargetCache, copy_then, copy_to, value};

/// How a code goes with a copy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum CopyStrategy {
    /// No copy: bytes are only looked at.
    Alone,
    /// A block is copied, then looked at while it is in the cache.
    CopyThen,
    /// Copied and looked at in one pass.
    Fused,
}

impl CopyStrategy {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Alone, Self::CopyThen, Self::Fused];

    /// As the tables call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::CopyThen => "copy-then",
            Self::Fused => "fused",
        }
    }
}

impl fmt::Display for CopyStrategy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// What to do with a message that is copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChecksumChoice {
    /// The code.
    pub algorithm: Algorithm,
    /// [`CopyStrategy::CopyThen`] or [`CopyStrategy::Fused`].
    pub way: CopyStrategy,
}

impl ChecksumChoice {
    /// Copies bytes in this way and gives their value.
    #[inline]
    pub fn copy(self, from: &[u8], to: &mut [u8]) -> u64 {
        self.copy_to(from, to, TargetCache::Own)
    }

    /// As [`ChecksumChoice::copy`], where it is known whose cache has the lines of the target.
    #[inline]
    pub fn copy_to(self, from: &[u8], to: &mut [u8], target: TargetCache) -> u64 {
        match self.way {
            CopyStrategy::Fused => copy_to(self.algorithm, from, to, target),
            CopyStrategy::CopyThen | CopyStrategy::Alone => copy_then(self.algorithm, from, to),
        }
    }

    /// The value of bytes that need no copy.
    #[inline]
    pub fn value(self, bytes: &[u8]) -> u64 {
        value(self.algorithm, bytes)
    }

    fn is_sound(self) -> bool {
        self.algorithm.strength() == Strength::Strong && self.way != CopyStrategy::Alone
    }
}

/// The largest message of each class; those beyond the last count as the last.
pub const SIZE_CLASSES: [usize; 9] =
    [256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

/// A choice for every size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChecksumTuning {
    choices: [ChecksumChoice; SIZE_CLASSES.len()],
}

impl Default for ChecksumTuning {
    /// CRC-32C up to 4 KiB, where it finds any three bits, and is done soonest; beyond, CRC-64/NVME, which costs no more there
    /// and passes a random error once in 2^64. Copies in one pass.
    fn default() -> Self {
        let algorithm = |bytes| if bytes <= 4 << 10 { Algorithm::Crc32c } else { Algorithm::Crc64Nvme };
        Self {
            choices: SIZE_CLASSES
                .map(|bytes| ChecksumChoice { algorithm: algorithm(bytes), way: CopyStrategy::Fused }),
        }
    }
}

impl ChecksumTuning {
    /// What was tuned for this kind of processor, or the default. Read once; whatever is wrong with the file, it is as if
    /// there were none.
    pub fn of_this_machine() -> &'static Self {
        static TUNING: OnceLock<ChecksumTuning> = OnceLock::new();
        TUNING.get_or_init(|| TuningCache::of_the_user().and_then(|folder| folder.load()).unwrap_or_default())
    }

    /// What to do with a message of this many bytes.
    #[inline]
    pub fn choose(&self, bytes: usize) -> ChecksumChoice {
        let class = SIZE_CLASSES.iter().position(|largest| bytes <= *largest);
        self.choices[class.unwrap_or(SIZE_CLASSES.len() - 1)]
    }

    /// All choices, with the largest message of each.
    pub fn classes(&self) -> impl Iterator<Item = (usize, ChecksumChoice)> {
        SIZE_CLASSES.into_iter().zip(self.choices)
    }

    /// The fastest strong code and way of each class, as timed. Where nothing is clearly faster than the default, the default
    /// stays: a choice that changes with every measurement helps nobody.
    pub fn from_timings(timings: &[SizeTiming]) -> Self {
        let mut tuning = Self::default();
        for (choice, bytes) in tuning.choices.iter_mut().zip(SIZE_CLASSES) {
            let rate = |wanted: ChecksumChoice| {
                let of_class = timings.iter().filter(|timing| timing.bytes == bytes);
                let candidate = TimingCandidate::Code(wanted.algorithm, wanted.way);
                of_class
                    .flat_map(|timing| &timing.samples)
                    .find(|sample| sample.candidate == candidate)
                    .map(TimingSample::upper_quartile)
            };
            let usual = rate(*choice).unwrap_or(0.0);
            let fastest = TimingCandidate::strong().filter_map(|candidate| match candidate {
                TimingCandidate::Code(algorithm, way) => {
                    Some(ChecksumChoice { algorithm, way }).filter(|choice| choice.is_sound())
                }
                _ => None,
            });
            let fastest = fastest.filter_map(|choice| Some((rate(choice)?, choice)));
            if let Some((rate, faster)) = fastest.max_by(|(a, _), (b, _)| a.total_cmp(b))
                && rate > usual * CLEARLY
            {
                *choice = faster;
            }
        }
        tuning
    }
}

/// A code must be this much faster than the default to take its place.
const CLEARLY: f64 = 1.03;

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(bytes: usize, rates: &[(Algorithm, CopyStrategy, f64)]) -> SizeTiming {
        let samples = rates.iter().map(|(algorithm, way, rate)| TimingSample {
            candidate: TimingCandidate::Code(*algorithm, *way),
            gigabytes_per_second: vec![*rate],
            of_memcpy: Vec::new(),
        });
        SizeTiming { bytes, samples: samples.collect() }
    }

    #[test]
    fn without_tuning_every_size_has_a_cyclic_code() {
        let tuning = ChecksumTuning::default();
        for bytes in [0, 1, 256, 257, 4096, 4097, 1 << 20, 16 << 20, 1 << 30, usize::MAX] {
            let choice = tuning.choose(bytes);
            assert!(choice.algorithm.is_cyclic() && choice.way == CopyStrategy::Fused, "{bytes}: {choice:?}");
        }
    }

    #[test]
    fn the_fastest_strong_code_of_a_class_is_taken() {
        let timings = [timing(
            256,
            &[(Algorithm::Crc32c, CopyStrategy::Fused, 10.0), (Algorithm::Crc64Nvme, CopyStrategy::CopyThen, 11.0)],
        )];
        let tuning = ChecksumTuning::from_timings(&timings);
        assert_eq!(
            tuning.choose(200),
            ChecksumChoice { algorithm: Algorithm::Crc64Nvme, way: CopyStrategy::CopyThen }
        );
        assert_eq!(tuning.choose(300), ChecksumTuning::default().choose(300), "other classes were not timed");
    }

    #[test]
    fn a_weak_code_is_not_taken_however_fast_nor_one_that_does_not_copy() {
        let fast = [
            (Algorithm::Crc32c, CopyStrategy::Fused, 10.0),
            (Algorithm::Sum32, CopyStrategy::Fused, 99.0),
            (Algorithm::Xxh3, CopyStrategy::Alone, 99.0),
        ];
        assert_eq!(ChecksumTuning::from_timings(&[timing(256, &fast)]), ChecksumTuning::default());
    }

    #[test]
    fn the_default_stays_unless_another_is_clearly_faster() {
        let close =
            [(Algorithm::Crc32c, CopyStrategy::Fused, 10.0), (Algorithm::Crc64Nvme, CopyStrategy::Fused, 10.2)];
        assert_eq!(ChecksumTuning::from_timings(&[timing(256, &close)]), ChecksumTuning::default());
    }

    #[test]
    fn a_choice_copies_and_gives_the_value() {
        let bytes: Vec<u8> = (0..20_000u32).map(|number| (number * 7) as u8).collect();
        for way in CopyStrategy::ALL {
            let choice = ChecksumChoice { algorithm: Algorithm::Crc32c, way };
            let mut room = vec![0; bytes.len()];
            assert_eq!(choice.copy(&bytes, &mut room), choice.value(&bytes));
            assert_eq!(room, bytes);
        }
    }
}
