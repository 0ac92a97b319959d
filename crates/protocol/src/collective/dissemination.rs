//! The dissemination barrier: after `r` rounds everyone knows of the `radix^r` ranks before it.
//!
//! Any size will do, nobody is special, and messages are empty.

use units::Rank;

use super::step::{CombineMode, RankContext, ReceiveStep, RoundPattern, SendStep, VectorRange};

pub(super) struct DisseminationBarrier {
    pub(super) radix: u32,
}

impl DisseminationBarrier {
    /// How far away the `index`-th peer of a round is; less than the size, so that nobody is its own peer.
    fn distance(&self, at: &RankContext, round: u32, index: u32) -> Option<u32> {
        let distance = self.radix.pow(round) * (index + 1);
        (index + 1 < self.radix && distance < at.size).then_some(distance)
    }
}

impl RoundPattern for DisseminationBarrier {
    fn rounds(&self, at: &RankContext) -> u32 {
        let (mut rounds, mut known) = (0, 1);
        while known < at.size {
            known *= self.radix;
            rounds += 1;
        }
        rounds
    }

    fn send(&self, at: &RankContext, round: u32, index: u32) -> Option<SendStep> {
        let distance = self.distance(at, round, index)?;
        Some(SendStep { to: Rank(at.after(distance)), part: VectorRange::NOTHING })
    }

    fn receive(&self, at: &RankContext, round: u32, index: u32) -> Option<ReceiveStep> {
        let distance = self.distance(at, round, index)?;
        Some(ReceiveStep { from: Rank(at.before(distance)), part: VectorRange::NOTHING, apply: CombineMode::Replace })
    }
}
