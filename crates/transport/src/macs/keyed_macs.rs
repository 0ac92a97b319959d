//! Authentication: each group has a key, and every message and every packet of a transfer carries MACs that only holders of the key can
//! compute.
//!
//! The MAC of a message covers the edge and its direction, the packet number, the message's header and its payload; that of an acknowledgement, NAK or
//! probe its headers; the MACs of a transfer cover its packets whole. They reject foreign, stale, forged and changed packets. Payloads go through a
//! hash with a secret ([`SecretHash`]), which is fast and finds accidental damage as well, and its value through SipHash, together with the length.
//! What must be secret is encrypted under the MAC ([`PayloadCipher`]). Rules: P-104, P-125.

use std::hash::Hasher as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use checksum::SecretHash;
use manager::AuthKey;
use siphasher::sip::SipHasher24;
use units::QpNumber;
use wire::Bth;
use wire::transfer::HEADER_BYTES;

use super::payload_cipher::PayloadCipher;
use super::sip_words::SipWords;

/// The MAC of a message.
pub(crate) type MessageMac = [u8; MAC_BYTES];
/// Its length.
pub(crate) const MAC_BYTES: usize = 8;

/// Which end of an edge this process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EdgeSide {
    /// The lower end of an edge of a tree.
    Child,
    /// The upper end of an edge of a tree.
    Parent,
    /// An end of an edge between two leaders, whose numbers at both ends differ.
    Peer,
}

impl EdgeSide {
    fn other(self) -> Self {
        match self {
            Self::Child => Self::Parent,
            Self::Parent => Self::Child,
            Self::Peer => Self::Peer,
        }
    }
}

/// From which end of which edge a packet comes. All edges of a group share a key; with the direction in every MAC, a packet is of no use at
/// another receiver, nor back at its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EdgeDirection(u64);

impl EdgeDirection {
    /// Of multicasts, which go to all.
    pub(crate) const MULTICAST: Self = Self(u64::MAX);

    /// Of what this process sends over its edge `number`, which has the number `remote` at the other end.
    pub(crate) fn outgoing(number: QpNumber, remote: QpNumber, end: EdgeSide) -> Self {
        Self(u64::from(number.0) | u64::from(remote.0) << 24 | (end as u64) << 48)
    }

