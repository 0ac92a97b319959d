//! K-nomial trees, binomial for radix two: reduce and gather to a root, broadcast and scatter from one.
//!
//! Ranks form groups of `radix^level` contiguous ranks. The leader of a group is the root if it is a member,
//! otherwise the first rank. So any rank can be the root without renumbering: operands keep the rank order, the bits
//! of a result do not depend on the root (P-56), and the blocks of a group in a gather or scatter are one range.

use units::Rank;

use super::rounds::rounds_to_merge;
use super::step::{CombineMode, RankContext, ReceiveStep, RoundPattern, SendStep, VectorRange};

/// The shape of the tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnomialTree {
    root: u32,
    radix: u32,
}

/// Folds towards the root.
pub(super) struct KnomialReduce(pub(super) KnomialTree);
/// Sends each rank's block to the root.
pub(super) struct KnomialGather(pub(super) KnomialTree);
/// Copies from the root.
pub(super) struct KnomialBroadcast(pub(super) KnomialTree);
/// Sends each rank its own block from the root.
pub(super) struct KnomialScatter(pub(super) KnomialTree);

/// The role of a rank when the groups of a level merge.
enum MergeRole {
    /// It leads the merged group.
    Leader,
    /// It leads one of the groups that merge; the value is the leader of the merged group.
    Subleader(u32),
    Idle,
}

/// Groups that merge, seen from a rank in one of them.
struct Merge {
    tree: KnomialTree,
    /// The first rank of the merged group.
    first: u32,
    /// Ranks in each group that merges.
    span: u32,
    /// The rank's own group.
    mine: u32,
}

impl KnomialTree {
    /// A tree towards a root; any rank will do without one.
    pub(super) fn new(root: Option<Rank>, radix: u32) -> Self {
        Self { root: root.unwrap_or_default().0, radix }
    }

    fn levels(&self, size: u32) -> u32 {
        rounds_to_merge(size, self.radix)
    }

    fn leader(&self, first: u32, span: u32) -> u32 {
        if (first..first + span).contains(&self.root) { self.root } else { first }
    }

    fn merge(&self, rank: u32, level: u32) -> Merge {
        let span = self.radix.pow(level);
        let merged = span * self.radix;
        let first = rank / merged * merged;
        Merge { tree: *self, first, span, mine: (rank - first) / span }
    }
}

impl Merge {
    fn role(&self, rank: u32) -> MergeRole {
        let above = self.tree.leader(self.first, self.span * self.tree.radix);
        if rank == above {
            MergeRole::Leader
        } else if rank == self.tree.leader(self.first + self.mine * self.span, self.span) {
            MergeRole::Subleader(above)
        } else {
            MergeRole::Idle
        }
    }

    /// The first rank of the `index`-th other group, if there is one.
    fn other(&self, index: u32, size: u32) -> Option<u32> {
        let group = if index < self.mine { index } else { index + 1 };
        let first = self.first + group * self.span;
        (group < self.tree.radix && first < size).then_some(first)
    }

    fn leader_of(&self, first: u32) -> u32 {
        self.tree.leader(first, self.span)
    }

    /// The blocks of a group's ranks.
    fn blocks_of(&self, first: u32, at: &RankContext<'_>) -> VectorRange {
        at.blocks(first, (first + self.span).min(at.size), at.size)
    }

    fn blocks_of_mine(&self, at: &RankContext<'_>) -> VectorRange {
        self.blocks_of(self.first + self.mine * self.span, at)
    }
}

