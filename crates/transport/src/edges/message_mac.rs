//! Authentication: each group has a key, and every message and every packet of a transfer carries MACs that only holders of the key can
//! compute.
//!
//! The MAC of a message covers the queue pair and packet number, the message's header and its payload; that of an acknowledgement, NAK or
//! probe its headers; the MACs of a transfer cover its packets whole. They reject foreign, stale, forged and changed packets. Payloads go through a hash by a secret polynomial
//! ([`SecretCrc64`]), which is fast and finds accidental damage as well, and its value through SipHash, together with the length.
//! Nothing is encrypted. Rule: P-104.

use std::hash::Hasher as _;

use checksum::SecretCrc64;
use manager::AuthKey;
use siphasher::sip::{SipHasher13, SipHasher24};
use units::{Psn, QpNumber};
use wire::transfer::HEADER_BYTES;

/// The MAC of a message.
pub(super) type MessageMac = [u8; MAC_BYTES];
/// Its length.
pub(super) const MAC_BYTES: usize = 8;

/// What computes MACs under one key.
#[derive(Debug)]
pub struct KeyedMacs {
    key: AuthKey,
    hash: SecretCrc64,
    /// Of payloads of transfers: SipHash-1-3, because there are hundreds of packets per megabyte, and each lives for milliseconds.
    payload_function: SipHasher13,
}

impl KeyedMacs {
    /// Takes about a tenth of a millisecond.
    pub fn new(key: AuthKey) -> Self {
        let mut count = 0_u64;
        let mut draw = || {
            let mut hasher = SipHasher24::new_with_key(&key.0);
            hasher.write(b"pleach payload polynomial");
            hasher.write_u64(count);
            count += 1;
            hasher.finish()
        };
        let payload_function = SipHasher13::new_with_keys(draw(), draw());
        let hash = SecretCrc64::new(draw);
        Self { key, hash, payload_function }
    }

    pub(super) fn key(&self) -> &AuthKey {
        &self.key
    }

    /// The MAC of a message to a queue pair under a packet number.
    pub(super) fn message(&self, to: QpNumber, psn: Psn, header: &[u8], payload: &[u8]) -> MessageMac {
        let mut hasher = SipHasher24::new_with_key(&self.key.0);
        hasher.write_u64(u64::from(to.0) << 32 | u64::from(psn.get()));
        hasher.write(header);
        hasher.write_u64(self.hash.value(payload));
        hasher.write_u64(payload.len() as u64);
        hasher.finish().to_be_bytes()
    }

    /// The MAC of the headers of an acknowledgement, a NAK or a probe.
    pub(super) fn control(&self, headers: &[u8]) -> MessageMac {
        let mut hasher = SipHasher24::new_with_key(&self.key.0);
        // Shorter than what the MAC of any message covers, so that neither is taken for the other.
        hasher.write(headers);
        hasher.finish().to_be_bytes()
    }

    /// The MAC of the payload of a transfer's packet.
    #[inline]
    pub fn payload(&self, bytes: &[u8]) -> u64 {
        self.finish_payload(self.hash.value(bytes), bytes.len())
    }

    /// As [`Self::payload`], and copies the bytes.
    ///
    /// # Panics
    /// If the lengths differ.
    #[inline]
    pub fn copy_payload(&self, from: &[u8], to: &mut [u8]) -> u64 {
        self.finish_payload(self.hash.copy(from, to), from.len())
    }

    #[inline]
    fn finish_payload(&self, hash: u64, length: usize) -> u64 {
        let mut hasher = self.payload_function;
        hasher.write_u64(hash);
        hasher.write_u64(length as u64);
        hasher.finish()
    }
}

/// The MACs of the headers of one transfer: what they have in common is hashed once. With SipHash-1-3, like the payloads.
#[derive(Clone)]
pub(super) struct TransferMac {
    common: SipHasher13,
}

