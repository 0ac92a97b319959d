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

impl RoundPattern for RingReduceScatter {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        at.size - 1
    }

    fn send(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<SendStep> {
        (index == 0).then(|| SendStep { to: Rank(at.after(1)), part: at.block(at.before(round + 1)) })
    }

    fn receive(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<ReceiveStep> {
        let from = at.before(1);
        (index == 0).then(|| ReceiveStep {
            from: Rank(from),
            part: at.block(at.before(round + 2)),
            apply: CombineMode::by_rank(from, at.rank),
        })
    }
}

impl RoundPattern for RingAllgather {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        at.size - 1
    }

    fn send(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<SendStep> {
        (index == 0).then(|| SendStep { to: Rank(at.after(1)), part: at.block(at.before(round)) })
    }

    fn receive(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<ReceiveStep> {
        (index == 0).then(|| ReceiveStep {
            from: Rank(at.before(1)),
            part: at.block(at.before(round + 1)),
            apply: CombineMode::Replace,
        })
    }
}
