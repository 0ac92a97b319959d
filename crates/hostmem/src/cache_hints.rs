//! Cache hints. They change only the timing; other processors than x86-64 get none.

const LINE: usize = 64;

/// Prefetches bytes that the caller will soon read, so that all lines arrive at once.
#[inline]
pub(crate) fn prefetch(start: *const u8, length: usize) {
    for offset in (0..length).step_by(LINE) {
        prefetch_line(start.wrapping_add(offset));
    }
}

/// Moves written lines to the shared cache, where other cores find them sooner than in the caller's own cache. Not for long
/// vectors: demoting them takes longer than fetching them.
#[inline]
pub(crate) fn demote<T: ?Sized>(written: &T) {
    let start = std::ptr::from_ref(written).cast::<u8>();
    for offset in (0..size_of_val(written)).step_by(LINE) {
        demote_line(start.wrapping_add(offset));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch_line(line: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint, which fails on no address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn demote_line(line: *const u8) {
    // SAFETY: a hint without visible effect; processors that do not know it do nothing.
    unsafe { std::arch::asm!("cldemote [{}]", in(reg) line, options(nostack, preserves_flags)) };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn prefetch_line(_line: *const u8) {}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn demote_line(_line: *const u8) {}
