//! The reports of a rank to the round that started it: one line of JSON each on the standard output.

use serde::{Deserialize, Serialize};

/// One report of a rank.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum ChaosRankReport {
    /// The rank has joined the job.
    Joined { millis: u64 },
    /// It could not.
    JoinFailed { millis: u64, why: String },
    /// An operation has completed.
    Result {
        generation: u32,
        index: u64,
        digest: u64,
        micros: u64,
        /// What a stop poll said.
        is_end: Option<bool>,
    },
    /// An operation has failed.
    Failed { generation: u32, index: u64, error: ReportedError, micros: u64 },
    /// The ranks that are left have a new communicator of these.
    Shrunk { generation: u32, members: Vec<u32>, millis: u64 },
    /// They could not form one.
    ShrinkFailed { generation: u32, why: String },
    /// The round is over for this rank. Operations that aggregation nodes reduced, as its host's leader counts them.
    Finished { aggregated: u64 },
}

/// The error of an operation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) enum ReportedError {
    RanksLost { ranks: Vec<u32> },
    CutOff { ranks: Vec<u32> },
    Unreachable { from: u32, to: u32 },
    Other { what: String },
}

impl From<&pleach::Error> for ReportedError {
    fn from(error: &pleach::Error) -> Self {
        match error {
            pleach::Error::RanksLost { ranks } => Self::RanksLost { ranks: ranks.clone() },
            pleach::Error::CutOff { ranks } => Self::CutOff { ranks: ranks.clone() },
            pleach::Error::Unreachable { from, to, .. } => Self::Unreachable { from: *from, to: *to },
            other => Self::Other { what: other.to_string() },
        }
    }
}

impl std::fmt::Display for ReportedError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::RanksLost { ranks } => write!(f, "ranks {ranks:?} are lost"),
            Self::CutOff { ranks } => write!(f, "cut off from ranks {ranks:?}"),
            Self::Unreachable { from, to } => write!(f, "rank {from} cannot reach rank {to}"),
            Self::Other { what } => f.write_str(what),
        }
    }
}
