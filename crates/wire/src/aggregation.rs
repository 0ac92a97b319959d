//! Aggregation messages between the members and the nodes of a group, inside a packet (claim SH-3).
//!
//! In: the payload of a packet. Out: a header, and the elements behind it. The header has 32 bytes, big-endian:
//!
//! ```text
//! 0        encrypted, 1 bit | version, 3 bits | kind, 4 bits
//! 1        element type          2        operator            3        flags
//! 4..8     group                 8..12    epoch               12..16   operation
//! 16..20   segment               20..22   child               22..24   element count
//! 24..28   detail, by kind       28..32   CRC-32C of the 28 bytes before and the payload behind
//! ```
//! If the first bit is set, the CRC and the payload are encrypted; nothing here reads such a message before it is decrypted.
//! The CRC goes from memory to memory, so that it catches corruption that no link can see.
//! [`AggregationHeader::emit`] writes it, [`AggregationHeader::verify`] checks it, and no other field is used before
//! that check. Element types and operators are opaque codes here; the `reduce` crate gives them meaning.

use std::fmt;

use checksum::crc32c;
use units::{ChildIndex, Epoch, GroupId, OpId, SegmentIndex};

use crate::bytes::{array_at, prefix_mut};

/// The version of the message format.
pub const VERSION: u8 = 1;

/// In the first byte: what follows [`AggregationHeader::COVERED`] bytes is encrypted.
pub const ENCRYPTED_BIT: u8 = 0x80;

/// The kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum AggregationMessageKind {
    /// To the parent: a child's operands for one segment.
    Contribution = 1,
    /// To the children: the reduced segment.
    Result = 2,
    /// To the parent or a child: a request to send a missing result or contribution again.
    Repair = 3,
    /// In both directions: the operation cannot complete. The detail is the cause.
    Abort = 4,
    /// To all members: contribute if you have entered this operation, otherwise answer [`Self::NotEntered`].
    Poll = 5,
    /// To the parent, then to all members: some member has not entered the operation yet.
    NotEntered = 6,
}

/// The wire code of the element type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ElementCode(pub u8);

/// The wire code of the operator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OperatorCode(pub u8);

/// The header of an aggregation message: identifies a contribution and says how to fold it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AggregationHeader {
    /// The kind of the message.
    pub kind: AggregationMessageKind,
    /// The element type.
    pub element: ElementCode,
    /// The operator.
    pub operator: OperatorCode,
    /// Flags; the protocol defines them.
    pub flags: u8,
    /// The group.
    pub group: GroupId,
    /// The group's epoch.
    pub epoch: Epoch,
    /// The operation within the group.
    pub operation: OpId,
    /// The segment within the operation's vector.
    pub segment: SegmentIndex,
    /// The child that sends or receives the message.
    pub child: ChildIndex,
    /// Number of elements in the payload.
    pub element_count: u16,
    /// Depends on the kind: the cause of an abort, for example.
    pub detail: u32,
}

/// Why bytes are not a valid aggregation message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AggregationParseError {
    /// The bytes end inside the header.
    TooShort {
        /// Bytes given.
        given: usize,
    },
    /// An unsupported version.
    UnknownVersion(u8),
    /// An unknown kind.
    UnknownKind(u8),
    /// The CRC does not match: the message changed between the sender's and the receiver's memory.
    Corrupt,
}

impl TryFrom<u8> for AggregationMessageKind {
    type Error = AggregationParseError;

    fn try_from(code: u8) -> Result<Self, AggregationParseError> {
        match code {
            1 => Ok(Self::Contribution),
            2 => Ok(Self::Result),
            3 => Ok(Self::Repair),
            4 => Ok(Self::Abort),
            5 => Ok(Self::Poll),
            6 => Ok(Self::NotEntered),
            _ => Err(AggregationParseError::UnknownKind(code)),
        }
    }
}

impl AggregationHeader {
    /// Encoded size in bytes.
    pub const SIZE: usize = 32;
    /// Bytes before the CRC, all of which it covers.
    pub const COVERED: usize = 28;

