//! What a rank of the demo tells the demo, a line of JSON each on its standard output.

use serde::{Deserialize, Serialize};

use super::operation::DemoOperation;

/// A word of a rank.
#[derive(Serialize, Deserialize)]
pub(super) enum RankReport {
    /// It has met the others.
    Joined {
        /// How operations go between hosts, and why.
        explained: String,
    },
    /// It begins some operations of a kind; from rank 0.
    Begins {
        /// Which kind.
        piece: DemoOperation,
        /// How much of the act is over.
        share: f64,
    },
    /// It has done some operations of a kind.
    Done(BatchReport),
    /// It has done all.
    Ended(RankTotals),
    /// It cannot go on.
    Failed {
        /// Why.
        what: String,
    },
}

/// Operations in a row, all of one kind.
#[derive(Serialize, Deserialize)]
pub(super) struct BatchReport {
    /// Which kind.
    pub piece: DemoOperation,
    /// The number of the first; all ranks count alike.
    pub first: u64,
    /// When each call was made, by the machine's monotonic clock.
    pub entered_ns: Vec<u64>,
    /// When each returned.
    pub left_ns: Vec<u64>,
    /// Of the results, those that were not what they should be.
    pub wrong: Vec<String>,
}

/// What a rank has done and seen.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(super) struct RankTotals {
    /// Operations of all kinds.
    pub operations: u64,
    /// Of them through nodes, if the rank speaks for its host.
    pub aggregated: u64,
    /// PacketCounters sent.
    pub sent: u64,
    /// Of them repeats.
    pub repeated: u64,
    /// Hurt by the plan of faults on their way out.
    pub hurt: u64,
    /// Lost by it.
    pub lost: u64,
    /// PacketCounters that came damaged and were dropped.
    pub damaged: u64,
}

impl RankTotals {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            aggregated: self.aggregated + other.aggregated,
            sent: self.sent + other.sent,
            repeated: self.repeated + other.repeated,
            hurt: self.hurt + other.hurt,
            lost: self.lost + other.lost,
            damaged: self.damaged + other.damaged,
        }
    }
}
