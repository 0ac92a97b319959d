//! An aggregation message: header, payload, and the end-to-end checksum over both.

use units::{ChildIndex, OpId};
use wire::aggregation::{AggregationHeader, AggregationMessageKind};

use super::operation_mode::MEMBER_MULTICAST;
use super::{AbortCause, Plane};
use crate::Payload;
use crate::transfer::BASE_PACKET_BYTES;

/// Headers around the payload of a message, with padding: IP and UDP (48), BTH and ICRC (16), message (32), MAC (8), padding.
pub const PACKET_HEADER_BYTES: usize = 112;
/// Payloads of this size pass every path: their packets cannot be cut anew when the MTU of a path becomes smaller.
pub const BASE_SEGMENT_BYTES: usize = (BASE_PACKET_BYTES - PACKET_HEADER_BYTES) & !63;

/// The role of a contribution among the others, in the detail of its header (P-48).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContributionRole {
    /// One operand of many.
    Operand,
    /// No operand: the member only waits for the result, as in a broadcast from another member.
    ReceiveOnly,
    /// The only operand, as at the root of a broadcast.
    Sole,
}

impl ContributionRole {
    /// The code on the wire.
    pub const fn code(self) -> u32 {
        match self {
            Self::Operand => 0,
            Self::ReceiveOnly => 1,
            Self::Sole => 2,
        }
    }

    /// Decodes the wire code. Unknown codes are operands; the fold rejects what it cannot fold.
    pub const fn from_code(code: u32) -> Self {
        match code & 0xff {
            1 => Self::ReceiveOnly,
            2 => Self::Sole,
            _ => Self::Operand,
        }
    }
}

/// What the members behind a contribution want to receive, in the detail of its header (P-49).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResultDisposition {
    /// The result.
    Deliver,
    /// Only the completion, as at a contributor to a reduce that is not its root.
    CompletionOnly,
}

impl ResultDisposition {
    const COMPLETION_ONLY: u32 = 1 << 8;

    /// The code on the wire, next to the code of a role.
    pub const fn code(self) -> u32 {
        match self {
            Self::Deliver => 0,
            Self::CompletionOnly => Self::COMPLETION_ONLY,
        }
    }

    /// Decodes the wire code.
    pub const fn from_code(code: u32) -> Self {
        if code & Self::COMPLETION_ONLY == 0 { Self::Deliver } else { Self::CompletionOnly }
    }
}

/// One message with the checksum that its sender computed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AggregationMessage {
    /// Identifies the message.
    pub header: AggregationHeader,
    /// The elements.
    pub payload: Payload,
    /// CRC-32C over header and payload, computed in the sender's memory; zero without a real payload.
    pub checksum: u32,
}

impl AggregationMessage {
    /// A message with its checksum.
    pub fn new(header: AggregationHeader, payload: Payload) -> Self {
        let checksum = payload.bytes().map_or(0, |bytes| header.checksum(bytes));
        Self { header, payload, checksum }
    }

    /// True if the checksum matches (P-31).
    pub fn is_intact(&self) -> bool {
        self.payload.bytes().is_none_or(|bytes| self.header.checksum(bytes) == self.checksum)
    }

    /// True if its packet passes every path.
    pub(super) fn passes_every_path(&self) -> bool {
        self.payload.len() as usize <= BASE_SEGMENT_BYTES
    }

    /// The same payload with another kind, child and plane, and a new checksum.
    pub(super) fn addressed(&self, kind: AggregationMessageKind, child: ChildIndex, plane: Plane) -> Self {
        let header = AggregationHeader { kind, child, flags: plane.0, ..self.header };
        Self::new(header, self.payload.clone())
    }

    /// A message without payload about the same operation.
    pub(super) fn about(&self, kind: AggregationMessageKind, child: ChildIndex, plane: Plane) -> Self {
        // A repair request keeps the multicast bit when a node forwards it.
        let is_request = kind == AggregationMessageKind::Repair && self.header.kind != AggregationMessageKind::Abort;
        let detail = if is_request { self.header.detail & MEMBER_MULTICAST } else { 0 };
        let header = AggregationHeader { kind, child, flags: plane.0, element_count: 0, detail, ..self.header };
        Self { header, payload: Payload::EMPTY, checksum: 0 }
    }

    /// The answer to a poll that some member has not entered the operation.
    pub(super) fn not_entered(&self, poll: u32, child: ChildIndex, plane: Plane) -> Self {
        let mut answer = self.about(AggregationMessageKind::NotEntered, child, plane);
        answer.header.detail = poll;
        answer
    }

    /// The abort that replaces this contribution or result.
    pub(super) fn aborted(&self, cause: AbortCause) -> Self {
        let header = AggregationHeader {
            kind: AggregationMessageKind::Abort,
            element_count: 0,
            detail: cause.code(),
            ..self.header
        };
        Self { header, payload: Payload::EMPTY, checksum: 0 }
    }

    /// True if both messages are the same repair request (P-40: an unacknowledged request is not sent again).
    pub(super) fn is_same_request(&self, other: &Self) -> bool {
        let subject = |message: &Self| (message.header.kind, message.op(), message.plane(), message.header.child);
        self.is_request() && subject(self) == subject(other)
    }

    pub(super) fn is_request(&self) -> bool {
        self.header.kind == AggregationMessageKind::Repair
    }

    /// The operation.
    pub fn op(&self) -> OpId {
        self.header.operation
    }

    /// The plane of the tree.
    pub fn plane(&self) -> Plane {
        Plane(self.header.flags)
    }
}
