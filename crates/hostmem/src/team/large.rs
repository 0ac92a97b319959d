//! Large vectors, step by step through the pipeline.
//!
//! The root of a broadcast fills its chunks and the others copy from them. In a reduction each rank folds its own slice of a
//! chunk over all ranks, in rank order, in place of one of the operands, and the others read the slice from there: each cache
//! line travels to the folding rank and back, without a copy in between.

use std::ops::Range;

use super::buffers::CollectiveBuffers;
use super::fold::FoldSlice;
use super::local_team::Team;
use super::operation::{OperationStage, TeamOperation, TeamProgress};
use super::pipeline::PipelinePosition;
use super::vector_partition::VectorPartition;

const FILL: usize = 0;
const FOLD: usize = 1;
const DRAIN: usize = 2;

impl Team {
    pub(super) fn advance_large(
        &mut self,
        operation: &mut TeamOperation,
        data: &mut CollectiveBuffers<'_>,
    ) -> TeamProgress {
        if !self.pipeline.is_turn_of(operation.queue_position) {
            operation.awaiting = self.rank as u16; // An earlier operation must be polled.
            return TeamProgress::Pending;
        }
        let mut at = self.pipeline.at;
        let steps = VectorPartition::new(operation.kind).steps(operation.length());
        let is_done = loop {
            let mut moved = false;
            if at.filled < steps {
                moved |= self.fill(operation, &mut at, data);
            }
            if at.folded < at.filled {
                moved |= self.fold(operation, &mut at, data);
            }
            if at.drained < at.folded {
                moved |= self.drain(operation, &mut at, data);
            }
            if moved {
                self.region.futex(self.rank).wake();
            }
            if at.drained == steps {
                break true;
            }
            if !moved {
                break false;
            }
        };
        if !is_done {
            self.pipeline.at = at;
            return TeamProgress::Pending;
        }
        self.pipeline.finish(&self.region, steps);
        if operation.kind.is_some() {
            self.window.settle(&self.region, operation.number);
        }
        self.region.futex(self.rank).wake();
        operation.stage = OperationStage::Over;
        TeamProgress::Done
    }

    /// Copies what others need of this rank's bytes into its chunk.
    fn fill(
        &mut self,
        operation: &mut TeamOperation,
        at: &mut PipelinePosition,
        data: &CollectiveBuffers<'_>,
    ) -> bool {
        let step = at.filled;
        if operation.kind.is_none() && self.rank != operation.root() {
            at.filled += 1; // No rank reads the bytes of this one.
            return true;
        }
        if let Some(rank) = self.pipeline.undrained(&self.region, step, at.ready[FILL]) {
            (at.ready[FILL], operation.awaiting) = (rank, rank as u16);
            return false;
        }
        at.ready[FILL] = 0;
        let partition = VectorPartition::new(operation.kind);
        let (part, chunk) = (partition.part(operation.length(), step), self.pipeline.chunk(step));
        let mine = match operation.kind {
            Some(_) => partition.slice(part.len(), self.rank, self.ranks),
            None => 0..0,
        };
        for range in [0..mine.start, mine.end..part.len()] {
            // SAFETY: all ranks have drained the chunk's last step, and none accesses it before the count below.
            let room = unsafe { self.region.chunk_mut(self.rank, chunk, range.clone()) };
            room.copy_from_slice(&data.input()[part.start + range.start..part.start + range.end]);
        }
        at.filled += 1;
        self.pipeline.set_filled(&self.region, at.filled);
        true
    }

    /// Folds this rank's slice of all contributions.
    fn fold(
        &mut self,
        operation: &mut TeamOperation,
        at: &mut PipelinePosition,
        data: &mut CollectiveBuffers<'_>,
    ) -> bool {
        let step = at.folded;
        let Some(kind) = operation.kind else {
            at.folded += 1; // Nothing to fold in a broadcast.
            return true;
        };
        if let Some(rank) = self.pipeline.unfilled(&self.region, step, at.ready[FOLD]) {
            (at.ready[FOLD], operation.awaiting) = (rank, rank as u16);
            return false;
        }
        at.ready[FOLD] = 0;
        let partition = VectorPartition::new(operation.kind);
        let (part, chunk) = (partition.part(operation.length(), step), self.pipeline.chunk(step));
        let mine = partition.slice(part.len(), self.rank, self.ranks);
        let (region, fold_chunk_owner) = (&self.region, fold_chunk_owner(self.rank));
        // SAFETY: all ranks have filled their chunks; the owner of the chunk no longer writes this slice of it, and only this rank
        // accesses it before the count below.
        let sum = unsafe { region.chunk_mut(fold_chunk_owner, chunk, mine.clone()) };
        let slice =
            FoldSlice { kind, partition, me: self.rank, ranks: self.ranks, start: part.start + mine.start, sum };
        slice.fold(data, operation.takes_result, |rank, within| {
            let range = mine.start + within.start..mine.start + within.end;
            // SAFETY: the rank has filled its chunk, and fills it again only when this rank has drained the step.
            unsafe { region.chunk(rank, chunk, range) }
        });
        at.folded += 1;
        self.pipeline.set_folded(region, at.folded);
        true
    }

    /// Reads the slices that the others have folded, or the root's bytes; after that, this rank reads no more of the step.
    fn drain(
        &mut self,
        operation: &mut TeamOperation,
        at: &mut PipelinePosition,
        data: &mut CollectiveBuffers<'_>,
    ) -> bool {
        let step = at.drained;
        let partition = VectorPartition::new(operation.kind);
        let (part, chunk) = (partition.part(operation.length(), step), self.pipeline.chunk(step));
        if operation.takes_result {
            let missing = if operation.kind.is_some() {
                self.pipeline.unfolded(&self.region, step, at.ready[DRAIN])
            } else {
                (!self.pipeline.has_filled(&self.region, step, operation.root())).then_some(operation.root())
            };
            if let Some(rank) = missing {
                (at.ready[DRAIN], operation.awaiting) = (rank, rank as u16);
                return false;
            }
            at.ready[DRAIN] = 0;
            let mut read = |rank: usize, range: Range<usize>| {
                let place = part.start + range.start..part.start + range.end;
                // SAFETY: the root has filled this chunk, or the folding rank has folded this slice; it is written again only when this
                // rank has drained the step.
                let bytes = unsafe { self.region.chunk(rank, chunk, range) };
                data.output()[place].copy_from_slice(bytes);
            };
            if operation.kind.is_none() {
                read(operation.root(), 0..part.len());
            } else {
                for rank in (0..self.ranks).filter(|&rank| rank != self.rank) {
                    read(fold_chunk_owner(rank), partition.slice(part.len(), rank, self.ranks));
                }
            }
        }
        at.drained += 1;
        self.pipeline.set_drained(&self.region, at.drained);
        true
    }
}

/// The rank in whose chunk the slice of a rank is folded. The fold begins with rank 0's bytes in rank 0's chunk; rank 0
/// itself has its own bytes at hand and begins with rank 1's.
fn fold_chunk_owner(rank: usize) -> usize {
    usize::from(rank == 0)
}
