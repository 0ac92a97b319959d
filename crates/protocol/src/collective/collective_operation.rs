//! The collectives.

use std::fmt;
use std::sync::Arc;

use reduce::ReductionKind;
use units::Rank;

use super::block_layout::BlockLayout;

/// A collective operation with its arguments.
///
/// In those that divide the vector into one block per rank, a [`BlockLayout`] gives the lengths of the blocks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CollectiveOperation {
    /// Blocks until every rank has entered.
    Barrier,
    /// All ranks get the root's vector.
    Broadcast {
        /// The source.
        root: Rank,
    },
    /// The root gets the fold of all contributions.
    Reduce {
        /// The destination.
        root: Rank,
        /// Element type and operator.
        kind: ReductionKind,
    },
    /// All ranks get the fold of all contributions.
    AllReduce {
        /// Element type and operator.
        kind: ReductionKind,
    },
    /// Each rank gets its block of the fold of all contributions.
    ReduceScatter {
        /// Element type and operator.
        kind: ReductionKind,
    },
    /// Each rank gets the fold of the contributions of the ranks before it.
    Scan {
        /// Element type and operator.
        kind: ReductionKind,
        /// Whether its own contribution is included.
        extent: ScanExtent,
    },
    /// All ranks get the blocks of all ranks.
    AllGather,
    /// The root gets the blocks of all ranks.
    Gather {
        /// The destination.
        root: Rank,
    },
    /// Each rank gets its block of the root's vector.
    Scatter {
        /// The source.
        root: Rank,
    },
    /// Each rank gets its block of every rank's vector.
    AllToAll,
}

/// A collective with everything that its schedule needs beside rank, size and length.
#[derive(Clone, Debug)]
pub struct ScheduledCollective {
    /// The collective.
    pub operation: CollectiveOperation,
    /// The blocks of its vector, if it has them.
    pub blocks: Option<Arc<BlockLayout>>,
}

impl From<CollectiveOperation> for ScheduledCollective {
    fn from(operation: CollectiveOperation) -> Self {
        Self { operation, blocks: None }
    }
}

/// Whether a rank's own contribution is part of its result in a scan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ScanExtent {
    /// It is.
    Inclusive,
    /// It is not. Rank 0 gets no result.
    Exclusive,
}

impl CollectiveOperation {
    /// Element type and operator, if there is a reduction.
    pub const fn kind(&self) -> Option<ReductionKind> {
        match self {
            Self::Reduce { kind, .. }
            | Self::AllReduce { kind }
            | Self::ReduceScatter { kind }
            | Self::Scan { kind, .. } => Some(*kind),
            _ => None,
        }
    }

    /// The root, if there is one.
    pub const fn root(&self) -> Option<Rank> {
        match self {
            Self::Broadcast { root } | Self::Reduce { root, .. } | Self::Gather { root } | Self::Scatter { root } => {
                Some(*root)
            }
            _ => None,
        }
    }

    /// True if the vector is divided into one block per rank, by a [`BlockLayout`].
    pub const fn has_blocks(&self) -> bool {
        matches!(
            self,
            Self::ReduceScatter { .. }
                | Self::AllGather
                | Self::Gather { .. }
                | Self::Scatter { .. }
                | Self::AllToAll
        )
    }

    /// True if aggregation nodes can do it.
    pub const fn can_aggregate(&self) -> bool {
        matches!(self, Self::Barrier | Self::Broadcast { .. } | Self::Reduce { .. } | Self::AllReduce { .. })
    }

    /// True if a rank has something to contribute.
    pub fn is_contributor(&self, rank: Rank) -> bool {
        match self {
            Self::Barrier => false,
            Self::Broadcast { root } | Self::Scatter { root } => *root == rank,
            _ => true,
        }
    }
}

impl fmt::Display for CollectiveOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Barrier => f.write_str("barrier"),
            Self::Broadcast { root } => write!(f, "broadcast from {root}"),
            Self::Reduce { root, kind } => write!(f, "reduce of {kind} to {root}"),
            Self::AllReduce { kind } => write!(f, "allreduce of {kind}"),
            Self::ReduceScatter { kind } => write!(f, "reduce-scatter of {kind}"),
            Self::Scan { kind, extent: ScanExtent::Inclusive } => write!(f, "scan of {kind}"),
            Self::Scan { kind, extent: ScanExtent::Exclusive } => write!(f, "exclusive scan of {kind}"),
            Self::AllGather => f.write_str("allgather"),
            Self::Gather { root } => write!(f, "gather to {root}"),
            Self::Scatter { root } => write!(f, "scatter from {root}"),
            Self::AllToAll => f.write_str("alltoall"),
        }
    }
}
