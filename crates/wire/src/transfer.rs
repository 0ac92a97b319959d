//! Packets of a transfer: parts of a message or a long vector, and their acknowledgements.
//!
//! In: a UDP datagram. Out: a header of 56 bytes, big-endian, and what follows it. The first byte is an opcode of the service that
//! InfiniBand leaves to manufacturers, so that no RoCEv2 peer or decoder takes these packets for its own; they carry no ICRC.
//!
//! ```text
//! 0        opcode: 0xe1 data, 0xe2 acknowledgement      1  zero, 3 bits | encrypted, 1 bit | probe, 3 bits | acknowledge now, 1 bit
//! 2..4     round                                        4..8    queue pair number of the receiver
//! 8..12    group                                        12..16  epoch
//! 16..20   operation                                    20..24  fingerprint of the operation
//! 24..28   bytes of the whole transfer                  28..32  the group's first operation that is unfinished at the sender
//! 32..36   data: offset of the payload                  acknowledgement: bytes received without a gap
//! 36..40   data: zero                                   acknowledgement: bytes that may be sent
//! 40..48   MAC of what follows the header               48..56  MAC of the bytes before
//! ```
//! The first MAC covers the payload from the sender's memory to the receiver's, and is its checksum as well; the second one covers the
//! first. A header is authentic before its payload is read. Bytes 2 to 32 are the same in all packets of a transfer, so that most of the
//! second MAC is computed once. An acknowledgement is followed by the ranges that are
//! missing, each as offset and length.
//!
//! An encrypted payload is encrypted after its MAC was computed, and the field of the MAC is masked.

use units::{Epoch, GroupId, OpId, QpNumber};

use crate::ParseError;
use crate::bytes::{array_at, prefix};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 56;
/// Bytes of the header that the MAC covers.
pub const AUTHENTICATED_BYTES: usize = 48;
/// The part of the header that is the same in all packets of a transfer.
pub const CONSTANT_BYTES: std::ops::Range<usize> = 2..32;
/// Missing ranges in one acknowledgement.
pub const MAX_MISSING_RANGES: usize = 16;

/// In byte 1: the payload is encrypted.
pub const ENCRYPTED_BIT: u8 = 0x10;

const DATA: u8 = 0xe1;
const ACKNOWLEDGEMENT: u8 = 0xe2;
const RANGE_BYTES: usize = 8;

/// Identifies a transfer between two processes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TransferName {
    /// The communicator.
    pub group: GroupId,
    /// Its stream of operations.
    pub epoch: Epoch,
    /// The operation.
    pub operation: OpId,
    /// The round of the operation's schedule.
    pub round: u16,
}

/// What a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransferPacketKind {
    /// A part of the vector follows.
    Data {
        /// Its offset within the transfer.
        offset: u32,
        /// The receiver acknowledges at once.
        acknowledge_now: bool,
        /// Counts the sender's timeouts, modulo 8.
        probe: u8,
    },
    /// Missing ranges follow.
    Acknowledgement {
        /// The receiver has everything before this offset.
        received: u32,
        /// The sender may send everything before this offset.
        limit: u32,
        /// The probe of the last packet.
        probe: u8,
    },
}

/// The header of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferHeader {
    /// The connection, as the receiver numbers it.
    pub destination: QpNumber,
    /// The transfer.
    pub name: TransferName,
    /// A digest of what all ranks of the operation must agree on.
    pub fingerprint: u32,
    /// Bytes of the whole transfer.
    pub length: u32,
    /// The sender of the packet has finished all earlier operations of the group: whatever they sent to it has arrived.
    pub unfinished: OpId,
    /// What the packet is.
    pub kind: TransferPacketKind,
    /// The MAC of what follows the header.
    pub payload_mac: u64,
}

/// True if a datagram belongs to a transfer.
pub fn is_transfer_packet(datagram: &[u8]) -> bool {
    matches!(datagram.first(), Some(&(DATA | ACKNOWLEDGEMENT)))
}

/// The connection that a datagram of a transfer names, before anything is verified.
pub fn destination_of(datagram: &[u8]) -> Option<QpNumber> {
    datagram.get(4..8).map(|number| QpNumber(u32::from_be_bytes(array_at(number, 0))))
}

