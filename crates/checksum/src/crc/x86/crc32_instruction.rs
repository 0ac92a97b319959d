//! CRC-32C with the CRC32 instruction, eight bytes at a time: fastest for headers.

use std::arch::x86_64::*;

/// Up to this many bytes it is faster than folding, whose final reduction pays off only later.
pub(in crate::crc) const MAX_INSTRUCTION_BYTES: usize = 128;

/// The CRC-32C register after these bytes.
#[inline]
#[target_feature(enable = "sse4.2")]
pub(in crate::crc) fn update(mut register: u64, bytes: &[u8]) -> u64 {
    let (words, mut rest) = bytes.as_chunks::<8>();
    for word in words {
        register = _mm_crc32_u64(register, u64::from_le_bytes(*word));
    }
    let mut register = register as u32;
    if let Some((half, left)) = rest.split_first_chunk::<4>() {
        register = _mm_crc32_u32(register, u32::from_le_bytes(*half));
        rest = left;
    }
    for byte in rest {
        register = _mm_crc32_u8(register, *byte);
    }
    u64::from(register)
}

/// The CRC-32C register after these words and bytes.
#[inline]
#[target_feature(enable = "sse4.2")]
pub(in crate::crc) fn update_words<const N: usize>(register: u64, words: [u64; N], bytes: &[u8]) -> u64 {
    update(words.into_iter().fold(register, |register, word| _mm_crc32_u64(register, word)), bytes)
}
