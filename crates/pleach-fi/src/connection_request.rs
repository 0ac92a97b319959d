//! How two endpoints agree on queue pairs (P-119, P-120): a request and its answer, in datagrams that may be lost or forged.
//!
//! ```text
//!  0  MAC of the rest   16  kind   17  rails, 4 bits | protection, 4 bits   18  rank   20  link bytes   24  attempt   32  PSN   36  queue pairs (4 each)
//! 52  the sender's address, without its secret   116 the receiver's identity
//! ```
//! The key of the MAC is the secret of the endpoint that is asked: who asks has it from the launcher.
//!
//! Requests to share memory, and their answers, have no rails. The memory's number is that of the attempt.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use units::{Psn, QpNumber};

use crate::connection_security::SecurityOffer;
use crate::endpoint_address::{ADDRESS_BYTES, EndpointAddress, EndpointSecret};

/// Rails between two endpoints.
pub(crate) const MAX_RAILS: usize = 4;
/// Bytes of a request or an answer.
const REQUEST_BYTES: usize = ADDRESS_AT + ADDRESS_BYTES + 8;
const MAC_BYTES: usize = 16;
/// The shortest and the longest packets that a link may be said to carry.
const MIN_LINK_BYTES: u32 = 576;
const MAX_LINK_BYTES: u32 = 65_536;
const NO_RANK: u16 = u16::MAX;
const ADDRESS_AT: usize = 52;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestKind {
    Connect,
    Accept,
    /// The sender has created memory for both.
    ShareMemory,
    /// The sender has joined it.
    MemoryShared,
    /// The sender cannot join it.
    MemoryRefused,
}

impl RequestKind {
    const ALL: [Self; 5] = [Self::Connect, Self::Accept, Self::ShareMemory, Self::MemoryShared, Self::MemoryRefused];

    fn has_rails(self) -> bool {
        matches!(self, Self::Connect | Self::Accept)
    }

    /// Whether it answers a request of the receiver.
    pub(crate) fn is_answer(self) -> bool {
        !matches!(self, Self::Connect | Self::ShareMemory)
    }
}

/// A request to connect, or its answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ConnectionRequest {
    pub(crate) kind: RequestKind,
    /// Chosen by who asks; the answer repeats it.
    pub(crate) attempt: u64,
    /// The sender's queue pairs, one for each rail.
    pub(crate) pairs: Vec<QpNumber>,
    /// The sender's first packet number.
    pub(crate) psn: Psn,
    /// The longest packets that the sender's links carry.
    pub(crate) link_bytes: u32,
    /// How the sender protects packets.
    pub(crate) security: SecurityOffer,
    pub(crate) sender: EndpointAddress,
    /// The sender's rank, for reports.
    pub(crate) rank: Option<u16>,
    /// The identity of the endpoint that this is for.
    pub(crate) receiver: u64,
}

