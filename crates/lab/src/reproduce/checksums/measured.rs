//! The bandwidth lost to checksums on this machine, and on the paper's clusters (CK-9).

use anyhow::Result;
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
