//! What members of a group and aggregation nodes say to each other, inside a packet (claim SH-3).
//!
//! In: the payload of a message. Out: a header, and the payload behind it. The header is 32 bytes, big end
//! first:
//!
//! ```text
//! 0        version, 4 bits | kind, 4 bits
//! 1        element type          2        operator            3        flags
//! 4..8     group                 8..12    epoch               12..16   operation
//! 16..20   segment               20..22   child               22..24   element count
//! 24..28   detail, by kind       28..32   CRC-32C of the 28 bytes before and the payload behind
//! ```
//! The code goes from memory to memory, so that it catches what no link can see. It is written by
//! [`AggregationHeader::emit`], compared by [`AggregationHeader::verify`], and nothing of a message is believed before.
//! Element types and operators are bare codes here: what they mean is for those who do arithmetic.

use std::fmt;

use checksum::crc32c;
use units::{ChildIndex, Epoch, GroupId, OpId, SegmentIndex};

use crate::bytes::{piece, room};

/// The version of the message format.
pub const VERSION: u8 = 1;

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum AggregationMessageKind {
    /// Up the tree: a child's operands for one segment.
    Contribution = 1,
    /// Down the tree: the reduced segment.
    Result = 2,
    /// Up the tree: a result did not come; send it again.
    Repair = 3,
    /// Either way: the operation cannot complete. The detail says why.
    Abort = 4,
    /// To everyone: whoever has come to this operation shall contribute, the others say that they have not.
    Test = 5,
    /// Up the tree, then to everyone: somebody has not come yet.
    Late = 6,
}

/// The type of the elements, as a code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ElementCode(pub u8);

/// The operator that reduces them, as a code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OperatorCode(pub u8);

/// The header of an aggregation message: names a contribution and says how to fold it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AggregationHeader {
    /// What the message is.
    pub kind: AggregationMessageKind,
    /// The type of the elements.
    pub element: ElementCode,
    /// The operator that reduces them.
    pub operator: OperatorCode,
    /// Flags, meant by the protocol.
    pub flags: u8,
    /// The group.
    pub group: GroupId,
    /// The group's incarnation.
    pub epoch: Epoch,
    /// The operation of the group.
    pub operation: OpId,
    /// The segment of the operation's vector.
    pub segment: SegmentIndex,
    /// Which child speaks, or is spoken to.
    pub child: ChildIndex,
    /// Elements in the payload.
    pub element_count: u16,
    /// By kind: why an operation is aborted, and the like.
    pub detail: u32,
}

/// Why bytes are not an aggregation message, or not the one that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AggregationParseError {
    /// The bytes end within the header.
    TooShort {
        /// Bytes there are.
        given: usize,
    },
    /// A version that is not spoken here.
    UnknownVersion(u8),
    /// A kind that is not spoken here.
    UnknownKind(u8),
    /// The end-to-end code does not fit: something changed between the two memories.
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
            5 => Ok(Self::Test),
            6 => Ok(Self::Late),
            _ => Err(AggregationParseError::UnknownKind(code)),
        }
    }
}

impl AggregationHeader {
    /// Bytes it takes.
    pub const SIZE: usize = 32;
    /// Bytes before the code.
    const COVERED: usize = 28;

    /// Reads the header at the beginning of `message` without looking at its code.
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
            group: GroupId(u32::from_be_bytes(piece(bytes, 4))),
            epoch: Epoch(u32::from_be_bytes(piece(bytes, 8))),
            operation: OpId(u32::from_be_bytes(piece(bytes, 12))),
            segment: SegmentIndex(u32::from_be_bytes(piece(bytes, 16))),
            child: ChildIndex(u16::from_be_bytes(piece(bytes, 20))),
            element_count: u16::from_be_bytes(piece(bytes, 22)),
            detail: u32::from_be_bytes(piece(bytes, 24)),
        })
    }

    /// Checks the code of a whole message, then reads its header; the payload is the rest.
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

    /// Writes the header, with the code over it and `payload`, at the beginning of `buffer`.
    ///
    /// # Panics
    /// If the buffer is too small.
    pub fn emit(&self, payload: &[u8], buffer: &mut [u8]) {
        let bytes: &mut [u8; Self::SIZE] = room(buffer);
        bytes[..Self::COVERED].copy_from_slice(&self.covered());
        bytes[Self::COVERED..].copy_from_slice(&self.seal(payload).to_be_bytes());
    }

    /// Writes the header with a code that was made earlier, where the payload was made: what changed since then shows.
    ///
    /// # Panics
    /// If the buffer is too small.
    pub fn emit_sealed(&self, seal: u32, buffer: &mut [u8]) {
        let bytes: &mut [u8; Self::SIZE] = room(buffer);
        bytes[..Self::COVERED].copy_from_slice(&self.covered());
        bytes[Self::COVERED..].copy_from_slice(&seal.to_be_bytes());
    }

    /// Reads the header at the beginning of `message`, its code and the payload, without comparing them.
    pub fn parse_sealed(message: &[u8]) -> Result<(Self, u32, &[u8]), AggregationParseError> {
        let header = Self::parse(message)?;
        let (head, payload) = message.split_at(Self::SIZE);
        Ok((header, u32::from_be_bytes(piece(head, Self::COVERED)), payload))
    }

    /// The end-to-end code over this header and `payload`.
    pub fn seal(&self, payload: &[u8]) -> u32 {
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
            Self::TooShort { given } => write!(f, "{} bytes needed, {given} given", AggregationHeader::SIZE),
            Self::UnknownVersion(version) => write!(f, "aggregation message of unknown version {version}"),
            Self::UnknownKind(kind) => write!(f, "aggregation message of unknown kind {kind}"),
            Self::Corrupt => f.write_str("aggregation message changed on the way: its CRC-32C differs"),
        }
    }
}

impl std::error::Error for AggregationParseError {}
