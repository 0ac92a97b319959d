//! 64 bytes in a vector register, eight of them at a time.
//!
//! Lengths that are no multiple of 64 cost one more fold: byte permutations shift the folded bits so that they end with the bytes.

use std::arch::x86_64::*;

use super::reduction;
use crate::crc::polynomial::Polynomial;
use crate::prefetch::{TargetCache, prefetch_target};

/// From this length on a copy is aligned to the lines of its target: stores across two lines cost twice.
const WORTH_ALIGNING: usize = 1024;

pub(in crate::crc) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("vpclmulqdq")
        && super::sse::is_available()
}

/// The register after `len` bytes at `from`; with `COPY` they are also written to `to`.
///
/// # Safety
/// [`is_available`]. `from` is readable for `len` bytes. With `COPY`, `to` is writable for `len` bytes and does not overlap
/// them; without, it is not touched.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,vpclmulqdq,sse4.2,pclmulqdq")]
pub(in crate::crc) unsafe fn run<P: Polynomial, const COPY: bool>(
    polynomial: P,
    register: u64,
    from: *const u8,
    to: *mut u8,
    len: usize,
    target: TargetCache,
) -> u64 {
    if len < 64 {
        // SAFETY: guaranteed by the caller.
        return unsafe { short::<P, COPY>(polynomial, register, from, to, len) };
    }
    let head = if COPY && len >= WORTH_ALIGNING { to.align_offset(64).min(63) } else { 0 };
    // SAFETY: the head is shorter than 64 bytes, and there are more than that.
    unsafe {
        let before = if head >= 8 {
            // One fold moves it to the start of the rest. Reducing it to a register first would take five times as long.
            let bytes = ended_by(register, few::<COPY>(from, to, head), head);
            fold(bytes, broadcast(polynomial.fold_constants::<512>()), _mm512_setzero_si512())
        } else {
            widened(if head > 0 { short::<P, COPY>(polynomial, register, from, to, head) } else { register })
        };
        long::<P, COPY>(polynomial, before, from.add(head), if COPY { to.add(head) } else { to }, len - head, target)
    }
}

/// The register after `len` bytes; `before` is added to the first 64 bytes.
///
/// # Safety
/// As [`run`]; `len` is at least 64.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,vpclmulqdq,sse4.2,pclmulqdq")]
unsafe fn long<P: Polynomial, const COPY: bool>(
    polynomial: P,
    before: __m512i,
    from: *const u8,
    to: *mut u8,
    len: usize,
    target: TargetCache,
) -> u64 {
    let by_4 = broadcast(polynomial.fold_constants::<2048>());
    let mut at;
    let mut bits;
    if len >= 256 {
        let mut rows;
        if len >= 512 {
            // SAFETY: there are at least 512 bytes.
            let mut wide = unsafe { rows_of::<COPY, 8>(from, to, 0) };
            wide[0] = _mm512_xor_si512(wide[0], before);
            at = 512;
            let by_8 = broadcast(polynomial.fold_constants::<4096>());
            let fetches = COPY && target.is_worth_fetching(len);
            while len - at >= 512 {
                if fetches {
                    prefetch_target::<8>(to, at);
                }
                for (number, row) in wide.iter_mut().enumerate() {
                    // SAFETY: 512 more bytes remain.
                    *row = fold(*row, by_8, unsafe { block::<COPY>(from, to, at + 64 * number) });
                }
                at += 512;
            }
            let [a, b, c, d, e, f, g, h] = wide;
            rows = [fold(a, by_4, e), fold(b, by_4, f), fold(c, by_4, g), fold(d, by_4, h)];
            if len - at >= 256 {
                for (number, row) in rows.iter_mut().enumerate() {
                    // SAFETY: 256 more bytes remain.
                    *row = fold(*row, by_4, unsafe { block::<COPY>(from, to, at + 64 * number) });
                }
                at += 256;
            }
        } else {
            // SAFETY: there are at least 256 bytes.
            rows = unsafe { rows_of::<COPY, 4>(from, to, 0) };
            rows[0] = _mm512_xor_si512(rows[0], before);
            at = 256;
        }
        // In parallel: the folds do not depend on each other.
        let third = fold(rows[2], broadcast(polynomial.fold_constants::<512>()), rows[3]);
        let second = fold(rows[1], broadcast(polynomial.fold_constants::<1024>()), third);
        bits = fold(rows[0], broadcast(polynomial.fold_constants::<1536>()), second);
    } else {
        // SAFETY: there are at least 64 bytes.
        bits = _mm512_xor_si512(unsafe { block::<COPY>(from, to, 0) }, before);
        at = 64;
    }
    let by_1 = broadcast(polynomial.fold_constants::<512>());
    while len - at >= 64 {
        // SAFETY: 64 more bytes remain.
        bits = fold(bits, by_1, unsafe { block::<COPY>(from, to, at) });
        at += 64;
    }
    let left = len - at;
    if left > 0 {
        // SAFETY: there are `left` bytes.
        let end = unsafe { few::<COPY>(from.add(at), if COPY { to.add(at) } else { to }, left) };
        let places = moved_by(left);
        let next = _mm512_permutex2var_epi8(bits, places, end);
        bits = fold(_mm512_maskz_permutexvar_epi8(u64::MAX << (64 - left), places, bits), by_1, next);
    }
    reduction::reduce_to_register(polynomial, narrow(polynomial, bits))
}

