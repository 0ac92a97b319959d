//! The paper's formulas of the cost of a checksum. Times in microseconds, bandwidths in bytes per microsecond.

use serde::Serialize;

use super::parameters::ClusterTable;

/// The super-pipeline with and without a checksum, for one speed of the copy alone.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct PipelineOverhead {
    pub(super) copy_gb_per_s: f64,
    pub(super) gaps_without: f64,
    pub(super) gaps_with: f64,
    pub(super) added_us: f64,
    pub(super) overhead_percent: f64,
}

/// Bytes per microsecond of a bandwidth in GB/s.
fn bytes_per_us(gb_per_s: f64) -> f64 {
    1e3 * gb_per_s
}

impl ClusterTable {
    /// The share of the network bandwidth for long messages if both ends compute the checksum separately (CK-4).
    pub(super) fn naive_share(&self) -> f64 {
        1.0 / (1.0 / self.network + 2.0 / self.checksum) / self.network
    }

    /// The share of the bandwidth that an eager message loses to checksummed copies at both ends (CK-6).
    pub(super) fn eager_loss(&self, bytes: f64) -> f64 {
        let plain = self.transfer_us(bytes);
        1.0 - plain / (plain + 2.0 * bytes / bytes_per_us(self.checksum))
    }

    /// The overhead of half a microsecond and one gap on a long message (CK-7, as published).
    pub(super) fn printed_overhead(&self, bytes: f64) -> f64 {
        (self.sub_block_us + self.gap_us) / self.transfer_us(bytes)
    }

    /// The same as a loss of bandwidth.
    pub(super) fn printed_loss(&self, bytes: f64) -> f64 {
        let overhead = self.printed_overhead(bytes);
        overhead / (1.0 + overhead)
    }

    /// The same with the gaps of the formula, for a plain copy of so many gigabytes per second.
    pub(super) fn pipelined(&self, bytes: f64, copy_gb_per_s: f64) -> PipelineOverhead {
        let gaps_without = self.gaps(bytes, copy_gb_per_s);
        let gaps_with = self.gaps(bytes, self.checksum);
        let added_us = self.sub_block_us + self.gap_us * (gaps_with - gaps_without);
        let overhead_percent = 100.0 * added_us / self.transfer_us(bytes);
        PipelineOverhead { copy_gb_per_s, gaps_without, gaps_with, added_us, overhead_percent }
    }

    fn transfer_us(&self, bytes: f64) -> f64 {
        self.latency_us + bytes / bytes_per_us(self.network)
    }

    /// The number of chunks. The first is copied during the handshake, each later one while the previous one is sent, so that
    /// they grow by the ratio of the bandwidths.
    fn gaps(&self, bytes: f64, copy_gb_per_s: f64) -> f64 {
        let growth = copy_gb_per_s / self.network;
        let first = 2.0 * self.latency_us * bytes_per_us(copy_gb_per_s);
        (1.0 + bytes / first * (growth - 1.0)).ln() / growth.ln()
    }
}

#[cfg(test)]
mod tests {
    use super::super::parameters::{ChecksumParameters, TEXT};
    use super::*;

    fn jack() -> ClusterTable {
        ChecksumParameters::parse(TEXT).expect("the shipped file is valid").jack
    }

    #[test]
    fn the_gaps_are_those_of_the_series() {
        // Chunks of 16,800 bytes, doubled each time: six of them are 63 times the first.
        let gaps = jack().gaps(63.0 * 16_800.0, 6.0);
        assert!((gaps - 6.0).abs() < 1e-9, "{gaps}");
    }

    #[test]
    fn one_gap_comes_out_for_a_copy_of_seven_gigabytes_a_second() {
        let added = |copy| {
            let pipelined = jack().pipelined(1_048_576.0, copy);
            pipelined.gaps_with - pipelined.gaps_without
        };
        assert!(added(7.0) < 1.0 && added(7.5) > 1.0, "{} and {}", added(7.0), added(7.5));
    }
}
