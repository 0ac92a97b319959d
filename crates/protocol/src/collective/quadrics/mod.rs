//! Barriers and broadcasts of the Quadrics library, as machines: a balanced tree with a multicast down (*gsync*), a
//! multicast that tests everyone at once (*hgsync*), and broadcasts that begin with either (claims QN-6, QN-7, QN-9, QN-10).
//!
//! In: entries of the own rank, signals of others, answers of tests. Out: duties in a list that the driver lends. Every
//! signal carries the number of its call, so one that comes early is kept and one that comes twice changes nothing.
//!
//! Reading order: `members` says who takes part and who is whose parent; `tree_barrier` and `polled_barrier` synchronise;
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

/// What the driver must do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuadricsAction {
    /// Tell a parent that everyone below has come.
    Ready {
        /// The parent.
        to: Rank,
        /// To which call.
        call: CallNumber,
    },
    /// Release all members with one multicast.
    ReleaseAll {
        /// From which call.
        call: CallNumber,
    },
    /// Release a child; it passes the word on.
    Release {
        /// The child.
        to: Rank,
        /// From which call.
        call: CallNumber,
    },
    /// Ask all members with one multicast if they have come, and release them if all have.
    Test {
        /// To which call.
        call: CallNumber,
    },
    /// Say when so much time has passed.
    Wait {
        /// How much.
        span: Span,
    },
    /// Send the data to all members with one multicast.
    DataToAll {
        /// Of which call.
        call: CallNumber,
    },
    /// Send the data to a child; it passes it on.
    Data {
        /// The child.
        to: Rank,
        /// Of which call.
        call: CallNumber,
    },
    /// The call is over here.
    Complete {
        /// Which.
        call: CallNumber,
    },
}

/// What a multicast test came to: what the members say together, the worst of it (QN-6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PollOutcome {
    /// All have come.
    All,
    /// Somebody has not.
    NotAll,
    /// The test itself was damaged.
    Damaged,
}
