//! Rates and latencies of the whole cluster over the last ten minutes.

use std::collections::VecDeque;

use serde::Serialize;

use super::view::ClusterView;

/// One sample each second; fewer while nobody looks.
const MAX_SAMPLES: usize = 600;
const MAX_AGE_MS: u64 = 600_000;

/// The cluster at one moment.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct HistorySample {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    pub operations_per_second: Option<f64>,
    pub packets_per_second: Option<f64>,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub nodes_alive: usize,
    /// Retransmissions, as a count so far.
    pub repeated: u64,
}

/// The samples, oldest first.
#[derive(Default)]
pub(super) struct History {
    samples: VecDeque<HistorySample>,
}

impl History {
    /// Records a view.
    pub(super) fn note(&mut self, at_ms: u64, view: &ClusterView) {
        let rates = || view.nodes.iter().filter_map(|node| node.packets_per_second);
        let packets: f64 = rates().sum();
        let sample = HistorySample {
            at_ms,
            operations_per_second: view.operations_per_second,
            packets_per_second: rates().next().map(|_| packets.round()),
            p50_us: view.latency.map(|latency| latency.p50_us),
            p99_us: view.latency.map(|latency| latency.p99_us),
            nodes_alive: view.nodes.iter().filter(|node| node.alive).count(),
            repeated: view.nodes.iter().fold(0, |sum, node| sum.saturating_add(node.repeated)),
        };
        let is_old = |sample: &HistorySample| sample.at_ms.saturating_add(MAX_AGE_MS) < at_ms;
        while self.samples.len() == MAX_SAMPLES || self.samples.front().is_some_and(is_old) {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    pub(super) fn samples(&self) -> &VecDeque<HistorySample> {
        &self.samples
    }
}
