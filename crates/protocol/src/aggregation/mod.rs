//! Aggregation: members contribute, nodes fold, roots distribute.
//!
//! In: frames over edges, multicasts, reports of damage, time. Out: duties in an [`Outbox`]. A [`AggregationMember`] sits in a
//! host, a [`AggregationNode`] in a switch (or a server); a node has a [`SeatConfig`] for every group and plane it serves.
//! Rules: docs/protocol.md P-10 to P-26, P-94 to P-97; claims SE-1, SE-7, SE-9, SH-1 to SH-3, QN-6, QN-9, QN-10.

mod abort;
mod member;
mod member_multicast;
mod message;
mod node;
mod operation_mode;
mod outbox;
mod seat;
mod slot;
#[cfg(test)]
mod tests;

pub use abort::AbortCause;
pub use member::{AggregationMember, Contribution, MemberConfig, OperationStartError, RepairTimeoutMode};
pub use member_multicast::AckBarrierCounter;
pub use message::{AggregationMessage, ContributionRole, ResultDisposition};
pub use node::{AggregationNode, NodeCounters, NodeLoad};
pub use operation_mode::{OperationMode, PollRole};
pub use outbox::{AggregationAction, EdgeIndex, Outbox};

pub use crate::connection::Damage;
pub use seat::{DownwardDelivery, ImplicitAck, ParentLink, Plane, SeatConfig};
#[cfg(feature = "sabotage")]
pub use slot::SlotMutation;
