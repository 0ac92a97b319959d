//! Which kernel this processor supports. All kernels give the same results.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m128i, __m256i, __m512i};

use super::scalar::ScalarVector;
use super::stripes::{ChunkPosition, Lanes, STRIPE_BYTES, consume_stripes};
use crate::pass::Pass;
use crate::prefetch::TargetCache;

/// The width of the vectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Xxh3Kernel {
    /// No vectors.
    Scalar,
    /// 16 bytes, the baseline of x86-64.
    #[cfg(target_arch = "x86_64")]
    Sse2,
    /// 32 bytes.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 64 bytes.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// 16 bytes, the baseline of 64-bit ARM.
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Neon,
}

impl Xxh3Kernel {
    /// From the simplest to the widest.
    pub(super) const ALL: &[Self] = &[
        Self::Scalar,
        #[cfg(target_arch = "x86_64")]
        Self::Sse2,
        #[cfg(target_arch = "x86_64")]
        Self::Avx2,
        #[cfg(target_arch = "x86_64")]
        Self::Avx512,
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        Self::Neon,
    ];

    /// The widest kernel that this processor supports. The test is a few loads and branches; std caches the feature flags.
    #[inline]
    pub(super) fn best() -> Self {
        Self::ALL.iter().copied().rfind(|kernel| kernel.is_available()).unwrap_or(Self::Scalar)
    }

    /// Whether this processor supports it.
    #[inline]
    pub(super) fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => is_x86_feature_detected!("avx512f"),
            _ => true,
        }
    }

    /// Consumes all bytes of the pass. Only for supported kernels.
    #[inline]
    pub(super) fn take(self, lanes: &mut Lanes, pass: &mut impl Pass, piece: ChunkPosition) {
        let fits = if piece == ChunkPosition::Last {
            pass.remaining() >= STRIPE_BYTES
        } else {
            pass.remaining().is_multiple_of(STRIPE_BYTES)
        };
        assert!(fits, "{piece:?} of {} bytes", pass.remaining());
        let target = pass.target();
        let (from, to) = pass.buffers();
        match to {
            // SAFETY: without COPY a kernel only reads, and only the slice, whose length was checked. `best` and the tests use only supported
            // kernels.
            None => unsafe {
                self.run::<false>()(lanes, from.as_ptr(), std::ptr::null_mut(), from.len(), piece, target);
            },
            Some(to) => {
                assert_eq!(from.len(), to.len(), "source and target of a copy have the same length");
                // SAFETY: as above; both slices have one length, and a shared and an exclusive one cannot overlap.
                unsafe { self.run::<true>()(lanes, from.as_ptr(), to.as_mut_ptr(), from.len(), piece, target) }
            }
        }
    }

    #[inline]
    fn run<const COPY: bool>(self) -> Xxh3KernelFn {
        match self {
            Self::Scalar => consume_stripes::<ScalarVector, 4, 1, COPY>,
            #[cfg(target_arch = "x86_64")]
            Self::Sse2 => consume_stripes::<__m128i, 4, 1, COPY>,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => with_avx2::<COPY>,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => with_avx512::<COPY>,
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon => consume_stripes::<std::arch::aarch64::uint64x2_t, 4, 1, COPY>,
        }
    }
}

/// Lanes, source, target, length, position in the message, and the cache of the target.
type Xxh3KernelFn = unsafe fn(&mut Lanes, *const u8, *mut u8, usize, ChunkPosition, TargetCache);

/// # Safety
/// As [`consume_stripes`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn with_avx2<const COPY: bool>(
    lanes: &mut Lanes,
    from: *const u8,
    to: *mut u8,
    len: usize,
    piece: ChunkPosition,
    target: TargetCache,
) {
    // SAFETY: guaranteed by the caller.
    unsafe { consume_stripes::<__m256i, 2, 2, COPY>(lanes, from, to, len, piece, target) }
}

/// # Safety
/// As [`consume_stripes`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn with_avx512<const COPY: bool>(
    lanes: &mut Lanes,
    from: *const u8,
    to: *mut u8,
    len: usize,
    piece: ChunkPosition,
    target: TargetCache,
) {
    // SAFETY: guaranteed by the caller.
    unsafe { consume_stripes::<__m512i, 1, 4, COPY>(lanes, from, to, len, piece, target) }
}
