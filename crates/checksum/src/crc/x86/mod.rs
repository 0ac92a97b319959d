//! Kernels with carry-less multiplication, one file per width of the vector registers.
//!
//! Each has one function, `run`. With `COPY` it stores what it has loaded before it folds it, so that the bytes are
//! fetched once. The three share how 128 bits become the register (`ending.rs`).

#![allow(unsafe_code)]

use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

pub(super) mod avx2;
pub(super) mod avx512;
mod ending;
pub(super) mod sse;

/// From this length on source and target do not both fit into the first cache (48 KiB at most today), and a copy asks for the
/// lines of its target in advance. With 64-byte registers, from 32 KiB to 1 MiB, that made 0.97 to 1.4 of
/// memcpy out of 0.92 to 0.95; on shorter messages it would cost a few percent.
const WORTH_FETCHING: usize = 20 << 10;
/// How far in advance; 512 to 2048 bytes did equally well.
const AHEAD: usize = 1024;

/// Asks for lines of the target that will be written soon to be brought into the first cache.
#[inline(always)]
fn fetch_target<const LINES: usize>(to: *mut u8, at: usize) {
    for line in 0..LINES {
        // SAFETY: nothing is accessed; an address beyond the end is no fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(to.wrapping_add(at + AHEAD + 64 * line).cast()) };
    }
}
