//! 16 bytes in a vector register, four of them at a time, on ARM. The rest uses the tables.

#![allow(unsafe_code)]

use std::arch::aarch64::*;
use std::arch::is_aarch64_feature_detected;

use super::polynomial::Polynomial;
use super::scalar;
use crate::prefetch::TargetCache;

pub(super) fn is_available() -> bool {
    is_aarch64_feature_detected!("neon") && is_aarch64_feature_detected!("aes")
}

/// The register after `len` bytes at `from`; with `COPY` they are also written to `to`.
///
/// # Safety
/// [`is_available`]. `from` is readable for `len` bytes. With `COPY`, `to` is writable for `len` bytes and does not overlap
/// them; without, it is not touched.
#[target_feature(enable = "neon,aes")]
pub(super) unsafe fn run<P: Polynomial, const COPY: bool>(
    polynomial: P,
    mut register: u64,
    from: *const u8,
    to: *mut u8,
    len: usize,
    _: TargetCache,
) -> u64 {
    let mut at = 0;
    if len >= 64 {
        // SAFETY: there are at least 64 bytes.
        let mut rows = unsafe { [0, 16, 32, 48].map(|offset| block::<COPY>(from, to, offset)) };
        rows[0] = veorq_u64(rows[0], vcombine_u64(vcreate_u64(register), vcreate_u64(0)));
        at = 64;
        let further = polynomial.fold_constants::<512>();
        while len - at >= 64 {
            for (row, offset) in rows.iter_mut().zip([0, 16, 32, 48]) {
                // SAFETY: 64 more bytes remain.
                *row = fold(*row, further, unsafe { block::<COPY>(from, to, at + offset) });
            }
            at += 64;
        }
        let third = fold(rows[2], polynomial.fold_constants::<128>(), rows[3]);
        let second = fold(rows[1], polynomial.fold_constants::<256>(), third);
        let bits = fold(rows[0], polynomial.fold_constants::<384>(), second);
        let mut bytes = [0; 16];
        // SAFETY: the array has the size of the vector.
        unsafe { vst1q_u8(bytes.as_mut_ptr(), vreinterpretq_u8_u64(bits)) };
        register = scalar::update(polynomial, 0, &bytes);
    }
    // SAFETY: both are valid for the remaining bytes, and do not overlap.
    unsafe {
        let rest = std::slice::from_raw_parts(from.add(at), len - at);
        if COPY {
            return scalar::copy(polynomial, register, rest, std::slice::from_raw_parts_mut(to.add(at), len - at));
        }
        scalar::update(polynomial, register, rest)
    }
}

/// # Safety
/// `from` is readable for `at + 16` bytes and, with `COPY`, `to` writable.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn block<const COPY: bool>(from: *const u8, to: *mut u8, at: usize) -> uint64x2_t {
    // SAFETY: guaranteed by the caller; neither needs to be aligned.
    unsafe {
        let bits = vld1q_u8(from.add(at));
        if COPY {
            vst1q_u8(to.add(at), bits);
        }
        vreinterpretq_u64_u8(bits)
    }
}

#[inline]
#[target_feature(enable = "neon,aes")]
fn fold(bits: uint64x2_t, further: [u64; 2], next: uint64x2_t) -> uint64x2_t {
    let keys = vreinterpretq_p64_u64(vcombine_u64(vcreate_u64(further[0]), vcreate_u64(further[1])));
    let first = vmull_p64(vgetq_lane_u64::<0>(bits), further[0]);
    let second = vmull_high_p64(vreinterpretq_p64_u64(bits), keys);
    let both = veorq_u64(vreinterpretq_u64_p128(first), vreinterpretq_u64_p128(second));
    veorq_u64(both, next)
}
