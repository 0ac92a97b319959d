//! How a thread waits: it spins, then yields its CPU, then sleeps; and how it learns which of them pays.
//!
//! In: that a poll found nothing, that an attempt paid or did not. Out: a pause, a yield, or how long to sleep. A loop that
//! waits owns a [`Waiter`] with a [`WaitPolicy`]. [`DoublingCount`] and [`SkipBackoff`] remember across waits.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// When a waiting thread goes from spinning to yielding to sleeping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitPolicy {
    /// Polls before the waiter reads the clock for the first time. Most answers arrive within them.
    pub first_polls: u32,
    /// CPU pauses after each of them. A poll of a cache line takes it away from the core that is about to write it.
    pub first_pauses: u32,
    /// Polls after them before the thread begins to yield its CPU, which the awaited thread may need.
    pub polls_before_yield: u32,
    /// Polls between two looks at the clock, and between two yields.
    pub polls_per_clock: u32,
    /// How long the thread polls before it sleeps.
    pub spin: Duration,
    /// The longest single sleep. Short, where a wake-up may be missed or a second source must be polled.
    pub sleep: Duration,
}

/// What the thread does before its next poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum WaitStep {
    /// Poll again at once: the waiter has paused or yielded.
    Poll,
    /// Sleep for at most this long, until something arrives.
    Sleep(Duration),
    /// The time is up.
    TimedOut,
}

/// One wait.
#[derive(Debug)]
pub struct Waiter {
    policy: WaitPolicy,
    limit: Duration,
    polls: u32,
    began: Option<Instant>,
    is_spinning: bool,
}

impl Waiter {
    /// Begins a wait for at most `limit`.
    #[inline]
    pub fn new(policy: WaitPolicy, limit: Duration) -> Self {
        Self { policy, limit, polls: 0, began: None, is_spinning: true }
    }

    /// A poll found nothing.
    #[inline]
    pub fn step(&mut self) -> WaitStep {
        if self.polls < self.policy.first_polls {
            self.polls += 1;
            (0..self.policy.first_pauses).for_each(|_| std::hint::spin_loop());
            return WaitStep::Poll;
        }
        self.step_by_clock()
    }

    /// True from the first look at the clock on: the wait takes longer than a clock read.
    #[inline]
    pub fn has_read_clock(&self) -> bool {
        self.began.is_some()
    }

    fn step_by_clock(&mut self) -> WaitStep {
        let began = *self.began.get_or_insert_with(Instant::now);
        if self.is_spinning {
            self.polls = self.polls.saturating_add(1);
            let polls = self.polls - self.policy.first_polls;
            std::hint::spin_loop();
            if !polls.is_multiple_of(self.policy.polls_per_clock) {
                return WaitStep::Poll;
            }
            if polls > self.policy.polls_before_yield {
                std::thread::yield_now();
            }
            self.is_spinning = began.elapsed() < self.policy.spin.min(self.limit);
            return WaitStep::Poll;
        }
        match self.limit.saturating_sub(began.elapsed()) {
            Duration::ZERO => WaitStep::TimedOut,
            left => WaitStep::Sleep(left.min(self.policy.sleep)),
        }
    }
}

/// Yields the CPU; how long other threads had it.
///
/// A thread that gets it back at once has the CPU for itself. A long absence means that another program runs there: a
/// thread that sleeps is then scheduled sooner than one that yields.
pub fn timed_yield() -> Duration {
    let began = Instant::now();
    std::thread::yield_now();
    began.elapsed()
}

/// A count between two bounds that doubles when something pays and halves when it does not, or the other way round.
///
/// Threads that change it at the same time may lose an update: it is a hint.
#[derive(Debug)]
pub struct DoublingCount {
    value: AtomicU32,
    min: u32,
    max: u32,
}

impl DoublingCount {
    /// Starts at `value`.
    pub const fn new(value: u32, min: u32, max: u32) -> Self {
        Self { value: AtomicU32::new(value), min, max }
    }

    /// The count.
    #[inline]
    pub fn get(&self) -> u32 {
        self.value.load(Relaxed)
    }

    /// Doubles it, up to the upper bound.
    pub fn double(&self) {
        self.value.store(self.get().saturating_mul(2).min(self.max), Relaxed);
    }

