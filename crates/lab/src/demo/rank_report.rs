//! The reports of a rank to the demo: one line of JSON each on the standard output.

use serde::{Deserialize, Serialize};

use super::operation::DemoOperation;

/// One report of a rank.
#[derive(Serialize, Deserialize)]
pub(super) enum RankReport {
    /// The rank has joined the job.
    Joined {
        /// Which algorithm is used between hosts, and why.
        explained: String,
    },
    /// Rank 0 starts a batch of operations.
    BatchStarted {
        operation: DemoOperation,
        /// Share of the phase that is over.
        share: f64,
    },
    /// The rank has completed a batch.
    BatchDone(BatchReport),
    /// The rank has completed the phase.
    Finished(RankTotals),
    /// The rank has failed.
    Failed { what: String },
}

/// A batch of one operation.
#[derive(Serialize, Deserialize)]
pub(super) struct BatchReport {
    pub operation: DemoOperation,
    /// The number of the first operation, equal at all ranks.
    pub first: u64,
    /// The start of each call, by the monotonic clock.
    pub entered_ns: Vec<u64>,
    /// The return of each call.
    pub left_ns: Vec<u64>,
    /// Descriptions of the wrong results.
    pub wrong: Vec<String>,
}

/// Counters of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(super) struct RankTotals {
    /// All operations.
    pub operations: u64,
    /// Operations through aggregation nodes, if the rank leads its host.
    pub aggregated: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets retransmitted.
    pub retransmitted: u64,
    /// Sent packets that the fault plan damaged.
    pub damaged_by_plan: u64,
    /// Sent packets that the fault plan dropped.
    pub lost_by_plan: u64,
    /// Received packets that were damaged and dropped.
    pub damaged: u64,
}

impl RankTotals {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            aggregated: self.aggregated + other.aggregated,
            sent: self.sent + other.sent,
            retransmitted: self.retransmitted + other.retransmitted,
            damaged_by_plan: self.damaged_by_plan + other.damaged_by_plan,
            lost_by_plan: self.lost_by_plan + other.lost_by_plan,
            damaged: self.damaged + other.damaged,
        }
    }
}
