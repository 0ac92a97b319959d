//! Reductions in a prescribed order: the bits of an aggregation tree, without the tree (P-57).
//!
//! For short vectors ranks represent the nodes and run the tree itself: a rank folds the sums of its operands one
//! after the other, in order, and sends the sum on. For long vectors every rank owns a block, receives the
//! contributions of all ranks to it in pairwise exchanges, and folds them when all are here: each rank sends and
//! receives the vector once, and keeps at most one vector's worth of contributions.

use units::Rank;

use super::fold_order::FoldOrder;
use super::step::{CombineMode, RankContext, ReceiveStep, RoundEnd, RoundPattern, SendStep};

/// Ranks run the prescribed tree.
pub(super) struct OrderedTreeReduce<'a>(pub(super) &'a FoldOrder);

/// Every rank sends its contribution to each block to the block's owner.
pub(super) struct BlockAllToAll;

/// One rank sends the whole vector to another, unless they are the same.
pub(super) struct SendToRoot {
    pub(super) from: u32,
    pub(super) to: u32,
}

impl RoundPattern for OrderedTreeReduce<'_> {
    fn rounds(&self, _: &RankContext<'_>) -> u32 {
        self.0.rounds()
    }

    fn send(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<SendStep> {
        let parent = self.0.parent_of(Rank(at.rank))?;
        (index == 0 && round == self.0.round_of(at.rank)).then(|| SendStep { to: parent, part: at.whole() })
    }

    fn receive(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<ReceiveStep> {
        let from = self.0.operand_from(at.rank, round)?;
        (index == 0 && round == self.0.round_of(from)).then(|| ReceiveStep {
            from: Rank(from),
            part: at.whole(),
            apply: CombineMode::FoldRight,
        })
    }

    fn next(&self, at: &RankContext<'_>, round: u32) -> u32 {
        let to_receive = self.0.operand_from(at.rank, round).map(|operand| self.0.round_of(operand));
        let to_send = self.0.parent_of(Rank(at.rank)).map(|_| self.0.round_of(at.rank));
        let to_send = to_send.filter(|to_send| *to_send >= round);
        to_receive.or(to_send).unwrap_or(self.0.rounds())
    }
}

impl RoundPattern for BlockAllToAll {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        at.size - 1
    }

    fn send(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<SendStep> {
        let to = at.after(round + 1);
        (index == 0).then(|| SendStep { to: Rank(to), part: at.block(to) })
    }

    fn receive(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<ReceiveStep> {
        (index == 0).then(|| ReceiveStep {
            from: Rank(at.before(round + 1)),
            part: at.block(at.rank),
            apply: CombineMode::Keep,
        })
    }

    fn round_end(&self, at: &RankContext<'_>, round: u32) -> RoundEnd {
        if round + 1 == self.rounds(at) { RoundEnd::FoldKept(at.block(at.rank)) } else { RoundEnd::Nothing }
    }
}

impl RoundPattern for SendToRoot {
    fn rounds(&self, _: &RankContext<'_>) -> u32 {
        (self.from != self.to).into()
    }

    fn send(&self, at: &RankContext<'_>, _: u32, index: u32) -> Option<SendStep> {
        (index == 0 && at.rank == self.from).then(|| SendStep { to: Rank(self.to), part: at.whole() })
    }

    fn receive(&self, at: &RankContext<'_>, _: u32, index: u32) -> Option<ReceiveStep> {
        (index == 0 && at.rank == self.to).then(|| ReceiveStep {
            from: Rank(self.from),
            part: at.whole(),
            apply: CombineMode::Replace,
        })
    }
}
