//! Errors of parsing and verifying received bytes.
//!
//! The classes are those of the soft-error paper (claim SE-4): a packet was corrupted on its way (physical), or its
//! contents are invalid (malformed). Switches detect the other two classes, routing and overrun, by other means than
//! the bytes.

use std::fmt;

use crate::Opcode;

/// Why a frame or datagram is discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketError {
    /// A CRC does not match: the bytes were corrupted on the way.
    Physical(PacketCrc),
    /// The checked CRCs match, but the contents are invalid.
    Malformed(ParseError),
}

/// The CRC that detected corruption.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketCrc {
    /// The variant CRC, which protects one link.
    Vcrc,
    /// The invariant CRC, which protects the packet from end node to end node.
    Icrc,
}

/// Why bytes are not a valid header or packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseError {
    /// The bytes end too early.
    TooShort {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
    /// A header's length field contradicts the length of the bytes.
    WrongLength {
        /// The header with the length field.
        header: HeaderName,
        /// Bytes that the field declares.
        declared: usize,
        /// Bytes given.
        given: usize,
    },
    /// The length is not a multiple of four bytes.
    PartialWord {
        /// Bytes given.
        given: usize,
    },
    /// An unsupported header version.
    UnknownVersion {
        /// The header.
        header: HeaderName,
        /// Its version.
        version: u8,
    },
    /// A routing header is not followed by InfiniBand transport.
    UnknownNextHeader {
        /// The header.
        header: HeaderName,
        /// Its next-header code.
        code: u8,
    },
    /// An opcode that is reserved or belongs to an unsupported service.
    UnknownOpcode(u8),
    /// An acknowledgement with a reserved syndrome.
    ReservedSyndrome(u8),
    /// The pad count exceeds the bytes that follow the headers.
    Padding {
        /// Declared padding bytes.
        pad: u8,
        /// Bytes of payload and padding.
        given: usize,
    },
    /// A payload after an opcode that allows none.
    UnexpectedPayload(Opcode),
}

/// A header, by its name in the IB specification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderName {
    /// Local route header.
    Lrh,
    /// Global route header.
    Grh,
    /// Base transport header.
    Bth,
}

impl From<ParseError> for PacketError {
    fn from(error: ParseError) -> Self {
        Self::Malformed(error)
    }
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Physical(crc) => write!(f, "corrupted packet: {crc} mismatch"),
            Self::Malformed(error) => write!(f, "malformed packet: {error}"),
        }
    }
}

impl fmt::Display for PacketCrc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vcrc => "VCRC",
            Self::Icrc => "ICRC",
        })
    }
}

impl fmt::Display for HeaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lrh => "LRH",
            Self::Grh => "GRH",
            Self::Bth => "BTH",
        })
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { needed, given } => write!(f, "{given} bytes, expected at least {needed}"),
            Self::WrongLength { header, declared, given } => {
                write!(f, "{header} declares {declared} bytes, got {given}")
            }
            Self::PartialWord { given } => write!(f, "{given} bytes are not a multiple of four"),
            Self::UnknownVersion { header, version } => write!(f, "unsupported {header} version {version}"),
            Self::UnknownNextHeader { header, code } => {
                write!(f, "unsupported next header {code:#04x} after {header}")
            }
            Self::UnknownOpcode(code) => write!(f, "unknown opcode {code:#04x}"),
            Self::ReservedSyndrome(code) => write!(f, "reserved syndrome {code:#04x}"),
            Self::Padding { pad, given } => write!(f, "pad count {pad} exceeds the {given} bytes after the headers"),
            Self::UnexpectedPayload(opcode) => write!(f, "{opcode:?} with a payload"),
        }
    }
}

impl std::error::Error for PacketError {}
impl std::error::Error for ParseError {}
