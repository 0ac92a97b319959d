//! The algorithms by name, and the phases of each.

use std::fmt;

use units::Rank;

use super::block_exchange::{BlockDoubling, BlockHalving, BlockJoin, BlockLeave};
use super::chain::ChainBroadcast;
use super::collective_operation::CollectiveOperation;
use super::direct::{GatherToRoot, PairwiseExchange, ScatterFromRoot};
use super::dissemination::DisseminationBarrier;
use super::fold_order::FoldOrder;
use super::knomial::{KnomialBroadcast, KnomialGather, KnomialReduce, KnomialScatter, KnomialTree};
use super::ordered::{BlockAllToAll, OrderedTreeReduce, SendToRoot};
use super::prefix::{PrefixChain, PrefixDoubling, PrefixShift};
use super::rabenseifner::{DoublingAllgather, HalvingReduceScatter};
use super::recursive_exchange::{NonPowerPostPhase, NonPowerPrePhase, RecursiveExchange};
use super::ring::{RingAllgather, RingReduceScatter};
use super::step::RoundPattern;

/// The algorithm of a collective among hosts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CollectiveAlgorithm {
    /// Pairs exchange what they have. Allreduce, barrier, allgather and scan.
    RecursiveDoubling,
    /// Groups of `radix` exchange whole vectors. Allreduce and barrier.
    RecursiveKing {
        /// Ranks in a group.
        radix: u16,
    },
    /// Pairs split what they have in common. Reduce-scatter.
    RecursiveHalving,
    /// Recursive halving, then recursive doubling. Allreduce; reduce as an allreduce whose result only the root uses.
    Rabenseifner,
    /// Blocks travel around the ring. Allreduce, reduce, reduce-scatter and allgather.
    Ring,
    /// A k-nomial tree, binomial for radix two. Reduce, broadcast, gather and scatter; two of them in sequence for allreduce, barrier and
    /// reduce-scatter.
    Tree {
        /// Groups that merge at each level.
        radix: u16,
    },
    /// The vector passes from rank to rank. Broadcast and scan.
    Chain,
    /// A binomial scatter, then a ring allgather. Broadcast.
    ScatterAllgather,
    /// Every rank signals the ranks at growing distances. Barrier.
    Dissemination {
        /// By how much the distance grows in each round.
        radix: u16,
    },
    /// Every block goes straight to its destination. Gather, scatter and alltoall.
    Direct,
    /// Ranks run a prescribed tree. Allreduce and reduce.
    OrderedTree,
    /// Every rank folds a block in a prescribed order. Allreduce and reduce.
    OrderedBlocks,
}

impl CollectiveAlgorithm {
    /// True if the algorithm supports this collective.
    pub const fn supports(self, collective: &CollectiveOperation) -> bool {
        use CollectiveOperation::{
            AllGather, AllReduce, AllToAll, Barrier, Broadcast, Gather, Reduce, ReduceScatter, Scan, Scatter,
        };
        match self {
            Self::RecursiveDoubling => matches!(collective, AllReduce { .. } | Barrier | AllGather | Scan { .. }),
            Self::RecursiveKing { .. } => matches!(collective, AllReduce { .. } | Barrier),
            Self::RecursiveHalving => matches!(collective, ReduceScatter { .. }),
            Self::Tree { .. } => !matches!(collective, AllGather | Scan { .. } | AllToAll),
            Self::Chain => matches!(collective, Broadcast { .. } | Scan { .. }),
            Self::ScatterAllgather => matches!(collective, Broadcast { .. }),
            Self::Dissemination { .. } => matches!(collective, Barrier),
            Self::Direct => matches!(collective, Gather { .. } | Scatter { .. } | AllToAll),
            Self::Ring => {
                matches!(collective, AllReduce { .. } | Reduce { .. } | ReduceScatter { .. } | AllGather)
            }
            Self::Rabenseifner | Self::OrderedTree | Self::OrderedBlocks => {
                matches!(collective, AllReduce { .. } | Reduce { .. })
            }
        }
    }

