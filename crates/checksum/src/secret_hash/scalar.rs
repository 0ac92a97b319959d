//! Without vector registers: runs on every processor, and is the reference for the other kernels.

#![allow(unsafe_code)]

use super::product_sums::{ProductSums, ROW_BYTES};

/// Adds the rows of `len` bytes at `from`; with `COPY` they are also written to `to`.
///
/// # Safety
/// `from` is readable for `len` bytes, a multiple of the row, and `keys` for as many rows. With `COPY`, `to` is writable for `len` bytes and
/// does not overlap them; without, it is not touched.
pub(super) unsafe fn add<const COPY: bool>(
    sums: &mut ProductSums,
    keys: *const [u64; 8],
    from: *const u8,
    to: *mut u8,
    len: usize,
) {
    for row in 0..len / ROW_BYTES {
        // SAFETY: guaranteed by the caller; bytes need no alignment.
        let (bytes, key): ([[u8; 8]; 8], [u64; 8]) =
            unsafe { (from.add(row * ROW_BYTES).cast::<[[u8; 8]; 8]>().read(), keys.add(row).read()) };
        if COPY {
            // SAFETY: guaranteed by the caller.
            unsafe { to.add(row * ROW_BYTES).cast::<[[u8; 8]; 8]>().write(bytes) };
        }
        for (place, total) in sums.0.iter_mut().enumerate() {
            let secret =
                |word: usize| u64::from_le_bytes(bytes[2 * place + word]) ^ u64::from_le(key[2 * place + word]);
            let product = carryless_product(secret(0), secret(1));
            *total = [total[0] ^ product as u64, total[1] ^ (product >> 64) as u64];
        }
    }
}

/// Four bits at a time.
fn carryless_product(a: u64, b: u64) -> u128 {
    let mut multiples = [0_u128; 16];
    for digit in 1..16 {
        multiples[digit] = multiples[digit >> 1] << 1 ^ if digit & 1 == 1 { u128::from(a) } else { 0 };
    }
    (0..16).rev().fold(0, |product, digit| product << 4 ^ multiples[(b >> (4 * digit) & 15) as usize])
}
