//! Encryption of payloads: AES-128 in counter mode, under a MAC over the plaintext.
//!
//! The MAC of a packet comes first, and the first counter block is computed from it and from what names the packet, as in SIV (RFC 5297):
//! nobody has to keep a nonce, and a retransmission is the same bytes. Two packets have the same block only if their MACs and their
//! names are the same. Whoever decrypts verifies the MAC afterwards and uses nothing before. Rule: P-125.

use std::hash::Hasher as _;

use aes::Aes128Enc;
use aes::cipher::{InnerIvInit, KeyInit, StreamCipher};
use ctr::Ctr128BE;
use hmac::{Hmac, Mac};
use manager::AuthKey;
use sha2::Sha256;
use siphasher::sip128::{Hasher128 as _, SipHasher24};

/// The first counter block of a packet.
pub(crate) type CounterBlock = [u8; 16];

/// Encrypts and decrypts under one key.
pub(crate) struct PayloadCipher {
    cipher: Aes128Enc,
    blocks: SipHasher24,
}

impl std::fmt::Debug for PayloadCipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PayloadCipher(..)")
    }
}

impl PayloadCipher {
    pub(super) fn new(key: &AuthKey) -> Self {
        let mut derive = <Hmac<Sha256> as KeyInit>::new_from_slice(&key.0).expect("a key of any length will do");
        derive.update(b"pleach payload cipher");
        let derived: [u8; 32] = derive.finalize().into_bytes().into();
        let (cipher, blocks) = derived.split_at(16);
        Self {
            cipher: Aes128Enc::new_from_slice(cipher).expect("sixteen bytes"),
            blocks: SipHasher24::new_with_key(blocks.try_into().expect("sixteen bytes")),
        }
    }

    /// The first counter block of the packet with this name and MAC.
    pub(crate) fn block(&self, name: [u64; 2], header: &[u8], mac: [u8; 8]) -> CounterBlock {
        let mut hasher = self.blocks;
        name.into_iter().for_each(|word| hasher.write_u64(word));
        hasher.write(&mac);
        hasher.write(header);
        u128::from(hasher.finish128()).to_be_bytes()
    }

    /// Encrypts or decrypts.
    pub(crate) fn apply(&self, block: &CounterBlock, bytes: &mut [u8]) {
        self.counter(block).apply_keystream(bytes);
    }

    /// Encrypts or decrypts from one place to another.
    ///
    /// # Panics
    /// If the lengths differ.
    pub(crate) fn apply_to(&self, block: &CounterBlock, from: &[u8], to: &mut [u8]) {
        self.counter(block).apply_keystream_b2b(from, to);
    }

    fn counter(&self, block: &CounterBlock) -> Ctr128BE<Aes128Enc> {
        Ctr128BE::from_core(ctr::CtrCore::inner_iv_init(self.cipher.clone(), block.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keystream_is_that_of_aes_in_counter_mode() {
        // NIST SP 800-38A, F.5.1 (CTR-AES128).
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len() / 2)
                .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("hexadecimal"))
                .collect()
        };
        let key = hex("2b7e151628aed2a6abf7158809cf4f3c");
        let cipher = PayloadCipher {
            cipher: Aes128Enc::new_from_slice(&key).expect("sixteen bytes"),
            blocks: SipHasher24::new(),
        };
        let block: CounterBlock = hex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff").try_into().expect("sixteen bytes");
        let plain = hex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51");
        let mut bytes = plain.clone();
        cipher.apply(&block, &mut bytes);
        assert_eq!(bytes, hex("874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff"));
        let mut back = vec![0; bytes.len()];
        cipher.apply_to(&block, &bytes, &mut back);
        assert_eq!(back, plain);
    }

    #[test]
    fn every_part_of_a_name_changes_the_block() {
        let cipher = PayloadCipher::new(&AuthKey([7; 16]));
        let usual = cipher.block([1, 2], b"header", [3; 8]);
        let others = [
            cipher.block([0, 2], b"header", [3; 8]),
            cipher.block([1, 3], b"header", [3; 8]),
            cipher.block([1, 2], b"headeR", [3; 8]),
            cipher.block([1, 2], b"header", [4; 8]),
            PayloadCipher::new(&AuthKey([8; 16])).block([1, 2], b"header", [3; 8]),
        ];
        assert!(others.iter().all(|other| *other != usual));
        assert_eq!(usual, PayloadCipher::new(&AuthKey([7; 16])).block([1, 2], b"header", [3; 8]));
    }
}
