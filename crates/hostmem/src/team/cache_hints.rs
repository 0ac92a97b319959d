//! What a processor may be told about cache lines. Nothing but time depends on it, and elsewhere than on x86 nothing is said.

const LINE: usize = 64;

/// The caller will soon read these bytes: all lines come at once, not one after the other.
#[inline]
pub(super) fn prefetch(start: *const u8, length: usize) {
    for offset in (0..length).step_by(LINE) {
        prefetch_line(start.wrapping_add(offset));
    }
}

/// Others will soon read these bytes, which the caller has written: they go to the cache that all share, where
/// others find them sooner than in the caller's own. Not for long vectors, which take longer to be sent there than to be fetched.
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
    // SAFETY: a hint, which changes nothing that a program sees; processors that do not know it do nothing.
    unsafe { std::arch::asm!("cldemote [{}]", in(reg) line, options(nostack, preserves_flags)) };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn prefetch_line(_line: *const u8) {}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn demote_line(_line: *const u8) {}
