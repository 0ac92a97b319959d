//! Authentication: each group has a key, and every message carries a MAC that only holders of the key can compute.
//!
//! The MAC covers the queue pair and packet number and the message's header, which holds the end-to-end checksum of the
//! payload. It rejects foreign, stale and forged messages. It encrypts nothing, and it does not stop an attacker who can
//! modify packets in transit and make the payload's CRC-32C fit.

use std::hash::Hasher as _;

use manager::AuthKey;
use siphasher::sip::{SipHasher13, SipHasher24};
use units::{Psn, QpNumber};
use wire::transfer::HEADER_BYTES;

/// The MAC of a message.
pub(super) type MessageMac = [u8; MAC_BYTES];
/// Its length.
pub(super) const MAC_BYTES: usize = 8;

/// The MAC of a message to a queue pair under a packet number.
pub(super) fn message_mac(key: &AuthKey, to: QpNumber, psn: Psn, header: &[u8]) -> MessageMac {
    let mut hasher = SipHasher24::new_with_key(&key.0);
    hasher.write_u64(u64::from(to.0) << 32 | u64::from(psn.get()));
    hasher.write(header);
    hasher.finish().to_be_bytes()
}

/// The MACs of the packets of one transfer: what they have in common is hashed once. With SipHash-1-3, because there are hundreds of
/// packets per megabyte, and each lives for milliseconds.
#[derive(Clone)]
pub(super) struct TransferMac {
    common: SipHasher13,
}

impl TransferMac {
    /// For packets whose headers have these bytes in common.
    pub(super) fn new(key: &AuthKey, constant: &[u8]) -> Self {
        let mut common = SipHasher13::new_with_key(&key.0);
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

    #[test]
    fn a_mac_depends_on_everything_that_it_covers() {
        let key = AuthKey([7; 16]);
        let usual = message_mac(&key, QpNumber(5), Psn::new(9), &[1; 32]);
        assert_eq!(usual, message_mac(&key, QpNumber(5), Psn::new(9), &[1; 32]));
        let mut changed = [1; 32];
        changed[31] ^= 1;
        let others = [
            message_mac(&key, QpNumber(6), Psn::new(9), &[1; 32]),
            message_mac(&key, QpNumber(5), Psn::new(10), &[1; 32]),
            message_mac(&key, QpNumber(5), Psn::new(9), &changed),
            message_mac(&AuthKey([8; 16]), QpNumber(5), Psn::new(9), &[1; 32]),
        ];
        assert!(others.iter().all(|other| *other != usual));
    }

    #[test]
    fn a_transfer_mac_depends_on_every_byte_of_the_header() {
        let of = |key: u8, header: &[u8; HEADER_BYTES]| {
            TransferMac::new(&AuthKey([key; 16]), &header[CONSTANT_BYTES]).of(header)
        };
        let usual = of(7, &[1; HEADER_BYTES]);
        for byte in 0..AUTHENTICATED_BYTES {
            let mut changed = [1; HEADER_BYTES];
            changed[byte] ^= 0x80;
            assert_ne!(of(7, &changed), usual, "byte {byte}");
        }
        assert_ne!(of(8, &[1; HEADER_BYTES]), usual);
    }
}
