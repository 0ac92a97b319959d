//! Decides whether a wait for a result uses its multicast socket alone, or all sockets.
//!
//! In: the start of each wait, and whether a packet arrived on the multicast socket. Out: where to wait.
//!
//! Waiting on the multicast socket alone saves one system call, but the rank then does not respond to other ranks, repairs nothing,
//! and gives no other thread a turn. After a wait there that timed out, the next waits use all sockets. A single pause of the program
//! must not slow down its next thousand operations, and a program whose ranks need each other meanwhile must not time out every time:
//! so the back-off is short at first and doubles when timeouts follow each other closely.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use transport::backoff::SkipBackoff;

/// After so many packets in a row on the multicast socket, one wait uses all sockets: the failure detector and other ranks need
/// attention too.
const MAX_RUN: u32 = 64;
/// Waits on all sockets after a timeout: at first, and at most. A timeout costs as much time as some hundred waits on the multicast
/// socket save.
const MIN_BACKOFF: u32 = 8;
const MAX_BACKOFF: u32 = 1024;
/// After so many full runs without a timeout, the back-off halves.
const CALM_RUNS: u32 = 4;

/// Two threads that report at the same time may miscount, which is harmless.
pub(crate) struct ReceiveBackoff {
    /// Packets on the multicast socket since the last wait on all sockets.
    run: AtomicU32,
    /// After a timeout, some waits skip the multicast socket; a full run is a success.
    backoff: SkipBackoff,
}

impl ReceiveBackoff {
    pub(crate) fn new() -> Self {
        Self { run: AtomicU32::new(0), backoff: SkipBackoff::new(MIN_BACKOFF, MAX_BACKOFF, CALM_RUNS) }
    }

    /// True if a wait that starts now may use the multicast socket alone.
    pub(crate) fn may_start(&self) -> bool {
        if self.backoff.skip() {
            return false;
        }
        if self.may_continue() {
            return true;
        }
        self.run.store(0, Relaxed);
        self.backoff.note_success();
        false
    }

    /// True if a wait that has started there may receive there once more.
    pub(crate) fn may_continue(&self) -> bool {
        self.run.load(Relaxed) < MAX_RUN
    }

    pub(crate) fn note_received(&self) {
        self.run.store(self.run.load(Relaxed) + 1, Relaxed);
    }

    #[cold]
    pub(crate) fn note_timeout(&self) {
        self.run.store(0, Relaxed);
        self.backoff.note_failure();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes so many waits with this outcome; how many used the multicast socket.
    fn wait(backoff: &ReceiveBackoff, waits: u32, is_received: bool) -> u32 {
        let on_multicast = (0..waits).filter(|_| {
            let may_start = backoff.may_start();
            match (may_start, is_received) {
                (true, true) => backoff.note_received(),
                (true, false) => backoff.note_timeout(),
                (false, _) => {}
            }
            may_start
        });
        on_multicast.count() as u32
    }

    #[test]
    fn full_runs_alternate_with_one_wait_on_all_sockets() {
        assert_eq!(wait(&ReceiveBackoff::new(), (MAX_RUN + 1) * 100, true), MAX_RUN * 100);
    }

    #[test]
    fn one_timeout_costs_few_waits_on_all_sockets() {
        let backoff = ReceiveBackoff::new();
        assert_eq!(wait(&backoff, 1, false), 1);
        assert_eq!(wait(&backoff, MIN_BACKOFF, true), 0);
        assert_eq!(wait(&backoff, MAX_RUN, true), MAX_RUN);
        // With hundreds of operations between them, many timeouts cost no more than one each.
        for _ in 0..100 {
            wait(&backoff, 2 * CALM_RUNS * (MAX_RUN + 1), true);
            while wait(&backoff, 1, false) == 0 {}
        }
        assert!(backoff.backoff.skips_left() <= 2 * MIN_BACKOFF);
    }

    #[test]
    fn after_many_timeouts_the_multicast_socket_is_rarely_used() {
        let backoff = ReceiveBackoff::new();
        assert!(wait(&backoff, 100_000, false) <= 100_000 / MAX_BACKOFF + 8);
        // It is used again once packets arrive there again.
        wait(&backoff, 10_000, true);
        assert_eq!(wait(&backoff, (MAX_RUN + 1) * 100, true), MAX_RUN * 100);
    }
}
