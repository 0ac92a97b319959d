//! The numbers Pleach is made of: times, sizes, identities, and the limits.
//!
//! Distinct numbers are distinct types, so that a port cannot be passed for a rank. Nothing here
//! depends on anything; everything else depends on this.

mod identity;
pub mod limits;
mod psn;
mod time;

pub use identity::{ChildIndex, Epoch, GroupId, HostId, Lane, Lid, OpId, PathId, QpNumber, Rank, SegmentIndex};
pub use psn::Psn;
pub use time::{SimSpan, SimTime, Span, Time};
