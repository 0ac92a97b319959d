//! Two words at a time, without vector registers: runs on every processor, and is the reference for the wide kernels.

#![allow(unsafe_code)]

use super::constants::PRIME_32_1;
use super::stripes::SimdVector;

/// Two adjacent words.
#[derive(Clone, Copy)]
pub(super) struct ScalarVector([u64; 2]);

impl ScalarVector {
    #[inline(always)]
    fn map(self, change: impl Fn(u64) -> u64) -> Self {
        Self(self.0.map(change))
    }

    #[inline(always)]
    fn with(self, other: Self, join: impl Fn(u64, u64) -> u64) -> Self {
        Self([join(self.0[0], other.0[0]), join(self.0[1], other.0[1])])
    }
}

// SAFETY: no function needs anything special of the processor.
unsafe impl SimdVector for ScalarVector {
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller guarantees that 16 bytes are readable; bytes need no alignment.
        let bytes: [[u8; 8]; 2] = unsafe { from.cast::<[[u8; 8]; 2]>().read() };
        Self(bytes.map(u64::from_le_bytes))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller guarantees that 16 bytes are writable; bytes need no alignment.
        unsafe { to.cast::<[[u8; 8]; 2]>().write(self.0.map(u64::to_le_bytes)) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0; 2])
    }

    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        self.with(other, u64::wrapping_add)
    }

    #[inline(always)]
    unsafe fn with_key(self, key: Self) -> Self {
        self.with(key, |word, key| word ^ key)
    }

    #[inline(always)]
    unsafe fn product_of_halves(self) -> Self {
        self.map(|word| u64::from(word as u32) * (word >> 32))
    }

    #[inline(always)]
    unsafe fn neighbours(self) -> Self {
        Self([self.0[1], self.0[0]])
    }

    #[inline(always)]
    unsafe fn scrambled(self, key: Self) -> Self {
        self.with(key, |word, key| (word ^ (word >> 47) ^ key).wrapping_mul(PRIME_32_1))
    }
}
