//! The plain codes once more for wider vector registers: same text, other instructions.
//!
//! Sums of words are loops that the compiler makes wide by itself, if it may use the registers.

#![allow(unsafe_code)]

use crate::pass::Pass;
use crate::state::Progress;

/// Takes whole words, with the widest vectors that this processor has.
#[inline]
pub(crate) fn absorb(progress: &mut Progress, pass: impl Pass) {
    #[cfg(target_arch = "x86_64")]
    {
        // The test is a load and a branch; std remembers what the processor said.
        if is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
        {
            // SAFETY: the processor has what the function needs.
            return unsafe { with_avx512(progress, pass) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has what the function needs.
            return unsafe { with_avx2(progress, pass) };
        }
    }
    progress.absorb(pass);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,bmi2")]
fn with_avx512(progress: &mut Progress, pass: impl Pass) {
    progress.absorb(pass);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2")]
fn with_avx2(progress: &mut Progress, pass: impl Pass) {
    progress.absorb(pass);
}
