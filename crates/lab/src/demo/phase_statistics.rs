//! Adds up what the ranks of an act say, and judges what only who hears all of them can judge.

use std::collections::BTreeMap;

use units::Span;

use super::RANKS;
use super::operation::DemoOperation;
use super::rank_report::{BatchReport, RankTotals};

/// Wrong results that are described; all are counted.
const MOST_DESCRIBED: usize = 8;

/// What is known of an act.
#[derive(Default)]
pub(super) struct PhaseStatistics {
    /// What every call at every rank took.
    pub latencies: BTreeMap<DemoOperation, Vec<Span>>,
    /// Results that were compared.
    pub checked: u64,
    /// Of them, those that were not right.
    pub wrong: u64,
    /// The first of these, in words.
    pub described: Vec<String>,
    /// How much of the act is over.
    pub share: f64,
    /// PacketCounters and operations of all ranks.
    pub account: RankTotals,
    /// When a node was killed, by the machine's clock.
    pub killed_ns: Option<u64>,
    /// Calls under way then, and the longest of them.
    pub in_flight: u64,
    pub longest_in_flight: Span,
    /// Calls made after that.
    pub afterwards: u64,
    /// Why the act came to no good end, if so.
    pub failure: Option<String>,
    barriers: BTreeMap<u64, BarrierTimes>,
}

/// A barrier, as far as ranks have told of it.
struct BarrierTimes {
    ranks: u32,
    last_entered_ns: u64,
    first_left_ns: u64,
}

impl PhaseStatistics {
    /// A rank has done a batch.
    pub(super) fn add(&mut self, rank: u32, done: &BatchReport) {
        self.checked += done.left_ns.len() as u64;
        for what in &done.wrong {
            self.object(format!("rank {rank}: {what}"));
        }
        let latencies = self.latencies.entry(done.piece).or_default();
        for (entered, left) in done.entered_ns.iter().zip(&done.left_ns) {
            latencies.push(Span::from_nanos(left.saturating_sub(*entered)));
        }
        for (op, (entered, left)) in (done.first..).zip(done.entered_ns.iter().zip(&done.left_ns)) {
            self.place_in_time(*entered, *left);
            if done.piece == DemoOperation::Barrier {
                self.pass_barrier(rank, op, *entered, *left);
            }
        }
    }

    /// Nobody may leave a barrier before all have come.
    fn pass_barrier(&mut self, rank: u32, op: u64, entered: u64, left: u64) {
        let begun = BarrierTimes { ranks: 0, last_entered_ns: 0, first_left_ns: u64::MAX };
        let barrier = self.barriers.entry(op).or_insert(begun);
        barrier.ranks += 1;
        barrier.last_entered_ns = barrier.last_entered_ns.max(entered);
        barrier.first_left_ns = barrier.first_left_ns.min(left);
        if barrier.ranks < RANKS {
            return;
        }
        if barrier.first_left_ns < barrier.last_entered_ns {
            self.object(format!("barrier number {op}: somebody left before all had come (last heard: rank {rank})"));
        }
        self.barriers.remove(&op);
    }

    fn place_in_time(&mut self, entered: u64, left: u64) {
        let Some(killed) = self.killed_ns else { return };
        if entered >= killed {
            self.afterwards += 1;
        } else if left >= killed {
            self.in_flight += 1;
            self.longest_in_flight = self.longest_in_flight.max(Span::from_nanos(left - entered));
        }
    }

    fn object(&mut self, what: String) {
        self.wrong += 1;
        if self.described.len() < MOST_DESCRIBED {
            self.described.push(what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn barrier(entered: u64, left: u64) -> BatchReport {
        let (entered_ns, left_ns, wrong) = (vec![entered], vec![left], Vec::new());
        BatchReport { piece: DemoOperation::Barrier, first: 5, entered_ns, left_ns, wrong }
    }

    #[test]
    fn who_leaves_a_barrier_early_is_objected_to() {
        for (last_comes, wrong) in [(90, 0), (110, 1)] {
            let mut tally = PhaseStatistics::default();
            for rank in 0..RANKS - 1 {
                tally.add(rank, &barrier(50, 100 + u64::from(rank)));
            }
            assert_eq!(tally.wrong, 0, "not all have told");
            tally.add(RANKS - 1, &barrier(last_comes, 120));
            assert_eq!((tally.wrong, tally.barriers.len()), (wrong, 0));
        }
    }

    #[test]
    fn calls_are_told_apart_by_when_the_node_was_killed() {
        let mut tally = PhaseStatistics { killed_ns: Some(100), ..PhaseStatistics::default() };
        for (entered, left) in [(50, 90), (90, 130), (80, 150), (100, 105)] {
            tally.add(0, &barrier(entered, left));
        }
        assert_eq!((tally.in_flight, tally.afterwards), (2, 1));
        assert_eq!(tally.longest_in_flight, Span::from_nanos(70));
    }
}
