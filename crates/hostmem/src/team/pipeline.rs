//! How large vectors go through a few chunks of shared memory.
//!
//! Every rank has `depth` chunks. A large operation takes a run of *steps*, numbered alike by all ranks over all large
//! operations of the team; step `t` uses chunk `t mod depth` of each rank. A rank *fills* its chunk, *folds* its slice of
//! everyone's chunks (where slices are folded), and *drains* a step when it reads no more of anyone's chunks. Each of the
//! three is a count that only grows.
//!
//! A chunk may be filled for step `t` when all ranks have drained step `t - depth`: their reads come before the count
//! (release), which is observed (acquire) before the chunk is written. It may be read when its owner's count of filled steps
//! says so: the writes come before the count. The fold of a slice goes into a part of one of the chunks that nobody but the
//! folder touches between the owner's count of filled and the folder's count of folded steps. `models.rs` tries all orders.

use super::shared_word::{SharedWord, TeamMemory};

/// One rank's view of the steps.
pub(super) struct ChunkPipeline {
    rank: usize,
    ranks: usize,
    depth: u64,
    /// Large operations take turns: how many have begun, and how many are over.
    queued: u64,
    over: u64,
    /// The first step of the operation whose turn it is.
    base: u64,
    /// How far that operation is.
    pub at: PipelinePosition,
    /// Places of operations that failed before their turn came.
    skipped: Vec<u64>,
}

/// How far a large operation is at this rank, in steps of its own.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct PipelinePosition {
    pub filled: u64,
    pub folded: u64,
    pub drained: u64,
    /// Ranks below are known to be ready for the next fill, fold and drain.
    pub ready: [usize; 3],
}

impl ChunkPipeline {
    pub(super) fn new(rank: usize, ranks: usize, depth: usize) -> Self {
        Self {
            rank,
            ranks,
            depth: depth as u64,
            queued: 0,
            over: 0,
            base: 0,
            at: PipelinePosition::default(),
            skipped: Vec::new(),
        }
    }

    /// A place in the queue.
    pub(super) fn queue(&mut self) -> u64 {
        self.queued += 1;
        self.queued
    }

    pub(super) fn is_turn_of(&self, place: u64) -> bool {
        self.over + 1 == place
    }

    /// The operation whose turn it is has taken so many steps and this rank is done with them.
    pub(super) fn finish(&mut self, board: &impl TeamMemory, steps: u64) {
        self.base += steps;
        self.at = PipelinePosition::default();
        board.filled(self.rank).publish(self.base);
        board.folded(self.rank).publish(self.base);
        board.drained(self.rank).publish(self.base);
        self.skip(self.over + 1);
    }

    /// This operation takes no steps, or no more.
    pub(super) fn skip(&mut self, place: u64) {
        self.skipped.push(place);
        while let Some(index) = self.skipped.iter().position(|&place| place == self.over + 1) {
            self.skipped.swap_remove(index);
            self.over += 1;
        }
    }

    pub(super) fn chunk(&self, step: u64) -> usize {
        ((self.base + step) % self.depth) as usize
    }

    /// The first rank from `from` on that must drain before this one may fill. The ranks before have done so. This one counts as
    /// well: others have put folds into its chunks.
    pub(super) fn undrained(&self, board: &impl TeamMemory, step: u64, from: usize) -> Option<usize> {
        let step = self.base + step;
        (from..self.ranks).find(|&rank| board.drained(rank).observe().saturating_add(self.depth) <= step)
    }

    /// The first rank from `from` on that has not filled its chunk.
    pub(super) fn unfilled(&self, board: &impl TeamMemory, step: u64, from: usize) -> Option<usize> {
        let step = self.base + step;
        self.missing(from, |rank| board.filled(rank).observe() > step)
    }

    /// The first rank from `from` on that has not folded its slice.
    pub(super) fn unfolded(&self, board: &impl TeamMemory, step: u64, from: usize) -> Option<usize> {
        let step = self.base + step;
        self.missing(from, |rank| board.folded(rank).observe() > step)
    }

    /// One rank has filled its chunk.
    pub(super) fn has_filled(&self, board: &impl TeamMemory, step: u64, rank: usize) -> bool {
        board.filled(rank).observe() > self.base + step
    }

    pub(super) fn set_filled(&self, board: &impl TeamMemory, steps: u64) {
        board.filled(self.rank).publish(self.base + steps);
    }

    pub(super) fn set_folded(&self, board: &impl TeamMemory, steps: u64) {
        board.folded(self.rank).publish(self.base + steps);
    }

    pub(super) fn set_drained(&self, board: &impl TeamMemory, steps: u64) {
        board.drained(self.rank).publish(self.base + steps);
    }

    fn missing(&self, from: usize, is_there: impl Fn(usize) -> bool) -> Option<usize> {
        (from..self.ranks).find(|&rank| rank != self.rank && !is_there(rank))
    }
}
