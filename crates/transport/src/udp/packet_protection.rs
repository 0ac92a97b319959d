//! MACs, and if asked encryption, of the packets of a queue pair.
//!
//! In: a packet's headers and payload. Out: the packet of Pleach's own that carries them, and back. Rules: P-123, P-124, P-125.
//!
//! ```text
//! 0        base header with opcode 0xc5
//! 12..20   how many packets the sender sent before on this queue pair, also retransmissions
//! 20..28   MAC of the counter, and of what follows, by SipHash and a hash with a secret
//! 28       the headers and the payload of the packet, perhaps encrypted
//! ```
//! Acknowledgements, NAKs and probes travel like that too: only who has the key can say anything on the queue pair.

use std::sync::Arc;

use manager::AuthKey;
use protocol::ReplayWindow;
use protocol::connection::path::MigrationRole;
use units::{Psn, QpNumber};
use wire::{Bth, Opcode, PacketHeaders};

use super::posted_buffers::SendSlice;
use crate::macs::{EdgeDirection, EdgeSide, KeyedMacs, MAC_BYTES};

/// The counter and the MAC before the headers.
const TRAILER_BYTES: usize = COUNTER_BYTES + MAC_BYTES;
const COUNTER_BYTES: usize = 8;
/// The longest headers of a queue pair's packet: base, remote address and immediate data.
const MAX_INNER_HEADER_BYTES: usize = 32;
/// What protection adds to a packet: a second base header, counter and MAC.
pub(super) const PROTECTION_BYTES: u32 = (Bth::SIZE + TRAILER_BYTES) as u32;

/// Whether the packets of a queue pair are protected, and how. Both ends must agree.
#[derive(Clone, Debug, Default)]
pub enum PacketSecurity {
    /// Not at all: whoever can send packets to this host can forge them.
    #[default]
    Off,
    /// By MACs under a key that only the two ends have.
    Authenticate(Arc<KeyedMacs>),
    /// And encrypted under that key.
    Encrypt(Arc<KeyedMacs>),
}

impl PacketSecurity {
    /// MACs under this key. Takes about a tenth of a millisecond; the queue pairs to one peer can share it.
    pub fn authenticate(key: AuthKey) -> Self {
        Self::Authenticate(Arc::new(KeyedMacs::new(key)))
    }

    /// MACs and encryption under this key.
    pub fn encrypt(key: AuthKey) -> Self {
        Self::Encrypt(Arc::new(KeyedMacs::new(key)))
    }
}

/// Why a packet is not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProtectionError {
    /// It is too short, or its headers do not parse although its MAC is right.
    Malformed,
    /// It has no MAC.
    Unprotected,
    /// Its MAC is wrong: it is damaged, or somebody forged it.
    Forged,
    /// It came before, or is too old to know.
    Replayed,
}

/// Protects the packets of one queue pair.
pub(super) struct PacketProtection {
    macs: Arc<KeyedMacs>,
    is_encrypting: bool,
    outgoing: EdgeDirection,
    incoming: EdgeDirection,
    sent: u64,
    window: ReplayWindow,
    /// What a packet begins with: counter and MAC, and the headers if they are not in `sealed`.
    prefix: [u8; TRAILER_BYTES + MAX_INNER_HEADER_BYTES],
    /// The encrypted headers and payload of the last packet.
    sealed: Vec<u8>,
}

impl PacketProtection {
    /// Of a queue pair with this number at this end; none if packets are not protected.
    pub(super) fn new(
        security: &PacketSecurity,
        (number, remote): (QpNumber, QpNumber),
        role: MigrationRole,
    ) -> Option<Self> {
        let (macs, is_encrypting) = match security {
            PacketSecurity::Off => return None,
            PacketSecurity::Authenticate(macs) => (macs, false),
            PacketSecurity::Encrypt(macs) => (macs, true),
        };
        // Both ends may have the same number. Their roles differ, so that a packet sent back is not authentic.
        let end = match role {
            MigrationRole::Leader => EdgeSide::Parent,
            MigrationRole::Follower => EdgeSide::Child,
        };
        Some(Self {
            macs: Arc::clone(macs),
            is_encrypting,
            outgoing: EdgeDirection::outgoing(number, remote, end),
            incoming: EdgeDirection::incoming(number, remote, end),
            sent: 0,
            window: ReplayWindow::default(),
            prefix: [0; TRAILER_BYTES + MAX_INNER_HEADER_BYTES],
            sealed: Vec::new(),
        })
    }

