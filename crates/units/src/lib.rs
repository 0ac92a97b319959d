//! The numbers of Pleach: times, identifiers and limits, and the pseudo-random generator.
//!
//! Distinct numbers are distinct types, so that a port cannot be passed for a rank. This crate depends on no other; all others may
//! depend on it.

mod identity;
pub mod limits;
mod psn;
mod random;
mod time;

pub use identity::{
    AdapterLane, ChildIndex, Epoch, GroupId, HostId, Lid, OpId, PathId, QpNumber, Rank, SegmentIndex,
};
pub use psn::Psn;
pub use random::{GOLDEN_GAMMA, mix64, splitmix64};
pub use time::{SimSpan, SimTime, Span, Time};
