//! Measures the throughput of algorithms and strategies on this machine.
//!
//! All candidates of one size take turns, so that disturbances affect them alike. A sample is as many calls as take a set time; the
//! median over rounds counts, with the slowest and the fastest beside. Candidates that are compared with memcpy are followed by it in
//! every round: a change of the clock frequency affects both.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::choice::CopyStrategy;
use crate::algorithm::{Algorithm, Strength};
use crate::oneshot::{copy, copy_then, value};

/// What can be timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimingCandidate {
    /// The system's copy, without a checksum.
    Memcpy,
    /// Reading every word: the exclusive or of all.
    Reading,
    /// An algorithm with a strategy.
    Code(Algorithm, CopyStrategy),
}

impl TimingCandidate {
    /// Every algorithm with every strategy.
    pub fn codes() -> impl Iterator<Item = Self> {
        let strategies =
            |algorithm: Algorithm| CopyStrategy::ALL.into_iter().map(move |strategy| Self::Code(algorithm, strategy));
        Algorithm::ALL.into_iter().flat_map(strategies)
    }

    /// Every strong algorithm with both strategies that copy.
    pub fn strong() -> impl Iterator<Item = Self> {
        Self::codes().filter(|candidate| candidate.is_compared())
    }

    /// Whether it is compared with memcpy.
    fn is_compared(self) -> bool {
        matches!(self, Self::Code(algorithm, strategy) if algorithm.strength() == Strength::Strong && strategy != CopyStrategy::Alone)
    }

    fn run(self, from: &[u8], to: &mut [u8]) {
        let (from, to) = (black_box(from), black_box(to));
        match self {
            Self::Memcpy => to.copy_from_slice(from),
            Self::Reading => _ = black_box(value(Algorithm::Xor32, from)),
            Self::Code(algorithm, CopyStrategy::Alone) => _ = black_box(value(algorithm, from)),
            Self::Code(algorithm, CopyStrategy::CopyThen) => _ = black_box(copy_then(algorithm, from, to)),
            Self::Code(algorithm, CopyStrategy::Fused) => _ = black_box(copy(algorithm, from, to)),
        }
    }
}

/// The throughput of a candidate at one size.
#[derive(Clone, Debug)]
pub struct TimingSample {
    /// The candidate.
    pub candidate: TimingCandidate,
    /// One per round, sorted.
    pub gigabytes_per_second: Vec<f64>,
    /// The same as a share of memcpy's throughput right after it, sorted; only for strong algorithms that copy.
    pub of_memcpy: Vec<f64>,
}

impl TimingSample {
    /// The median throughput.
    pub fn median(&self) -> f64 {
        self.gigabytes_per_second[self.gigabytes_per_second.len() / 2]
    }

    /// The throughput that a quarter of the rounds exceed. Disturbances only slow a measurement, so on a busy machine this is closer to the truth
    /// than the median.
    pub fn upper_quartile(&self) -> f64 {
        self.gigabytes_per_second[self.gigabytes_per_second.len() * 3 / 4]
    }

    /// The median share of memcpy's throughput, for candidates that are compared with it.
    pub fn share_of_memcpy(&self) -> Option<f64> {
        self.of_memcpy.get(self.of_memcpy.len() / 2).copied()
    }

    /// The slowest and the fastest round.
    pub fn spread(&self) -> (f64, f64) {
        (self.gigabytes_per_second[0], self.gigabytes_per_second[self.gigabytes_per_second.len() - 1])
    }
}

/// All candidates at one size.
#[derive(Clone, Debug)]
pub struct SizeTiming {
    /// Bytes of a message.
    pub bytes: usize,
    /// In the order of the argument.
    pub samples: Vec<TimingSample>,
}

