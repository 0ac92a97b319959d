//! Which kernel this processor supports, detected once.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, Ordering};

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
use super::neon;
use super::polynomial::{Crc32cPolynomial, Polynomial};
use super::scalar;
#[cfg(target_arch = "x86_64")]
use super::x86::{avx2, avx512, crc32_instruction, sse};
use crate::prefetch::TargetCache;

/// How CRCs are computed. All kernels give the same results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrcKernel {
    /// Lookup tables.
    Scalar,
    /// Carry-less multiplication of 16 bytes at a time (PCLMULQDQ, SSE4.2).
    Sse,
    /// The same of 32 bytes (VPCLMULQDQ, AVX2).
    Avx2,
    /// The same of 64 bytes (VPCLMULQDQ, AVX-512 with byte permutations).
    Avx512,
    /// The same of 16 bytes on ARM (PMULL).
    Neon,
}

/// The best kernel as a number from one; zero before detection.
static BEST: AtomicU8 = AtomicU8::new(0);

impl CrcKernel {
    /// From the simplest to the widest.
    pub const ALL: [Self; 5] = [Self::Scalar, Self::Sse, Self::Avx2, Self::Avx512, Self::Neon];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Sse => "sse4.2+pclmulqdq",
            Self::Avx2 => "avx2+vpclmulqdq",
            Self::Avx512 => "avx512+vpclmulqdq",
            Self::Neon => "neon+pmull",
        }
    }

    /// The widest kernel that this processor supports.
    #[inline]
    pub fn best() -> Self {
        match BEST.load(Ordering::Relaxed) {
            0 => Self::find_best(),
            number => Self::ALL[usize::from(number - 1)],
        }
    }

    #[cold]
    fn find_best() -> Self {
        let best = Self::ALL.iter().rposition(|kernel| kernel.is_available()).unwrap_or(0);
        BEST.store(best as u8 + 1, Ordering::Relaxed);
        Self::ALL[best]
    }

    /// Whether this processor supports it.
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Sse => sse::is_available(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::is_available(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => avx512::is_available(),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon => neon::is_available(),
            _ => false,
        }
    }

    /// The register after these bytes. Only for supported kernels.
    #[inline]
    pub(super) fn update<P: Polynomial>(self, polynomial: P, register: u64, bytes: &[u8]) -> u64 {
        #[cfg(target_arch = "x86_64")]
        if P::IS_CRC32C && bytes.len() <= crc32_instruction::MAX_INSTRUCTION_BYTES && self != Self::Scalar {
            // SAFETY: all kernels but the tables need SSE4.2, and only supported ones are used.
            return unsafe { crc32_instruction::update(register, bytes) };
        }
        match self.wide::<P, false>() {
            // SAFETY: without COPY a kernel only reads, and only the slice. `best` and the tests use only supported kernels.
            Some(run) => unsafe {
                run(polynomial, register, bytes.as_ptr(), std::ptr::null_mut(), bytes.len(), TargetCache::Local)
            },
            None => scalar::update(polynomial, register, bytes),
        }
    }

    /// The CRC-32C register after these little-endian words and these bytes. Only for supported kernels.
    #[inline]
    pub(crate) fn update_words<const N: usize>(self, register: u64, words: [u64; N], bytes: &[u8]) -> u64 {
        #[cfg(target_arch = "x86_64")]
        if self != Self::Scalar && bytes.len() <= crc32_instruction::MAX_INSTRUCTION_BYTES {
            // SAFETY: all kernels but the tables need SSE4.2, and only supported ones are used.
            return unsafe { crc32_instruction::update_words(register, words, bytes) };
        }
        let update = |register, word: u64| self.update(Crc32cPolynomial, register, &word.to_le_bytes());
        self.update(Crc32cPolynomial, words.into_iter().fold(register, update), bytes)
    }

    /// The register after these bytes, copied on the way. Only for supported kernels.
    #[inline]
    pub(super) fn copy<P: Polynomial>(
        self,
        polynomial: P,
        register: u64,
        from: &[u8],
        to: &mut [u8],
        target: TargetCache,
    ) -> u64 {
        assert_eq!(from.len(), to.len(), "source and target of a copy have the same length");
        match self.wide::<P, true>() {
            // SAFETY: both slices have the given length, and a shared and an exclusive one cannot overlap. `best` and the tests use only
            // supported kernels.
            Some(run) => unsafe { run(polynomial, register, from.as_ptr(), to.as_mut_ptr(), from.len(), target) },
            None => scalar::copy(polynomial, register, from, to),
        }
    }

    /// The kernel's function; none for the tables.
    #[inline]
    fn wide<P: Polynomial, const COPY: bool>(self) -> Option<CrcKernelFn<P>> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Sse => Some(sse::run::<P, COPY>),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => Some(avx2::run::<P, COPY>),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Some(avx512::run::<P, COPY>),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon => Some(neon::run::<P, COPY>),
            _ => None,
        }
    }
}

/// Polynomial, register, source, target, length, and the cache of the target; returns the register.
type CrcKernelFn<P> = unsafe fn(P, u64, *const u8, *mut u8, usize, TargetCache) -> u64;
