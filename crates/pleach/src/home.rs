//! Ranks of several hosts that share the processors of one machine: each has one where it belongs, and goes back there.
//!
//! In: the rank's place among those that wait for packets on this machine. Out: its thread is on that processor again, now and
//! then; where it may run stays as it was.
//!
//! The processor with the most ranks is the one that all wait for. Whoever brings a result wakes all ranks at once, and the kernel
//! likes to have those that are woken beside whoever wakes them, or all of them elsewhere: of 16 ranks on two processors it was
//! seen to leave 11, or all, on one, for tenths of a second.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

/// How many waits there are before a rank looks where it is: some milliseconds. More, up to seconds, each time it went home,
/// for the kernel may have its reasons to move it away again.
const SOONEST: u32 = 64;
const LATEST: u32 = SOONEST << 8;

pub(crate) struct Home {
    place: usize,
    waits: AtomicU32,
    patience: AtomicU32,
}

impl Home {
    /// That of the rank with this place among all that share the machine.
    pub(crate) fn new(place: usize) -> Self {
        Self { place, waits: AtomicU32::new(0), patience: AtomicU32::new(SOONEST) }
    }

    /// The caller is about to wait. Two threads that do so at once may miscount: no harm is done.
    pub(crate) fn note_wait(&self) {
        let waits = self.waits.load(Relaxed) + 1;
        let is_due = waits >= self.patience.load(Relaxed);
        self.waits.store(if is_due { 0 } else { waits }, Relaxed);
        if is_due {
            self.go();
        }
    }

    #[cold]
    fn go(&self) {
        let Ok(allowed) = sched_getaffinity(Pid::from_raw(0)) else { return };
        let processors = (0..CpuSet::count()).filter(|&processor| allowed.is_set(processor).unwrap_or(false));
        let processors: Vec<usize> = processors.collect();
        let Some(home) = self.place.checked_rem(processors.len()).map(|place| processors[place]) else { return };
        let patience = self.patience.load(Relaxed);
        if sched_getcpu() == Ok(home) {
            return self.patience.store((patience / 2).max(SOONEST), Relaxed);
        }
        let mut there = CpuSet::new();
        if there.set(home).is_ok() && sched_setaffinity(Pid::from_raw(0), &there).is_ok() {
            // Where the rank may run is not ours to say. It is only on another processor now.
            let _ = sched_setaffinity(Pid::from_raw(0), &allowed);
        }
        self.patience.store((patience * 2).min(LATEST), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_goes_home_and_may_still_run_where_it_might() {
        let allowed = || sched_getaffinity(Pid::from_raw(0)).expect("the kernel answers");
        let before = allowed();
        let processors: Vec<usize> =
            (0..CpuSet::count()).filter(|&processor| before.is_set(processor) == Ok(true)).collect();
        for place in 0..2 * processors.len() {
            let home = Home::new(place);
            for _ in 1..SOONEST {
                home.note_wait();
            }
            assert_eq!(home.waits.load(Relaxed), SOONEST - 1, "it does not look yet");
            home.note_wait();
            assert_eq!((home.waits.load(Relaxed), allowed()), (0, before));
        }
        // Where it is already, it stays: from somewhere else it takes one step, and looks more seldom afterwards.
        let mut only = CpuSet::new();
        only.set(processors[0]).expect("a processor");
        sched_setaffinity(Pid::from_raw(0), &only).expect("it is allowed");
        let home = Home::new(1);
        home.go();
        assert_eq!((home.patience.load(Relaxed), sched_getcpu()), (SOONEST, Ok(processors[0])));
        // The kernel may move us there first, but not each time.
        let has_gone = (0..100).any(|_| {
            sched_setaffinity(Pid::from_raw(0), &only).expect("it is allowed");
            sched_setaffinity(Pid::from_raw(0), &before).expect("it was allowed before");
            home.go();
            home.patience.load(Relaxed) == 2 * SOONEST
        });
        assert_eq!(has_gone, processors.len() > 1);
    }
}
