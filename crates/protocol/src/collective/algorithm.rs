//! The collectives, the algorithms by name, and the phases of each algorithm.

use std::fmt;

use reduce::ReductionKind;
use units::Rank;

use super::chain::ChainBroadcast;
use super::dissemination::DisseminationBarrier;
use super::fold_order::FoldOrder;
use super::knomial::{KnomialBroadcast, KnomialReduce, KnomialScatter, KnomialTree};
use super::ordered::{BlockAllToAll, OrderedTreeReduce, SendToRoot};
use super::rabenseifner::{DoublingAllgather, HalvingReduceScatter};
use super::recursive_exchange::{NonPowerPostPhase, NonPowerPrePhase, RecursiveExchange};
use super::ring::{GatherToRoot, RingAllgather, RingReduceScatter};
use super::step::RoundPattern;

/// A collective operation with its arguments.
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
}

impl CollectiveOperation {
    /// Element type and operator, if there is a reduction.
    pub const fn kind(&self) -> Option<ReductionKind> {
        match self {
            Self::Barrier | Self::Broadcast { .. } => None,
            Self::Reduce { kind, .. } | Self::AllReduce { kind } => Some(*kind),
        }
    }

    /// The root, if there is one.
    pub const fn root(&self) -> Option<Rank> {
        match self {
            Self::Barrier | Self::AllReduce { .. } => None,
            Self::Broadcast { root } | Self::Reduce { root, .. } => Some(*root),
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
        }
    }
}

/// The algorithm of a collective among hosts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CollectiveAlgorithm {
    /// Pairs exchange whole vectors. Allreduce and barrier.
    RecursiveDoubling,
    /// Groups of `radix` exchange whole vectors. Allreduce and barrier.
    RecursiveKing {
        /// Ranks in a group.
        radix: u16,
    },
    /// Recursive halving, then recursive doubling. Allreduce; reduce as an allreduce whose result only the root uses.
    Rabenseifner,
    /// Blocks travel around the ring. Allreduce and reduce.
    Ring,
    /// A k-nomial tree, binomial for radix two. Reduce, broadcast, and both in sequence for allreduce and barrier.
    Tree {
        /// Groups that merge at each level.
        radix: u16,
    },
    /// The vector passes from rank to rank. Broadcast.
    Chain,
    /// A binomial scatter, then a ring allgather. Broadcast.
    ScatterAllgather,
    /// Every rank signals the ranks at growing distances. Barrier.
    Dissemination {
        /// By how much the distance grows in each round.
        radix: u16,
    },
    /// Ranks run a prescribed tree. Allreduce and reduce.
    OrderedTree,
    /// Every rank folds a block in a prescribed order. Allreduce and reduce.
    OrderedBlocks,
}

impl CollectiveAlgorithm {
    /// True if the algorithm supports this collective.
    pub const fn supports(self, collective: &CollectiveOperation) -> bool {
        use CollectiveOperation::{AllReduce, Barrier, Broadcast, Reduce};
        match self {
            Self::RecursiveDoubling | Self::RecursiveKing { .. } => matches!(collective, AllReduce { .. } | Barrier),
            Self::Tree { .. } => true,
            Self::Chain | Self::ScatterAllgather => matches!(collective, Broadcast { .. }),
            Self::Dissemination { .. } => matches!(collective, Barrier),
            Self::Rabenseifner | Self::Ring | Self::OrderedTree | Self::OrderedBlocks => {
                matches!(collective, AllReduce { .. } | Reduce { .. })
            }
        }
    }

    /// True if it needs a prescribed [`FoldOrder`].
    pub const fn is_ordered(self) -> bool {
        matches!(self, Self::OrderedTree | Self::OrderedBlocks)
    }

    /// True if the vector is split into one block per rank.
    pub const fn splits_vector(self) -> bool {
        matches!(self, Self::Rabenseifner | Self::Ring | Self::ScatterAllgather | Self::OrderedBlocks)
    }

    /// How many ranks exchange or merge at once.
    pub const fn radix(self) -> u16 {
        match self {
            Self::RecursiveKing { radix } | Self::Tree { radix } | Self::Dissemination { radix } => radix,
            _ => 2,
        }
    }
}

impl fmt::Display for CollectiveAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RecursiveDoubling => f.write_str("recursive doubling"),
            Self::RecursiveKing { radix } => write!(f, "recursive k-ing of radix {radix}"),
            Self::Rabenseifner => f.write_str("Rabenseifner's algorithm"),
            Self::Ring => f.write_str("ring"),
            Self::Tree { radix: 2 } => f.write_str("binomial tree"),
            Self::Tree { radix } => write!(f, "tree of radix {radix}"),
            Self::Chain => f.write_str("chain"),
            Self::ScatterAllgather => f.write_str("scatter and allgather"),
            Self::Dissemination { radix } => write!(f, "dissemination of radix {radix}"),
            Self::OrderedTree => f.write_str("prescribed tree"),
            Self::OrderedBlocks => f.write_str("prescribed order by blocks"),
        }
    }
}

