//! Which kernel this processor can run. All give the same values.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m128i, __m256i, __m512i};

use super::scalar::ScalarVector;
use super::stripes::{ChunkPosition, Lanes, STRIPE_BYTES, consume_stripes};
use crate::pass::Pass;
use crate::prefetch::TargetCache;

/// How wide the vectors are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Xxh3Kernel {
    /// No vectors.
    Scalar,
    /// 16 bytes, which all of this family have.
    #[cfg(target_arch = "x86_64")]
    Sse2,
    /// 32 bytes.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 64 bytes.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// 16 bytes on ARM, which all of this family have.
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Neon,
}

impl Xxh3Kernel {
    /// From the plainest to the widest.
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

    /// The widest that this processor has. The test is a few loads and branches; std remembers what the processor said.
    #[inline]
    pub(super) fn best() -> Self {
        Self::ALL.iter().copied().rfind(|kernel| kernel.is_available()).unwrap_or(Self::Scalar)
    }

    /// Whether this processor can run it.
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

    /// Takes all bytes of the pass. Only for kernels that are available.
    #[inline]
    pub(super) fn take(self, lanes: &mut Lanes, pass: &mut impl Pass, piece: ChunkPosition) {
        let fits = if piece == ChunkPosition::Last {
            pass.left() >= STRIPE_BYTES
        } else {
            pass.left().is_multiple_of(STRIPE_BYTES)
        };
        assert!(fits, "{piece:?} of {} bytes", pass.left());
        let target = pass.target();
        let (from, to) = pass.ends();
        match to {
            // SAFETY: without COPY a kernel only reads, and only the slice, whose length was tested. `best` and the tests use
            // only kernels that this processor has.
            None => unsafe {
                self.run::<false>()(lanes, from.as_ptr(), std::ptr::null_mut(), from.len(), piece, target);
            },
            Some(to) => {
                assert_eq!(from.len(), to.len(), "a copy needs as much room as there are bytes");
                // SAFETY: as above; both slices are of one length, and a shared and an exclusive one cannot overlap.
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

/// Lanes, source, target, length, where in the message, and whose the target is.
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
    // SAFETY: handed on.
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
    // SAFETY: handed on.
    unsafe { consume_stripes::<__m512i, 1, 4, COPY>(lanes, from, to, len, piece, target) }
}
