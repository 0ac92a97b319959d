//! Two words in a vector register, on ARM.

#![allow(unsafe_code)]

use std::arch::aarch64::*;

use super::constants::PRIME_32_1;
use super::stripes::SimdVector;

// SAFETY: the functions need NEON and nothing else.
unsafe impl SimdVector for uint64x2_t {
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { vreinterpretq_u64_u8(vld1q_u8(from)) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: guaranteed by the caller.
        unsafe { vst1q_u8(to, vreinterpretq_u8_u64(self)) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { vdupq_n_u64(0) }
    }

    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { vaddq_u64(self, other) }
    }

    #[inline(always)]
    unsafe fn with_key(self, key: Self) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { veorq_u64(self, key) }
    }

    #[inline(always)]
    unsafe fn product_of_halves(self) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { vmull_u32(vmovn_u64(self), vshrn_n_u64::<32>(self)) }
    }

    #[inline(always)]
    unsafe fn neighbours(self) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { vextq_u64::<1>(self, self) }
    }

    #[inline(always)]
    unsafe fn scrambled(self, key: Self) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mixed = veorq_u64(veorq_u64(self, vshrq_n_u64::<47>(self)), key);
            let prime = vdup_n_u32(PRIME_32_1 as u32);
            let high = vmull_u32(vshrn_n_u64::<32>(mixed), prime);
            vaddq_u64(vmull_u32(vmovn_u64(mixed), prime), vshlq_n_u64::<32>(high))
        }
    }
}
