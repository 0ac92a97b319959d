//! The dissemination barrier: after `r` rounds every rank has signals from the `radix^r` ranks before it.
//!
//! It supports any number of ranks, all ranks have the same role, and messages are empty.

use units::Rank;

use super::rounds::rounds_to_merge;
use super::step::{CombineMode, RankContext, ReceiveStep, RoundPattern, SendStep, VectorRange};

pub(super) struct DisseminationBarrier {
    pub(super) radix: u32,
}

impl DisseminationBarrier {
    /// The distance of the `index`-th peer in a round; below the size, so that no rank is its own peer.
    fn distance(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<u32> {
        let distance = self.radix.pow(round) * (index + 1);
        (index + 1 < self.radix && distance < at.size).then_some(distance)
    }
}

impl RoundPattern for DisseminationBarrier {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        rounds_to_merge(at.size, self.radix)
    }

    fn send(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<SendStep> {
        let distance = self.distance(at, round, index)?;
        Some(SendStep { to: Rank(at.after(distance)), part: VectorRange::NOTHING })
    }

    fn receive(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<ReceiveStep> {
        let distance = self.distance(at, round, index)?;
        Some(ReceiveStep { from: Rank(at.before(distance)), part: VectorRange::NOTHING, apply: CombineMode::Replace })
    }
}
