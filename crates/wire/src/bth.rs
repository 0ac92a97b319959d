//! The base transport header (BTH), twelve bytes that every packet has (IB specification, 9.2).
//!
//! ```text
//! 0        opcode
//! 1        solicited event | migration | pad count, 2 bits | version, 4 bits: zero, or one between ends of ours (P-99)
//! 2..4     partition key
//! 4        FECN | BECN | reserved, 6 bits: the byte that switches may change
//! 5..8     destination queue pair
//! 8        acknowledge | reserved, 7 bits
//! 9..12    packet sequence number
//! ```

use units::{Psn, QpNumber};

use crate::bytes::{head, piece, read_24, room, write_24};
use crate::{HeaderName, Opcode, ParseError};

/// The partition that a packet belongs to; others do not see it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PartitionKey(pub u16);

impl PartitionKey {
    /// The partition that every port is a full member of unless told otherwise.
    pub const DEFAULT: Self = Self(0xffff);
}

impl Default for PartitionKey {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What the ICRC of a packet covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcrcCoverage {
    /// All of it, as InfiniBand has it.
    Whole = 0,
    /// The headers and what comes first of the payload; the user of the connection covers the rest from memory to memory (P-99).
    /// Only two ends of ours over UDP know that.
    Beginning = 1,
}

/// The base transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bth {
    /// What the packet is, and which headers follow.
    pub opcode: Opcode,
    /// The receiver shall raise an event when the message completes.
    pub solicited_event: bool,
    /// The migration bit (MigReq): the sender speaks from its migrated path state (claim PM-1).
    pub migrated: bool,
    /// Bytes of padding after the payload, 0 to 3. Framings set it by the payload when they emit.
    pub pad_count: u8,
    /// What the packet's check covers; told by the version.
    pub coverage: IcrcCoverage,
    /// The sender's partition.
    pub partition: PartitionKey,
    /// The packet met congestion on its way (FECN).
    pub met_congestion: bool,
    /// The receiver's packets in the other direction met congestion (BECN).
    pub reports_congestion: bool,
    /// The queue pair that shall receive it.
    pub destination: QpNumber,
    /// The sender wants an acknowledgement.
    pub acknowledge: bool,
    /// The packet's number.
    pub psn: Psn,
}

impl Bth {
    /// Bytes it takes.
    pub const SIZE: usize = 12;
    /// Where the version is, in the low half.
    pub(crate) const VERSION_BYTE: usize = 1;
    /// Where the byte is that switches may change, and the ICRC therefore does not cover.
    pub(crate) const VARIANT_BYTE: usize = 4;

    /// A header without any flag or padding, in the default partition.
    pub const fn new(opcode: Opcode, destination: QpNumber, psn: Psn) -> Self {
        Self {
            opcode,
            solicited_event: false,
            migrated: false,
            pad_count: 0,
            coverage: IcrcCoverage::Whole,
            partition: PartitionKey::DEFAULT,
            met_congestion: false,
            reports_congestion: false,
            destination,
            acknowledge: false,
            psn,
        }
    }

    /// Reads the header at the beginning of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let bytes: &[u8; Self::SIZE] = head(bytes)?;
        let coverage = match bytes[1] & 0x0f {
            0 => IcrcCoverage::Whole,
            1 => IcrcCoverage::Beginning,
            version => return Err(ParseError::UnknownVersion { header: HeaderName::Bth, version }),
        };
        Ok(Self {
            opcode: Opcode::try_from(bytes[0])?,
            solicited_event: bytes[1] & 0x80 != 0,
            migrated: bytes[1] & 0x40 != 0,
            pad_count: bytes[1] >> 4 & 0b11,
            coverage,
            partition: PartitionKey(u16::from_be_bytes(piece(bytes, 2))),
            met_congestion: bytes[4] & 0x80 != 0,
            reports_congestion: bytes[4] & 0x40 != 0,
            destination: QpNumber(read_24(bytes, 5)),
            acknowledge: bytes[8] & 0x80 != 0,
            psn: Psn::new(read_24(bytes, 9)),
        })
    }

    /// Writes the header at the beginning of `buffer`.
    ///
    /// # Panics
    /// If the buffer is too small, or the pad count or the queue pair's number do not fit their fields.
    pub fn emit(&self, buffer: &mut [u8]) {
        assert!(self.pad_count < 4, "{} bytes of padding do not fit 2 bits", self.pad_count);
        let bytes: &mut [u8; Self::SIZE] = room(buffer);
        bytes[0] = self.opcode.code();
        bytes[1] = u8::from(self.solicited_event) << 7
            | u8::from(self.migrated) << 6
            | self.pad_count << 4
            | self.coverage as u8;
        bytes[2..4].copy_from_slice(&self.partition.0.to_be_bytes());
        bytes[4] = u8::from(self.met_congestion) << 7 | u8::from(self.reports_congestion) << 6;
        write_24(bytes, 5, self.destination.0);
        bytes[8] = u8::from(self.acknowledge) << 7;
        write_24(bytes, 9, self.psn.get());
    }
}
