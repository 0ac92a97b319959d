//! The ring: blocks move from rank to rank, first collecting operands, then distributing the result.
//!
//! Block `b` starts at the rank after `b` and is folded around the ring until it is complete at rank `b`. Each block
//! is folded once and then copied, so all ranks hold the same bits. But the order of operands starts at a different
//! rank for each block, so the ring does not suit operators that do not commute (P-56).

use units::Rank;

use super::step::{CombineMode, RankContext, ReceiveStep, RoundPattern, SendStep};

/// The reduce-scatter: each rank ends with its own block complete.
pub(super) struct RingReduceScatter;

/// The allgather: each rank starts with its own block complete.
pub(super) struct RingAllgather;

/// Each rank sends its own block to the root.
pub(super) struct GatherToRoot {
    pub(super) root: u32,
}

impl RoundPattern for RingReduceScatter {
    fn rounds(&self, at: &RankContext) -> u32 {
        at.size - 1
    }

    fn send(&self, at: &RankContext, round: u32, index: u32) -> Option<SendStep> {
        (index == 0).then(|| SendStep { to: Rank(at.after(1)), part: at.block(at.before(round + 1)) })
    }

    fn receive(&self, at: &RankContext, round: u32, index: u32) -> Option<ReceiveStep> {
        let from = at.before(1);
        (index == 0).then(|| ReceiveStep {
            from: Rank(from),
            part: at.block(at.before(round + 2)),
            apply: CombineMode::by_rank(from, at.rank),
        })
    }
}

impl RoundPattern for RingAllgather {
    fn rounds(&self, at: &RankContext) -> u32 {
        at.size - 1
    }

    fn send(&self, at: &RankContext, round: u32, index: u32) -> Option<SendStep> {
        (index == 0).then(|| SendStep { to: Rank(at.after(1)), part: at.block(at.before(round)) })
    }

    fn receive(&self, at: &RankContext, round: u32, index: u32) -> Option<ReceiveStep> {
        (index == 0).then(|| ReceiveStep {
            from: Rank(at.before(1)),
            part: at.block(at.before(round + 1)),
            apply: CombineMode::Replace,
        })
    }
}

impl GatherToRoot {
    /// The round in which a rank sends; out of range for the root.
    fn turn(&self, at: &RankContext) -> u32 {
        (at.rank + at.size - self.root + at.size - 1) % at.size
    }
}

impl RoundPattern for GatherToRoot {
    fn rounds(&self, at: &RankContext) -> u32 {
        at.size - 1
    }

    fn send(&self, at: &RankContext, round: u32, index: u32) -> Option<SendStep> {
        (index == 0 && at.rank != self.root && round == self.turn(at))
            .then(|| SendStep { to: Rank(self.root), part: at.block(at.rank) })
    }

    fn receive(&self, at: &RankContext, round: u32, index: u32) -> Option<ReceiveStep> {
        let from = at.after(round + 1);
        (index == 0 && at.rank == self.root).then(|| ReceiveStep {
            from: Rank(from),
            part: at.block(from),
            apply: CombineMode::Replace,
        })
    }

    fn next(&self, at: &RankContext, round: u32) -> u32 {
        match self.turn(at) {
            _ if at.rank == self.root => round,
            turn if round <= turn => turn,
            _ => self.rounds(at),
        }
    }
}
