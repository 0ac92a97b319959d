//! The CPU that a rank last ran on, in shared memory.

use std::sync::atomic::{AtomicU16, Ordering};

use nix::libc;

/// The CPU that a rank last ran on, counted from 1; 0 if it is unknown.
pub(super) struct LastCpu(AtomicU16);

impl LastCpu {
    pub(super) fn get(&self) -> u16 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, cpu: u16) {
        self.0.store(cpu, Ordering::Relaxed);
    }
}

/// The CPU that the caller runs on, counted from 1. Numbers beyond 65,534 count as unknown.
pub(super) fn current_cpu() -> u16 {
    // SAFETY: takes nothing; reports an error by its value.
    let cpu = unsafe { libc::sched_getcpu() };
    u16::try_from(cpu.saturating_add(1)).unwrap_or(0)
}
