//! 16 bytes in a vector register, on ARM.

#![allow(unsafe_code)]

use std::arch::aarch64::*;

use super::product_sums::{ProductSums, ROW_BYTES};

/// Adds the rows of `len` bytes at `from`; with `COPY` they are also written to `to`.
///
/// # Safety
/// The processor has NEON and PMULL. `from` is readable for `len` bytes, a multiple of the row, and `keys` for as many rows. With
/// `COPY`, `to` is writable for `len` bytes and does not overlap them; without, it is not touched.
#[target_feature(enable = "neon,aes")]
pub(super) unsafe fn add_by_16<const COPY: bool>(
    sums: &mut ProductSums,
    keys: *const [u64; 8],
    from: *const u8,
    to: *mut u8,
    len: usize,
) {
    for row in 0..len / ROW_BYTES {
        for (place, total) in sums.0.iter_mut().enumerate() {
            let at = row * ROW_BYTES + 16 * place;
            // SAFETY: guaranteed by the caller; a vector is two words.
            let secret = unsafe {
                let words = vld1q_u8(from.add(at));
                if COPY {
                    vst1q_u8(to.add(at), words);
                }
                veorq_u64(vreinterpretq_u64_u8(words), vld1q_u64(keys.add(row).cast::<u64>().add(2 * place)))
            };
            let product = vmull_p64(vgetq_lane_u64::<0>(secret), vgetq_lane_u64::<1>(secret));
            *total = [total[0] ^ product as u64, total[1] ^ (product >> 64) as u64];
        }
    }
}
