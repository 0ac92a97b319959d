//! Tree edges over UDP: frames between members and aggregation nodes, and results that come by multicast.

pub mod alarms;
mod circle;
mod tag;
mod wires;

pub use circle::{Ear, Heard, Hearing};
pub use wires::{Input, Ready, Wire, WireCounters, Wires};

use protocol::connection::{Policy, Repair};
use units::Span;

/// How tree edges behave over UDP.
pub fn edge_policy() -> Policy {
    // A lone contribution that is lost is noticed by nobody but its sender, and its answer, the result, may rightly be
    // long in coming: so it is repeated soon, and then no oftener than a connection that waits for nothing.
    Policy { repair: Repair::GoBackN, window: 256, timeout: Span::from_micros(5_000), ..Policy::datagram() }
}
