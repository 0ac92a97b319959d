//! The trial of one operation and size class on one communicator: which call is done which way, and which way is the faster one.
//!
//! In: this rank's own times, and what all ranks agreed on. Out: the way of the next call, and how many calls to do like that. Everything
//! but the own times of the round in progress is a function of the number of calls and of agreed values, so it is the same on all ranks.
//!
//! A trial has rounds. A round does a few calls each way, then the ranks agree on the times. The more a round costs, the more calls lie
//! between it and the next one, so that all rounds but the first cost at most a 64th of the time of the calls around them.

use std::collections::VecDeque;

use crate::size_class::SizeClass;

/// What does a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Way {
    Pleach,
    Native,
}

impl Way {
    fn other(self) -> Self {
        match self {
            Self::Pleach => Self::Native,
            Self::Native => Self::Pleach,
        }
    }
}

/// Rounds may cost this share of a job's time, and of the calls between two rounds: 1.6 %.
const SHARE: u64 = 64;
/// Timed calls of a round, each way: at most.
const MAX_TIMED: usize = 2;
/// The last rounds, of which the medians are taken. As many come first, as soon as their cost allows.
const KEPT_ROUNDS: usize = 5;
/// As many rounds must contradict the choice before it changes.
const ROUNDS_TO_CHANGE: usize = 3;
/// Calls before the first of the later rounds; four times as many before each following one.
const LATER_GAP: u64 = 1 << 10;
const MAX_GAP: u64 = 1 << 20;
/// Calls before a round that was refused is proposed again; four times as many after each refusal.
const REFUSED_GAP: u64 = 1 << 4;
const MAX_REFUSED_GAP: u64 = 1 << 12;
/// The MPI is clearly faster if it saves more than a 20th, and more than a clock's error.
const CLEAR_SHARE: u64 = 20;
const CLEAR_NS: u64 = 50;

/// How the next call of a round is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TrialCall {
    pub(crate) way: Way,
    pub(crate) timing: Timing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timing {
    /// Sets up connections and fills caches.
    WarmUp,
    /// The ranks start together, and the time counts.
    Timed,
}

/// Own times in nanoseconds, by way and number; 0 for calls that a round of this class lacks.
pub(crate) type RoundTimes = [u64; 2 * MAX_TIMED];

/// Whether the round goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum RoundProgress {
    More,
    /// The ranks must agree on the times now.
    Complete,
}

/// What the ranks know of the job's time: the shortest of all ranks, and the most that any rank has lost to trials.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AgreedBudget {
    pub(crate) elapsed_ns: u64,
    pub(crate) lost_ns: u64,
}

/// The agreed price of agreeing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ExchangeCost {
    /// One exchange of values between the ranks.
    pub(crate) exchange_ns: u64,
    /// Of a hundred calls that the native MPI does, so many need an exchange before.
    pub(crate) guarded_percent: u64,
}

/// Do so many calls this way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct Settlement {
    pub(crate) way: Way,
    pub(crate) calls: u32,
    /// What the trial cost since the last settlement.
    pub(crate) lost_ns: u64,
}

/// The times of a round: the slowest rank of the faster call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct WayTimes {
    pub(crate) pleach_ns: u64,
    pub(crate) native_ns: u64,
}

impl WayTimes {
    fn is_native_clearly_faster(self) -> bool {
        self.native_ns + (self.native_ns / CLEAR_SHARE).max(CLEAR_NS) < self.pleach_ns
    }

    /// The better way, if the calls were done in this way before.
    fn better_than(self, way: Way) -> Way {
        match way {
            Way::Pleach if self.is_native_clearly_faster() => Way::Native,
            Way::Native if self.pleach_ns <= self.native_ns => Way::Pleach,
            same => same,
        }
    }
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct Trial {
    class: SizeClass,
    way: Way,
    rounds: VecDeque<WayTimes>,
    /// Rounds since the choice was last in doubt.
    since_doubt: u32,
    refusals: u32,
    /// Where the round in progress is, and its own times.
    position: Option<usize>,
    own: RoundTimes,
}

impl Trial {
    /// A trial that has not begun; until then, calls are done in this way.
    pub(crate) fn new(class: SizeClass, way: Way) -> Self {
        let (rounds, own) = (VecDeque::new(), [0; 2 * MAX_TIMED]);
        Self { class, way, rounds, since_doubt: 0, refusals: 0, position: None, own }
    }

    pub(crate) fn way(&self) -> Way {
        self.way
    }

    /// The medians of the last rounds; none before the first.
    pub(crate) fn medians(&self) -> Option<WayTimes> {
        let median = |of: fn(&WayTimes) -> u64| {
            let mut times: Vec<u64> = self.rounds.iter().map(of).collect();
            times.sort_unstable();
            times.get(times.len().checked_sub(1)? / 2).copied()
        };
        Some(WayTimes { pleach_ns: median(|round| round.pleach_ns)?, native_ns: median(|round| round.native_ns)? })
    }

