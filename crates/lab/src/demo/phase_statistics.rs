//! Adds up the reports of the ranks of a phase, and checks barriers, which takes the times of all ranks.

use std::collections::BTreeMap;

use units::SimSpan;

use super::RANKS;
use super::operation::DemoOperation;
use super::rank_report::{BatchReport, RankTotals};

/// Maximum number of wrong results that are described. All are counted.
const MAX_DESCRIBED: usize = 8;

/// The statistics of a phase.
#[derive(Default)]
pub(super) struct PhaseStatistics {
    /// Latencies of all calls of all ranks.
    pub latencies: BTreeMap<DemoOperation, Vec<SimSpan>>,
    /// Results that were checked.
    pub checked: u64,
    /// Results that were wrong.
    pub wrong: u64,
    /// Descriptions of the first wrong results.
    pub described: Vec<String>,
    /// Share of the phase that is over.
    pub share: f64,
    /// Counters of all ranks.
    pub totals: RankTotals,
    /// When a node was killed, by the monotonic clock.
    pub killed_ns: Option<u64>,
    /// Calls in flight then, and the longest of them.
    pub in_flight: u64,
    pub longest_in_flight: SimSpan,
    /// Calls started after that.
    pub afterwards: u64,
    /// Why the phase failed, if it did.
    pub failure: Option<String>,
    barriers: BTreeMap<u64, BarrierTimes>,
}

/// A barrier, as far as ranks have reported it.
struct BarrierTimes {
    ranks: u32,
    last_entered_ns: u64,
    first_left_ns: u64,
}

impl PhaseStatistics {
    /// Adds a batch of a rank.
    pub(super) fn add(&mut self, rank: u32, batch: &BatchReport) {
        self.checked += batch.left_ns.len() as u64;
        for what in &batch.wrong {
            self.record_wrong(format!("rank {rank}: {what}"));
        }
        let latencies = self.latencies.entry(batch.operation).or_default();
        for (entered, left) in batch.entered_ns.iter().zip(&batch.left_ns) {
            latencies.push(SimSpan::from_nanos(left.saturating_sub(*entered)));
        }
        for (op, (entered, left)) in (batch.first..).zip(batch.entered_ns.iter().zip(&batch.left_ns)) {
            self.classify_call(*entered, *left);
            if batch.operation == DemoOperation::Barrier {
                self.check_barrier(rank, op, *entered, *left);
            }
        }
    }

    /// No rank may leave a barrier before all ranks have entered it.
    fn check_barrier(&mut self, rank: u32, op: u64, entered: u64, left: u64) {
        let begun = BarrierTimes { ranks: 0, last_entered_ns: 0, first_left_ns: u64::MAX };
        let barrier = self.barriers.entry(op).or_insert(begun);
        barrier.ranks += 1;
        barrier.last_entered_ns = barrier.last_entered_ns.max(entered);
        barrier.first_left_ns = barrier.first_left_ns.min(left);
        if barrier.ranks < RANKS {
            return;
        }
        if barrier.first_left_ns < barrier.last_entered_ns {
            self.record_wrong(format!(
                "barrier number {op}: a rank left before all had entered (last report: rank {rank})"
            ));
        }
        self.barriers.remove(&op);
    }

    fn classify_call(&mut self, entered: u64, left: u64) {
        let Some(killed) = self.killed_ns else { return };
        if entered >= killed {
            self.afterwards += 1;
        } else if left >= killed {
            self.in_flight += 1;
            self.longest_in_flight = self.longest_in_flight.max(SimSpan::from_nanos(left - entered));
        }
    }

    fn record_wrong(&mut self, what: String) {
        self.wrong += 1;
        if self.described.len() < MAX_DESCRIBED {
            self.described.push(what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn barrier(entered: u64, left: u64) -> BatchReport {
        let (entered_ns, left_ns, wrong) = (vec![entered], vec![left], Vec::new());
        BatchReport { operation: DemoOperation::Barrier, first: 5, entered_ns, left_ns, wrong }
    }

    #[test]
    fn leaving_a_barrier_early_is_detected() {
        for (last_entered, wrong) in [(90, 0), (110, 1)] {
            let mut statistics = PhaseStatistics::default();
            for rank in 0..RANKS - 1 {
                statistics.add(rank, &barrier(50, 100 + u64::from(rank)));
            }
            assert_eq!(statistics.wrong, 0, "not all ranks have reported");
            statistics.add(RANKS - 1, &barrier(last_entered, 120));
            assert_eq!((statistics.wrong, statistics.barriers.len()), (wrong, 0));
        }
    }

    #[test]
    fn calls_are_classified_by_the_time_of_the_kill() {
        let mut statistics = PhaseStatistics { killed_ns: Some(100), ..PhaseStatistics::default() };
        for (entered, left) in [(50, 90), (90, 130), (80, 150), (100, 105)] {
            statistics.add(0, &barrier(entered, left));
        }
        assert_eq!((statistics.in_flight, statistics.afterwards), (2, 1));
        assert_eq!(statistics.longest_in_flight, SimSpan::from_nanos(70));
    }
}
