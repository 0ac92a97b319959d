//! Aggregation in the real world: the machines of `protocol::aggregation` over UDP.
//!
//! [`Wires`] carries the frames of tree edges. [`NodeSeats`] is the data plane of a node: one machine per group.
//! [`Membership`] is a process's place in one group. `circle.rs` is for results that come by multicast.

pub(crate) mod alarms;
mod circle;
mod membership;
mod seats;
mod tag;
#[cfg(test)]
mod tests;
mod wires;

pub use circle::{Ear, Heard, Hearing};
pub use membership::Membership;
pub use seats::NodeSeats;
pub use wires::{Input, Ready, Wire, WireCounters, Wires};

use protocol::connection::{Policy, Repair};
use units::Span;

/// How tree edges behave over UDP.
pub fn edge_policy() -> Policy {
    // A lone contribution that is lost is noticed by nobody but its sender, and its answer, the result, may rightly be
    // long in coming: so it is repeated soon, and then no oftener than a connection that waits for nothing.
    Policy { repair: Repair::GoBackN, window: 256, timeout: Span::from_micros(5_000), ..Policy::datagram() }
}

/// A result that has not come after so long is asked for: whoever is missing is then asked too, and found out if lost.
pub(crate) const REPAIR_AFTER: Span = Span::from_micros(50_000);
/// The same where it may have got lost.
pub(crate) const REPAIR_MULTICAST_AFTER: Span = Span::from_micros(2_000);
