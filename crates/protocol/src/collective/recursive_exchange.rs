//! Recursive doubling and recursive k-ing: groups of contiguous ranks merge until all are one.
//!
//! In round `r` the ranks form groups of `radix` that stand `radix^r` apart, and all of a group exchange what they
//! have. Everyone folds the group's parts in rank order, so all of a merged group hold the same bits (P-47).
//!
//! The ranks that take part must be a product of the groups' sizes: `radix^m * q` with `q < radix`, where the last round
//! has groups of `q`. Those beyond it join a neighbour before and are told the result after.

use units::Rank;

use super::step::{CombineMode, RankContext, ReceiveStep, RoundPattern, SendStep};

/// How many of `size` ranks take part in the exchanges of this radix.
pub(super) const fn participants(size: u32, radix: u32) -> u32 {
    let mut power = 1;
    while size / power >= radix {
        power *= radix;
    }
    size / power * power
}

/// A rank's number among the participants; none if it joins a neighbour. Of the first ranks, every second one joins the
/// one before it, so that the numbers keep the order of the ranks.
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

/// Whom a rank is paired with before the first and after the last exchange.
enum Pairing {
    /// It takes part, and this neighbour joins it.
    JoinedBy(u32),
    /// It does not take part, and joins this neighbour.
    Joins(u32),
    Single,
}

fn pairing(at: &RankContext) -> Pairing {
    if at.rank >= 2 * (at.size - at.participants) {
        Pairing::Single
    } else if at.rank.is_multiple_of(2) {
        Pairing::JoinedBy(at.rank + 1)
    } else {
        Pairing::Joins(at.rank - 1)
    }
}

/// Those who do not take part give their contribution to a neighbour who does.
pub(super) struct NonPowerPrePhase;

impl RoundPattern for NonPowerPrePhase {
    fn rounds(&self, at: &RankContext) -> u32 {
        (at.size > at.participants).into()
    }

    fn send(&self, at: &RankContext, _: u32, index: u32) -> Option<SendStep> {
        match pairing(at) {
            Pairing::Joins(to) if index == 0 => Some(SendStep { to: Rank(to), part: at.whole() }),
            _ => None,
        }
    }

    fn receive(&self, at: &RankContext, _: u32, index: u32) -> Option<ReceiveStep> {
        match pairing(at) {
            Pairing::JoinedBy(from) if index == 0 => {
                Some(ReceiveStep { from: Rank(from), part: at.whole(), apply: CombineMode::by_rank(from, at.rank) })
            }
            _ => None,
        }
    }
}

/// Those who did not take part get the result from the neighbour whom they joined.
pub(super) struct NonPowerPostPhase;

impl RoundPattern for NonPowerPostPhase {
    fn rounds(&self, at: &RankContext) -> u32 {
        (at.size > at.participants).into()
    }

    fn send(&self, at: &RankContext, _: u32, index: u32) -> Option<SendStep> {
        match pairing(at) {
            Pairing::JoinedBy(to) if index == 0 => Some(SendStep { to: Rank(to), part: at.whole() }),
            _ => None,
        }
    }

    fn receive(&self, at: &RankContext, _: u32, index: u32) -> Option<ReceiveStep> {
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
    /// How far apart its members stand.
    stride: u32,
    members: u32,
    my_position: u32,
}

impl RecursiveExchange {
    fn group(&self, at: &RankContext, round: u32) -> Option<ExchangeGroup> {
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
    fn rounds(&self, at: &RankContext) -> u32 {
        let (mut rounds, mut merged) = (0, 1);
        while merged < at.participants {
            merged *= self.radix;
            rounds += 1;
        }
        rounds
    }

    /// Everyone begins with the next after itself, so that not all send to the first of a group at once.
    fn send(&self, at: &RankContext, round: u32, index: u32) -> Option<SendStep> {
        let group = self.group(at, round)?;
        let position = (group.my_position + 1 + index) % group.members;
        (index + 1 < group.members).then(|| SendStep { to: Rank(group.rank_at(position, at.size)), part: at.whole() })
    }

    fn receive(&self, at: &RankContext, round: u32, index: u32) -> Option<ReceiveStep> {
        let group = self.group(at, round)?;
        let position = if index < group.my_position { index } else { index + 1 };
        (position < group.members).then(|| {
            let from = group.rank_at(position, at.size);
            ReceiveStep { from: Rank(from), part: at.whole(), apply: CombineMode::by_rank(from, at.rank) }
        })
    }
}
