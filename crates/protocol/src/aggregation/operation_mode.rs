//! How an operation goes about: folded by the nodes, cast by the one who has something to say, or tested by one who asks all.

use wire::aggregation::{AggregationHeader, AggregationMessageKind};

/// How a member takes part in an operation. All members say the same of an operation, but for their roles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationMode {
    /// Every member contributes when it comes; the nodes fold, and the root of the tree tells the result.
    Folded,
    /// The only one that has something to say tells all by multicast. Nobody contributes (P-94).
    Cast,
    /// A member contributes when the tester asks, and says so if it has not come (P-97).
    Tested(PollRole),
}

/// What a member is in an operation that is tested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PollRole {
    /// Asks all by multicast, again and again until all have come.
    Asks,
    /// Is asked.
    Answers,
}

/// Says in the detail of a result or a question that it is about a cast; the lower bits are those of voices and wishes.
pub(super) const MEMBER_MULTICAST: u32 = 1 << 9;

/// Whether a message is, or asks for, what somebody casts.
pub(super) fn is_member_multicast(header: &AggregationHeader) -> bool {
    matches!(header.kind, AggregationMessageKind::Result | AggregationMessageKind::Repair)
        && header.detail & MEMBER_MULTICAST != 0
}
