//! 16 bytes in a vector register, four of them at a time.

use std::arch::x86_64::*;

use super::reduction;
use crate::crc::polynomial::Polynomial;
use crate::prefetch::TargetCache;

pub(in crate::crc) fn is_available() -> bool {
    is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq")
}

/// The register after `len` bytes at `from`; with `COPY` they are also written to `to`.
///
/// # Safety
/// The processor has PCLMULQDQ and SSE4.2. `from` is readable for `len` bytes. With `COPY`, `to` is writable for `len`
/// bytes and does not overlap them; without, it is not touched.
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(in crate::crc) unsafe fn run<P: Polynomial, const COPY: bool>(
    polynomial: P,
    register: u64,
    from: *const u8,
    to: *mut u8,
    len: usize,
    _: TargetCache,
) -> u64 {
    if len < 16 {
        // SAFETY: guaranteed by the caller.
        return unsafe { short::<P, COPY>(polynomial, register, from, to, len) };
    }
    let before = _mm_cvtsi64_si128(register as i64);
    let mut at = 16;
    // SAFETY: there are at least 16 bytes.
    let mut last = _mm_xor_si128(unsafe { block::<COPY>(from, to, 0) }, before);
    if len >= 64 {
        // SAFETY: there are at least 64 bytes.
        let mut rows =
            unsafe { [last, block::<COPY>(from, to, 16), block::<COPY>(from, to, 32), block::<COPY>(from, to, 48)] };
        at = 64;
        let further = load_keys(polynomial.fold_constants::<512>());
        while len - at >= 64 {
            for (row, offset) in rows.iter_mut().zip([0, 16, 32, 48]) {
                // SAFETY: 64 more bytes remain.
                *row = fold(*row, further, unsafe { block::<COPY>(from, to, at + offset) });
            }
            at += 64;
        }
        let third = fold(rows[2], load_keys(polynomial.fold_constants::<128>()), rows[3]);
        let second = fold(rows[1], load_keys(polynomial.fold_constants::<256>()), third);
        last = fold(rows[0], load_keys(polynomial.fold_constants::<384>()), second);
    }
    // SAFETY: guaranteed by the caller; at least 16 bytes have been folded.
    unsafe { rest::<P, COPY>(polynomial, last, from, to, at, len) }
}

/// The register after the bytes from `at` on; everything before is folded in `bits`.
///
/// # Safety
/// As [`run`]; `len` is at least 16.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(super) unsafe fn rest<P: Polynomial, const COPY: bool>(
    polynomial: P,
    mut bits: __m128i,
    from: *const u8,
    to: *mut u8,
    mut at: usize,
    len: usize,
) -> u64 {
    let further = load_keys(polynomial.fold_constants::<128>());
    while len - at >= 16 {
        // SAFETY: 16 more bytes remain.
        bits = fold(bits, further, unsafe { block::<COPY>(from, to, at) });
        at += 16;
    }
    let left = len - at;
    if left > 0 {
        // The last 16 bytes; those that are folded already are masked, and copied twice to the same place.
        // SAFETY: `len` is at least 16.
        let end = unsafe { block::<COPY>(from, to, len - 16) };
        // SAFETY: `left` is less than 16, so both loads are within the 48 bytes.
        let (to_the_end, to_the_front) = unsafe {
            (
                _mm_loadu_si128(SHIFTS.as_ptr().add(left).cast()),
                _mm_loadu_si128(SHIFTS.as_ptr().add(16 + left).cast()),
            )
        };
        let next = _mm_blendv_epi8(end, _mm_shuffle_epi8(bits, to_the_front), to_the_end);
        bits = fold(_mm_shuffle_epi8(bits, to_the_end), further, next);
    }
    reduction::reduce_to_register(polynomial, bits)
}

/// Shuffles that move bytes towards the end or the front, depending on the offset of the load.
static SHIFTS: [u8; 48] = {
    let mut shifts = [0x80; 48];
    let mut place = 0;
    while place < 16 {
        shifts[16 + place] = place as u8;
        place += 1;
    }
    shifts
};

/// # Safety
/// As [`run`]; `len` is less than 16.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
unsafe fn short<P: Polynomial, const COPY: bool>(
    polynomial: P,
    register: u64,
    from: *const u8,
    to: *mut u8,
    len: usize,
) -> u64 {
    if COPY {
        // SAFETY: both are valid for `len` bytes and do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    }
    let mut bytes = [0; 16];
    // SAFETY: `len` is less than 16.
    unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), len) };
    let number = u128::from_le_bytes(bytes);
    if len < 8 {
        return reduction::update_few_bytes(polynomial, register, number as u64, len);
    }
    let shifted = (number ^ u128::from(register)) << (128 - 8 * len);
    reduction::reduce_to_register(polynomial, _mm_set_epi64x((shifted >> 64) as i64, shifted as i64))
}

/// # Safety
/// `from` is readable for `at + 16` bytes and, with `COPY`, `to` writable.
#[inline]
#[target_feature(enable = "sse4.2")]
unsafe fn block<const COPY: bool>(from: *const u8, to: *mut u8, at: usize) -> __m128i {
    // SAFETY: guaranteed by the caller; neither needs to be aligned.
    unsafe {
        let bits = _mm_loadu_si128(from.add(at).cast());
        if COPY {
            _mm_storeu_si128(to.add(at).cast(), bits);
        }
        bits
    }
}

#[inline]
#[target_feature(enable = "sse4.2")]
pub(super) fn load_keys(keys: [u64; 2]) -> __m128i {
    _mm_set_epi64x(keys[1] as i64, keys[0] as i64)
}

#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(super) fn fold(bits: __m128i, further: __m128i, next: __m128i) -> __m128i {
    let first = _mm_clmulepi64_si128::<0x00>(bits, further);
    let second = _mm_clmulepi64_si128::<0x11>(bits, further);
    _mm_xor_si128(_mm_xor_si128(first, second), next)
}
