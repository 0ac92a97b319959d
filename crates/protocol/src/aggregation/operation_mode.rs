//! The mode of an operation: aggregated by the nodes, multicast by one member, or a polled barrier.

use wire::aggregation::{AggregationHeader, AggregationMessageKind};

/// How a member takes part in an operation. All members pass the same mode for an operation, except for the poll
/// role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationMode {
    /// Every member contributes when it enters, the nodes fold, and the root of the tree distributes the result.
    Aggregated,
    /// The only contributor multicasts the result to all members. No member sends a contribution (P-50).
    Multicast,
    /// One member polls all others. A member contributes when polled, or answers that it has not entered (P-53).
    Polled(PollRole),
}

/// The role of a member in a polled barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PollRole {
    /// Polls all members by multicast until all have entered.
    Poller,
    /// Answers polls.
    Responder,
}

/// The bit in the detail of a result or repair request that marks a member's multicast. The lower bits hold the
/// contribution role and the result disposition.
pub(super) const MEMBER_MULTICAST: u32 = 1 << 9;

/// True if a message is a member's multicast or requests one.
pub(super) fn is_member_multicast(header: &AggregationHeader) -> bool {
    matches!(header.kind, AggregationMessageKind::Result | AggregationMessageKind::Repair)
        && header.detail & MEMBER_MULTICAST != 0
}
