//! The poll window: after packets, the node stays awake for a while instead of sleeping on its sockets.
//!
//! In: a function that polls for packets. Out: whether some arrived within the window. Senders of the next packets then need not wake
//! the node; and ranks that share the node's CPU all get a turn before it polls again, so that it finds their packets together.

use std::time::{Duration, Instant};

use nix::sched::sched_yield;
use transport::backoff::SkipBackoff;

/// The length of the window.
const WINDOW: Duration = Duration::from_micros(100);
/// A process that takes the CPU for longer is not a rank that sends and waits: a node that sleeps gets the CPU back sooner.
const CPU_TAKEN: Duration = Duration::from_micros(500);
/// How many windows are skipped then: few at first, since it may have been a pause of the machine; twice as many if it happens again soon.
const MIN_SKIPPED: u32 = 8;
const MAX_SKIPPED: u32 = 256;
/// After so many windows without it, the number halves.
const CALM_WINDOWS: u32 = 64;

pub(super) struct PollWindow {
    /// Windows are skipped after another process took the CPU for long.
    backoff: SkipBackoff,
}

impl Default for PollWindow {
    fn default() -> Self {
        Self { backoff: SkipBackoff::new(MIN_SKIPPED, MAX_SKIPPED, CALM_WINDOWS) }
    }
}

impl PollWindow {
    /// Yields the CPU and polls until packets arrive; false if none does within the window.
    pub(super) fn wait(&mut self, poll: impl FnMut() -> bool) -> bool {
        self.wait_by(Instant::now, poll)
    }

    fn wait_by(&mut self, clock: impl Fn() -> Instant, mut poll: impl FnMut() -> bool) -> bool {
        if self.backoff.skip() {
            return false;
        }
        let began = clock();
        let mut before = began;
        loop {
            let _ = sched_yield(); // It cannot fail on Linux.
            let now = clock();
            let is_taken = now - before > CPU_TAKEN;
            let has_packets = poll();
            if is_taken {
                self.backoff.note_failure();
                return has_packets;
            }
            if has_packets || now - began > WINDOW {
                self.backoff.note_success();
                return has_packets;
            }
            before = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that advances by `step` with each read.
    fn clock(step: Duration) -> impl Fn() -> Instant {
        let (began, reads) = (Instant::now(), std::cell::Cell::new(0));
        move || {
            reads.set(reads.get() + 1);
            began + step * reads.get()
        }
    }

    #[test]
    fn the_window_ends_with_packets_or_in_time() {
        let mut polls = 0;
        let third = || {
            polls += 1;
            polls == 3
        };
        assert!(PollWindow::default().wait_by(clock(WINDOW / 10), third));
        let mut polls = 0;
        let never = || {
            polls += 1;
            false
        };
        assert!(!PollWindow::default().wait_by(clock(WINDOW / 10), never));
        assert_eq!(polls, 11, "no sooner and no later");
    }

    #[test]
    fn windows_are_skipped_after_the_cpu_was_taken() {
        let mut window = PollWindow::default();
        let late = clock(2 * CPU_TAKEN);
        assert!(window.wait_by(&late, || true), "packets that arrived are reported");
        for skipped in [8, 16, 32, 64, 128, 256, 256] {
            for _ in 0..skipped {
                assert!(!window.wait_by(&late, || true), "skipped");
            }
            assert!(window.wait_by(&late, || true));
        }
    }

    #[test]
    fn a_single_event_is_forgotten_after_calm_windows() {
        let mut window = PollWindow::default();
        let (late, early) = (clock(2 * CPU_TAKEN), clock(WINDOW / 10));
        let mut count_skipped = || {
            assert!(window.wait_by(&late, || true));
            let skipped = (0..).take_while(|_| !window.wait_by(&early, || true)).count();
            for _ in 0..2 * CALM_WINDOWS {
                assert!(window.wait_by(&early, || true));
            }
            skipped
        };
        assert_eq!([count_skipped(), count_skipped(), count_skipped()], [8; 3]);
    }
}