impl TransferMac {
    /// For packets whose headers have these bytes in common.
    pub(super) fn new(macs: &KeyedMacs, constant: &[u8]) -> Self {
        let mut common = SipHasher13::new_with_key(&macs.key.0);
        common.write(constant);
        // A whole number of words, so that the rest is hashed word by word.
        common.write(&[0; 8][constant.len() % 8..]);
        Self { common }
    }

    /// The MAC of a header of which everything but the MAC is written.
    #[inline]
    pub(super) fn of(&self, header: &[u8; HEADER_BYTES]) -> MessageMac {
        let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|index| header[at + index]));
        let mut hasher = self.common;
        hasher.write_u64(word(32));
        hasher.write_u64(word(40));
        hasher.write_u16(u16::from_be_bytes([header[0], header[1]]));
        hasher.finish().to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use wire::transfer::{AUTHENTICATED_BYTES, CONSTANT_BYTES};

    use super::*;

    fn macs(key: u8) -> KeyedMacs {
        KeyedMacs::new(AuthKey([key; 16]))
    }

    #[test]
    fn a_mac_depends_on_everything_that_it_covers() {
        let of = |key, to, psn, header: &[u8], payload: &[u8]| {
            macs(key).message(QpNumber(to), Psn::new(psn), header, payload)
        };
        let usual = of(7, 5, 9, &[1; 32], &[2; 40]);
        assert_eq!(usual, of(7, 5, 9, &[1; 32], &[2; 40]));
        let (mut header, mut payload) = ([1; 32], [2; 40]);
        (header[31], payload[0]) = (0, 3);
        let others = [
            of(7, 6, 9, &[1; 32], &[2; 40]),
            of(7, 5, 10, &[1; 32], &[2; 40]),
            of(7, 5, 9, &header, &[2; 40]),
            of(7, 5, 9, &[1; 32], &payload),
            of(7, 5, 9, &[1; 32], &[2; 39]),
            of(8, 5, 9, &[1; 32], &[2; 40]),
        ];
        assert!(others.iter().all(|other| *other != usual));
    }

    #[test]
    fn a_transfer_mac_depends_on_every_byte_of_the_header() {
        let of =
            |key: u8, header: &[u8; HEADER_BYTES]| TransferMac::new(&macs(key), &header[CONSTANT_BYTES]).of(header);
        let usual = of(7, &[1; HEADER_BYTES]);
        for byte in 0..AUTHENTICATED_BYTES {
            let mut changed = [1; HEADER_BYTES];
            changed[byte] ^= 0x80;
            assert_ne!(of(7, &changed), usual, "byte {byte}");
        }
        assert_ne!(of(8, &[1; HEADER_BYTES]), usual);
    }

    #[test]
    fn a_payload_mac_depends_on_key_bytes_and_length() {
        let mac = |key: u8, bytes: &[u8]| {
            let (macs, mut copy) = (macs(key), vec![0; bytes.len()]);
            assert_eq!(macs.copy_payload(bytes, &mut copy), macs.payload(bytes));
            assert_eq!(copy, bytes);
            macs.payload(bytes)
        };
        let usual = mac(7, &[1; 100]);
        for byte in 0..100 {
            let mut changed = [1; 100];
            changed[byte] ^= 0x40;
            assert_ne!(mac(7, &changed), usual, "byte {byte}");
        }
        // A first word of ones cancels the register's first value: for every polynomial the hash is that of the shorter message.
        let (mut longer, shorter) = ([0xff; 24], [5; 16]);
        longer[8..].copy_from_slice(&shorter.map(|byte| byte ^ 0xff));
        longer[16..].copy_from_slice(&shorter[8..]);
        let hash = macs(7).hash;
        assert_eq!(hash.value(&longer), hash.value(&shorter));
        assert_ne!(mac(7, &longer), mac(7, &shorter));
        assert_ne!(mac(8, &[1; 100]), usual);
        assert_ne!(mac(7, &[]), mac(7, &[0]));
    }
}