    /// Of what arrives there.
    pub(crate) fn incoming(number: QpNumber, remote: QpNumber, end: EdgeSide) -> Self {
        Self::outgoing(remote, number, end.other())
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// What computes MACs under one key.
#[derive(Debug)]
pub struct KeyedMacs {
    key: AuthKey,
    hash: SecretHash,
    /// Of payloads of transfers: SipHash-1-3, because there are hundreds of packets per megabyte, and each lives for milliseconds.
    payload_function: SipWords,
    cipher: OnceLock<PayloadCipher>,
    encrypts: AtomicBool,
}

impl KeyedMacs {
    /// Takes about a tenth of a millisecond.
    pub fn new(key: AuthKey) -> Self {
        let mut count = 0_u64;
        let mut draw = || {
            let mut hasher = SipHasher24::new_with_key(&key.0);
            hasher.write(b"pleach payload hash");
            hasher.write_u64(count);
            count += 1;
            hasher.finish()
        };
        let payload_function = SipWords::new(draw(), draw());
        let hash = SecretHash::new(draw);
        Self { key, hash, payload_function, cipher: OnceLock::new(), encrypts: AtomicBool::new(false) }
    }

    /// From now on payloads are sent encrypted, and accepted no other way.
    pub(crate) fn encrypt(&self) {
        self.encrypts.store(true, Ordering::Relaxed);
    }

    /// Whether payloads are encrypted.
    pub(crate) fn encrypts(&self) -> bool {
        self.encrypts.load(Ordering::Relaxed)
    }

    /// What encrypts them.
    pub(crate) fn cipher(&self) -> &PayloadCipher {
        self.cipher.get_or_init(|| PayloadCipher::new(&self.key))
    }

    pub(crate) fn key(&self) -> &AuthKey {
        &self.key
    }

    /// The MAC of a message in a packet with this base header.
    pub(crate) fn message(&self, direction: EdgeDirection, bth: &Bth, header: &[u8], payload: &[u8]) -> MessageMac {
        let mut hasher = SipHasher24::new_with_key(&self.key.0);
        message_name(direction, bth).into_iter().for_each(|word| hasher.write_u64(word));
        hasher.write(header);
        with_length(self.hash.value(payload), payload.len()).into_iter().for_each(|word| hasher.write_u64(word));
        hasher.finish().to_be_bytes()
    }

    /// The MAC of a packet of a queue pair, the `counter`-th that its sender sends.
    pub(crate) fn packet(
        &self,
        direction: EdgeDirection,
        counter: u64,
        headers: &[u8],
        payload: [&[u8]; 2],
    ) -> MessageMac {
        let mut hasher = SipHasher24::new_with_key(&self.key.0);
        hasher.write_u64(direction.0);
        hasher.write_u64(counter);
        hasher.write(headers);
        let length = payload[0].len() + payload[1].len();
        with_length(self.hash.value_of_parts(payload), length).into_iter().for_each(|word| hasher.write_u64(word));
        hasher.finish().to_be_bytes()
    }

    /// The MAC of the headers of an acknowledgement, a NAK or a probe.
    pub(crate) fn control(&self, direction: EdgeDirection, headers: &[u8]) -> MessageMac {
        let mut hasher = SipHasher24::new_with_key(&self.key.0);
        hasher.write_u64(direction.0);
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
    fn finish_payload(&self, hash: [u64; 2], length: usize) -> u64 {
        let [low, high] = with_length(hash, length);
        self.payload_function.word(low).word(high).finish(0, 0)
    }
}

/// The hash of a message and its length in two words: the hashes of two messages, whatever their lengths, differ by a given number only by chance.
#[inline]
fn with_length([low, high]: [u64; 2], length: usize) -> [u64; 2] {
    [low ^ length as u64, high]
}

/// What names a message within its group, beside its header.
pub(crate) fn message_name(direction: EdgeDirection, bth: &Bth) -> [u64; 2] {
    let bits = u64::from(bth.acknowledge) << 32 | u64::from(bth.migrated) << 33;
    [direction.0, bits | u64::from(bth.psn.get())]
}

/// The MACs of the headers of one transfer: what they have in common is hashed once. With SipHash-1-3, like the payloads.
#[derive(Clone)]
pub(crate) struct TransferMac {
    common: SipWords,
}

impl TransferMac {
    /// For packets whose headers have these bytes in common.
    pub(crate) fn new(macs: &KeyedMacs, direction: EdgeDirection, constant: &[u8]) -> Self {
        let mut common = SipWords::with_key(&macs.key.0).word(direction.0);
        // A whole number of words, so that the rest is hashed word by word.
        for bytes in constant.chunks(8) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            common = common.word(u64::from_le_bytes(word));
        }
        Self { common }
    }

    /// The MAC of a header of which everything but the MAC is written.
    #[inline]
    pub(crate) fn of(&self, header: &[u8; HEADER_BYTES]) -> MessageMac {
        let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|index| header[at + index]));
        let first = u64::from(u16::from_be_bytes([header[0], header[1]]));
        self.common.word(word(32)).word(word(40)).finish(first, 2).to_be_bytes()
    }

    /// What hides the MAC of an encrypted payload: it depends on the payload alone, and equal payloads shall not look alike.
    pub(crate) fn mask(&self, header: &[u8; HEADER_BYTES]) -> u64 {
        let word = u64::from_le_bytes(std::array::from_fn(|index| header[32 + index]));
        // Shorter than what the MAC covers, so that neither is taken for the other.
        self.common.word(word).finish(u64::from(u16::from_le_bytes([header[0], header[1]])), 2)
    }
}

