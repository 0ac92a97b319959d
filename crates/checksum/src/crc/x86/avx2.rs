//! 32 bytes in a vector register, four of them at a time.

use std::arch::x86_64::*;

use super::sse;
use crate::crc::polynomial::Polynomial;
use crate::prefetch::{TargetCache, prefetch_target};

pub(in crate::crc) fn is_available() -> bool {
    sse::is_available() && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("vpclmulqdq")
}

/// The register after `len` bytes at `from`; with `COPY` they are also written to `to`.
///
/// # Safety
/// The processor has VPCLMULQDQ and AVX2. `from` is readable for `len` bytes. With `COPY`, `to` is writable for `len`
/// bytes and does not overlap them; without, it is not touched.
#[target_feature(enable = "avx2,vpclmulqdq,sse4.2,pclmulqdq")]
pub(in crate::crc) unsafe fn run<P: Polynomial, const COPY: bool>(
    polynomial: P,
    register: u64,
    from: *const u8,
    to: *mut u8,
    len: usize,
    target: TargetCache,
) -> u64 {
    if len < 128 {
        // SAFETY: guaranteed by the caller.
        return unsafe { sse::run::<P, COPY>(polynomial, register, from, to, len, target) };
    }
    // SAFETY: there are at least 128 bytes.
    let mut rows = unsafe {
        [
            block::<COPY>(from, to, 0),
            block::<COPY>(from, to, 32),
            block::<COPY>(from, to, 64),
            block::<COPY>(from, to, 96),
        ]
    };
    rows[0] = _mm256_xor_si256(rows[0], _mm256_zextsi128_si256(_mm_cvtsi64_si128(register as i64)));
    let mut at = 128;
    let further = load_keys(polynomial.fold_constants::<1024>());
    let fetches = COPY && target.is_worth_fetching(len);
    while len - at >= 128 {
        if fetches {
            prefetch_target::<2>(to, at);
        }
        for (row, offset) in rows.iter_mut().zip([0, 32, 64, 96]) {
            // SAFETY: 128 more bytes remain.
            *row = fold(*row, further, unsafe { block::<COPY>(from, to, at + offset) });
        }
        at += 128;
    }
    let third = fold(rows[2], load_keys(polynomial.fold_constants::<256>()), rows[3]);
    let second = fold(rows[1], load_keys(polynomial.fold_constants::<512>()), third);
    let all = fold(rows[0], load_keys(polynomial.fold_constants::<768>()), second);
    let (first, second) = (_mm256_castsi256_si128(all), _mm256_extracti128_si256::<1>(all));
    let bits = sse::fold(first, sse::load_keys(polynomial.fold_constants::<128>()), second);
    // SAFETY: guaranteed by the caller; more than 16 bytes have been folded.
    unsafe { sse::rest::<P, COPY>(polynomial, bits, from, to, at, len) }
}

/// # Safety
/// `from` is readable for `at + 32` bytes and, with `COPY`, `to` writable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn block<const COPY: bool>(from: *const u8, to: *mut u8, at: usize) -> __m256i {
    // SAFETY: guaranteed by the caller; neither needs to be aligned.
    unsafe {
        let bits = _mm256_loadu_si256(from.add(at).cast());
        if COPY {
            _mm256_storeu_si256(to.add(at).cast(), bits);
        }
        bits
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_keys(keys: [u64; 2]) -> __m256i {
    _mm256_set_epi64x(keys[1] as i64, keys[0] as i64, keys[1] as i64, keys[0] as i64)
}

#[inline]
#[target_feature(enable = "avx2,vpclmulqdq")]
fn fold(bits: __m256i, further: __m256i, next: __m256i) -> __m256i {
    let first = _mm256_clmulepi64_epi128::<0x00>(bits, further);
    let second = _mm256_clmulepi64_epi128::<0x11>(bits, further);
    _mm256_xor_si256(_mm256_xor_si256(first, second), next)
}
