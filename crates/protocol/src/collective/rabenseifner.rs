//! Rabenseifner's algorithm: recursive halving, then recursive doubling, among a power of two of ranks.
//!
//! In each round of the first phase two ranks split a common range: each sends the half that it gives up and folds
//! the half that it keeps. The second phase runs the same rounds backwards, without arithmetic. Adjacent ranks start,
//! so ranges always combine contiguous ranks, and every element is folded in the same tree as by recursive doubling:
//! both give the same bits.
//!
//! Ranks beyond the power of two join a neighbour, as in [`super::recursive_exchange`].

use units::Rank;

use super::recursive_exchange::{participant, rank_of};
use super::step::{CombineMode, RankContext, ReceiveStep, RoundPattern, SendStep, VectorRange};

/// The reduce-scatter.
pub(super) struct HalvingReduceScatter;

/// The allgather.
pub(super) struct DoublingAllgather;

/// Two participants that exchange in a round.
struct HalvingPair {
    peer: u32,
    /// The range of this rank after the split.
    mine: VectorRange,
    theirs: VectorRange,
}

/// The pair that splits at `depth`: the two numbers differ in that bit.
fn pair(at: &RankContext<'_>, depth: u32) -> Option<HalvingPair> {
    let participants = at.participants;
    let me = participant(at.rank, at.size, participants)?;
    let peer = me ^ (1 << depth);
    let part = |index| {
        let (first, end) = window(index, depth + 1, participants);
        at.blocks(first, end, participants)
    };
    Some(HalvingPair { peer: rank_of(peer, at.size, participants), mine: part(me), theirs: part(peer) })
}

/// The blocks that a participant holds after so many splits: each set bit of its number selects an upper half.
fn window(index: u32, splits: u32, participants: u32) -> (u32, u32) {
    let (mut start, mut length) = (0, participants);
    for bit in 0..splits {
        length /= 2;
        start += (index >> bit & 1) * length;
    }
    (start, start + length)
}

fn splits(at: &RankContext<'_>) -> u32 {
    at.participants.ilog2()
}

impl RoundPattern for HalvingReduceScatter {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        splits(at)
    }

    fn send(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<SendStep> {
        let pair = pair(at, round).filter(|_| index == 0)?;
        Some(SendStep { to: Rank(pair.peer), part: pair.theirs })
    }

    fn receive(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<ReceiveStep> {
        let pair = pair(at, round).filter(|_| index == 0)?;
        let apply = CombineMode::by_rank(pair.peer, at.rank);
        Some(ReceiveStep { from: Rank(pair.peer), part: pair.mine, apply })
    }
}

impl RoundPattern for DoublingAllgather {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        splits(at)
    }

    fn send(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<SendStep> {
        let pair = pair(at, splits(at) - 1 - round).filter(|_| index == 0)?;
        Some(SendStep { to: Rank(pair.peer), part: pair.mine })
    }

    fn receive(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<ReceiveStep> {
        let pair = pair(at, splits(at) - 1 - round).filter(|_| index == 0)?;
        Some(ReceiveStep { from: Rank(pair.peer), part: pair.theirs, apply: CombineMode::Replace })
    }
}