/// Headers of the data packets of one transfer: written once, then only what differs is changed.
#[derive(Clone, Copy, Debug)]
pub struct DataHeaders {
    first: [u8; HEADER_BYTES],
    probe: u8,
}

impl DataHeaders {
    /// Of the transfer to which a data packet with this header belongs; none if it is another packet.
    pub fn new(header: &TransferHeader) -> Option<Self> {
        let TransferPacketKind::Data { probe, .. } = header.kind else { return None };
        let mut first = [0; HEADER_BYTES];
        header.emit(&mut first);
        Some(Self { first, probe })
    }

    /// Writes all but the MAC of one of them.
    #[inline]
    pub fn emit(&self, offset: u32, acknowledge_now: bool, payload_mac: u64, bytes: &mut [u8; HEADER_BYTES]) {
        *bytes = self.first;
        bytes[1] = flags_of(self.probe, acknowledge_now);
        bytes[32..36].copy_from_slice(&offset.to_be_bytes());
        bytes[40..AUTHENTICATED_BYTES].copy_from_slice(&payload_mac.to_be_bytes());
    }
}

#[inline]
fn flags_of(probe: u8, acknowledge_now: bool) -> u8 {
    (probe & 7) << 1 | u8::from(acknowledge_now)
}

impl TransferHeader {
    /// Writes all but the MAC.
    pub fn emit(&self, bytes: &mut [u8; HEADER_BYTES]) {
        let (opcode, acknowledge_now, probe, first, second) = match self.kind {
            TransferPacketKind::Data { offset, acknowledge_now, probe } => (DATA, acknowledge_now, probe, offset, 0),
            TransferPacketKind::Acknowledgement { received, limit, probe } => {
                (ACKNOWLEDGEMENT, false, probe, received, limit)
            }
        };
        (bytes[0], bytes[1]) = (opcode, flags_of(probe, acknowledge_now));
        bytes[2..4].copy_from_slice(&self.name.round.to_be_bytes());
        let words = [
            self.destination.0,
            self.name.group.0,
            self.name.epoch.0,
            self.name.operation.0,
            self.fingerprint,
            self.length,
            self.unfinished.0,
            first,
            second,
        ];
        for (place, word) in bytes[4..40].as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
        bytes[40..AUTHENTICATED_BYTES].copy_from_slice(&self.payload_mac.to_be_bytes());
    }

    /// Reads a header; returns it with the MAC and what follows. No MAC is verified.
    ///
    /// # Errors
    /// If the datagram is too short, or not of a transfer.
    pub fn parse(datagram: &[u8]) -> Result<(Self, [u8; 8], &[u8]), ParseError> {
        let header: &[u8; HEADER_BYTES] = prefix(datagram)?;
        let word = |at: usize| u32::from_be_bytes(array_at(header, at));
        let kind = TransferPacketKind::parse(header)?;
        let round = u16::from_be_bytes(array_at(header, 2));
        let name = TransferName { group: GroupId(word(8)), epoch: Epoch(word(12)), operation: OpId(word(16)), round };
        let (destination, payload_mac) = (QpNumber(word(4)), u64::from_be_bytes(array_at(header, 40)));
        let (fingerprint, length, unfinished) = (word(20), word(24), OpId(word(28)));
        let parsed = Self { destination, name, fingerprint, length, unfinished, kind, payload_mac };
        Ok((parsed, array_at(header, AUTHENTICATED_BYTES), &datagram[HEADER_BYTES..]))
    }

    /// Reads the header of another packet of this transfer: the caller has compared [`CONSTANT_BYTES`].
    ///
    /// # Errors
    /// If it is not a packet of a transfer.
    #[inline]
    pub fn parse_next(&self, header: &[u8; HEADER_BYTES]) -> Result<Self, ParseError> {
        let payload_mac = u64::from_be_bytes(array_at(header, 40));
        Ok(Self { kind: TransferPacketKind::parse(header)?, payload_mac, ..*self })
    }
}

impl TransferPacketKind {
    #[inline]
    fn parse(header: &[u8; HEADER_BYTES]) -> Result<Self, ParseError> {
        let word = |at: usize| u32::from_be_bytes(array_at(header, at));
        let (acknowledge_now, probe) = (header[1] & 1 != 0, header[1] >> 1 & 7);
        match header[0] {
            DATA => Ok(Self::Data { offset: word(32), acknowledge_now, probe }),
            ACKNOWLEDGEMENT => Ok(Self::Acknowledgement { received: word(32), limit: word(36), probe }),
            other => Err(ParseError::UnknownOpcode(other)),
        }
    }
}

