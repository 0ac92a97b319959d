//! Routing headers: local (LRH) within a subnet, global (GRH) between subnets (IB specification, 7.7 and 8.3).
//!
//! ```text
//! LRH  0   virtual lane, 4 bits | version, 4 bits
//!      1   service level, 4 bits | reserved, 2 bits | next header, 2 bits
//!      2   destination, 2 bytes
//!      4   reserved, 5 bits | length in words, 11 bits: from the LRH to the end of the ICRC
//!      6   source, 2 bytes
//! GRH      as IPv6, with next header 0x1B
//! ```

use units::Lid;

use crate::bytes::{array_at, prefix, prefix_mut};
use crate::{HeaderName, ParseError};

/// A virtual lane of a link, with its own buffers, 0 to 15. Switches may change it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct VirtualLane(pub u8);

/// The service level of a packet, 0 to 15. It stays the same from end to end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ServiceLevel(pub u8);

/// An InfiniBand global identifier, in the format of an IPv6 address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Gid(pub [u8; 16]);

/// The header after the LRH (LNH). Raw packets are not supported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkNextHeader {
    /// A BTH: the packet stays in its subnet.
    Transport,
    /// A GRH.
    Global,
}

/// The local route header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lrh {
    /// The virtual lane on the current link.
    pub lane: VirtualLane,
    /// The service level.
    pub level: ServiceLevel,
    /// The next header.
    pub next: LinkNextHeader,
    /// The destination port.
    pub destination: Lid,
    /// Four-byte words from this header to the end of the ICRC. The framing sets it.
    pub length_words: u16,
    /// The source port.
    pub source: Lid,
}

impl Lrh {
    /// Encoded size in bytes.
    pub const SIZE: usize = 8;
    /// The longest packet that the length field can express.
    pub const MAX_LENGTH_WORDS: u16 = (1 << 11) - 1;

    /// A header within the subnet. The framing sets its length.
    pub const fn new(source: Lid, destination: Lid, level: ServiceLevel, lane: VirtualLane) -> Self {
        Self { lane, level, next: LinkNextHeader::Transport, destination, length_words: 0, source }
    }

    /// Reads the header at the beginning of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let bytes: &[u8; Self::SIZE] = prefix(bytes)?;
        let version = bytes[0] & 0x0f;
        if version != 0 {
            return Err(ParseError::UnknownVersion { header: HeaderName::Lrh, version });
        }
        let next = match bytes[1] & 0b11 {
            0b10 => LinkNextHeader::Transport,
            0b11 => LinkNextHeader::Global,
            code => {
                return Err(ParseError::UnknownNextHeader { header: HeaderName::Lrh, code });
            }
        };
        Ok(Self {
            lane: VirtualLane(bytes[0] >> 4),
            level: ServiceLevel(bytes[1] >> 4),
            next,
            destination: Lid(u16::from_be_bytes(array_at(bytes, 2))),
            length_words: u16::from_be_bytes(array_at(bytes, 4)) & Self::MAX_LENGTH_WORDS,
            source: Lid(u16::from_be_bytes(array_at(bytes, 6))),
        })
    }

    /// Writes the header at the beginning of `buffer`.
    ///
    /// # Panics
    /// If the buffer is too small, or lane, level or length do not fit their fields.
    pub fn emit(&self, buffer: &mut [u8]) {
        assert!(self.lane.0 < 16 && self.level.0 < 16, "{:?} or {:?} exceeds 15", self.lane, self.level);
        assert!(self.length_words <= Self::MAX_LENGTH_WORDS, "{} words do not fit 11 bits", self.length_words);
        let bytes: &mut [u8; Self::SIZE] = prefix_mut(buffer);
        bytes[0] = self.lane.0 << 4;
        bytes[1] = self.level.0 << 4
            | match self.next {
                LinkNextHeader::Transport => 0b10,
                LinkNextHeader::Global => 0b11,
            };
        bytes[2..4].copy_from_slice(&self.destination.0.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.length_words.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.source.0.to_be_bytes());
    }
}

/// The global route header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Grh {
    /// The traffic class between subnets. Routers may change it.
    pub traffic_class: u8,
    /// Identifies a flow whose packets must stay in order, 20 bits. Routers may change it.
    pub flow_label: u32,
    /// Bytes from the end of this header to the end of the ICRC. The framing sets it.
    pub payload_length: u16,
    /// How many more routers may forward the packet.
    pub hop_limit: u8,
    /// The source port.
    pub source: Gid,
    /// The destination port or multicast group.
    pub destination: Gid,
}

impl Grh {
    /// Encoded size in bytes.
    pub const SIZE: usize = 40;
    const VERSION: u8 = 6;
    /// Next header: InfiniBand transport (IB specification, 8.3).
    const NEXT_HEADER: u8 = 0x1b;
    const MAX_FLOW_LABEL: u32 = (1 << 20) - 1;

    /// Reads the header at the beginning of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let bytes: &[u8; Self::SIZE] = prefix(bytes)?;
        let version = bytes[0] >> 4;
        if version != Self::VERSION {
            return Err(ParseError::UnknownVersion { header: HeaderName::Grh, version });
        }
        if bytes[6] != Self::NEXT_HEADER {
            return Err(ParseError::UnknownNextHeader { header: HeaderName::Grh, code: bytes[6] });
        }
        let first_word = u32::from_be_bytes(array_at(bytes, 0));
        Ok(Self {
            traffic_class: (first_word >> 20) as u8,
            flow_label: first_word & Self::MAX_FLOW_LABEL,
            payload_length: u16::from_be_bytes(array_at(bytes, 4)),
            hop_limit: bytes[7],
            source: Gid(array_at(bytes, 8)),
            destination: Gid(array_at(bytes, 24)),
        })
    }

    /// Writes the header at the beginning of `buffer`.
    ///
    /// # Panics
    /// If the buffer is too small, or the flow label has more than 20 bits.
    pub fn emit(&self, buffer: &mut [u8]) {
        assert!(self.flow_label <= Self::MAX_FLOW_LABEL, "flow label {:#x} does not fit 20 bits", self.flow_label);
        let bytes: &mut [u8; Self::SIZE] = prefix_mut(buffer);
        let first_word = u32::from(Self::VERSION) << 28 | u32::from(self.traffic_class) << 20 | self.flow_label;
        bytes[0..4].copy_from_slice(&first_word.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.payload_length.to_be_bytes());
        bytes[6] = Self::NEXT_HEADER;
        bytes[7] = self.hop_limit;
        bytes[8..24].copy_from_slice(&self.source.0);
        bytes[24..40].copy_from_slice(&self.destination.0);
    }
}