    /// True if it needs a prescribed [`FoldOrder`].
    pub const fn is_ordered(self) -> bool {
        matches!(self, Self::OrderedTree | Self::OrderedBlocks)
    }

    /// True if it folds contiguous ranks only, lower ranks on the left (P-56).
    pub const fn keeps_rank_order(self) -> bool {
        !matches!(self, Self::Ring | Self::RecursiveHalving)
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
            Self::RecursiveHalving => f.write_str("recursive halving"),
            Self::Rabenseifner => f.write_str("Rabenseifner's algorithm"),
            Self::Ring => f.write_str("ring"),
            Self::Tree { radix: 2 } => f.write_str("binomial tree"),
            Self::Tree { radix } => write!(f, "tree of radix {radix}"),
            Self::Chain => f.write_str("chain"),
            Self::ScatterAllgather => f.write_str("scatter and allgather"),
            Self::Dissemination { radix } => write!(f, "dissemination of radix {radix}"),
            Self::Direct => f.write_str("direct messages"),
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
    ScatterBlocks(ScatterFromRoot),
    ExchangeBlocks,
    JoinBlocks,
    DoubleBlocks,
    HalveBlocks,
    LeaveBlocks,
    Shift(PrefixShift),
    DoublePrefixes(PrefixDoubling),
    PassPrefixes(PrefixChain),
    TreeReduce(KnomialReduce),
    TreeGather(KnomialGather),
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
            Self::ScatterBlocks(scatter) => scatter,
            Self::ExchangeBlocks => &PairwiseExchange,
            Self::JoinBlocks => &BlockJoin,
            Self::DoubleBlocks => &BlockDoubling,
            Self::HalveBlocks => &BlockHalving,
            Self::LeaveBlocks => &BlockLeave,
            Self::Shift(shift) => shift,
            Self::DoublePrefixes(doubling) => doubling,
            Self::PassPrefixes(chain) => chain,
            Self::TreeReduce(reduce) => reduce,
            Self::TreeGather(gather) => gather,
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
    match algorithm {
        CollectiveAlgorithm::RecursiveDoubling | CollectiveAlgorithm::RecursiveKing { .. } => {
            doubling_phases(radix, collective)
        }
        CollectiveAlgorithm::RecursiveHalving => {
            [SchedulePhase::Join, SchedulePhase::HalveBlocks, SchedulePhase::LeaveBlocks, Nothing]
        }
        CollectiveAlgorithm::Rabenseifner => {
            [SchedulePhase::Join, SchedulePhase::Halve, SchedulePhase::Double, SchedulePhase::Leave]
        }
        CollectiveAlgorithm::Ring => match collective {
            CollectiveOperation::ReduceScatter { .. } => [SchedulePhase::RingFold, Nothing, Nothing, Nothing],
            CollectiveOperation::AllGather => [SchedulePhase::RingSpread, Nothing, Nothing, Nothing],
            _ => [SchedulePhase::RingFold, distribute_blocks(root), Nothing, Nothing],
        },
        CollectiveAlgorithm::Tree { .. } => tree_phases(radix, collective),
        CollectiveAlgorithm::ScatterAllgather => {
            let scatter = KnomialScatter(KnomialTree::new(root, radix));
            [SchedulePhase::TreeScatter(scatter), SchedulePhase::RingSpread, Nothing, Nothing]
        }
        CollectiveAlgorithm::Chain => match *collective {
            CollectiveOperation::Scan { extent, .. } => {
                let chain = SchedulePhase::PassPrefixes(PrefixChain(extent));
                [SchedulePhase::Shift(PrefixShift(extent)), chain, Nothing, Nothing]
            }
            _ => {
                let root = root.unwrap_or_default().0;
                [SchedulePhase::PassOn(ChainBroadcast { root }), Nothing, Nothing, Nothing]
            }
        },
        CollectiveAlgorithm::Dissemination { .. } => {
            [SchedulePhase::Disseminate(DisseminationBarrier { radix }), Nothing, Nothing, Nothing]
        }
        CollectiveAlgorithm::Direct => {
            let phase = match *collective {
                CollectiveOperation::Gather { root } => SchedulePhase::GatherBlocks(GatherToRoot { root: root.0 }),
                CollectiveOperation::Scatter { root } => {
                    SchedulePhase::ScatterBlocks(ScatterFromRoot { root: root.0 })
                }
                _ => SchedulePhase::ExchangeBlocks,
            };
            [phase, Nothing, Nothing, Nothing]
        }
        CollectiveAlgorithm::OrderedTree => {
            let order = order.expect("the schedule of an ordered algorithm has an order");
            let last = match root {
                Some(root) => SchedulePhase::HandOver(SendToRoot { from: order.root().0, to: root.0 }),
                None => SchedulePhase::TreeBroadcast(KnomialBroadcast(KnomialTree::new(Some(order.root()), radix))),
            };
            [SchedulePhase::OrderFold(OrderedTreeReduce(order)), last, Nothing, Nothing]
        }
        CollectiveAlgorithm::OrderedBlocks => {
            [SchedulePhase::CollectBlocks, distribute_blocks(root), Nothing, Nothing]
        }
    }
}

/// The phases of recursive doubling and recursive k-ing.
fn doubling_phases<'a>(radix: u32, collective: &CollectiveOperation) -> [SchedulePhase<'a>; MAX_PHASES] {
    use SchedulePhase::Nothing;
    match *collective {
        CollectiveOperation::AllGather => {
            [SchedulePhase::JoinBlocks, SchedulePhase::DoubleBlocks, SchedulePhase::Leave, Nothing]
        }
        CollectiveOperation::Scan { extent, .. } => {
            let doubling = SchedulePhase::DoublePrefixes(PrefixDoubling(extent));
            [SchedulePhase::Shift(PrefixShift(extent)), doubling, Nothing, Nothing]
        }
        _ => {
            let exchange = SchedulePhase::Exchange(RecursiveExchange { radix });
            [SchedulePhase::Join, exchange, SchedulePhase::Leave, Nothing]
        }
    }
}

