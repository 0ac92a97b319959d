//! The bandwidth lost to checksums on this machine, and on the paper's clusters (CK-9).

use std::time::Duration;

use anyhow::Result;
use checksum::Algorithm;
use checksum::tuning::{CopyStrategy, TimingCandidate, time_candidates};
use serde::Serialize;

use crate::bench::TrialSummary;
use crate::bench::pingpong::{PingpongTransport, checksum_cost};

/// A message size, and the published loss of bandwidth in percent. For 1 MB the paper says only that no long message loses more
/// than 3 %, and that the loss finally falls below 0.5 %.
const SIZES: [(usize, f64); 4] = [(4 << 10, 30.0), (64 << 10, 3.0), (1 << 20, 3.0), (4 << 20, 0.5)];
const ROUNDS: u32 = 3;

#[derive(Serialize)]
pub(super) struct MeasuredChecksumLoss {
    pub(super) transport: PingpongTransport,
    pub(super) bytes: usize,
    /// Percent of the bandwidth lost, over rounds.
    pub(super) lost_percent: TrialSummary,
    pub(super) published_percent: f64,
    pub(super) verdict: &'static str,
}

/// Two processes exchange messages with checksums and without any check, in turn; over UDP the latter have no ICRC either.
pub(super) fn measure() -> Result<Vec<MeasuredChecksumLoss>> {
    let mut found = Vec::new();
    for transport in [PingpongTransport::Udp, PingpongTransport::Shm] {
        let costs = checksum_cost(transport, &SIZES.map(|(bytes, _)| bytes), ROUNDS)?;
        for ((bytes, published), (_, cost)) in SIZES.into_iter().zip(costs) {
            found.push(MeasuredChecksumLoss::new(transport, bytes, published, &cost));
        }
    }
    Ok(found)
}

/// The speed of an algorithm on blocks of 32 KB: alone, after a copy, and fused with it (CK-2, CK-5).
#[derive(Serialize)]
pub(super) struct MeasuredSpeed {
    pub(super) algorithm: &'static str,
    /// In the order of [`CopyStrategy::ALL`].
    pub(super) gb_per_s: [f64; 3],
}

/// Measures every algorithm in all three ways.
pub(super) fn measure_speeds() -> Vec<MeasuredSpeed> {
    let candidates: Vec<TimingCandidate> = TimingCandidate::codes().collect();
    let timing = time_candidates(&candidates, 32 << 10, 5, Duration::from_micros(200));
    let speed = |algorithm: Algorithm, way: CopyStrategy| {
        let wanted = TimingCandidate::Code(algorithm, way);
        timing.samples.iter().find(|sample| sample.candidate == wanted).map_or(f64::NAN, |sample| sample.median())
    };
    let row = |algorithm: Algorithm| MeasuredSpeed {
        algorithm: algorithm.name(),
        gb_per_s: CopyStrategy::ALL.map(|way| speed(algorithm, way)),
    };
    Algorithm::ALL.iter().copied().map(row).collect()
}

/// The number of this machine for the id of a published one. Plain sum and XOR are references, not checksums (CK-2).
pub(super) fn ours(speeds: &[MeasuredSpeed], id: &str) -> Option<f64> {
    let of = |wanted: Algorithm| speeds.iter().find(|speed| speed.algorithm == wanted.name());
    let [alone, then, fused] = [0, 1, 2].map(|way| move |speed: &MeasuredSpeed| speed.gb_per_s[way]);
    let references = [Algorithm::Sum32, Algorithm::Xor32].map(Algorithm::name);
    let is_crc = |speed: &&MeasuredSpeed| speed.algorithm == Algorithm::Crc32c.name();
    match id {
        "best-alone" => {
            let real = speeds.iter().filter(|speed| !references.contains(&speed.algorithm));
            Some(1e3 * real.map(alone).fold(0.0, f64::max))
        }
        "fletcher-jack" | "fletcher-graphene" => {
            let (fletcher, fnv) = (of(Algorithm::Fletcher64)?, of(Algorithm::Fnv1aWords)?);
            Some(100.0 * (fused(fletcher) / fused(fnv) - 1.0))
        }
        "fused-wins" => {
            let others: Vec<&MeasuredSpeed> = speeds.iter().filter(|speed| !is_crc(speed)).collect();
            let won = others.iter().filter(|speed| fused(speed) > then(speed)).count();
            Some(100.0 * won as f64 / others.len().max(1) as f64)
        }
        "fused-crc" => speeds.iter().find(is_crc).map(|speed| 100.0 * (fused(speed) / then(speed) - 1.0)),
        _ => None,
    }
}

impl MeasuredChecksumLoss {
    fn new(transport: PingpongTransport, bytes: usize, published: f64, cost: &TrialSummary) -> Self {
        let lost = |ratio: f64| 100.0 * (1.0 - 1.0 / ratio);
        let lost_percent = TrialSummary { median: lost(cost.median), min: lost(cost.min), max: lost(cost.max) };
        let verdict = match &lost_percent {
            found if found.median <= published => "no more than published",
            found if found.min <= published => "no more than published in one round, more in most",
            _ => "more than published",
        };
        Self { transport, bytes, lost_percent, published_percent: published, verdict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_decides_the_verdict() {
        let of = |median, min, max| {
            MeasuredChecksumLoss::new(PingpongTransport::Shm, 1, 3.0, &TrialSummary { median, min, max }).verdict
        };
        assert_eq!(of(1.02, 0.9, 1.5), "no more than published");
        assert_eq!(of(1.10, 1.0, 1.5), "no more than published in one round, more in most");
        assert_eq!(of(1.10, 1.05, 1.5), "more than published");
    }
}
