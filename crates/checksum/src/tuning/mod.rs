//! Which algorithm to use and how to copy, by message size (claim CK-3).
//!
//! In: nothing, or the measurements on this kind of processor. Out: an algorithm and a copy strategy for each size. Only strong algorithms
//! are ever chosen. Without a tuning there is a default that needs no measurement.

mod cache;
mod choice;
mod timing;

use std::sync::OnceLock;

pub use cache::{TuningCache, processor_identity};
pub use choice::{ChecksumChoice, ChecksumTuning, CopyStrategy, SIZE_CLASSES};
pub use timing::{SizeTiming, TimingCandidate, TimingSample, time_candidates};

impl ChecksumTuning {
    /// The tuning for this kind of processor, or the default. Read once; an invalid file counts as none.
    pub fn for_this_machine() -> &'static Self {
        static TUNING: OnceLock<ChecksumTuning> = OnceLock::new();
        TUNING.get_or_init(|| TuningCache::user_default().and_then(|folder| folder.load()).unwrap_or_default())
    }

    /// The fastest strong algorithm and strategy of each class. Where none is clearly faster than the default, the default stays: the choice
    /// should not change with every measurement.
    pub fn from_timings(timings: &[SizeTiming]) -> Self {
        let mut tuning = Self::default();
        for (choice, bytes) in tuning.choices.iter_mut().zip(SIZE_CLASSES) {
            let rate = |wanted: ChecksumChoice| {
                let of_class = timings.iter().filter(|timing| timing.bytes == bytes);
                let candidate = TimingCandidate::Code(wanted.algorithm, wanted.strategy);
                of_class
                    .flat_map(|timing| &timing.samples)
                    .find(|sample| sample.candidate == candidate)
                    .map(TimingSample::upper_quartile)
            };
            let usual = rate(*choice).unwrap_or(0.0);
            let fastest = TimingCandidate::strong().filter_map(|candidate| match candidate {
                TimingCandidate::Code(algorithm, strategy) => {
                    Some(ChecksumChoice { algorithm, strategy }).filter(|choice| choice.is_sound())
                }
                _ => None,
            });
            let fastest = fastest.filter_map(|choice| Some((rate(choice)?, choice)));
            if let Some((rate, faster)) = fastest.max_by(|(a, _), (b, _)| a.total_cmp(b))
                && rate > usual * MIN_SPEEDUP
            {
                *choice = faster;
            }
        }
        tuning
    }
}

/// How much faster than the default an algorithm must be to replace it.
const MIN_SPEEDUP: f64 = 1.03;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Algorithm;

    fn timing(bytes: usize, rates: &[(Algorithm, CopyStrategy, f64)]) -> SizeTiming {
        let samples = rates.iter().map(|(algorithm, strategy, rate)| TimingSample {
            candidate: TimingCandidate::Code(*algorithm, *strategy),
            gigabytes_per_second: vec![*rate],
            of_memcpy: Vec::new(),
        });
        SizeTiming { bytes, samples: samples.collect() }
    }

    #[test]
    fn without_tuning_every_size_has_a_crc() {
        let tuning = ChecksumTuning::default();
        for bytes in [0, 1, 256, 257, 4096, 4097, 1 << 20, 16 << 20, 1 << 30, usize::MAX] {
            let choice = tuning.choose(bytes);
            assert!(choice.algorithm.is_cyclic() && choice.strategy == CopyStrategy::Fused, "{bytes}: {choice:?}");
        }
    }

    #[test]
    fn the_fastest_strong_algorithm_of_a_class_is_chosen() {
        let timings = [timing(
            256,
            &[(Algorithm::Crc32c, CopyStrategy::Fused, 10.0), (Algorithm::Crc64Nvme, CopyStrategy::CopyThen, 11.0)],
        )];
        let tuning = ChecksumTuning::from_timings(&timings);
        assert_eq!(
            tuning.choose(200),
            ChecksumChoice { algorithm: Algorithm::Crc64Nvme, strategy: CopyStrategy::CopyThen }
        );
        assert_eq!(tuning.choose(300), ChecksumTuning::default().choose(300), "other classes were not timed");
    }

    #[test]
    fn neither_weak_algorithms_nor_those_that_do_not_copy_are_chosen() {
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
    fn a_choice_copies_and_returns_the_checksum() {
        let bytes: Vec<u8> = (0..20_000u32).map(|number| (number * 7) as u8).collect();
        for strategy in CopyStrategy::ALL {
            let choice = ChecksumChoice { algorithm: Algorithm::Crc32c, strategy };
            let mut room = vec![0; bytes.len()];
            assert_eq!(choice.copy(&bytes, &mut room), choice.value(&bytes));
            assert_eq!(room, bytes);
        }
    }
}
