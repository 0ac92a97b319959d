//! A round of a collective: ranges of the vector to send and to receive.
//!
//! Every algorithm is a [`RoundPattern`]: a pure function from a rank and a round to its steps. Nothing is stored, so
//! that the schedules of a million ranks need no memory.

use units::Rank;

use super::block_layout::BlockLayout;

/// The largest group.
pub const MAX_RANKS: u32 = 1 << 24;

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

    /// The length in bytes.
    pub const fn len(self) -> u32 {
        self.end - self.start
    }

    /// True if the length is zero.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    pub(super) const fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// A message that a rank sends when it enters a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendStep {
    /// The destination. No rank gets two messages in one round from the same sender.
    pub to: Rank,
    /// The range of the vector, with its current contents.
    pub part: VectorRange,
}

/// A message that a rank must receive before it leaves a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiveStep {
    /// The source.
    pub from: Rank,
    /// The range of the vector; the message has the same length.
    pub part: VectorRange,
    /// How the message is combined with the vector.
    pub apply: CombineMode,
}

/// How a received range is combined with the vector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CombineMode {
    /// Replaces the range.
    Replace,
    /// Folded with the range, as the left operand.
    FoldLeft,
    /// Folded with the range, as the right operand.
    FoldRight,
    /// Kept until all contributions are here, then folded in the prescribed order.
    Keep,
}

impl CombineMode {
    /// The lower rank is the left operand (P-56).
    pub(super) const fn by_rank(from: u32, me: u32) -> Self {
        if from < me { Self::FoldLeft } else { Self::FoldRight }
    }
}

/// What follows when all messages of a round are here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RoundEnd {
    Nothing,
    /// Fold the kept contributions of all ranks to this range in the prescribed order.
    FoldKept(VectorRange),
}

/// A rank's position in a collective.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankContext<'a> {
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) bytes: u32,
    /// Size of an element in bytes; no block ends inside one.
    pub(super) element: u32,
    /// How many ranks take part in recursive exchanges; each other rank joins one of them. Stored because every
    /// message needs it.
    pub(super) participants: u32,
    /// The blocks of the ranks; none if the vector is split evenly.
    pub(super) layout: Option<&'a BlockLayout>,
}

impl RankContext<'_> {
    pub(super) const fn whole(&self) -> VectorRange {
        VectorRange { start: 0, end: self.bytes }
    }

    /// The blocks from `first` to `end` (exclusive), if the vector is split into `count` blocks: nearly equal ones, or one per rank by
    /// the layout.
    pub(super) fn blocks(&self, first: u32, end: u32, count: u32) -> VectorRange {
        VectorRange { start: self.boundary(first, count), end: self.boundary(end, count) }
    }

    /// One block, if the vector is split into one per rank.
    pub(super) fn block(&self, index: u32) -> VectorRange {
        self.blocks(index, index + 1, self.size)
    }

    fn boundary(&self, index: u32, count: u32) -> u32 {
        if let Some(layout) = self.layout {
            assert_eq!(count, self.size, "a layout has one block per rank");
            return layout.boundary(index);
        }
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

/// The steps of each rank in each round. Both ends of a message derive the same steps (P-55).
pub(super) trait RoundPattern {
    fn rounds(&self, at: &RankContext<'_>) -> u32;

    /// The `index`-th message to send on entering a round; none after the first `None`.
    fn send(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<SendStep>;

    /// The `index`-th message to receive in a round, in fold order; none after the first `None`.
    fn receive(&self, at: &RankContext<'_>, round: u32, index: u32) -> Option<ReceiveStep>;

    /// The first round, from this one on, that may have steps for this rank. Long patterns in which most ranks are
    /// idle override this.
    fn next(&self, _at: &RankContext<'_>, round: u32) -> u32 {
        round
    }

    fn round_end(&self, _at: &RankContext<'_>, _round: u32) -> RoundEnd {
        RoundEnd::Nothing
    }
}
