//! The base transport header (BTH), twelve bytes at the start of every packet (IB specification, 9.2).
//!
//! ```text
//! 0        opcode; with version 1 or 2, one that InfiniBand leaves to manufacturers
//! 1        solicited event | migration | pad count, 2 bits | version, 4 bits: what the ICRC covers (P-28)
//! 2..4     partition key
//! 4        FECN | BECN | reserved, 6 bits: the byte that switches may change
//! 5..8     destination queue pair
//! 8        acknowledge | reserved, 7 bits
//! 9..12    packet sequence number
//! ```

use units::{Psn, QpNumber};

use crate::bytes::{array_at, prefix, prefix_mut, read_24, write_24};
use crate::{HeaderName, Opcode, ParseError};

/// The partition of a packet (P_Key). Queue pairs of other partitions drop it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PartitionKey(pub u16);

impl PartitionKey {
    /// The partition of which every port is a full member by default.
    pub const DEFAULT: Self = Self(0xffff);
}

impl Default for PartitionKey {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What the ICRC of a packet covers; the version field has its number. Everything but [`Self::Full`] is for Pleach
/// endpoints over UDP, is not RoCEv2, and has opcodes of its own (P-28, P-103).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcrcCoverage {
    /// The whole packet, as InfiniBand specifies.
    Full = 0,
    /// The headers and the first bytes of the payload. The user of the connection protects the rest from memory to
    /// memory.
    Prefix = 1,
    /// Nothing: the field is zero. Only a benchmark uses this, to measure what checks cost.
    Nothing = 2,
}

impl IcrcCoverage {
    /// True if it covers no less than `weakest` does.
    pub const fn covers_at_least(self, weakest: Self) -> bool {
        self as u8 <= weakest as u8
    }

    /// The coverage that the second byte of a BTH names.
    pub(crate) const fn from_version(byte: u8) -> Result<Self, u8> {
        match byte & 0x0f {
            0 => Ok(Self::Full),
            1 => Ok(Self::Prefix),
            2 => Ok(Self::Nothing),
            version => Err(version),
        }
    }
}

/// The base transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bth {
    /// The operation; determines which headers follow.
    pub opcode: Opcode,
    /// Asks the receiver for an event when the message completes.
    pub solicited_event: bool,
    /// The migration bit (MigReq): the sender's path state is MIGRATED (claim PM-1).
    pub migrated: bool,
    /// Bytes of padding after the payload, 0 to 3. The framing sets it.
    pub pad_count: u8,
    /// What the ICRC covers; the version field says it.
    pub coverage: IcrcCoverage,
    /// The sender's partition.
    pub partition: PartitionKey,
    /// Forward explicit congestion notification: the packet met congestion.
    pub fecn: bool,
    /// Backward explicit congestion notification: packets in the opposite direction met congestion.
    pub becn: bool,
    /// The destination queue pair.
    pub destination: QpNumber,
    /// Asks for an acknowledgement.
    pub acknowledge: bool,
    /// The packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Encoded size in bytes.
    pub const SIZE: usize = 12;
    /// Offset of the version, in the low half of the byte.
    pub(crate) const VERSION_BYTE: usize = 1;
    /// Offset of the byte that switches may change; the ICRC does not cover it.
    pub(crate) const VARIANT_BYTE: usize = 4;

    /// A header without flags or padding, in the default partition.
    pub const fn new(opcode: Opcode, destination: QpNumber, psn: Psn) -> Self {
        Self {
            opcode,
            solicited_event: false,
            migrated: false,
            pad_count: 0,
            coverage: IcrcCoverage::Full,
            partition: PartitionKey::DEFAULT,
            fecn: false,
            becn: false,
            destination,
            acknowledge: false,
            psn,
        }
    }

    /// Reads the header at the beginning of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let bytes: &[u8; Self::SIZE] = prefix(bytes)?;
        let coverage = IcrcCoverage::from_version(bytes[Self::VERSION_BYTE])
            .map_err(|version| ParseError::UnknownVersion { header: HeaderName::Bth, version })?;
        Ok(Self {
            opcode: parse_opcode(bytes[0], coverage)?,
            solicited_event: bytes[1] & 0x80 != 0,
            migrated: bytes[1] & 0x40 != 0,
            pad_count: bytes[1] >> 4 & 0b11,
            coverage,
            partition: PartitionKey(u16::from_be_bytes(array_at(bytes, 2))),
            fecn: bytes[4] & 0x80 != 0,
            becn: bytes[4] & 0x40 != 0,
            destination: QpNumber(read_24(bytes, 5)),
            acknowledge: bytes[8] & 0x80 != 0,
            psn: Psn::new(read_24(bytes, 9)),
        })
    }

    /// Writes the header at the beginning of `buffer`.
    ///
    /// # Panics
    /// If the buffer is too small, the pad count or the queue pair's number do not fit their fields, or a datagram's
    /// ICRC does not cover all of it.
    pub fn emit(&self, buffer: &mut [u8]) {
        assert!(self.pad_count < 4, "{} bytes of padding do not fit 2 bits", self.pad_count);
        let bytes: &mut [u8; Self::SIZE] = prefix_mut(buffer);
        bytes[0] = opcode_byte(self.opcode, self.coverage);
        bytes[1] = u8::from(self.solicited_event) << 7
            | u8::from(self.migrated) << 6
            | self.pad_count << 4
            | self.coverage as u8;
        bytes[2..4].copy_from_slice(&self.partition.0.to_be_bytes());
        bytes[4] = u8::from(self.fecn) << 7 | u8::from(self.becn) << 6;
        write_24(bytes, 5, self.destination.0);
        bytes[8] = u8::from(self.acknowledge) << 7;
        write_24(bytes, 9, self.psn.get());
    }
}

/// Added to a connection's opcode if the ICRC does not cover the whole packet: the sum is in the range that InfiniBand
/// leaves to manufacturers, so a RoCEv2 end or decoder that ignores the version does not know it (P-103).
const UNCOVERED_OPCODE_OFFSET: u8 = 0xc8;
/// The last opcode of a connection.
const LAST_CONNECTION_OPCODE: u8 = Opcode::Acknowledge as u8;

fn opcode_byte(opcode: Opcode, coverage: IcrcCoverage) -> u8 {
    match (coverage, opcode.code()) {
        (IcrcCoverage::Full, code) => code,
        (_, code @ ..=LAST_CONNECTION_OPCODE) => code + UNCOVERED_OPCODE_OFFSET,
        (_, code @ 0xc0..) => code, // Pleach's own.
        _ => panic!("the ICRC of {opcode:?} covers the whole packet"),
    }
}

fn parse_opcode(byte: u8, coverage: IcrcCoverage) -> Result<Opcode, ParseError> {
    const LAST: u8 = UNCOVERED_OPCODE_OFFSET + LAST_CONNECTION_OPCODE;
    match (coverage, byte) {
        (IcrcCoverage::Full, _) | (_, 0xc0..UNCOVERED_OPCODE_OFFSET) => Opcode::try_from(byte),
        (_, UNCOVERED_OPCODE_OFFSET..=LAST) => Opcode::try_from(byte - UNCOVERED_OPCODE_OFFSET),
        _ => Err(ParseError::UnknownOpcode(byte)),
    }
}
