//! Authentication: each group has a key, and every message carries a MAC that only holders of the key can compute.
//!
//! The MAC covers the queue pair and packet number and the message's header, which holds the end-to-end checksum of the
//! payload. It rejects foreign, stale and forged messages. It encrypts nothing, and it does not stop an attacker who can
//! modify packets in transit and make the payload's CRC-32C fit.

use std::hash::Hasher as _;

use manager::AuthKey;
use siphasher::sip::SipHasher24;
use units::{Psn, QpNumber};

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

#[cfg(test)]
mod tests {
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
}
