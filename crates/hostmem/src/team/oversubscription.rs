//! Ranks that share processors: where each runs, whether one must give way to another, and spreading them evenly.
//!
//! A rank that waits for one on its own processor waits in vain until it gives that processor up; if all it waits for run elsewhere,
//! whoever gets the processor instead waits in vain as well, and a switch takes as long as many lines take to come.
//! So ranks say where they run. What they say may be old, since the kernel moves ranks that do not run; then someone spins
//! in vain, or gives the processor up in vain, once.
//!
//! The processor with the most ranks is the one that all wait for. The kernel would even them out but for two things: it does not like to
//! move who has just run, as all of them have, and it takes those who wait awake for busy. It takes a tenth of a second
//! or more. So a rank that finds many more beside it than elsewhere moves itself.

use std::sync::atomic::{AtomicU16, Ordering};

use nix::libc;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::operation::{OperationStage, TeamOperation};
use super::region::TeamRegion;
use super::shared_word::TeamMemory;
use super::team::Team;

/// How often a rank looks at its neighbours before it thinks of moving: about a millisecond at first. Longer, up to seconds, each
/// time it has moved, for the kernel may have its reasons to move it back. Soon, because ranks that are woken all together were seen
/// to stay on one processor.
const MIN_CHECKS_BEFORE_MOVE: u32 = 64;
const MAX_CHECKS_BEFORE_MOVE: u32 = MIN_CHECKS_BEFORE_MOVE << 14;

/// The processor on which a rank was last seen, counted from 1.
pub(super) struct LastCpu(AtomicU16);

/// What a rank knows about those with whom it shares a processor.
pub(super) struct Oversubscription {
    /// Where this rank was when it last looked. 0 if that is not known.
    here: u16,
    /// Others were there as well.
    pub is_here: bool,
    /// How often this rank has given way to one of them, and whether strangers took the processor the last time it cared.
    pub given_way: u32,
    pub is_disturbed: bool,
    /// How often it has looked since it last thought of moving, and after how many looks it does so again.
    looks: u32,
    patience: u32,
}

impl LastCpu {
    fn place(&self) -> u16 {
        self.0.load(Ordering::Relaxed)
    }

    /// The caller runs here.
    pub(super) fn tell(&self, place: u16) {
        self.0.store(place, Ordering::Relaxed);
    }
}

/// Where the caller runs. Processors beyond 65,534 are as good as unknown.
pub(super) fn current_cpu() -> u16 {
    // SAFETY: takes nothing; without an answer it says so.
    let processor = unsafe { libc::sched_getcpu() };
    u16::try_from(processor.saturating_add(1)).unwrap_or(0)
}

impl Oversubscription {
    pub(super) fn new() -> Self {
        Self {
            here: 0,
            is_here: false,
            given_way: 0,
            is_disturbed: false,
            looks: 0,
            patience: MIN_CHECKS_BEFORE_MOVE,
        }
    }

    /// The kernel may have moved this rank since it last looked.
    fn look(&mut self, region: &TeamRegion, rank: usize) {
        let here = current_cpu();
        if here != self.here {
            self.here = here;
            region.whereabouts()[rank].tell(here);
        }
    }

    /// Moves the caller to another processor if two or more fewer ranks run there. Only the last of the ranks on a processor does so,
    /// or else all would.
    #[cold]
    fn spread(&mut self, region: &TeamRegion) {
        self.looks = 0;
        let Ok(allowed) = sched_getaffinity(Pid::from_raw(0)) else { return };
        let count = |place: u16| region.whereabouts().iter().filter(|other| other.place() == place).count();
        let places = (0..CpuSet::count()).filter(|&processor| allowed.is_set(processor).unwrap_or(false));
        let emptiest = places.min_by_key(|&processor| count(processor as u16 + 1));
        let Some(emptiest) = emptiest.filter(|&there| count(there as u16 + 1) + 2 <= count(self.here)) else {
            self.patience = (self.patience / 2).max(MIN_CHECKS_BEFORE_MOVE);
            return;
        };
        let mut there = CpuSet::new();
        if there.set(emptiest).is_ok() && sched_setaffinity(Pid::from_raw(0), &there).is_ok() {
            // Where the rank may run is not ours to say. It is only on another processor now.
            let _ = sched_setaffinity(Pid::from_raw(0), &allowed);
        }
        self.patience = (self.patience * 2).min(MAX_CHECKS_BEFORE_MOVE);
    }
}

impl Team {
    /// Whether a rank that shares this processor must do something before this operation can go on.
    pub(super) fn awaits_someone_here(&mut self, operation: &TeamOperation) -> bool {
        self.crowd.look(&self.region, self.rank);
        self.crowd.is_here = false;
        let (mut is_awaited, mut is_last) = (false, true);
        // Whoever has posted a barrier or an allreduce waits for the same ranks as this one. Otherwise we do not know.
        let all_wait = operation.stage == OperationStage::Posted && !operation.claim.is_rooted();
        let channel = self.window.channel(operation.number);
        for (rank, whereabouts) in self.region.whereabouts().iter().enumerate() {
            if rank != self.rank && self.crowd.here != 0 && whereabouts.place() == self.crowd.here {
                self.crowd.is_here = true;
                is_last = rank < self.rank;
                is_awaited =
                    is_awaited || !all_wait || self.region.post(rank, channel).observe(operation.number).is_none();
            }
        }
        if self.crowd.is_here && is_last {
            self.crowd.looks += 1;
            if self.crowd.looks >= self.crowd.patience {
                self.crowd.spread(&self.region);
                self.crowd.look(&self.region, self.rank);
            }
        }
        is_awaited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_leaves_a_crowd_and_may_still_run_where_it_might() {
        let region =
            TeamRegion::create(&format!("pleach-test-crowd-{}", std::process::id()), 3).expect("shared memory");
        let allowed = || sched_getaffinity(Pid::from_raw(0)).expect("the kernel answers");
        let before = allowed();
        let processors = (0..CpuSet::count()).filter(|&processor| before.is_set(processor) == Ok(true)).count();
        let mut crowd = Oversubscription::new();
        crowd.look(&region, 0);
        region.whereabouts().iter().for_each(|rank| rank.tell(crowd.here));
        crowd.spread(&region);
        assert_eq!(
            crowd.patience,
            if processors > 1 { 2 * MIN_CHECKS_BEFORE_MOVE } else { MIN_CHECKS_BEFORE_MOVE },
            "it has moved if it could"
        );
        assert_eq!(allowed(), before);
        region.whereabouts().iter().for_each(|rank| rank.tell(0));
        crowd.spread(&region);
        assert_eq!(crowd.patience, MIN_CHECKS_BEFORE_MOVE, "it is alone and stays");
    }
}
