//! Lines of this library on the standard error.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

static RANK: AtomicU32 = AtomicU32::new(0);

pub(crate) fn set_rank(rank: u32) {
    RANK.store(rank, Ordering::Relaxed);
}

/// Prints one line with this process's rank, in one system call: ranks often share a terminal. A failure to write is ignored: the
/// program must continue.
pub(crate) fn log(what: &str) {
    let line = format!("pleach: rank {}: {what}\n", RANK.load(Ordering::Relaxed));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

pub(crate) fn is_rank_zero() -> bool {
    RANK.load(Ordering::Relaxed) == 0
}
