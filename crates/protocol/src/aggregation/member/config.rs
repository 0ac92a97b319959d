//! The configuration of a member, its contributions, and why an operation cannot start.

use std::fmt;

use units::{Epoch, GroupId, SegmentIndex, Span};
use wire::aggregation::{ElementCode, OperatorCode};

use crate::Payload;
use crate::aggregation::{AbortCause, ContributionRole, ImplicitAck, ParentLink, ResultDisposition};

/// The configuration of a member.
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// The group.
    pub group: GroupId,
    /// The group's epoch.
    pub epoch: Epoch,
    /// The parents: one, or one per lane of a split adapter. Edge `n` leads to the `n`-th parent.
    pub parents: Vec<ParentLink>,
    /// The parents' node numbers, for abort causes.
    pub peers: Vec<u32>,
    /// Whether a result acknowledges the contribution.
    pub implicit_ack: ImplicitAck,
    /// The number of operations that may be in flight at once.
    pub window: u32,
    /// After this time without a result the member requests it.
    pub repair_after: Span,
    /// Whether that time adapts to the duration of operations.
    pub repair_timeout_mode: RepairTimeoutMode,
}

/// How long a member waits for a result before it requests it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RepairTimeoutMode {
    /// For [`MemberConfig::repair_after`].
    Fixed,
    /// At least that long, and several times the recent duration of operations: ranks that share a processor are
    /// often late.
    Adaptive,
}

/// A member's contribution to an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contribution {
    /// The element type.
    pub element: ElementCode,
    /// The operator.
    pub operator: OperatorCode,
    /// The number of elements.
    pub element_count: u16,
    /// The role among the other contributions.
    pub role: ContributionRole,
    /// What the member wants to receive.
    pub disposition: ResultDisposition,
    /// The segment of the user's vector; all members must agree on it.
    pub segment: SegmentIndex,
    /// The elements.
    pub payload: Payload,
}

/// Why an operation cannot start now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationStartError {
    /// The window is full: take a result first.
    WindowFull,
    /// An earlier multicast has not arrived, or an earlier polled barrier is not over; a contribution must wait for
    /// them.
    OperationsPending,
    /// All parents are lost.
    ParentsLost(AbortCause),
}

impl fmt::Display for OperationStartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WindowFull => f.write_str("the window of operations in flight is full; wait for one to complete"),
            Self::OperationsPending => f.write_str("earlier operations are not over; wait for them to complete"),
            Self::ParentsLost(cause) => write!(f, "all parents in the aggregation tree are lost: {cause}"),
        }
    }
}

impl std::error::Error for OperationStartError {}
