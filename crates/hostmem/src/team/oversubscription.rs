//! Ranks that share CPUs: where each runs, how long to spin, and rebalancing.
//!
//! A rank that waits for a rank on its own CPU waits in vain until it yields that CPU. If all awaited ranks run elsewhere, a
//! rank that gets the CPU instead waits in vain as well, and a switch takes as long as the transfer of many cache lines. So
//! ranks publish where they run. The information may be old, because the kernel moves ranks that do not run; then a rank
//! spins in vain, or yields in vain, once.
//!
//! All ranks wait for the CPU with the most ranks. The kernel balances them slowly, in a tenth of a second or more: it
//! prefers not to move a thread that has just run, as all of them have, and it counts a spinning thread as busy. So a rank
//! that finds many more ranks on its CPU than on another one moves itself.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use transport::backoff::DoublingCount;

use super::last_cpu::current_cpu;
use super::region::TeamRegion;

/// Checks of the neighbours before a rank considers moving: about a millisecond at first, because ranks that are woken all
/// together were seen to stay on one CPU. More, up to seconds, after each move: the kernel may have reasons to move it back.
const MIN_CHECKS_BEFORE_MOVE: u32 = 64;
const MAX_CHECKS_BEFORE_MOVE: u32 = MIN_CHECKS_BEFORE_MOVE << 14;
/// Polls of a wait before it yields the CPU: at most about 50 us.
const MAX_SPINS: u32 = 8192;
pub(super) const MIN_SPINS: u32 = 4;

/// What a rank knows about the ranks and programs on its CPU.
pub(super) struct Oversubscription {
    /// The CPU of this rank at the last check; 0 if it is unknown.
    cpu: u16,
    /// Other ranks run on the same CPU.
    pub is_shared: bool,
    /// How often this rank yielded to one of them.
    pub yields_to_ranks: u32,
    /// Another program held the CPU at the last timed yield.
    pub is_contended: bool,
    /// How many polls to spin. Grows while nobody else wants the CPU.
    pub spins: DoublingCount,
    /// Checks since this rank last considered moving, and the number after which it does so again.
    checks: u32,
    checks_before_move: DoublingCount,
}

impl Oversubscription {
    pub(super) fn new() -> Self {
        let (least, most) = (MIN_CHECKS_BEFORE_MOVE, MAX_CHECKS_BEFORE_MOVE);
        Self {
            cpu: 0,
            is_shared: false,
            yields_to_ranks: 0,
            is_contended: false,
            spins: DoublingCount::new(MAX_SPINS, MIN_SPINS, MAX_SPINS),
            checks: 0,
            checks_before_move: DoublingCount::new(least, least, most),
        }
    }

    /// Updates which CPU this rank and its neighbours run on. True if a neighbour on this CPU `is_awaited`.
    pub(super) fn check_neighbours(
        &mut self,
        region: &TeamRegion,
        me: usize,
        is_awaited: impl Fn(usize) -> bool,
    ) -> bool {
        self.update_cpu(region, me);
        self.is_shared = false;
        let (mut awaits_any, mut is_last) = (false, true);
        for (rank, last_cpu) in region.last_cpus().iter().enumerate() {
            if rank != me && self.cpu != 0 && last_cpu.get() == self.cpu {
                self.is_shared = true;
                is_last = rank < me;
                awaits_any = awaits_any || is_awaited(rank);
            }
        }
        if self.is_shared && is_last {
            self.checks += 1;
            if self.checks >= self.checks_before_move.get() {
                self.rebalance(region);
                self.update_cpu(region, me);
            }
        }
        awaits_any
    }

    /// Publishes the CPU of this rank if the kernel has moved it.
    fn update_cpu(&mut self, region: &TeamRegion, rank: usize) {
        let cpu = current_cpu();
        if cpu != self.cpu {
            self.cpu = cpu;
            region.last_cpus()[rank].set(cpu);
        }
    }

    /// Moves the caller to a CPU with at least two ranks fewer. Only the last rank on a CPU calls this, or else all would
    /// move.
    #[cold]
    fn rebalance(&mut self, region: &TeamRegion) {
        self.checks = 0;
        let Ok(allowed) = sched_getaffinity(Pid::from_raw(0)) else { return };
        let count = |cpu: u16| region.last_cpus().iter().filter(|other| other.get() == cpu).count();
        let cpus = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false));
        let emptiest = cpus.min_by_key(|&cpu| count(cpu as u16 + 1));
        let Some(emptiest) = emptiest.filter(|&cpu| count(cpu as u16 + 1) + 2 <= count(self.cpu)) else {
            return self.checks_before_move.halve();
        };
        let mut target = CpuSet::new();
        if target.set(emptiest).is_ok() && sched_setaffinity(Pid::from_raw(0), &target).is_ok() {
            // The affinity is the user's choice: restore it. The rank stays on its new CPU until the kernel moves it.
            let _ = sched_setaffinity(Pid::from_raw(0), &allowed);
        }
        self.checks_before_move.double();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_leaves_an_oversubscribed_cpu_and_keeps_its_affinity() {
        let name = format!("pleach-test-oversubscription-{}", std::process::id());
        let region = TeamRegion::create(&name, 3).expect("shared memory");
        let allowed = || sched_getaffinity(Pid::from_raw(0)).expect("the kernel returns the affinity");
        let before = allowed();
        let cpus = (0..CpuSet::count()).filter(|&cpu| before.is_set(cpu) == Ok(true)).count();
        let mut oversubscription = Oversubscription::new();
        oversubscription.update_cpu(&region, 0);
        region.last_cpus().iter().for_each(|rank| rank.set(oversubscription.cpu));
        oversubscription.rebalance(&region);
        let moved = if cpus > 1 { 2 * MIN_CHECKS_BEFORE_MOVE } else { MIN_CHECKS_BEFORE_MOVE };
        assert_eq!(oversubscription.checks_before_move.get(), moved, "it has moved if it could");
        assert_eq!(allowed(), before);
        region.last_cpus().iter().for_each(|rank| rank.set(0));
        oversubscription.rebalance(&region);
        assert_eq!(oversubscription.checks_before_move.get(), MIN_CHECKS_BEFORE_MOVE, "it is alone and stays");
    }
}