    /// The packet that carries this one, with the next counter.
    pub(super) fn seal<'s>(
        &'s mut self,
        headers: &PacketHeaders,
        payload: SendSlice<'s>,
    ) -> (PacketHeaders, SendSlice<'s>) {
        let counter = self.sent;
        self.sent += 1;
        let bth = &headers.bth;
        let mut outer = Bth::new(Opcode::Protected, bth.destination, Psn::new(counter as u32 & 0xff_ffff));
        outer.coverage = bth.coverage;
        let end = TRAILER_BYTES + headers.emit(&mut self.prefix[TRAILER_BYTES..]);
        let [_, head, body] = payload.slices();
        let mac = self.macs.packet(self.outgoing, counter, &self.prefix[TRAILER_BYTES..end], [head, body]);
        self.prefix[..COUNTER_BYTES].copy_from_slice(&counter.to_be_bytes());
        self.prefix[COUNTER_BYTES..TRAILER_BYTES].copy_from_slice(&mac);
        if !self.is_encrypting {
            return (outer.into(), SendSlice { prefix: &self.prefix[..end], ..payload });
        }
        self.sealed.clear();
        [&self.prefix[TRAILER_BYTES..end], head, body]
            .into_iter()
            .for_each(|part| self.sealed.extend_from_slice(part));
        let cipher = self.macs.cipher();
        cipher.apply(&cipher.block([self.outgoing.number(), counter], &[], mac), &mut self.sealed);
        (outer.into(), SendSlice { prefix: &self.prefix[..TRAILER_BYTES], head: &self.sealed, body: None })
    }

    /// As [`Self::open`], for the payload of a packet with these headers; returns the length of what it carries.
    pub(super) fn open_carried(
        &mut self,
        outer: &PacketHeaders,
        carried: &mut [u8],
    ) -> Result<(PacketHeaders, usize), ProtectionError> {
        if outer.bth.opcode != Opcode::Protected {
            return Err(ProtectionError::Unprotected);
        }
        let (headers, payload) = self.open(carried)?;
        Ok((headers, payload.len()))
    }

    /// The headers and the payload that a packet carries, if it is authentic and new. Decrypts in place.
    pub(super) fn open<'p>(&mut self, packet: &'p mut [u8]) -> Result<(PacketHeaders, &'p [u8]), ProtectionError> {
        let (trailer, inner) = packet.split_first_chunk_mut::<TRAILER_BYTES>().ok_or(ProtectionError::Malformed)?;
        let counter = u64::from_be_bytes(trailer[..COUNTER_BYTES].try_into().expect("eight bytes"));
        let mac = trailer[COUNTER_BYTES..].try_into().expect("eight bytes");
        if self.is_encrypting {
            let cipher = self.macs.cipher();
            cipher.apply(&cipher.block([self.incoming.number(), counter], &[], mac), inner);
        }
        // Where the headers end follows from their opcode. A wrong one only moves the border, and the MAC does not fit.
        let opcode = Bth::parse(inner).map_err(|_| ProtectionError::Forged)?.opcode;
        let size = Bth::SIZE + opcode.extended_headers().size();
        let (headers, payload) = inner.split_at_checked(size).ok_or(ProtectionError::Forged)?;
        if self.macs.packet(self.incoming, counter, headers, [payload, &[]]) != mac {
            return Err(ProtectionError::Forged);
        }
        if !self.window.take(counter) {
            return Err(ProtectionError::Replayed);
        }
        let headers = PacketHeaders::parse(headers).map_err(|_| ProtectionError::Malformed)?;
        Ok((headers, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: (QpNumber, QpNumber) = (QpNumber(17), QpNumber(17));

    fn ends(security: &PacketSecurity) -> [PacketProtection; 2] {
        let end = |role| PacketProtection::new(security, HERE, role).expect("protected");
        [end(MigrationRole::Leader), end(MigrationRole::Follower)]
    }

    fn headers() -> PacketHeaders {
        Bth::new(Opcode::SendOnly, QpNumber(17), Psn::new(5)).into()
    }

    fn sealed(end: &mut PacketProtection, head: &[u8]) -> Vec<u8> {
        let (outer, slice) = end.seal(&headers(), head.into());
        assert_eq!(outer.bth.opcode, Opcode::Protected);
        slice.slices().concat()
    }

    fn both() -> [PacketSecurity; 2] {
        [PacketSecurity::authenticate(AuthKey([1; 16])), PacketSecurity::encrypt(AuthKey([1; 16]))]
    }

    #[test]
    fn a_packet_arrives_once_and_every_change_of_it_is_found() {
        for security in both() {
            let [mut near, mut far] = ends(&security);
            let packet = sealed(&mut near, b"the payload");
            for bit in 0..packet.len() * 8 {
                let mut changed = packet.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(far.open(&mut changed), Err(ProtectionError::Forged), "bit {bit}");
            }
            for length in 0..packet.len() {
                assert!(far.open(&mut packet[..length].to_vec()).is_err(), "cut to {length}");
            }
            assert_eq!(far.open(&mut packet.clone()), Ok((headers(), &b"the payload"[..])));
            assert_eq!(far.open(&mut packet.clone()), Err(ProtectionError::Replayed));
        }
    }

    #[test]
    fn a_packet_is_of_no_use_elsewhere() {
        for security in both() {
            let [mut near, _] = ends(&security);
            let packet = sealed(&mut near, b"to one end");
            assert_eq!(near.open(&mut packet.clone()), Err(ProtectionError::Forged), "sent back");
            let other = (QpNumber(18), QpNumber(17));
            let mut elsewhere = PacketProtection::new(&security, other, MigrationRole::Follower).expect("protected");
            assert_eq!(elsewhere.open(&mut packet.clone()), Err(ProtectionError::Forged), "another queue pair");
            let stranger = PacketSecurity::authenticate(AuthKey([2; 16]));
            let [_, mut foreign] = ends(&stranger);
            assert_eq!(foreign.open(&mut packet.clone()), Err(ProtectionError::Forged), "another key");
        }
    }

    #[test]
    fn an_encrypted_packet_shows_neither_payload_nor_equality() {
        let [mut near, mut far] = ends(&both()[1]);
        let secret = [0x5a; 300];
        let (first, second) = (sealed(&mut near, &secret), sealed(&mut near, &secret));
        assert!(first.windows(8).all(|window| window != [0x5a; 8]));
        let equal = first.iter().zip(&second).filter(|(one, other)| one == other).count();
        assert!(equal < 40, "{equal} of {} bytes are the same", first.len());
        for mut packet in [second, first] {
            assert_eq!(far.open(&mut packet), Ok((headers(), &secret[..])), "in any order");
        }
    }

    #[test]
    fn acknowledgements_are_protected_like_payload() {
        for security in both() {
            let [mut near, mut far] = ends(&security);
            let mut headers = PacketHeaders::from(Bth::new(Opcode::Probe, QpNumber(17), Psn::new(1)));
            headers.probe_token = Some(wire::ProbeToken(0x0102_0304_0506_0708));
            let mut packet = near.seal(&headers, SendSlice::default()).1.slices().concat();
            assert_eq!(far.open(&mut packet), Ok((headers, &[][..])));
        }
    }
}