    /// Parses the header at the start of `message` without checking its CRC.
    pub fn parse(message: &[u8]) -> Result<Self, AggregationParseError> {
        let bytes: &[u8; Self::SIZE] =
            message.first_chunk().ok_or(AggregationParseError::TooShort { given: message.len() })?;
        let version = bytes[0] >> 4;
        if version != VERSION {
            return Err(AggregationParseError::UnknownVersion(version));
        }
        Ok(Self {
            kind: AggregationMessageKind::try_from(bytes[0] & 0x0f)?,
            element: ElementCode(bytes[1]),
            operator: OperatorCode(bytes[2]),
            flags: bytes[3],
            group: GroupId(u32::from_be_bytes(array_at(bytes, 4))),
            epoch: Epoch(u32::from_be_bytes(array_at(bytes, 8))),
            operation: OpId(u32::from_be_bytes(array_at(bytes, 12))),
            segment: SegmentIndex(u32::from_be_bytes(array_at(bytes, 16))),
            child: ChildIndex(u16::from_be_bytes(array_at(bytes, 20))),
            element_count: u16::from_be_bytes(array_at(bytes, 22)),
            detail: u32::from_be_bytes(array_at(bytes, 24)),
        })
    }

    /// The group that a message names, before anything is verified.
    pub fn group_of(header: &[u8; Self::SIZE]) -> GroupId {
        GroupId(u32::from_be_bytes(array_at(header, 4)))
    }

    /// Checks the CRC of a whole message, then parses the header; returns it and the payload.
    pub fn verify(message: &[u8]) -> Result<(Self, &[u8]), AggregationParseError> {
        let Some((head, payload)) = message.split_first_chunk::<{ Self::SIZE }>() else {
            return Err(AggregationParseError::TooShort { given: message.len() });
        };
        let (covered, code) = head.split_at(Self::COVERED);
        if crc32c(&[covered, payload]).to_be_bytes() != code {
            return Err(AggregationParseError::Corrupt);
        }
        Ok((Self::parse(head)?, payload))
    }

    /// Writes the header and the CRC over it and `payload` at the start of `buffer`.
    ///
    /// # Panics
    /// If the buffer is too small.
    pub fn emit(&self, payload: &[u8], buffer: &mut [u8]) {
        let bytes: &mut [u8; Self::SIZE] = prefix_mut(buffer);
        bytes[..Self::COVERED].copy_from_slice(&self.covered());
        bytes[Self::COVERED..].copy_from_slice(&self.checksum(payload).to_be_bytes());
    }

    /// Writes the header with a CRC that was computed where the payload was made, so that later corruption is
    /// detected.
    ///
    /// # Panics
    /// If the buffer is too small.
    pub fn emit_with_checksum(&self, checksum: u32, buffer: &mut [u8]) {
        let bytes: &mut [u8; Self::SIZE] = prefix_mut(buffer);
        bytes[..Self::COVERED].copy_from_slice(&self.covered());
        bytes[Self::COVERED..].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Parses the header at the start of `message`; returns it, its CRC and the payload without checking the CRC.
    pub fn parse_unverified(message: &[u8]) -> Result<(Self, u32, &[u8]), AggregationParseError> {
        let header = Self::parse(message)?;
        let (head, payload) = message.split_at(Self::SIZE);
        Ok((header, u32::from_be_bytes(array_at(head, Self::COVERED)), payload))
    }

    /// The CRC-32C over this header and `payload`.
    pub fn checksum(&self, payload: &[u8]) -> u32 {
        crc32c(&[&self.covered(), payload])
    }

    /// Appends the whole message.
    pub fn append_to(&self, payload: &[u8], bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.resize(start + Self::SIZE, 0);
        self.emit(payload, &mut bytes[start..]);
        bytes.extend_from_slice(payload);
    }

    fn covered(&self) -> [u8; Self::COVERED] {
        let mut bytes = [0; Self::COVERED];
        bytes[0] = VERSION << 4 | self.kind as u8;
        bytes[1] = self.element.0;
        bytes[2] = self.operator.0;
        bytes[3] = self.flags;
        bytes[4..8].copy_from_slice(&self.group.0.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.epoch.0.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.operation.0.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.segment.0.to_be_bytes());
        bytes[20..22].copy_from_slice(&self.child.0.to_be_bytes());
        bytes[22..24].copy_from_slice(&self.element_count.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.detail.to_be_bytes());
        bytes
    }
}

impl fmt::Display for AggregationParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { given } => {
                write!(f, "aggregation message of {given} bytes, expected at least {}", AggregationHeader::SIZE)
            }
            Self::UnknownVersion(version) => write!(f, "unsupported aggregation message version {version}"),
            Self::UnknownKind(kind) => write!(f, "unknown aggregation message kind {kind}"),
            Self::Corrupt => f.write_str("corrupted aggregation message: CRC-32C mismatch"),
        }
    }
}

impl std::error::Error for AggregationParseError {}
