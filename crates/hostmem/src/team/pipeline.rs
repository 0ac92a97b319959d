//! How large vectors go through a few chunks of shared memory.
//!
//! Every rank has `depth` chunks. A large operation takes a run of *steps*, numbered alike by all ranks over all large
//! operations of the team; step `t` uses chunk `t mod depth` of each rank. A rank *fills* its chunk, *folds* its slice of
//! all chunks (in a reduction), and *drains* a step when it no longer reads any chunk of it. Each of the three is a count
//! that only grows.
//!
//! A chunk may be filled for step `t` when all ranks have drained step `t - depth`: their reads come before the count
//! (release), which is observed (acquire) before the chunk is written. It may be read when its owner's count of filled steps
//! includes it: the writes come before the count. The fold of a slice goes into a part of one of the chunks that only the
//! folding rank accesses between the owner's count of filled and its own count of folded steps. `loom_tests.rs` tries all
//! orders.

use super::team_memory::TeamMemory;
use crate::shared_word::SharedWord;

/// One rank's view of the steps.
pub(super) struct ChunkPipeline {
    rank: usize,
    ranks: usize,
    depth: u64,
    /// Large operations take turns: how many were queued, and how many are over.
    queued: u64,
    over: u64,
    /// The first step of the current operation.
    base: u64,
    /// The progress of the current operation.
    pub at: PipelinePosition,
    /// Queue positions of operations that failed before their turn.
    skipped: Vec<u64>,
}

/// The progress of a large operation at this rank, in steps of its own.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct PipelinePosition {
    pub filled: u64,
    pub folded: u64,
    pub drained: u64,
    /// The ranks below are known to be ready for the next fill, fold and drain.
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

    /// Queues an operation; returns its position.
    pub(super) fn enqueue(&mut self) -> u64 {
        self.queued += 1;
        self.queued
    }

    pub(super) fn is_turn_of(&self, queue_position: u64) -> bool {
        self.over + 1 == queue_position
    }

    /// The current operation has taken this many steps, and this rank is done with them.
    pub(super) fn finish(&mut self, memory: &impl TeamMemory, steps: u64) {
        self.base += steps;
        self.at = PipelinePosition::default();
        memory.filled(self.rank).publish(self.base);
        memory.folded(self.rank).publish(self.base);
        memory.drained(self.rank).publish(self.base);
        self.skip(self.over + 1);
    }

    /// The operation takes no steps, or no more.
    pub(super) fn skip(&mut self, queue_position: u64) {
        self.skipped.push(queue_position);
        while let Some(index) = self.skipped.iter().position(|&queue_position| queue_position == self.over + 1) {
            self.skipped.swap_remove(index);
            self.over += 1;
        }
    }

    pub(super) fn chunk(&self, step: u64) -> usize {
        ((self.base + step) % self.depth) as usize
    }

    /// The first rank, beginning with `from`, that must drain before this one may fill; the ranks before have drained. This rank
    /// counts as well: others have written folds into its chunks.
    pub(super) fn undrained(&self, memory: &impl TeamMemory, step: u64, from: usize) -> Option<usize> {
        let step = self.base + step;
        (from..self.ranks).find(|&rank| memory.drained(rank).observe().saturating_add(self.depth) <= step)
    }

    /// The first rank, beginning with `from`, that has not filled its chunk.
    pub(super) fn unfilled(&self, memory: &impl TeamMemory, step: u64, from: usize) -> Option<usize> {
        let step = self.base + step;
        self.missing(from, |rank| memory.filled(rank).observe() > step)
    }

    /// The first rank, beginning with `from`, that has not folded its slice.
    pub(super) fn unfolded(&self, memory: &impl TeamMemory, step: u64, from: usize) -> Option<usize> {
        let step = self.base + step;
        self.missing(from, |rank| memory.folded(rank).observe() > step)
    }

    /// One rank has filled its chunk.
    pub(super) fn has_filled(&self, memory: &impl TeamMemory, step: u64, rank: usize) -> bool {
        memory.filled(rank).observe() > self.base + step
    }

    pub(super) fn set_filled(&self, memory: &impl TeamMemory, steps: u64) {
        memory.filled(self.rank).publish(self.base + steps);
    }

    pub(super) fn set_folded(&self, memory: &impl TeamMemory, steps: u64) {
        memory.folded(self.rank).publish(self.base + steps);
    }

    pub(super) fn set_drained(&self, memory: &impl TeamMemory, steps: u64) {
        memory.drained(self.rank).publish(self.base + steps);
    }

    fn missing(&self, from: usize, is_alive: impl Fn(usize) -> bool) -> Option<usize> {
        (from..self.ranks).find(|&rank| rank != self.rank && !is_alive(rank))
    }
}