/// # Safety
/// As [`run`]; `len` is less than 64.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,vpclmulqdq,sse4.2,pclmulqdq")]
unsafe fn short<P: Polynomial, const COPY: bool>(
    polynomial: P,
    register: u64,
    from: *const u8,
    to: *mut u8,
    len: usize,
) -> u64 {
    // SAFETY: there are `len` bytes.
    let bytes = unsafe { few::<COPY>(from, to, len) };
    if len < 8 {
        return reduction::update_few_bytes(
            polynomial,
            register,
            _mm_cvtsi128_si64(_mm512_castsi512_si128(bytes)) as u64,
            len,
        );
    }
    reduction::reduce_to_register(polynomial, narrow(polynomial, ended_by(register, bytes, len)))
}

/// At least 8 bytes after a register, at the end of the vector. The zeros before them change nothing.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn ended_by(register: u64, bytes: __m512i, len: usize) -> __m512i {
    let bits = _mm512_xor_si512(bytes, widened(register));
    _mm512_maskz_permutexvar_epi8(u64::MAX << (64 - len), moved_by(len), bits)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn widened(register: u64) -> __m512i {
    _mm512_zextsi128_si512(_mm_cvtsi64_si128(register as i64))
}

/// Fewer than 64 bytes, then zeros.
///
/// # Safety
/// `from` is readable for `count` bytes and, with `COPY`, `to` writable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn few<const COPY: bool>(from: *const u8, to: *mut u8, count: usize) -> __m512i {
    let mask = (1u64 << count) - 1;
    // SAFETY: masked bytes are neither read nor written.
    unsafe {
        let bytes = _mm512_maskz_loadu_epi8(mask, from.cast());
        if COPY {
            _mm512_mask_storeu_epi8(to.cast(), mask, bytes);
        }
        bytes
    }
}

/// Every index of a vector, plus `count`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn moved_by(count: usize) -> __m512i {
    const PLACES: [u8; 64] = {
        let mut places = [0; 64];
        let mut place = 0;
        while place < 64 {
            places[place] = place as u8;
            place += 1;
        }
        places
    };
    // SAFETY: the array has the size of the vector.
    let places = unsafe { _mm512_loadu_si512(PLACES.as_ptr().cast()) };
    _mm512_add_epi8(places, _mm512_set1_epi8(count as i8))
}

/// Folds four times 128 bits into one.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq")]
fn narrow<P: Polynomial>(polynomial: P, bits: __m512i) -> __m128i {
    let [a, b, c] =
        [polynomial.fold_constants::<384>(), polynomial.fold_constants::<256>(), polynomial.fold_constants::<128>()];
    let [a0, a1, b0, b1, c0, c1] = [a[0], a[1], b[0], b[1], c[0], c[1]].map(|key| key as i64);
    // The last quarter keeps its position: its constant is zero, and it is added unchanged.
    let further = _mm512_set_epi64(0, 0, c1, c0, b1, b0, a1, a0);
    let moved = fold(bits, further, _mm512_maskz_mov_epi64(0b1100_0000, bits));
    let halves = _mm256_xor_si256(_mm512_castsi512_si256(moved), _mm512_extracti64x4_epi64::<1>(moved));
    _mm_xor_si128(_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves))
}

/// # Safety
/// `from` is readable for `at + 64 * COUNT` bytes and, with `COPY`, `to` writable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn rows_of<const COPY: bool, const COUNT: usize>(from: *const u8, to: *mut u8, at: usize) -> [__m512i; COUNT] {
    let mut rows = [_mm512_setzero_si512(); COUNT];
    for (number, row) in rows.iter_mut().enumerate() {
        // SAFETY: guaranteed by the caller.
        *row = unsafe { block::<COPY>(from, to, at + 64 * number) };
    }
    rows
}

/// # Safety
/// `from` is readable for `at + 64` bytes and, with `COPY`, `to` writable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn block<const COPY: bool>(from: *const u8, to: *mut u8, at: usize) -> __m512i {
    // SAFETY: guaranteed by the caller; neither needs to be aligned.
    unsafe {
        let bits = _mm512_loadu_si512(from.add(at).cast());
        if COPY {
            _mm512_storeu_si512(to.add(at).cast(), bits);
        }
        bits
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn broadcast(keys: [u64; 2]) -> __m512i {
    _mm512_broadcast_i32x4(_mm_set_epi64x(keys[1] as i64, keys[0] as i64))
}

#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold(bits: __m512i, further: __m512i, next: __m512i) -> __m512i {
    let first = _mm512_clmulepi64_epi128::<0x00>(bits, further);
    let second = _mm512_clmulepi64_epi128::<0x11>(bits, further);
    // The exclusive or of all three.
    _mm512_ternarylogic_epi64::<0x96>(first, second, next)
}
