//! The clock of the job and what trials have cost it: trials may cost a share of the job's time, whatever they try.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

static STARTED: OnceLock<Instant> = OnceLock::new();
static LOST_NS: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);
static ROUNDS: AtomicU64 = AtomicU64::new(0);

/// Starts the clock: the program calls `MPI_Init`.
pub(crate) fn start_clock() {
    STARTED.get_or_init(Instant::now);
}

pub(crate) fn elapsed_ns() -> u64 {
    STARTED.get().map_or(0, |started| started.elapsed().as_nanos() as u64)
}

/// What trials have cost this rank.
pub(crate) fn lost_ns() -> u64 {
    LOST_NS.load(Relaxed)
}

pub(crate) fn add_lost(lost_ns: u64) {
    LOST_NS.fetch_add(lost_ns, Relaxed);
}

pub(crate) fn count_call() {
    CALLS.fetch_add(1, Relaxed);
}

pub(crate) fn count_round() {
    ROUNDS.fetch_add(1, Relaxed);
}

/// Calls and rounds of trials, and the nanoseconds lost to them, to be summed over all ranks.
pub(crate) fn numbers() -> [i64; 3] {
    [&CALLS, &ROUNDS, &LOST_NS].map(|number| number.load(Relaxed) as i64)
}
