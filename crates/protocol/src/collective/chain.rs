//! A chain: the vector passes from the root from rank to rank.
//!
//! Each rank sends and receives the vector once. Alone that takes as many rounds as there are ranks; as a stream, every rank forwards
//! what it has received so far, so that a long vector takes hardly longer than one message.

use units::Rank;

use super::step::{CombineMode, RankContext, ReceiveStep, RoundPattern, SendStep};

/// From the root to its successor, and so on around the ring.
pub(super) struct ChainBroadcast {
    pub(super) root: u32,
}

/// How many ranks a rank is behind the root.
fn distance(root: u32, at: &RankContext<'_>) -> u32 {
    (at.rank + at.size - root) % at.size
}

impl RoundPattern for ChainBroadcast {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        at.size - 1
    }

    fn send(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<SendStep> {
        let sends = index == 0 && distance(self.root, at) == round && round + 1 < at.size;
        sends.then(|| SendStep { to: Rank(at.after(1)), part: at.whole() })
    }

    fn receive(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<ReceiveStep> {
        let receives = index == 0 && distance(self.root, at) == round + 1;
        receives.then(|| ReceiveStep { from: Rank(at.before(1)), part: at.whole(), apply: CombineMode::Replace })
    }

    fn next(&self, at: &RankContext<'_>, round: u32) -> u32 {
        let first = distance(self.root, at).saturating_sub(1);
        if round > first + 1 { self.rounds(at) } else { round.max(first) }
    }
}
