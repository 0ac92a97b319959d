//! Folds the contributions of all ranks, always in rank order: `((r0 ∘ r1) ∘ r2) ∘ …`.

use std::ops::Range;

use reduce::ReductionKind;

use super::buffers::CollectiveBuffers;
use super::vector_partition::{BLOCK_BYTES, VectorPartition};

/// Folds all ranks' bytes into the output of `part`. `theirs` returns the contribution of another rank, by position within
/// the part.
///
/// Two operands give the same bits in either order: sums and products of numbers commute, and every NaN becomes the same
/// one (a test in `tests/fold.rs` tries all kinds). So the first two ranks fold into their own contribution.
pub(super) fn fold_whole<'s>(
    kind: ReductionKind,
    me: usize,
    ranks: usize,
    data: &mut CollectiveBuffers<'_>,
    part: Range<usize>,
    theirs: impl Fn(usize, Range<usize>) -> &'s [u8],
) {
    if me > 1 {
        return match part.len() {
            ..=FEW_BYTES => fold_aside::<FEW_BYTES>(kind, me, ranks, data, part, theirs),
            _ => fold_aside::<BLOCK_BYTES>(kind, me, ranks, data, part, theirs),
        };
    }
    for here in VectorPartition::new(Some(kind)).blocks(part.clone()) {
        let there = here.start - part.start..here.end - part.start;
        let output = data.seed(here);
        for rank in std::iter::once(1 - me).chain(2..ranks) {
            combine(kind, output, theirs(rank, there.clone()));
        }
    }
}

/// A block on the stack must be cleared before use, which for a short vector takes longer than the fold.
const FEW_BYTES: usize = 512;

/// As [`fold_whole`], for a rank whose own operand comes later in the order and may lie where the result goes.
#[inline(never)]
fn fold_aside<'s, const BYTES: usize>(
    kind: ReductionKind,
    me: usize,
    ranks: usize,
    data: &mut CollectiveBuffers<'_>,
    part: Range<usize>,
    theirs: impl Fn(usize, Range<usize>) -> &'s [u8],
) {
    let mut block = [0; BYTES];
    for here in VectorPartition::new(Some(kind)).blocks(part.clone()) {
        let there = here.start - part.start..here.end - part.start;
        let sum = &mut block[..here.len()];
        sum.copy_from_slice(theirs(0, there.clone()));
        for rank in 1..ranks {
            let operand = if rank == me { &data.input()[here.clone()] } else { theirs(rank, there.clone()) };
            combine(kind, sum, operand);
        }
        data.output()[here].copy_from_slice(sum);
    }
}

/// A slice of the vector that one rank folds.
pub(super) struct FoldSlice<'s> {
    pub kind: ReductionKind,
    pub partition: VectorPartition,
    pub me: usize,
    pub ranks: usize,
    /// The offset of the slice in the vector.
    pub start: usize,
    /// Holds the contribution of rank 0, or of rank 1 if `me` is 0; receives the fold.
    pub sum: &'s mut [u8],
}

impl FoldSlice<'_> {
    /// Folds all ranks' bytes; copies the result into the caller's output if the rank takes it.
    pub(super) fn fold<'s>(
        self,
        data: &mut CollectiveBuffers<'_>,
        takes_result: bool,
        theirs: impl Fn(usize, Range<usize>) -> &'s [u8],
    ) {
        let first = usize::from(self.me == 0);
        for part in self.partition.blocks(0..self.sum.len()) {
            let place = self.start + part.start..self.start + part.end;
            let sum = &mut self.sum[part.clone()];
            for rank in (0..self.ranks).filter(|&rank| rank != first) {
                let is_mine = rank == self.me;
                let operand = if is_mine { &data.input()[place.clone()] } else { theirs(rank, part.clone()) };
                combine(self.kind, sum, operand);
            }
            if takes_result {
                data.output()[place].copy_from_slice(sum);
            }
        }
    }
}

#[inline]
pub(super) fn combine(kind: ReductionKind, sum: &mut [u8], operand: &[u8]) {
    kind.fold(sum, operand).expect("signatures with equal lengths were compared before");
}
