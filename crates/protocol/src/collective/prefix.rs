//! Scans: every rank gets the fold of its predecessors, in rank order, with or without its own operand.
//!
//! For short vectors the ranges that ranks have folded double in each round. For long vectors the fold passes from rank to rank as a
//! chain, and as a stream it takes hardly longer than one message. An exclusive scan first moves every operand to the next rank, and
//! scans there: so it has the bits of the inclusive scan of the rank before. Rank 0 has no result.

use units::Rank;

use super::collective_operation::ScanExtent;
use super::rounds::rounds_to_merge;
use super::step::{CombineMode, RankContext, ReceiveStep, RoundPattern, SendStep};

/// Every rank passes its operand to the next one, if the scan is exclusive.
pub(super) struct PrefixShift(pub(super) ScanExtent);
/// Ranges double.
pub(super) struct PrefixDoubling(pub(super) ScanExtent);
/// The fold passes from rank to rank.
pub(super) struct PrefixChain(pub(super) ScanExtent);

/// The first rank that has an operand after the shift.
fn first(extent: ScanExtent) -> u32 {
    match extent {
        ScanExtent::Inclusive => 0,
        ScanExtent::Exclusive => 1,
    }
}

/// A rank's number among those that have an operand; none if it has none.
fn position(extent: ScanExtent, at: &RankContext<'_>) -> Option<u32> {
    at.rank.checked_sub(first(extent))
}

fn fold_from(from: u32, at: &RankContext<'_>) -> ReceiveStep {
    ReceiveStep { from: Rank(from), part: at.whole(), apply: CombineMode::FoldLeft }
}

impl RoundPattern for PrefixShift {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        u32::from(self.0 == ScanExtent::Exclusive && at.size > 1)
    }

    fn send(&self, at: &RankContext<'_>, _: u32, index: u32) -> Option<SendStep> {
        let to = at.rank + 1;
        (index == 0 && to < at.size).then(|| SendStep { to: Rank(to), part: at.whole() })
    }

    fn receive(&self, at: &RankContext<'_>, _: u32, index: u32) -> Option<ReceiveStep> {
        let from = at.rank.checked_sub(1).filter(|_| index == 0)?;
        Some(ReceiveStep { from: Rank(from), part: at.whole(), apply: CombineMode::Replace })
    }
}

impl RoundPattern for PrefixDoubling {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        rounds_to_merge(at.size - first(self.0).min(at.size - 1), 2)
    }

    fn send(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<SendStep> {
        position(self.0, at).filter(|_| index == 0)?;
        let to = at.rank + (1 << round);
        (to < at.size).then(|| SendStep { to: Rank(to), part: at.whole() })
    }

    fn receive(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<ReceiveStep> {
        let from = position(self.0, at)?.checked_sub(1 << round).filter(|_| index == 0)?;
        Some(fold_from(from + first(self.0), at))
    }
}

impl RoundPattern for PrefixChain {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        (at.size - 1).saturating_sub(first(self.0))
    }

    fn send(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<SendStep> {
        let sends = index == 0 && position(self.0, at) == Some(round) && at.rank + 1 < at.size;
        sends.then(|| SendStep { to: Rank(at.rank + 1), part: at.whole() })
    }

    fn receive(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<ReceiveStep> {
        (index == 0 && position(self.0, at) == Some(round + 1)).then(|| fold_from(at.rank - 1, at))
    }

    fn next(&self, at: &RankContext<'_>, round: u32) -> u32 {
        match position(self.0, at) {
            Some(position) if round <= position => round.max(position.saturating_sub(1)).min(self.rounds(at)),
            _ => self.rounds(at),
        }
    }
}
