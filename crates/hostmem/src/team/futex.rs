//! Sleeping until another rank rings.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::libc;

/// Those who wait for a rank sleep at its bell. The rank rings it whenever it has published something.
///
/// A rank that publishes does not fence: it may miss a sleeper who has just come, because its look at `sleepers` may
/// overtake its own publication. The sleeper gives up the processor once and looks again before it sleeps, which is
/// longer than a store takes to be seen; and it never sleeps for longer than it was told, so that being missed costs time
/// and nothing else. A fence would cost every publication the time in which a cache line changes hands.
#[repr(C, align(128))]
pub(crate) struct WakeupFutex {
    rung: AtomicU32,
    sleepers: AtomicU32,
}

impl WakeupFutex {
    /// Wakes those who sleep here.
    #[inline(always)]
    pub(crate) fn ring(&self) {
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.rung.fetch_add(1, Ordering::Release);
        // SAFETY: the word is in a live mapping; waking reads nothing else. Not private: sleepers are other processes.
        unsafe { libc::syscall(libc::SYS_futex, self.rung.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    /// Announces a sleeper. Look once more whether there is a reason to sleep, then [`WakeupFutex::sleep`], then [`WakeupFutex::leave`].
    pub(crate) fn come(&self) -> FutexSequence {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let ticket = FutexSequence(self.rung.load(Ordering::SeqCst));
        std::thread::yield_now();
        ticket
    }

    /// Sleeps until the bell has rung since the ticket was given, and for `longest` at most.
    pub(crate) fn sleep(&self, ticket: FutexSequence, longest: Duration) {
        let longest = libc::timespec { tv_sec: longest.as_secs() as i64, tv_nsec: i64::from(longest.subsec_nanos()) };
        let (none, rung) = (ptr::null::<u32>(), self.rung.as_ptr());
        // SAFETY: the word is in a live mapping, the time outlives the call, the last two arguments are not used.
        unsafe { libc::syscall(libc::SYS_futex, rung, libc::FUTEX_WAIT, ticket.0, &raw const longest, none, 0) };
    }

    /// The sleeper is awake. One that dies instead leaves the rank with a few useless calls.
    pub(crate) fn leave(&self) {
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// How often the bell had rung.
pub(crate) struct FutexSequence(u32);