    /// Begins a round, or postpones it if trials have cost too much of the job's time.
    pub(crate) fn begin(&mut self, budget: AgreedBudget, cost: ExchangeCost) -> Result<(), Settlement> {
        let expected = self.medians().map_or(0, |medians| self.cost_of_round(medians, cost));
        if budget.lost_ns + expected > budget.elapsed_ns / SHARE {
            let gap = REFUSED_GAP << (2 * self.refusals.min(8));
            self.refusals += 1;
            let calls = gap.min(MAX_REFUSED_GAP) as u32;
            return Err(Settlement { way: self.way, calls, lost_ns: cost.exchange_ns });
        }
        (self.refusals, self.position, self.own) = (0, Some(0), [0; 2 * MAX_TIMED]);
        Ok(())
    }

    /// The next call of the round in progress; none between rounds.
    pub(crate) fn call(&self) -> Option<TrialCall> {
        let position = self.position?;
        let calls = self.warm_ups() + self.timed();
        let first = self.first_way();
        let way = if position < calls { first } else { first.other() };
        let timing = if position % calls < self.warm_ups() { Timing::WarmUp } else { Timing::Timed };
        Some(TrialCall { way, timing })
    }

    /// Records this rank's time of that call.
    pub(crate) fn record(&mut self, time_ns: u64) -> RoundProgress {
        let (Some(position), Some(call)) = (self.position, self.call()) else { return RoundProgress::More };
        let calls = self.warm_ups() + self.timed();
        if call.timing == Timing::Timed {
            let number = position % calls - self.warm_ups();
            self.own[call.way as usize * MAX_TIMED + number] = time_ns.max(1);
        }
        self.position = Some(position + 1);
        if position + 1 == 2 * calls { RoundProgress::Complete } else { RoundProgress::More }
    }

    /// This rank's times of the round.
    pub(crate) fn own_times(&self) -> RoundTimes {
        self.own
    }

    /// Ends the round with the times of the slowest rank in each call.
    pub(crate) fn conclude(&mut self, slowest: &RoundTimes, cost: ExchangeCost) -> Settlement {
        let fastest = |way: Way| {
            let times = slowest[way as usize * MAX_TIMED..][..self.timed()].iter();
            times.copied().min().unwrap_or_default()
        };
        let guards_ns = cost.exchange_ns * cost.guarded_percent / 100;
        let round = WayTimes { pleach_ns: fastest(Way::Pleach), native_ns: fastest(Way::Native) + guards_ns };
        (self.position, self.own) = (None, [0; 2 * MAX_TIMED]);
        let is_first = self.rounds.is_empty();
        if !is_first && self.since_doubt as usize >= ROUNDS_TO_CHANGE && round.better_than(self.way) != self.way {
            // The conditions may have changed: forget the earlier rounds, and measure again soon.
            self.rounds.clear();
            self.since_doubt = 0;
        }
        self.since_doubt = self.since_doubt.saturating_add(1);
        if self.rounds.len() == KEPT_ROUNDS {
            self.rounds.pop_front();
        }
        self.rounds.push_back(round);
        let medians = self.medians().unwrap_or(round);
        if is_first || self.rounds.len() >= ROUNDS_TO_CHANGE {
            self.way = medians.better_than(self.way);
        }
        Settlement { way: self.way, calls: self.gap(medians, cost), lost_ns: self.cost_of_round(round, cost) }
    }

    /// Calls until the next round.
    fn gap(&self, medians: WayTimes, cost: ExchangeCost) -> u32 {
        let faster_ns = medians.pleach_ns.min(medians.native_ns).max(1);
        let paid = (self.cost_of_round(medians, cost) / faster_ns + 1).saturating_mul(SHARE);
        let later = match self.since_doubt.checked_sub(KEPT_ROUNDS as u32) {
            None => 0,
            Some(rounds) => (LATER_GAP << (2 * rounds.min(8))).min(MAX_GAP),
        };
        paid.max(later).min(u64::from(u32::MAX / 4)) as u32
    }

    /// What a round costs: the calls that are done the slower way, and the exchanges.
    fn cost_of_round(&self, times: WayTimes, cost: ExchangeCost) -> u64 {
        let slower =
            times.pleach_ns.abs_diff(times.native_ns).saturating_mul((self.warm_ups() + self.timed()) as u64);
        // One to begin, one before each timed call, one to conclude.
        slower.saturating_add(cost.exchange_ns.saturating_mul(2 + 2 * self.timed() as u64))
    }

    /// Every other round begins with the native MPI.
    fn first_way(&self) -> Way {
        if self.since_doubt.is_multiple_of(2) { Way::Pleach } else { Way::Native }
    }

    /// Long calls need no warm-up, and are too expensive to do often.
    fn warm_ups(&self) -> usize {
        usize::from(self.class <= SizeClass::of(512 << 10))
    }

    fn timed(&self) -> usize {
        if self.class <= SizeClass::of(32 << 10) { MAX_TIMED } else { 1 }
    }
}

#[cfg(test)]
mod tests;
