//! Rabenseifner's algorithm: recursive halving, then recursive doubling, among a power of two of ranks.
//!
//! In each round of the first half two ranks split what they both hold a part of: each sends the half that it gives up
//! and folds the half that it keeps. The second half plays the same rounds backwards, without arithmetic. Neighbours
//! begin, so parts are always of contiguous ranks, and every element is folded in the same tree as by recursive
//! doubling: the two give the same bits.
//!
//! Ranks beyond the power of two join a neighbour, as in [`super::recursive`].

use units::Rank;

use super::recursive::{participant, rank_of};
use super::step::{Apply, Part, Place, ReceiveStep, Schedule, SendStep};

/// The reduce-scatter.
pub(super) struct Halve;

/// The allgather.
pub(super) struct Double;

/// Two participants that exchange in a round.
struct Pair {
    peer: u32,
    /// The part of this rank after they have split.
    mine: Part,
    theirs: Part,
}

/// The pair that splits at `depth`: its members differ in that bit of their numbers.
fn pair(at: &Place, depth: u32) -> Option<Pair> {
    let participants = at.participants;
    let me = participant(at.rank, at.size, participants)?;
    let peer = me ^ (1 << depth);
    let part = |index| {
        let (first, end) = window(index, depth + 1, participants);
        at.blocks(first, end, participants)
    };
    Some(Pair { peer: rank_of(peer, at.size, participants), mine: part(me), theirs: part(peer) })
}

/// The blocks that a participant still holds after so many splits: with a bit of its number set, the upper half.
fn window(index: u32, splits: u32, participants: u32) -> (u32, u32) {
    let (mut start, mut length) = (0, participants);
    for bit in 0..splits {
        length /= 2;
        start += (index >> bit & 1) * length;
    }
    (start, start + length)
}

fn splits(at: &Place) -> u32 {
    at.participants.ilog2()
}

impl Schedule for Halve {
    fn rounds(&self, at: &Place) -> u32 {
        splits(at)
    }

    fn send(&self, at: &Place, round: u32, index: u32) -> Option<SendStep> {
        let pair = pair(at, round).filter(|_| index == 0)?;
        Some(SendStep { to: Rank(pair.peer), part: pair.theirs })
    }

    fn receive(&self, at: &Place, round: u32, index: u32) -> Option<ReceiveStep> {
        let pair = pair(at, round).filter(|_| index == 0)?;
        let apply = Apply::by_rank(pair.peer, at.rank);
        Some(ReceiveStep { from: Rank(pair.peer), part: pair.mine, apply })
    }
}

impl Schedule for Double {
    fn rounds(&self, at: &Place) -> u32 {
        splits(at)
    }

    fn send(&self, at: &Place, round: u32, index: u32) -> Option<SendStep> {
        let pair = pair(at, splits(at) - 1 - round).filter(|_| index == 0)?;
        Some(SendStep { to: Rank(pair.peer), part: pair.mine })
    }

    fn receive(&self, at: &Place, round: u32, index: u32) -> Option<ReceiveStep> {
        let pair = pair(at, splits(at) - 1 - round).filter(|_| index == 0)?;
        Some(ReceiveStep { from: Rank(pair.peer), part: pair.theirs, apply: Apply::Replace })
    }
}
