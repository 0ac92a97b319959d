//! Sleeping until another rank publishes something.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::libc;

/// Ranks that wait for a rank sleep on its futex. The rank wakes them whenever it has published something.
///
/// A rank that publishes uses no fence. It may miss a waiter that has just registered, because its load of `waiters` may
/// overtake its own publication. The waiter yields its CPU once and polls again before it sleeps, which takes longer than a
/// store needs to become visible; and every sleep is bounded, so that a missed wake-up costs time and nothing else. A fence
/// would cost every publication the transfer of a cache line.
#[repr(C, align(128))]
pub(crate) struct WakeupFutex {
    sequence: AtomicU32,
    waiters: AtomicU32,
}

impl WakeupFutex {
    /// Wakes the waiters.
    #[inline(always)]
    pub(crate) fn wake(&self) {
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.wake_waiters();
        }
    }

    #[cold]
    fn wake_waiters(&self) {
        self.sequence.fetch_add(1, Ordering::Release);
        // SAFETY: the word is in a live mapping; waking reads nothing else. Not private: waiters are other processes.
        unsafe { libc::syscall(libc::SYS_futex, self.sequence.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    /// Registers a waiter. The caller polls once more, then calls [`WakeupFutex::wait`], then [`WakeupFutex::unregister`].
    pub(crate) fn register(&self) -> FutexSequence {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let since = FutexSequence(self.sequence.load(Ordering::SeqCst));
        std::thread::yield_now();
        since
    }

    /// Sleeps until a wake-up since `since`, for `longest` at most.
    pub(crate) fn wait(&self, since: FutexSequence, longest: Duration) {
        let longest = libc::timespec { tv_sec: longest.as_secs() as i64, tv_nsec: i64::from(longest.subsec_nanos()) };
        let (none, sequence) = (ptr::null::<u32>(), self.sequence.as_ptr());
        // SAFETY: the word is in a live mapping, the time outlives the call, the last two arguments are not used.
        unsafe { libc::syscall(libc::SYS_futex, sequence, libc::FUTEX_WAIT, since.0, &raw const longest, none, 0) };
    }

    /// Ends the registration. A waiter that dies before costs the rank a few useless system calls.
    pub(crate) fn unregister(&self) {
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The number of wake-ups at the time of registration.
pub(crate) struct FutexSequence(u32);
