//! The algorithms by name, and the phases that each is made of.

use std::fmt;

use reduce::ReductionKind;
use units::Rank;

use super::dissemination::DisseminationBarrier;
use super::fold_order::FoldOrder;
use super::knomial::{KnomialBroadcast, KnomialReduce, KnomialScatter, KnomialTree};
use super::ordered::{BlockAllToAll, OrderedTreeReduce, SendToRoot};
use super::rabenseifner::{DoublingAllgather, HalvingReduceScatter};
use super::recursive_exchange::{NonPowerPostPhase, NonPowerPrePhase, RecursiveExchange};
use super::ring::{GatherToRoot, RingAllgather, RingReduceScatter};
use super::step::RoundPattern;

/// What a group does together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CollectiveOperation {
    /// Nobody leaves before all have come.
    Barrier,
    /// All get what the root has.
    Broadcast {
        /// Who has it.
        root: Rank,
    },
    /// The root gets the fold of all contributions.
    Reduce {
        /// Who gets it.
        root: Rank,
        /// What is folded, and how.
        kind: ReductionKind,
    },
    /// All get the fold of all contributions.
    AllReduce {
        /// What is folded, and how.
        kind: ReductionKind,
    },
}

impl CollectiveOperation {
    /// What is folded and how, if anything is.
    pub const fn kind(&self) -> Option<ReductionKind> {
        match self {
            Self::Barrier | Self::Broadcast { .. } => None,
            Self::Reduce { kind, .. } | Self::AllReduce { kind } => Some(*kind),
        }
    }

    /// The rank that is special, if one is.
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

/// How hosts do it among themselves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CollectiveAlgorithm {
    /// Pairs exchange whole vectors. Allreduce and barrier.
    RecursiveDoubling,
    /// Groups of `radix` exchange whole vectors. Allreduce and barrier.
    RecursiveKing {
        /// Ranks in a group.
        radix: u16,
    },
    /// Recursive halving, then recursive doubling. Allreduce, and reduce as an allreduce whose result the others drop.
    Rabenseifner,
    /// Blocks travel around the ring. Allreduce and reduce.
    Ring,
    /// A tree of radix k, binomial if it is two. Reduce, broadcast, and both in a row for allreduce and barrier.
    Tree {
        /// Groups that merge at each level.
        radix: u16,
    },
    /// Blocks are scattered over a binomial tree, then travel around the ring. Broadcast.
    ScatterAllgather,
    /// Everyone tells those ahead of it. Barrier.
    Dissemination {
        /// How much faster news spreads with each round.
        radix: u16,
    },
    /// Ranks play a prescribed tree. Allreduce and reduce.
    OrderedTree,
    /// Every rank folds a block in a prescribed order. Allreduce and reduce.
    OrderedBlocks,
}

impl CollectiveAlgorithm {
    /// True if the algorithm can do this.
    pub const fn suits(self, collective: &CollectiveOperation) -> bool {
        use CollectiveOperation::{AllReduce, Barrier, Broadcast, Reduce};
        match self {
            Self::RecursiveDoubling | Self::RecursiveKing { .. } => matches!(collective, AllReduce { .. } | Barrier),
            Self::Tree { .. } => true,
            Self::ScatterAllgather => matches!(collective, Broadcast { .. }),
            Self::Dissemination { .. } => matches!(collective, Barrier),
            Self::Rabenseifner | Self::Ring | Self::OrderedTree | Self::OrderedBlocks => {
                matches!(collective, AllReduce { .. } | Reduce { .. })
            }
        }
    }

    /// True if it plays a prescribed [`FoldOrder`].
    pub const fn is_ordered(self) -> bool {
        matches!(self, Self::OrderedTree | Self::OrderedBlocks)
    }

    /// True if the vector is cut into a block for each rank.
    pub const fn cuts(self) -> bool {
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
            Self::ScatterAllgather => f.write_str("scatter and allgather"),
            Self::Dissemination { radix } => write!(f, "dissemination of radix {radix}"),
            Self::OrderedTree => f.write_str("prescribed tree"),
            Self::OrderedBlocks => f.write_str("prescribed order by blocks"),
        }
    }
}

/// A part of an algorithm whose rounds follow one pattern.
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
    Disseminate(DisseminationBarrier),
    OrderFold(OrderedTreeReduce<'a>),
    CollectBlocks,
    HandOver(SendToRoot),
}

impl SchedulePhase<'_> {
    /// What is to be done in it; nothing at all in an empty place.
    pub(super) fn schedule(&self) -> Option<&dyn RoundPattern> {
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
            Self::Disseminate(disseminate) => disseminate,
            Self::OrderFold(fold) => fold,
            Self::CollectBlocks => &BlockAllToAll,
            Self::HandOver(hand_over) => hand_over,
        })
    }
}

/// Most phases that an algorithm has.
pub(super) const MAX_PHASES: usize = 4;

/// The phases of an algorithm that suits the collective, in their order. `order` is there if the algorithm is ordered.
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
        CollectiveAlgorithm::Dissemination { .. } => {
            [SchedulePhase::Disseminate(DisseminationBarrier { radix }), Nothing, Nothing, Nothing]
        }
        CollectiveAlgorithm::OrderedTree => {
            let order = order.expect("the plan has an order for an ordered algorithm");
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

/// How finished blocks reach those who want the result.
fn distribute_blocks<'a>(root: Option<Rank>) -> SchedulePhase<'a> {
    match root {
        Some(root) => SchedulePhase::GatherBlocks(GatherToRoot { root: root.0 }),
        None => SchedulePhase::RingSpread,
    }
}