/// A phase of an algorithm, whose rounds follow one pattern.
pub(super) enum SchedulePhase<'a> {
    Nothing,
    Join,
    Exchange(RecursiveExchange),
    Leave,
    Halve,
    Double,
    RingFold,
    RingSpread,
    GatherBlocks(GatherToRoot),
    TreeReduce(KnomialReduce),
    TreeBroadcast(KnomialBroadcast),
    TreeScatter(KnomialScatter),
    PassOn(ChainBroadcast),
    Disseminate(DisseminationBarrier),
    OrderFold(OrderedTreeReduce<'a>),
    CollectBlocks,
    HandOver(SendToRoot),
}

impl SchedulePhase<'_> {
    /// The pattern of its rounds; none for an empty phase.
    pub(super) fn pattern(&self) -> Option<&dyn RoundPattern> {
        Some(match self {
            Self::Nothing => return None,
            Self::Join => &NonPowerPrePhase,
            Self::Exchange(exchange) => exchange,
            Self::Leave => &NonPowerPostPhase,
            Self::Halve => &HalvingReduceScatter,
            Self::Double => &DoublingAllgather,
            Self::RingFold => &RingReduceScatter,
            Self::RingSpread => &RingAllgather,
            Self::GatherBlocks(gather) => gather,
            Self::TreeReduce(reduce) => reduce,
            Self::TreeBroadcast(broadcast) => broadcast,
            Self::TreeScatter(scatter) => scatter,
            Self::PassOn(chain) => chain,
            Self::Disseminate(disseminate) => disseminate,
            Self::OrderFold(fold) => fold,
            Self::CollectBlocks => &BlockAllToAll,
            Self::HandOver(hand_over) => hand_over,
        })
    }
}

/// The largest number of phases of any algorithm.
pub(super) const MAX_PHASES: usize = 4;

/// The phases of an algorithm, in order. `order` is present if the algorithm needs it.
pub(super) fn phases<'a>(
    algorithm: CollectiveAlgorithm,
    collective: &CollectiveOperation,
    order: Option<&'a FoldOrder>,
) -> [SchedulePhase<'a>; MAX_PHASES] {
    use SchedulePhase::Nothing;
    let radix = u32::from(algorithm.radix());
    let root = collective.root();
    let tree = |root: Option<Rank>| KnomialTree { root: root.unwrap_or_default().0, radix };
    match algorithm {
        CollectiveAlgorithm::RecursiveDoubling | CollectiveAlgorithm::RecursiveKing { .. } => {
            [SchedulePhase::Join, SchedulePhase::Exchange(RecursiveExchange { radix }), SchedulePhase::Leave, Nothing]
        }
        CollectiveAlgorithm::Rabenseifner => {
            [SchedulePhase::Join, SchedulePhase::Halve, SchedulePhase::Double, SchedulePhase::Leave]
        }
        CollectiveAlgorithm::Ring => [SchedulePhase::RingFold, distribute_blocks(root), Nothing, Nothing],
        CollectiveAlgorithm::Tree { .. } => {
            let reduce = SchedulePhase::TreeReduce(KnomialReduce(tree(root)));
            let broadcast = SchedulePhase::TreeBroadcast(KnomialBroadcast(tree(root)));
            match collective {
                CollectiveOperation::Reduce { .. } => [reduce, Nothing, Nothing, Nothing],
                CollectiveOperation::Broadcast { .. } => [broadcast, Nothing, Nothing, Nothing],
                CollectiveOperation::AllReduce { .. } | CollectiveOperation::Barrier => {
                    [reduce, broadcast, Nothing, Nothing]
                }
            }
        }
        CollectiveAlgorithm::ScatterAllgather => {
            [SchedulePhase::TreeScatter(KnomialScatter(tree(root))), SchedulePhase::RingSpread, Nothing, Nothing]
        }
        CollectiveAlgorithm::Chain => {
            let root = root.unwrap_or_default().0;
            [SchedulePhase::PassOn(ChainBroadcast { root }), Nothing, Nothing, Nothing]
        }
        CollectiveAlgorithm::Dissemination { .. } => {
            [SchedulePhase::Disseminate(DisseminationBarrier { radix }), Nothing, Nothing, Nothing]
        }
        CollectiveAlgorithm::OrderedTree => {
            let order = order.expect("the schedule of an ordered algorithm has an order");
            let last = match root {
                Some(root) => SchedulePhase::HandOver(SendToRoot { from: order.root().0, to: root.0 }),
                None => SchedulePhase::TreeBroadcast(KnomialBroadcast(tree(Some(order.root())))),
            };
            [SchedulePhase::OrderFold(OrderedTreeReduce(order)), last, Nothing, Nothing]
        }
        CollectiveAlgorithm::OrderedBlocks => {
            [SchedulePhase::CollectBlocks, distribute_blocks(root), Nothing, Nothing]
        }
    }
}

/// The phase that delivers finished blocks to the ranks that need the result.
fn distribute_blocks<'a>(root: Option<Rank>) -> SchedulePhase<'a> {
    match root {
        Some(root) => SchedulePhase::GatherBlocks(GatherToRoot { root: root.0 }),
        None => SchedulePhase::RingSpread,
    }
}
