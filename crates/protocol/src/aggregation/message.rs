//! An aggregation message: a header that names it, a payload, and the end-to-end code over both.

use units::{ChildIndex, OpId};
use wire::aggregation::{AggregationHeader, AggregationMessageKind};

use super::operation_mode::MEMBER_MULTICAST;
use super::{AbortCause, Plane};
use crate::Payload;

/// What a contribution is among the others, in the detail of its header (P-61).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContributionRole {
    /// One operand of many.
    Plain,
    /// Nothing to give: the member only waits for the result, as in a broadcast from another.
    Silent,
    /// The only one that gives anything, as the root of a broadcast.
    Sole,
}

impl ContributionRole {
    /// For the wire.
    pub const fn code(self) -> u32 {
        match self {
            Self::Plain => 0,
            Self::Silent => 1,
            Self::Sole => 2,
        }
    }

    /// From the wire; what is unknown is an operand, and the fold refuses what it cannot fold.
    pub const fn from_code(code: u32) -> Self {
        match code & 0xff {
            1 => Self::Silent,
            2 => Self::Sole,
            _ => Self::Plain,
        }
    }
}

/// What those behind a contribution want to hear, in the detail of its header (P-64).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResultDisposition {
    /// The result.
    Result,
    /// That the operation is over, as whoever contributes to a reduce and is not its root.
    End,
}

impl ResultDisposition {
    const END: u32 = 1 << 8;

    /// For the wire, beside the code of a voice.
    pub const fn code(self) -> u32 {
        match self {
            Self::Result => 0,
            Self::End => Self::END,
        }
    }

    /// From the wire; what is unknown is heard in full.
    pub const fn from_code(code: u32) -> Self {
        if code & Self::END == 0 { Self::Result } else { Self::End }
    }
}

/// One message, with the code that its maker put on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AggregationMessage {
    /// What it is and whose.
    pub header: AggregationHeader,
    /// The elements.
    pub payload: Payload,
    /// CRC-32C over header and payload, from the maker's memory; zero where the payload is absent.
    pub seal: u32,
}

impl AggregationMessage {
    /// Makes a message and seals it.
    pub fn new(header: AggregationHeader, payload: Payload) -> Self {
        let seal = payload.bytes().map_or(0, |bytes| header.seal(bytes));
        Self { header, payload, seal }
    }

    /// True if nothing has changed since it was sealed (P-12).
    pub fn is_intact(&self) -> bool {
        self.payload.bytes().is_none_or(|bytes| self.header.seal(bytes) == self.seal)
    }

    /// The same contents under another heading, sealed anew.
    pub(super) fn addressed(&self, kind: AggregationMessageKind, child: ChildIndex, plane: Plane) -> Self {
        let header = AggregationHeader { kind, child, flags: plane.0, ..self.header };
        Self::new(header, self.payload.clone())
    }

    /// A message without payload about the same operation.
    pub(super) fn about(&self, kind: AggregationMessageKind, child: ChildIndex, plane: Plane) -> Self {
        // A question for a cast says so wherever it goes.
        let asks = kind == AggregationMessageKind::Repair && self.header.kind != AggregationMessageKind::Abort;
        let detail = if asks { self.header.detail & MEMBER_MULTICAST } else { 0 };
        let header = AggregationHeader { kind, child, flags: plane.0, element_count: 0, detail, ..self.header };
        Self { header, payload: Payload::EMPTY, seal: 0 }
    }

    /// What is said to a test, or about the answers to it: that somebody has not come.
    pub(super) fn late(&self, test: u32, child: ChildIndex, plane: Plane) -> Self {
        let mut late = self.about(AggregationMessageKind::Late, child, plane);
        late.header.detail = test;
        late
    }

    /// The abort that stands in for this message's contribution or result.
    pub(super) fn aborted(&self, cause: AbortCause) -> Self {
        let header = AggregationHeader {
            kind: AggregationMessageKind::Abort,
            element_count: 0,
            detail: cause.code(),
            ..self.header
        };
        Self { header, payload: Payload::EMPTY, seal: 0 }
    }

    /// Whether another message asks for the same thing (P-20: a question is asked once as long as it is on its way).
    pub(super) fn asks_the_same(&self, other: &Self) -> bool {
        let subject = |message: &Self| (message.header.kind, message.op(), message.plane(), message.header.child);
        self.header.kind == AggregationMessageKind::Repair && subject(self) == subject(other)
    }

    /// The operation that it is about.
    pub fn op(&self) -> OpId {
        self.header.operation
    }

    /// The plane of the tree for which it is meant.
    pub fn plane(&self) -> Plane {
        Plane(self.header.flags)
    }
}
