//! CRC-32C (Castagnoli), the end-to-end checksum over a message's header and payload.

use crate::crc::{self, Crc32cPolynomial, CrcKernel, Polynomial};

/// The CRC-32C of the concatenated parts.
#[inline]
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    let register =
        parts.iter().fold(Crc32cPolynomial::ONES, |register, part| crc::update(Crc32cPolynomial, register, part));
    (register ^ Crc32cPolynomial::ONES) as u32
}

/// The CRC-32C of little-endian words, followed by bytes. For short headers that are in registers: reading them back from memory, where
/// they were written in smaller parts, would stall on store forwarding.
#[inline]
pub fn crc32c_words<const N: usize>(words: [u64; N], bytes: &[u8]) -> u32 {
    (CrcKernel::best().update_words(Crc32cPolynomial::ONES, words, bytes) ^ Crc32cPolynomial::ONES) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_test_vectors_of_rfc_3720_hold() {
        assert_eq!(crc32c(&[b"123456789"]), 0xe306_9283);
        // RFC 3720, B.4; the RFC prints the bytes in the order they are sent.
        assert_eq!(crc32c(&[&[0; 32]]).to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(crc32c(&[&[0xff; 32]]).to_le_bytes(), [0x43, 0xab, 0xa8, 0x62]);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&[&rising]).to_le_bytes(), [0x4e, 0x79, 0xdd, 0x46]);
        let falling: Vec<u8> = (0..32).rev().collect();
        assert_eq!(crc32c(&[&falling]).to_le_bytes(), [0x5c, 0xdb, 0x3f, 0x11]);
    }

    #[test]
    fn no_parts_and_empty_parts_are_the_same() {
        assert_eq!(crc32c(&[]), 0);
        assert_eq!(crc32c(&[b"", b""]), 0);
    }

    proptest! {
        #[test]
        fn parts_give_the_same_result_as_the_whole(bytes in proptest::collection::vec(any::<u8>(), 0..600), cut in any::<proptest::sample::Index>()) {
            let (head, tail) = bytes.split_at(cut.index(bytes.len() + 1));
            prop_assert_eq!(crc32c(&[head, tail]), crc32c(&[&bytes]));
            prop_assert_eq!(crc32c(&[head, b"", tail]), crc32c(&[&bytes]));
            prop_assert_eq!(crc32c(&[&bytes]), crc_fast::crc32_iscsi(&bytes), "an independent implementation");
            if let Some((words, rest)) = bytes.split_first_chunk::<16>() {
                let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| words[at + byte]));
                prop_assert_eq!(crc32c_words([word(0), word(8)], rest), crc32c(&[&bytes]));
            }
        }
    }
}
