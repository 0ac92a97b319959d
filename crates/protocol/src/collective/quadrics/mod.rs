//! Barriers and broadcasts of the Quadrics library as state machines: a balanced tree with a downward multicast
//! (*gsync*), a multicast that polls all members at once (*hgsync*), and broadcasts that start with either (claims
//! QN-6, QN-7, QN-9, QN-10).
//!
//! In: calls of this rank, signals of other ranks, outcomes of polls. Out: actions in a list that the driver passes.
//! Every signal carries its call number, so an early one is kept and a duplicate changes nothing.
//!
//! Reading order: `members` defines the ranks and their tree; `tree_barrier` and `polled_barrier` synchronise;
//! `broadcast` adds the data.

mod broadcast;
mod members;
mod polled_barrier;
#[cfg(test)]
mod tests;
mod tree_barrier;

use units::{Rank, Span};

pub use broadcast::{BroadcastSynchronization, SynchronizedBroadcast};
pub use members::{QuadricsMembers, QuadricsMembersError};
pub use polled_barrier::{PollBackoff, PolledBarrier};
pub use tree_barrier::TreeBarrier;

/// The number of a barrier or broadcast within its group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct CallNumber(pub u32);

/// An action that the driver must carry out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuadricsAction {
    /// Tell a parent that all ranks below have entered.
    Ready {
        /// The parent.
        to: Rank,
        /// The call.
        call: CallNumber,
    },
    /// Release all members with one multicast.
    ReleaseAll {
        /// The call.
        call: CallNumber,
    },
    /// Release a child, which forwards it.
    Release {
        /// The child.
        to: Rank,
        /// The call.
        call: CallNumber,
    },
    /// Poll all members with one multicast, and release them if all have entered.
    Poll {
        /// The call.
        call: CallNumber,
    },
    /// Call `handle_timer` after this time.
    Wait {
        /// How long to wait.
        span: Span,
    },
    /// Send the data to all members with one multicast.
    DataToAll {
        /// The call.
        call: CallNumber,
    },
    /// Send the data to a child, which forwards it.
    Data {
        /// The child.
        to: Rank,
        /// The call.
        call: CallNumber,
    },
    /// The call is complete at this rank.
    Complete {
        /// The call.
        call: CallNumber,
    },
}

/// The combined outcome of a poll: the worst answer of any member (QN-6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PollOutcome {
    /// All members have entered.
    AllEntered,
    /// Some member has not entered.
    SomeMissing,
    /// The poll itself was damaged.
    Damaged,
}
