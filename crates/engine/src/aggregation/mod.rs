//! Aggregation in the real world: the machines of `protocol::aggregation` over UDP.
//!
//! [`Wires`] carries the frames of tree edges. [`NodeSeats`] is the data plane of a node: one machine per group.
//! [`Membership`] is a process's place in one group. `circle.rs` is for results that come by multicast.

mod membership;
mod seats;
#[cfg(test)]
mod tests;

pub use membership::Membership;
pub use seats::NodeSeats;
pub use transport::edges::{Ear, Heard, Hearing, Input, Ready, Wire, WireCounters, Wires, edge_policy};

use units::Span;

/// A result that has not come after so long is asked for: whoever is missing is then asked too, and found out if lost.
pub(crate) const REPAIR_AFTER: Span = Span::from_micros(50_000);
/// The same where it may have got lost.
pub(crate) const REPAIR_MULTICAST_AFTER: Span = Span::from_micros(2_000);
