//! The plain loops compiled for wider vector registers.
//!
//! The compiler vectorizes sums of words by itself, if it may use the registers.

#![allow(unsafe_code)]

use crate::algorithm_state::AlgorithmState;
use crate::pass::Pass;

/// The width of vector registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VectorWidth {
    /// The baseline of the architecture.
    Usual,
    /// 32 bytes.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 64 bytes.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl VectorWidth {
    /// From the narrowest to the widest.
    pub(crate) const ALL: &[Self] = &[
        Self::Usual,
        #[cfg(target_arch = "x86_64")]
        Self::Avx2,
        #[cfg(target_arch = "x86_64")]
        Self::Avx512,
    ];

    /// The widest that this processor supports.
    #[inline]
    pub(crate) fn best() -> Self {
        Self::ALL.iter().copied().rfind(|width| width.is_available()).unwrap_or(Self::Usual)
    }

    /// Whether this processor supports it. The test is a few loads and branches; std caches the feature flags.
    #[inline]
    pub(crate) fn is_available(self) -> bool {
        match self {
            Self::Usual => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
            }
        }
    }

    /// Adds whole words. Only for supported widths.
    #[inline]
    pub(crate) fn absorb(self, progress: &mut AlgorithmState, pass: impl Pass) {
        match self {
            Self::Usual => progress.absorb(pass),
            // SAFETY: `best` and the tests use only widths that this processor supports.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { with_avx2(progress, pass) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { with_avx512(progress, pass) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,bmi2")]
fn with_avx512(progress: &mut AlgorithmState, pass: impl Pass) {
    progress.absorb(pass);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2")]
fn with_avx2(progress: &mut AlgorithmState, pass: impl Pass) {
    progress.absorb(pass);
}
