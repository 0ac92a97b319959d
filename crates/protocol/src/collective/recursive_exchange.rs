//! Recursive doubling and recursive k-ing: groups of contiguous ranks merge until one is left.
//!
//! In round `r` the ranks form groups of `radix` at a distance of `radix^r`, and the members of a group exchange
//! their vectors. Each folds them in rank order, so all members of a merged group hold the same bits (P-56).
//!
//! The number of participants must be `radix^m * q` with `q < radix`; the last round has groups of `q`. Each rank
//! beyond it sends its contribution to a neighbour before and gets the result from it after.

use units::Rank;

use super::rounds::rounds_to_merge;
use super::step::{CombineMode, RankContext, ReceiveStep, RoundPattern, SendStep};

/// How many of `size` ranks take part in exchanges of this radix.
pub(super) const fn participants(size: u32, radix: u32) -> u32 {
    let mut power = 1;
    while size / power >= radix {
        power *= radix;
    }
    size / power * power
}

/// A rank's number among the participants; none if it joins a neighbour. Among the first ranks, every second one
/// joins its predecessor, so that the numbers keep the rank order.
pub(super) const fn participant(rank: u32, size: u32, participants: u32) -> Option<u32> {
    let joining = size - participants;
    if rank >= 2 * joining {
        Some(rank - joining)
    } else if rank.is_multiple_of(2) {
        Some(rank / 2)
    } else {
        None
    }
}

/// The rank of a participant.
pub(super) const fn rank_of(participant: u32, size: u32, participants: u32) -> u32 {
    let joining = size - participants;
    if participant < joining { 2 * participant } else { participant + joining }
}

/// The neighbour of a rank before the first and after the last exchange.
pub(super) enum Pairing {
    /// This rank participates, and the neighbour joins it.
    JoinedBy(u32),
    /// This rank does not participate, and joins the neighbour.
    Joins(u32),
    Single,
}

pub(super) fn pairing(at: &RankContext<'_>) -> Pairing {
    if at.rank >= 2 * (at.size - at.participants) {
        Pairing::Single
    } else if at.rank.is_multiple_of(2) {
        Pairing::JoinedBy(at.rank + 1)
    } else {
        Pairing::Joins(at.rank - 1)
    }
}

/// Each rank that does not participate sends its contribution to its neighbour.
pub(super) struct NonPowerPrePhase;

impl RoundPattern for NonPowerPrePhase {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        (at.size > at.participants).into()
    }

    fn send(&self, at: &RankContext<'_>, _: u32, index: u32) -> Option<SendStep> {
        match pairing(at) {
            Pairing::Joins(to) if index == 0 => Some(SendStep { to: Rank(to), part: at.whole() }),
            _ => None,
        }
    }

    fn receive(&self, at: &RankContext<'_>, _: u32, index: u32) -> Option<ReceiveStep> {
        match pairing(at) {
            Pairing::JoinedBy(from) if index == 0 => {
                Some(ReceiveStep { from: Rank(from), part: at.whole(), apply: CombineMode::by_rank(from, at.rank) })
            }
            _ => None,
        }
    }
}

/// Each rank that does not participate gets the result from its neighbour.
pub(super) struct NonPowerPostPhase;

impl RoundPattern for NonPowerPostPhase {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        (at.size > at.participants).into()
    }

    fn send(&self, at: &RankContext<'_>, _: u32, index: u32) -> Option<SendStep> {
        match pairing(at) {
            Pairing::JoinedBy(to) if index == 0 => Some(SendStep { to: Rank(to), part: at.whole() }),
            _ => None,
        }
    }

    fn receive(&self, at: &RankContext<'_>, _: u32, index: u32) -> Option<ReceiveStep> {
        match pairing(at) {
            Pairing::Joins(from) if index == 0 => {
                Some(ReceiveStep { from: Rank(from), part: at.whole(), apply: CombineMode::Replace })
            }
            _ => None,
        }
    }
}

/// The exchanges among the participants.
pub(super) struct RecursiveExchange {
    pub(super) radix: u32,
}

/// A participant's group in a round.
struct ExchangeGroup {
    participants: u32,
    me: u32,
    /// The distance between its members.
    stride: u32,
    members: u32,
    my_position: u32,
}

impl RecursiveExchange {
    fn group(&self, at: &RankContext<'_>, round: u32) -> Option<ExchangeGroup> {
        let participants = at.participants;
        let me = participant(at.rank, at.size, participants)?;
        let stride = self.radix.pow(round);
        let members = self.radix.min(participants / stride);
        Some(ExchangeGroup { participants, me, stride, members, my_position: me / stride % members })
    }
}

impl ExchangeGroup {
    fn rank_at(&self, position: u32, size: u32) -> u32 {
        let peer = self.me - self.my_position * self.stride + position * self.stride;
        rank_of(peer, size, self.participants)
    }
}

impl RoundPattern for RecursiveExchange {
    fn rounds(&self, at: &RankContext<'_>) -> u32 {
        rounds_to_merge(at.participants, self.radix)
    }

    /// Each rank starts with its successor, so that not all send to the first rank of the group at once.
    fn send(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<SendStep> {
        let group = self.group(at, round)?;
        let position = (group.my_position + 1 + index) % group.members;
        (index + 1 < group.members).then(|| SendStep { to: Rank(group.rank_at(position, at.size)), part: at.whole() })
    }

    fn receive(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<ReceiveStep> {
        let group = self.group(at, round)?;
        let position = if index < group.my_position { index } else { index + 1 };
        (position < group.members).then(|| {
            let from = group.rank_at(position, at.size);
            ReceiveStep { from: Rank(from), part: at.whole(), apply: CombineMode::by_rank(from, at.rank) }
        })
    }
}
