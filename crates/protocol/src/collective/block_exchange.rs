//! Recursive doubling and halving of ranges of blocks, which end with each rank's own block.
//!
//! The doubling is an allgather for short blocks: in each round two ranks exchange all the blocks that they have. The halving is a
//! reduce-scatter: in each round two ranks split their common range, and each folds the half with its own block. It starts with the
//! most distant ranks, so that every half is one range; therefore it folds ranks that are not contiguous (P-56).
//!
//! Ranks beyond a power of two join a neighbour, as in [`super::recursive_exchange`]; the range of a participant then has two blocks.

use units::Rank;

use super::recursive_exchange::{Pairing, pairing, participant, rank_of};
use super::step::{CombineMode, RankContext, ReceiveStep, RoundPattern, SendStep, VectorRange};

/// Each rank that does not participate sends its own block to its neighbour.
pub(super) struct BlockJoin;
/// The exchanges of an allgather.
pub(super) struct BlockDoubling;
/// The exchanges of a reduce-scatter.
pub(super) struct BlockHalving;
/// Each rank that does not participate gets its own block from its neighbour.
pub(super) struct BlockLeave;

/// Two participants, each with a range of blocks of so many participants.
struct BlockPair {
    peer: u32,
    mine: VectorRange,
    theirs: VectorRange,
}

/// The blocks of `span` participants around this one.
fn range_around(at: &RankContext<'_>, participant: u32, span: u32) -> VectorRange {
    let first = participant & !(span - 1);
    // The block of a rank that joined a participant follows the participant's.
    let end = if first + span == at.participants { at.size } else { rank_of(first + span, at.size, at.participants) };
    at.blocks(rank_of(first, at.size, at.participants), end, at.size)
}

/// The pair at a distance of `span` participants, each with the range of so many.
fn pair(at: &RankContext<'_>, span: u32) -> Option<BlockPair> {
    let me = participant(at.rank, at.size, at.participants)?;
    let peer = me ^ span;
    Some(BlockPair {
        peer: rank_of(peer, at.size, at.participants),
        mine: range_around(at, me, span),
        theirs: range_around(at, peer, span),
    })
}

fn has_joining(at: &RankContext<'_>) -> u32 {
    (at.size > at.participants).into()
}

impl RoundPattern for BlockJoin {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        has_joining(at)
    }

    fn send(&self, at: &RankContext<'_>, _: u32, index: u32) -> Option<SendStep> {
        match pairing(at) {
            Pairing::Joins(to) if index == 0 => Some(SendStep { to: Rank(to), part: at.block(at.rank) }),
            _ => None,
        }
    }

    fn receive(&self, at: &RankContext<'_>, _: u32, index: u32) -> Option<ReceiveStep> {
        match pairing(at) {
            Pairing::JoinedBy(from) if index == 0 => {
                Some(ReceiveStep { from: Rank(from), part: at.block(from), apply: CombineMode::Replace })
            }
            _ => None,
        }
    }
}

impl RoundPattern for BlockDoubling {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        at.participants.ilog2()
    }

    fn send(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<SendStep> {
        let pair = pair(at, 1 << round).filter(|_| index == 0)?;
        Some(SendStep { to: Rank(pair.peer), part: pair.mine })
    }

    fn receive(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<ReceiveStep> {
        let pair = pair(at, 1 << round).filter(|_| index == 0)?;
        Some(ReceiveStep { from: Rank(pair.peer), part: pair.theirs, apply: CombineMode::Replace })
    }
}

impl RoundPattern for BlockHalving {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        at.participants.ilog2()
    }

    fn send(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<SendStep> {
        let pair = pair(at, at.participants >> (round + 1)).filter(|_| index == 0)?;
        Some(SendStep { to: Rank(pair.peer), part: pair.theirs })
    }

    fn receive(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<ReceiveStep> {
        let pair = pair(at, at.participants >> (round + 1)).filter(|_| index == 0)?;
        let apply = CombineMode::by_rank(pair.peer, at.rank);
        Some(ReceiveStep { from: Rank(pair.peer), part: pair.mine, apply })
    }
}

impl RoundPattern for BlockLeave {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        has_joining(at)
    }

    fn send(&self, at: &RankContext<'_>, _: u32, index: u32) -> Option<SendStep> {
        match pairing(at) {
            Pairing::JoinedBy(to) if index == 0 => Some(SendStep { to: Rank(to), part: at.block(to) }),
            _ => None,
        }
    }

    fn receive(&self, at: &RankContext<'_>, _: u32, index: u32) -> Option<ReceiveStep> {
        match pairing(at) {
            Pairing::Joins(from) if index == 0 => {
                Some(ReceiveStep { from: Rank(from), part: at.block(at.rank), apply: CombineMode::Replace })
            }
            _ => None,
        }
    }
}