#[cfg(test)]
mod tests {
    use units::Psn;
    use wire::Opcode;
    use wire::transfer::{AUTHENTICATED_BYTES, CONSTANT_BYTES};

    use super::*;

    fn macs(key: u8) -> KeyedMacs {
        KeyedMacs::new(AuthKey([key; 16]))
    }

    fn up(number: u32) -> EdgeDirection {
        EdgeDirection::outgoing(QpNumber(number), QpNumber(number), EdgeSide::Child)
    }

    #[test]
    fn a_mac_depends_on_everything_that_it_covers() {
        let of = |key, direction, bth: &Bth, header: &[u8], payload: &[u8]| {
            macs(key).message(direction, bth, header, payload)
        };
        let bth = Bth::new(Opcode::SendOnly, QpNumber(5), Psn::new(9));
        let usual = of(7, up(5), &bth, &[1; 32], &[2; 40]);
        assert_eq!(usual, of(7, up(5), &bth, &[1; 32], &[2; 40]));
        let (mut header, mut payload) = ([1; 32], [2; 40]);
        (header[31], payload[0]) = (0, 3);
        let others = [
            of(7, up(6), &bth, &[1; 32], &[2; 40]),
            of(7, up(5), &Bth { psn: Psn::new(10), ..bth }, &[1; 32], &[2; 40]),
            of(7, up(5), &Bth { acknowledge: !bth.acknowledge, ..bth }, &[1; 32], &[2; 40]),
            of(7, up(5), &Bth { migrated: !bth.migrated, ..bth }, &[1; 32], &[2; 40]),
            of(7, up(5), &bth, &header, &[2; 40]),
            of(7, up(5), &bth, &[1; 32], &payload),
            of(7, up(5), &bth, &[1; 32], &[2; 39]),
            of(8, up(5), &bth, &[1; 32], &[2; 40]),
        ];
        assert!(others.iter().all(|other| *other != usual));
    }

    /// Regression: in a mesh, the packets of one sender to all receivers had the same number in their header, and in a tree an edge has one
    /// number at both ends; a packet that an attacker sent on to another receiver, or back, was taken for one of its own.
    #[test]
    fn a_packet_is_authentic_at_one_receiver_only() {
        let mesh =
            |from: u32, to: u32| EdgeDirection::outgoing(QpNumber(100 + to), QpNumber(100 + from), EdgeSide::Peer);
        let at =
            |me: u32, from: u32| EdgeDirection::incoming(QpNumber(100 + from), QpNumber(100 + me), EdgeSide::Peer);
        assert_eq!(mesh(1, 2), at(2, 1));
        for (me, from) in [(3, 1), (1, 2), (2, 3), (2, 2)] {
            assert_ne!(mesh(1, 2), at(me, from), "{from} to {me}");
        }
        let number = QpNumber(7);
        let at_parent = EdgeDirection::incoming(number, number, EdgeSide::Parent);
        let at_child = EdgeDirection::incoming(number, number, EdgeSide::Child);
        assert_eq!(up(7), at_parent);
        assert_ne!(up(7), at_child);
        assert!([up(7), at_child, mesh(1, 2)].iter().all(|direction| *direction != EdgeDirection::MULTICAST));
    }

    #[test]
    fn a_transfer_mac_depends_on_every_byte_of_the_header() {
        let of = |key: u8, header: &[u8; HEADER_BYTES]| {
            TransferMac::new(&macs(key), up(5), &header[CONSTANT_BYTES]).of(header)
        };
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
        // What is missing in the last row of a message counts as zeros.
        let hash = macs(7).hash;
        assert_eq!(hash.value(&[5; 16]), hash.value(&[[5; 16], [0; 16]].concat()));
        assert_ne!(mac(7, &[5; 16]), mac(7, &[[5; 16], [0; 16]].concat()));
        assert_ne!(mac(8, &[1; 100]), usual);
        assert_ne!(mac(7, &[]), mac(7, &[0]));
    }
}