/// The phases of a tree.
fn tree_phases<'a>(radix: u32, collective: &CollectiveOperation) -> [SchedulePhase<'a>; MAX_PHASES] {
    use SchedulePhase::Nothing;
    let tree = KnomialTree::new(collective.root(), radix);
    let reduce = SchedulePhase::TreeReduce(KnomialReduce(tree));
    let broadcast = SchedulePhase::TreeBroadcast(KnomialBroadcast(tree));
    let scatter = SchedulePhase::TreeScatter(KnomialScatter(tree));
    match collective {
        CollectiveOperation::Reduce { .. } => [reduce, Nothing, Nothing, Nothing],
        CollectiveOperation::Broadcast { .. } => [broadcast, Nothing, Nothing, Nothing],
        CollectiveOperation::Gather { .. } => {
            [SchedulePhase::TreeGather(KnomialGather(tree)), Nothing, Nothing, Nothing]
        }
        CollectiveOperation::Scatter { .. } => [scatter, Nothing, Nothing, Nothing],
        CollectiveOperation::ReduceScatter { .. } => [reduce, scatter, Nothing, Nothing],
        _ => [reduce, broadcast, Nothing, Nothing],
    }
}

/// The phase that delivers finished blocks to the ranks that need the result.
fn distribute_blocks<'a>(root: Option<Rank>) -> SchedulePhase<'a> {
    match root {
        Some(root) => SchedulePhase::GatherBlocks(GatherToRoot { root: root.0 }),
        None => SchedulePhase::RingSpread,
    }
}
