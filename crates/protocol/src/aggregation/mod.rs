//! Aggregation: members contribute, nodes fold, roots distribute.
//!
//! In: frames over edges, multicasts, reports of damage, time. Out: duties in an [`Outbox`]. A [`Member`] sits in a
//! host, a [`Node`] in a switch (or a server); a node has a [`SeatPlan`] for every group and plane it serves.
//! Rules: docs/protocol.md P-10 to P-26, P-94 to P-97; claims SE-1, SE-7, SE-9, SH-1 to SH-3, QN-6, QN-9, QN-10.

mod abort;
mod casts;
mod manner;
mod member;
mod message;
mod node;
mod outbox;
mod seat;
mod slot;
#[cfg(test)]
mod tests;

pub use abort::AbortCause;
pub use casts::Census;
pub use manner::{Manner, Role};
pub use member::{Contribution, Member, MemberPlan, Patience, StartError};
pub use message::{Message, Voice, Wish};
pub use node::{Node, NodeCounters, NodeLoad};
pub use outbox::{Duty, EdgeIndex, Outbox};

pub use crate::connection::Damage;
pub use seat::{Distribution, Plane, ResultProves, SeatPlan, Upward};
#[cfg(feature = "sabotage")]
pub use slot::Sabotage;