impl RoundPattern for KnomialReduce {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        self.0.levels(at.size)
    }

    fn send(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<SendStep> {
        match self.0.merge(at.rank, round).role(at.rank) {
            MergeRole::Subleader(above) if index == 0 => Some(SendStep { to: Rank(above), part: at.whole() }),
            _ => None,
        }
    }

    fn receive(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<ReceiveStep> {
        let merge = self.0.merge(at.rank, round);
        let MergeRole::Leader = merge.role(at.rank) else { return None };
        let from = merge.leader_of(merge.other(index, at.size)?);
        Some(ReceiveStep { from: Rank(from), part: at.whole(), apply: CombineMode::by_rank(from, at.rank) })
    }

    fn next(&self, at: &RankContext<'_>, round: u32) -> u32 {
        next_merge(&self.0, at, round)
    }
}

/// A rank that has sent its vector is done.
fn next_merge(tree: &KnomialTree, at: &RankContext<'_>, round: u32) -> u32 {
    match tree.merge(at.rank, round).role(at.rank) {
        MergeRole::Idle => tree.levels(at.size),
        MergeRole::Leader | MergeRole::Subleader(_) => round,
    }
}

impl RoundPattern for KnomialGather {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        self.0.levels(at.size)
    }

    fn send(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<SendStep> {
        let merge = self.0.merge(at.rank, round);
        match merge.role(at.rank) {
            MergeRole::Subleader(above) if index == 0 => {
                Some(SendStep { to: Rank(above), part: merge.blocks_of_mine(at) })
            }
            _ => None,
        }
    }

    fn receive(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<ReceiveStep> {
        let merge = self.0.merge(at.rank, round);
        let MergeRole::Leader = merge.role(at.rank) else { return None };
        let group = merge.other(index, at.size)?;
        let (from, part) = (Rank(merge.leader_of(group)), merge.blocks_of(group, at));
        Some(ReceiveStep { from, part, apply: CombineMode::Replace })
    }

    fn next(&self, at: &RankContext<'_>, round: u32) -> u32 {
        next_merge(&self.0, at, round)
    }
}

/// The first round, from this one on, in which a rank receives or sends.
fn next_split(tree: &KnomialTree, at: &RankContext<'_>, round: u32) -> u32 {
    let levels = tree.levels(at.size);
    let is_idle = |level: u32| matches!(tree.merge(at.rank, level).role(at.rank), MergeRole::Idle);
    (round..levels).find(|round| !is_idle(levels - 1 - round)).unwrap_or(levels)
}

/// The merges of a reduce in reverse: the first round splits the largest group.
fn split(tree: &KnomialTree, at: &RankContext<'_>, round: u32) -> Merge {
    tree.merge(at.rank, tree.levels(at.size) - 1 - round)
}

impl RoundPattern for KnomialBroadcast {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        self.0.levels(at.size)
    }

    fn next(&self, at: &RankContext<'_>, round: u32) -> u32 {
        next_split(&self.0, at, round)
    }

    fn send(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<SendStep> {
        let split = split(&self.0, at, round);
        let MergeRole::Leader = split.role(at.rank) else { return None };
        let to = split.leader_of(split.other(index, at.size)?);
        Some(SendStep { to: Rank(to), part: at.whole() })
    }

    fn receive(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<ReceiveStep> {
        match split(&self.0, at, round).role(at.rank) {
            MergeRole::Subleader(above) if index == 0 => {
                Some(ReceiveStep { from: Rank(above), part: at.whole(), apply: CombineMode::Replace })
            }
            _ => None,
        }
    }
}

impl RoundPattern for KnomialScatter {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        self.0.levels(at.size)
    }

    fn next(&self, at: &RankContext<'_>, round: u32) -> u32 {
        next_split(&self.0, at, round)
    }

    fn send(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<SendStep> {
        let split = split(&self.0, at, round);
        let MergeRole::Leader = split.role(at.rank) else { return None };
        let group = split.other(index, at.size)?;
        Some(SendStep { to: Rank(split.leader_of(group)), part: split.blocks_of(group, at) })
    }

    fn receive(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<ReceiveStep> {
        let split = split(&self.0, at, round);
        match split.role(at.rank) {
            MergeRole::Subleader(above) if index == 0 => {
                Some(ReceiveStep { from: Rank(above), part: split.blocks_of_mine(at), apply: CombineMode::Replace })
            }
            _ => None,
        }
    }
}
