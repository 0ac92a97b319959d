//! What can be wrong with bytes that come from outside.
//!
//! The classes are those of the soft-error paper (claim SE-4): a packet is hurt on its way (physical), or
//! says something that has no meaning (malformed). The other two, routing and overrun, are found by
//! switches and not by looking at bytes.

use std::fmt;

use crate::Opcode;

/// Why a frame or a datagram is discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketError {
    /// A code does not fit the bytes: they changed on the way.
    Physical(PacketCrc),
    /// The bytes are as they were sent, as far as was looked, and mean nothing.
    Malformed(ParseError),
}

/// The code that found a physical error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketCrc {
    /// The variant CRC, from one end of a link to the other.
    Vcrc,
    /// The invariant CRC, from one end node to the other.
    Icrc,
}

/// Why bytes are not a header, or headers not a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseError {
    /// The bytes end before what must be there.
    TooShort {
        /// Bytes that must be there.
        needed: usize,
        /// Bytes that are.
        given: usize,
    },
    /// A header says how long the rest is, and it is not.
    WrongLength {
        /// The header that says so.
        header: HeaderName,
        /// Bytes it speaks of.
        declared: usize,
        /// Bytes there are.
        given: usize,
    },
    /// Packets are whole words of four bytes; this one is not.
    PartialWord {
        /// Bytes there are.
        given: usize,
    },
    /// A header of a version that is not spoken here.
    UnknownVersion {
        /// The header.
        header: HeaderName,
        /// The version it has.
        version: u8,
    },
    /// What follows a routing header is not InfiniBand transport.
    UnknownNextHeader {
        /// The header.
        header: HeaderName,
        /// The code it has for what follows.
        code: u8,
    },
    /// An opcode that is reserved, or of a service that is not spoken here.
    UnknownOpcode(u8),
    /// An acknowledgement whose syndrome is reserved.
    ReservedSyndrome(u8),
    /// More padding than bytes to pad.
    Padding {
        /// Padding bytes announced.
        pad: u8,
        /// Bytes of payload and padding there are.
        given: usize,
    },
    /// A packet that carries no payload has some.
    UnexpectedPayload(Opcode),
}

/// A header, by the name the IB specification gives it.
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
            Self::Physical(check) => write!(f, "bytes changed on the way: {check} differs"),
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
            Self::TooShort { needed, given } => write!(f, "{needed} bytes needed, {given} given"),
            Self::WrongLength { header, declared, given } => {
                write!(f, "{header} speaks of {declared} bytes, {given} given")
            }
            Self::PartialWord { given } => write!(f, "{given} bytes are not whole words of four"),
            Self::UnknownVersion { header, version } => write!(f, "{header} of unknown version {version}"),
            Self::UnknownNextHeader { header, code } => {
                write!(f, "{header} followed by unknown header {code:#04x}")
            }
            Self::UnknownOpcode(code) => write!(f, "unknown opcode {code:#04x}"),
            Self::ReservedSyndrome(code) => write!(f, "reserved syndrome {code:#04x}"),
            Self::Padding { pad, given } => write!(f, "{pad} bytes of padding in {given} bytes"),
            Self::UnexpectedPayload(opcode) => write!(f, "{opcode:?} with payload"),
        }
    }
}

impl std::error::Error for PacketError {}
impl std::error::Error for ParseError {}