    /// Halves it, down to the lower bound.
    pub fn halve(&self) {
        self.value.store((self.get() / 2).max(self.min), Relaxed);
    }
}

/// Skips attempts that did not pay of late.
///
/// After a failure the next few attempts are skipped: few at first, because the failure may have been a pause of the
/// machine; twice as many after each further failure; half as many after a run of successes.
#[derive(Debug)]
pub struct SkipBackoff {
    skips_left: AtomicU32,
    next_skips: DoublingCount,
    successes: AtomicU32,
    successes_to_recover: u32,
}

impl SkipBackoff {
    /// Skips `min` to `max` attempts after a failure; every `successes_to_recover` successes in a row halve their number.
    pub const fn new(min: u32, max: u32, successes_to_recover: u32) -> Self {
        Self {
            skips_left: AtomicU32::new(0),
            next_skips: DoublingCount::new(min, min, max),
            successes: AtomicU32::new(0),
            successes_to_recover,
        }
    }

    /// True if this attempt is to be skipped; counts it as skipped.
    #[inline]
    pub fn skip(&self) -> bool {
        let left = self.skips_left.load(Relaxed);
        if left > 0 {
            self.skips_left.store(left - 1, Relaxed);
        }
        left > 0
    }

    /// An attempt paid.
    pub fn note_success(&self) {
        let successes = self.successes.load(Relaxed) + 1;
        if successes < self.successes_to_recover {
            self.successes.store(successes, Relaxed);
            return;
        }
        self.successes.store(0, Relaxed);
        self.next_skips.halve();
    }

    /// An attempt did not pay.
    #[cold]
    pub fn note_failure(&self) {
        self.skips_left.store(self.next_skips.get(), Relaxed);
        self.next_skips.double();
        self.successes.store(0, Relaxed);
    }

    /// How many attempts will be skipped before the next one.
    pub fn skips_left(&self) -> u32 {
        self.skips_left.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: WaitPolicy = WaitPolicy {
        first_polls: 3,
        first_pauses: 1,
        polls_before_yield: 8,
        polls_per_clock: 4,
        spin: Duration::from_micros(50),
        sleep: Duration::from_millis(1),
    };

    #[test]
    fn a_wait_polls_then_sleeps_then_times_out() {
        let limit = Duration::from_millis(5);
        let mut waiter = Waiter::new(POLICY, limit);
        for _ in 0..POLICY.first_polls {
            assert_eq!(waiter.step(), WaitStep::Poll);
        }
        assert!(!waiter.has_read_clock(), "the first polls cost no clock read");
        let began = Instant::now();
        let mut has_slept = false;
        loop {
            match waiter.step() {
                WaitStep::Poll => assert!(!has_slept, "it does not go back to spinning"),
                WaitStep::Sleep(time) => {
                    assert!(time <= POLICY.sleep && began.elapsed() >= POLICY.spin);
                    has_slept = true;
                    std::thread::sleep(time);
                }
                WaitStep::TimedOut => break,
            }
        }
        assert!(has_slept && began.elapsed() >= limit);
    }

    #[test]
    fn a_wait_of_no_time_ends_after_its_first_polls() {
        let mut waiter = Waiter::new(POLICY, Duration::ZERO);
        assert!((0..100).any(|_| waiter.step() == WaitStep::TimedOut));
    }

    #[test]
    fn a_doubling_count_stays_within_its_bounds() {
        let count = DoublingCount::new(8, 4, 64);
        (0..9).for_each(|_| count.double());
        assert_eq!(count.get(), 64);
        (0..9).for_each(|_| count.halve());
        assert_eq!(count.get(), 4);
    }

    #[test]
    fn failures_in_a_row_skip_more_and_more_attempts() {
        let backoff = SkipBackoff::new(8, 32, 4);
        for skips in [8, 16, 32, 32] {
            assert!(!backoff.skip());
            backoff.note_failure();
            assert_eq!((0..skips).filter(|_| backoff.skip()).count(), skips);
        }
        for _ in 0..3 {
            (0..4).for_each(|_| backoff.note_success());
        }
        assert!(!backoff.skip());
        backoff.note_failure();
        assert_eq!(backoff.skips_left(), 8, "successes have halved it");
    }
}