/// Writes missing ranges, as many as fit one acknowledgement.
pub fn emit_missing(ranges: &[(u32, u32)], bytes: &mut Vec<u8>) {
    for (offset, length) in ranges.iter().take(MAX_MISSING_RANGES) {
        bytes.extend_from_slice(&offset.to_be_bytes());
        bytes.extend_from_slice(&length.to_be_bytes());
    }
}

/// Reads missing ranges as offset and length; ignores what exceeds one acknowledgement.
pub fn parse_missing(bytes: &[u8]) -> impl Iterator<Item = (u32, u32)> + '_ {
    let ranges = bytes.as_chunks::<RANGE_BYTES>().0.iter().take(MAX_MISSING_RANGES);
    ranges.map(|range| (u32::from_be_bytes(array_at(range, 0)), u32::from_be_bytes(array_at(range, 4))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: TransferPacketKind) -> TransferHeader {
        TransferHeader {
            destination: QpNumber(0x80_0003),
            name: TransferName { group: GroupId(9), epoch: Epoch(1), operation: OpId(0xffff_fffe), round: 0x1234 },
            fingerprint: 0xdead_beef,
            length: 1 << 30,
            unfinished: OpId(0xffff_fff0),
            kind,
            payload_mac: 0x0102_0304_0506_0708,
        }
    }

    #[test]
    fn headers_read_as_they_were_written() {
        for kind in [
            TransferPacketKind::Data { offset: 77, acknowledge_now: true, probe: 5 },
            TransferPacketKind::Data { offset: u32::MAX, acknowledge_now: false, probe: 0 },
            TransferPacketKind::Acknowledgement { received: 5, limit: 6, probe: 7 },
        ] {
            let mut bytes = [0; HEADER_BYTES];
            header(kind).emit(&mut bytes);
            assert!(is_transfer_packet(&bytes));
            let mut datagram = bytes.to_vec();
            datagram.extend_from_slice(b"body");
            let (read, mac, body) = TransferHeader::parse(&datagram).expect("a header");
            assert_eq!((read, mac, body), (header(kind), [0; 8], &b"body"[..]));
            let other = TransferPacketKind::Data { offset: 1, acknowledge_now: false, probe: 2 };
            let other = TransferHeader { payload_mac: 9, ..header(other) };
            assert_eq!(other.parse_next(&bytes), Ok(read));
            if let (Some(headers), TransferPacketKind::Data { offset, acknowledge_now, probe: 5 }) = (
                DataHeaders::new(&header(TransferPacketKind::Data { offset: 1, acknowledge_now: false, probe: 5 })),
                kind,
            ) {
                let mut again = [0xff; HEADER_BYTES];
                headers.emit(offset, acknowledge_now, read.payload_mac, &mut again);
                assert_eq!(again, bytes, "written as a whole and by what differs");
            }
        }
    }

    #[test]
    fn other_bytes_are_rejected() {
        assert!(TransferHeader::parse(&[DATA; HEADER_BYTES - 1]).is_err());
        assert!(TransferHeader::parse(&[0x04; HEADER_BYTES]).is_err());
        assert!(!is_transfer_packet(&[]) && !is_transfer_packet(&[0x04]));
        // Reserved for manufacturers: `wire::Opcode` and RoCEv2 decoders do not know it.
        assert!(crate::Opcode::try_from(DATA).is_err() && crate::Opcode::try_from(ACKNOWLEDGEMENT).is_err());
    }

    #[test]
    fn missing_ranges_are_bounded() {
        let ranges: Vec<(u32, u32)> = (0..40).map(|index| (index * 100, index)).collect();
        let mut bytes = Vec::new();
        emit_missing(&ranges, &mut bytes);
        assert_eq!(parse_missing(&bytes).collect::<Vec<_>>(), &ranges[..MAX_MISSING_RANGES]);
        assert_eq!(parse_missing(&bytes[..RANGE_BYTES + 3]).count(), 1);
        assert_eq!(parse_missing(&[0; 4096]).count(), MAX_MISSING_RANGES);
    }
}
