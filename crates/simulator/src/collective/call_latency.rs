//! The latency of collective calls, measured as benchmarks do: the mean and the maximum over hosts and calls.

use serde::Serialize;
use units::SimSpan;

use super::parameters::OperationPacing;

/// The calls of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallWorkload {
    /// Calls by each host.
    pub count: u32,
    /// Segments of each call; every one has the size of [`super::CollectiveParameters::contents`].
    pub segments: u32,
    /// When the next call starts.
    pub pace: OperationPacing,
}

/// The latency of the calls.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct CallLatency {
    /// Calls by each host that were counted.
    pub calls: u32,
    /// The mean over hosts and calls.
    pub mean_ns: f64,
    /// The longest of any host.
    pub longest_ns: f64,
}

/// Latencies so far.
#[derive(Default)]
pub(crate) struct CallStatistics {
    sum_ps: u128,
    counted: u64,
    longest: SimSpan,
}

impl CallStatistics {
    /// Counts a host's call, the `number`-th from 1. The first of several is not counted: no host is late yet.
    pub(crate) fn record(&mut self, workload: &CallWorkload, number: u32, latency: SimSpan) {
        if number > 1 || workload.count == 1 {
            self.sum_ps += u128::from(latency.as_picos());
            self.counted += 1;
            self.longest = self.longest.max(latency);
        }
    }

    /// The latency, if every call of every host has ended.
    pub(crate) fn latency(&self, workload: &CallWorkload, ranks: u32) -> Option<CallLatency> {
        let calls = if workload.count > 1 { workload.count - 1 } else { workload.count };
        (self.counted == u64::from(ranks) * u64::from(calls)).then(|| CallLatency {
            calls: if ranks == 0 { 0 } else { calls },
            mean_ns: self.sum_ps as f64 / 1e3 / self.counted as f64,
            longest_ns: self.longest.as_nanos_f64(),
        })
    }
}
