//! What a round is made of: parts of the vector that go to others, and parts that come from them.
//!
//! Every algorithm is a [`RoundPattern`]: a pure function from a rank's place and a round to its steps. Nothing is stored, so
//! that a million ranks cost no memory for their plans.

use units::Rank;

/// A range of the vector, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VectorRange {
    /// The first byte.
    pub start: u32,
    /// The byte after the last.
    pub end: u32,
}

impl VectorRange {
    /// No bytes.
    pub const NOTHING: Self = Self { start: 0, end: 0 };

    /// How many bytes.
    pub const fn len(self) -> u32 {
        self.end - self.start
    }

    /// True if there are none.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    pub(super) const fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// What a rank sends when it enters a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendStep {
    /// To whom. Nobody gets two messages of one round.
    pub to: Rank,
    /// Which part of the vector, as it is then.
    pub part: VectorRange,
}

/// What a rank must have received before it leaves a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiveStep {
    /// From whom.
    pub from: Rank,
    /// The part of the vector that it is for; the message has this length.
    pub part: VectorRange,
    /// What becomes of it.
    pub apply: CombineMode,
}

/// What becomes of a received part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CombineMode {
    /// It takes the place of what was there.
    Replace,
    /// It is folded with what was there, as the left operand.
    FoldLeft,
    /// It is folded with what was there, as the right operand.
    FoldRight,
    /// It is kept until all contributions are there, and then folded in the prescribed order.
    Keep,
}

impl CombineMode {
    /// The lower rank's part is the left operand (P-47).
    pub(super) const fn by_rank(from: u32, me: u32) -> Self {
        if from < me { Self::FoldLeft } else { Self::FoldRight }
    }
}

/// What follows when all of a round is here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RoundEnd {
    Nothing,
    /// Everyone's contribution to this part has been kept: fold them in the prescribed order.
    FoldKept(VectorRange),
}

/// Who a rank is, and how long the vector is.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankContext {
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) bytes: u32,
    /// Bytes of an element; no block ends within one.
    pub(super) element: u32,
    /// How many of the ranks take part in recursive exchanges; the others join one of them. Known here because every
    /// message asks for it.
    pub(super) participants: u32,
}

impl RankContext {
    pub(super) const fn whole(&self) -> VectorRange {
        VectorRange { start: 0, end: self.bytes }
    }

    /// The blocks from `first` up to, not including, `end`, when the vector is cut into `count` as equal as can be.
    pub(super) const fn blocks(&self, first: u32, end: u32, count: u32) -> VectorRange {
        VectorRange { start: self.cut(first, count), end: self.cut(end, count) }
    }

    /// One of as many blocks as there are ranks.
    pub(super) const fn block(&self, index: u32) -> VectorRange {
        self.blocks(index, index + 1, self.size)
    }

    const fn cut(&self, index: u32, count: u32) -> u32 {
        let elements = (self.bytes / self.element) as u64;
        (elements * index as u64 / count as u64) as u32 * self.element
    }

    /// The rank `steps` after this one, around the ring.
    pub(super) const fn after(&self, steps: u32) -> u32 {
        (self.rank + steps) % self.size
    }

    /// The rank `steps` (at most the size) before this one, around the ring.
    pub(super) const fn before(&self, steps: u32) -> u32 {
        (self.rank + self.size - steps) % self.size
    }
}

/// What each rank does in each round. Both ends of a message derive it alike (P-46).
pub(super) trait RoundPattern {
    fn rounds(&self, at: &RankContext) -> u32;

    /// The `index`-th message to send on entering a round; none after the first `None`.
    fn send(&self, at: &RankContext, round: u32, index: u32) -> Option<SendStep>;

    /// The `index`-th message to receive in a round, in the order of folding; none after the first `None`.
    fn receive(&self, at: &RankContext, round: u32, index: u32) -> Option<ReceiveStep>;

    /// The first round from this one on in which there may be something to do. Long schedules in which most ranks are
    /// idle most of the time say so here.
    fn next(&self, _at: &RankContext, round: u32) -> u32 {
        round
    }

    fn closing(&self, _at: &RankContext, _round: u32) -> RoundEnd {
        RoundEnd::Nothing
    }
}
