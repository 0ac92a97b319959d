//! Asking for the lines of a copy's target before they are written, or not.
//!
//! A store into a line that is not in the first cache waits until the line has come. Those who copy and compute ask in
//! advance; the lines of the source need no asking, the processor sees where the loads go.

#![allow(unsafe_code)]

/// Whose cache has the lines of a copy's target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetCache {
    /// This core's, or none.
    Own,
    /// Another core's, which has just read or written them: shared memory between two processes. Asking would carry every
    /// line over, only to be overwritten; a store of a whole line need not know what was in it. Two cores that sent each other
    /// 64 KiB took twice as long with asking as without.
    Others,
}

impl TargetCache {
    /// Whether to ask. From this length on source and target do not both fit into the first cache (48 KiB at most today), and
    /// it pays: with 64-byte registers, from 32 KiB to 1 MiB, it made 0.97 to 1.4 of memcpy out of 0.92 to 0.95 (cyclic codes),
    /// and 0.93 to 1.0 out of 0.85 to 0.97 (XXH3); on shorter messages it would cost a few percent.
    #[inline(always)]
    pub(crate) fn is_worth_fetching(self, length: usize) -> bool {
        self == Self::Own && length >= 20 << 10
    }
}

/// How far in advance; 512 to 2048 bytes did equally well.
const AHEAD: usize = 1024;

/// Asks for lines of the target that will be written soon to be brought into the first cache.
#[inline(always)]
pub(crate) fn prefetch_target<const LINES: usize>(to: *mut u8, at: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..LINES {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: nothing is accessed; an address beyond the end is no fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(to.wrapping_add(at + AHEAD + 64 * line).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (to, at, AHEAD, LINES);
}
