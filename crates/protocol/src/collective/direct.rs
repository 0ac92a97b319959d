//! Every block goes straight from its source to its destination.
//!
//! No byte crosses the network twice, which suits long blocks. In a gather and a scatter one rank is an end of every message, so each
//! has a round of its own. In an alltoall two ranks whose numbers add up to the round's, modulo the size, exchange their blocks for each
//! other: a block is sent and replaced in the same round, so the vector is exchanged in place.

use units::Rank;

use super::step::{CombineMode, RankContext, ReceiveStep, RoundPattern, SendStep};

/// Each rank sends its own block to the root.
pub(super) struct GatherToRoot {
    pub(super) root: u32,
}

/// The root sends each rank its block.
pub(super) struct ScatterFromRoot {
    pub(super) root: u32,
}

/// Any two ranks exchange their blocks for each other.
pub(super) struct PairwiseExchange;

/// Pairs that an alltoall has in flight at once.
pub(super) const PAIRS_PER_ROUND: u32 = 64;

/// The round in which the root and a rank communicate; out of range for the root.
fn turn(root: u32, at: &RankContext<'_>) -> u32 {
    (at.rank + at.size - root + at.size - 1) % at.size
}

/// The first round, from this one on, in which a rank communicates with the root.
fn next_turn(root: u32, at: &RankContext<'_>, round: u32) -> u32 {
    match turn(root, at) {
        _ if at.rank == root => round,
        turn if round <= turn => turn,
        _ => at.size - 1,
    }
}

impl RoundPattern for GatherToRoot {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        at.size - 1
    }

    fn send(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<SendStep> {
        (index == 0 && at.rank != self.root && round == turn(self.root, at))
            .then(|| SendStep { to: Rank(self.root), part: at.block(at.rank) })
    }

    fn receive(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<ReceiveStep> {
        let from = at.after(round + 1);
        (index == 0 && at.rank == self.root).then(|| ReceiveStep {
            from: Rank(from),
            part: at.block(from),
            apply: CombineMode::Replace,
        })
    }

    fn next(&self, at: &RankContext<'_>, round: u32) -> u32 {
        next_turn(self.root, at, round)
    }
}

impl RoundPattern for ScatterFromRoot {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        at.size - 1
    }

    fn send(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<SendStep> {
        let to = at.after(round + 1);
        (index == 0 && at.rank == self.root).then(|| SendStep { to: Rank(to), part: at.block(to) })
    }

    fn receive(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<ReceiveStep> {
        (index == 0 && at.rank != self.root && round == turn(self.root, at)).then(|| ReceiveStep {
            from: Rank(self.root),
            part: at.block(at.rank),
            apply: CombineMode::Replace,
        })
    }

    fn next(&self, at: &RankContext<'_>, round: u32) -> u32 {
        next_turn(self.root, at, round)
    }
}

impl PairwiseExchange {
    /// The `index`-th peer of a round. Both have the same sum of ranks, so both meet in the same round.
    fn peer(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<u32> {
        let first = round * PAIRS_PER_ROUND;
        let with_itself = 2 * at.rank % at.size;
        let sum = first + index + u32::from((first..=first + index).contains(&with_itself));
        (sum < (first + PAIRS_PER_ROUND).min(at.size)).then(|| (sum + at.size - at.rank) % at.size)
    }
}

impl RoundPattern for PairwiseExchange {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        if at.size == 1 { 0 } else { at.size.div_ceil(PAIRS_PER_ROUND) }
    }

    fn send(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<SendStep> {
        self.peer(at, round, index).map(|to| SendStep { to: Rank(to), part: at.block(to) })
    }

    fn receive(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<ReceiveStep> {
        let step = |from| ReceiveStep { from: Rank(from), part: at.block(from), apply: CombineMode::Replace };
        self.peer(at, round, index).map(step)
    }
}
