//! Aggregation: members contribute, nodes fold, roots distribute.
//!
//! In: frames over edges, multicasts, reports of damage, time. Out: actions in an [`Outbox`]. An
//! [`AggregationMember`] runs in a host, an [`AggregationNode`] in a switch or server; a node has a [`SeatConfig`]
//! for every group and plane it serves. Rules: docs/protocol.md P-29 to P-46, P-50 to P-53; claims SE-1, SE-7, SE-9,
//! SH-1 to SH-3, QN-6, QN-9, QN-10.
//!
//! Reading order: `edge`, `message` and `outbox` are the vocabulary; `collection`, `slot` and `seat` are the state of
//! a `node`; `member` is the other end;
//! `pace` measures for operators.

mod abort;
mod ack_barrier;
mod collection;
mod edge;
mod member;
mod member_multicast;
mod message;
mod node;
mod operation_mode;
mod outbox;
mod pace;
mod retry_extension;
mod seat;
mod slot;
#[cfg(test)]
mod tests;

pub use abort::AbortCause;
pub use ack_barrier::AckBarrierCounter;
pub use edge::{DownwardDelivery, EdgeIndex, ImplicitAck, ParentLink, Plane};
pub use member::{AggregationMember, Contribution, MemberConfig, OperationStartError, RepairTimeoutMode};
pub use message::{AggregationMessage, BASE_SEGMENT_BYTES, ContributionRole, PACKET_HEADER_BYTES, ResultDisposition};
pub use node::{AggregationNode, LostNeighbour, NodeCounters, NodeLoad};
pub use operation_mode::{OperationMode, PollRole};
pub use outbox::{AggregationAction, Outbox};
pub use pace::{ChildLateness, OPERATION_TIME_CLASSES, OperationTimes};
pub use seat::SeatConfig;

pub use crate::connection::Damage;