impl ConnectionRequest {
    pub(crate) fn to_bytes(&self, key: &EndpointSecret) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[16] = self.kind as u8 + 1;
        let rails = self.pairs.len().min(MAX_RAILS);
        bytes[17] = rails as u8 | self.security.to_bits() << 4;
        bytes[18..20].copy_from_slice(&self.rank.unwrap_or(NO_RANK).to_le_bytes());
        bytes[20..24].copy_from_slice(&self.link_bytes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.attempt.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.psn.get().to_le_bytes());
        for (place, pair) in bytes[36..ADDRESS_AT].chunks_exact_mut(4).zip(&self.pairs) {
            place.copy_from_slice(&pair.0.to_le_bytes());
        }
        bytes[ADDRESS_AT..ADDRESS_AT + ADDRESS_BYTES].copy_from_slice(&self.sender.public().to_bytes());
        bytes[ADDRESS_AT + ADDRESS_BYTES..].copy_from_slice(&self.receiver.to_le_bytes());
        let mac = mac_of(key, &bytes[MAC_BYTES..]);
        bytes[..MAC_BYTES].copy_from_slice(&mac);
        bytes
    }

    /// Who claims to send this; to find the key with which to verify it.
    pub(crate) fn claimed_sender(bytes: &[u8]) -> Option<u64> {
        let identity = bytes.get(ADDRESS_AT + 8..ADDRESS_AT + 16)?;
        Some(u64::from_le_bytes(identity.try_into().expect("eight bytes")))
    }

    /// Verifies and parses; none if the key or the layout is wrong.
    pub(crate) fn parse(bytes: &[u8], key: &EndpointSecret) -> Option<Self> {
        let bytes: &[u8; REQUEST_BYTES] = bytes.try_into().ok()?;
        // Each bit of the difference counts, so the time tells nothing about the MAC.
        let expected = mac_of(key, &bytes[MAC_BYTES..]);
        let difference = expected.iter().zip(&bytes[..MAC_BYTES]).fold(0, |all, (own, sent)| all | (own ^ sent));
        if difference != 0 {
            return None;
        }
        let kind = *RequestKind::ALL.get(usize::from(bytes[16]).checked_sub(1)?)?;
        let four = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let rails = usize::from(bytes[17] & 0xf);
        if (rails > 0) != kind.has_rails() || rails > MAX_RAILS {
            return None;
        }
        Some(Self {
            kind,
            attempt: word(24),
            pairs: (0..rails).map(|rail| QpNumber(four(36 + 4 * rail) & 0xff_ffff)).collect(),
            psn: Psn::new(four(32) & 0xff_ffff),
            link_bytes: four(20).clamp(MIN_LINK_BYTES, MAX_LINK_BYTES),
            security: SecurityOffer::from_bits(bytes[17] >> 4)?,
            sender: EndpointAddress::parse(&bytes[ADDRESS_AT..ADDRESS_AT + ADDRESS_BYTES])?,
            rank: Some(u16::from_le_bytes([bytes[18], bytes[19]])).filter(|rank| *rank != NO_RANK),
            receiver: word(ADDRESS_AT + ADDRESS_BYTES),
        })
    }
}

fn mac_of(key: &EndpointSecret, bytes: &[u8]) -> [u8; MAC_BYTES] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
    mac.update(bytes);
    let whole = mac.finalize().into_bytes();
    whole[..MAC_BYTES].try_into().expect("a prefix")
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint_address::EndpointPath;

    fn request() -> ConnectionRequest {
        let path = EndpointPath { address: "10.0.0.1:77".parse().expect("an address"), prefix: 16 };
        let sender = EndpointAddress {
            identity: 9,
            datagrams: QpNumber(3),
            secret: [1; 16],
            host: None,
            is_checked: true,
            paths: vec![path],
        };
        ConnectionRequest {
            kind: RequestKind::Connect,
            attempt: 99,
            pairs: vec![QpNumber(5), QpNumber(6)],
            psn: Psn::new(1234),
            link_bytes: 1500,
            security: SecurityOffer { mode: transport::SecurityMode::Encrypt, is_set: true },
            sender,
            rank: Some(7),
            receiver: 4,
        }
    }

    #[test]
    fn a_request_reads_back_without_the_secret_and_every_flipped_bit_is_detected() {
        let key = [3; 16];
        let mut bytes = request().to_bytes(&key);
        let read = ConnectionRequest::parse(&bytes, &key).expect("valid");
        assert_eq!(ConnectionRequest::claimed_sender(&bytes), Some(9));
        assert_eq!(read, ConnectionRequest { sender: request().sender.public(), ..request() });
        assert_eq!(ConnectionRequest::parse(&bytes, &[4; 16]), None, "another job's key");
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(ConnectionRequest::parse(&bytes, &key), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(ConnectionRequest::parse(&bytes[1..], &key), None);
    }

    #[test]
    fn requests_to_share_memory_have_no_rails_and_others_have() {
        for kind in RequestKind::ALL {
            for pairs in [vec![], vec![QpNumber(5)]] {
                let fits = pairs.is_empty() != kind.has_rails();
                let bytes = ConnectionRequest { kind, pairs, ..request() }.to_bytes(&[3; 16]);
                let read = ConnectionRequest::parse(&bytes, &[3; 16]).map(|request| request.kind);
                assert_eq!(read, fits.then_some(kind));
            }
        }
    }

    #[test]
    fn packet_lengths_that_no_link_has_are_clamped() {
        for (sent, read) in [(0, 576), (575, 576), (1_500, 1_500), (65_536, 65_536), (u32::MAX, 65_536)] {
            let bytes = ConnectionRequest { link_bytes: sent, ..request() }.to_bytes(&[3; 16]);
            assert_eq!(ConnectionRequest::parse(&bytes, &[3; 16]).map(|request| request.link_bytes), Some(read));
        }
    }
}