/// Times all candidates with messages of one size, in turn, round after round.
pub fn time_candidates(candidates: &[TimingCandidate], bytes: usize, rounds: usize, sample: Duration) -> SizeTiming {
    let (mut source, mut target) = (room(bytes), room(bytes));
    let (from, to) = (aligned(&mut source, bytes), aligned(&mut target, bytes));
    for (place, byte) in from.iter_mut().enumerate() {
        *byte = (place.wrapping_mul(2_654_435_761) >> 13) as u8;
    }
    let calls_of = |candidate, from: &[u8], to: &mut [u8]| calls_for(candidate, from, to, sample);
    let calls: Vec<u32> = candidates.iter().map(|candidate| calls_of(*candidate, from, to)).collect();
    let copies = calls_of(TimingCandidate::Memcpy, from, to);
    let rate = |candidate: TimingCandidate, calls: u32, from: &[u8], to: &mut [u8]| {
        // The previous candidate left the caches in an arbitrary state.
        candidate.run(from, to);
        let took = run(candidate, calls, from, to);
        f64::from(calls) * bytes as f64 / took.as_secs_f64().max(1e-9) / 1e9
    };
    let sample = |candidate: &TimingCandidate| TimingSample {
        candidate: *candidate,
        gigabytes_per_second: Vec::with_capacity(rounds),
        of_memcpy: Vec::new(),
    };
    let mut samples: Vec<TimingSample> = candidates.iter().map(sample).collect();
    for _ in 0..rounds.max(1) {
        for (sample, calls) in samples.iter_mut().zip(&calls) {
            let found = rate(sample.candidate, *calls, from, to);
            sample.gigabytes_per_second.push(found);
            if sample.candidate.is_compared() {
                sample.of_memcpy.push(found / rate(TimingCandidate::Memcpy, copies, from, to));
            }
        }
    }
    for sample in &mut samples {
        sample.gigabytes_per_second.sort_by(f64::total_cmp);
        sample.of_memcpy.sort_by(f64::total_cmp);
    }
    SizeTiming { bytes, samples }
}

fn run(candidate: TimingCandidate, calls: u32, from: &[u8], to: &mut [u8]) -> Duration {
    let began = Instant::now();
    for _ in 0..calls {
        candidate.run(from, to);
    }
    began.elapsed()
}

/// How many calls take about this long.
fn calls_for(candidate: TimingCandidate, from: &[u8], to: &mut [u8], sample: Duration) -> u32 {
    let mut calls = 1;
    loop {
        let took = run(candidate, calls, from, to);
        if took >= sample / 4 || calls >= 1 << 24 {
            let wanted = f64::from(calls) * sample.as_secs_f64() / took.as_secs_f64().max(1e-9);
            return (wanted as u32).clamp(1, 1 << 26);
        }
        calls *= 2;
    }
}

const PAGE: usize = 4096;

fn room(bytes: usize) -> Vec<u8> {
    vec![0x5a; bytes + PAGE]
}

/// Page-aligned, so that all runs have the same alignment.
fn aligned(room: &mut [u8], bytes: usize) -> &mut [u8] {
    let start = room.as_ptr().align_offset(PAGE).min(room.len() - bytes);
    &mut room[start..start + bytes]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_is_timed_in_every_round() {
        let candidates: Vec<TimingCandidate> =
            [TimingCandidate::Memcpy, TimingCandidate::Reading].into_iter().chain(TimingCandidate::codes()).collect();
        let timing = time_candidates(&candidates, 300, 3, Duration::from_micros(5));
        assert_eq!(timing.samples.len(), 2 + 3 * Algorithm::ALL.len());
        for sample in &timing.samples {
            let (least, most) = sample.spread();
            assert_eq!(sample.gigabytes_per_second.len(), 3);
            assert!(
                0.0 < least && least <= sample.median() && sample.median() <= sample.upper_quartile(),
                "{sample:?}"
            );
            assert!(sample.upper_quartile() <= most, "{sample:?}");
            let is_strong = TimingCandidate::strong().any(|strong| strong == sample.candidate);
            assert_eq!(sample.of_memcpy.len(), if is_strong { 3 } else { 0 });
            assert_eq!(sample.share_of_memcpy().is_some_and(|share| share > 0.0), is_strong);
        }
    }

    #[test]
    fn only_strong_algorithms_are_candidates_of_the_tuner() {
        let strong: Vec<TimingCandidate> = TimingCandidate::strong().collect();
        assert!(strong.contains(&TimingCandidate::Code(Algorithm::Crc64Nvme, CopyStrategy::Fused)));
        assert!(!strong.iter().any(|candidate| matches!(candidate, TimingCandidate::Code(Algorithm::Sum32, _))));
    }
}
