//! Partitions a vector: into the steps of the pipeline, the slices of the ranks, and blocks that fit the nearest cache.
//!
//! Borders lie between whole grains. A grain is whole elements and whole cache lines, so that no element is split and no
//! line has two writers. Most elements fill a line evenly; exact sums (P-36) do not.

use std::ops::Range;

use reduce::ReductionKind;

use super::region::CHUNK_BYTES;

/// Bytes folded at a time: data that passes through memory twice is still in the nearest cache the second time.
pub(super) const BLOCK_BYTES: usize = 8 << 10;

const LINE: usize = 64;

/// The partition of vectors of one kind. All ranks partition alike, because they agree on the kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct VectorPartition {
    grain: usize,
}

impl VectorPartition {
    pub(super) fn new(kind: Option<ReductionKind>) -> Self {
        let element = kind.map_or(1, |kind| kind.element_size());
        // The least common multiple, because a line is a power of two.
        let grain = LINE * (element >> element.trailing_zeros().min(LINE.trailing_zeros()));
        debug_assert!(grain.is_multiple_of(element) && grain <= BLOCK_BYTES);
        Self { grain }
    }

    /// The number of pipeline steps of a vector.
    pub(super) fn steps(self, length: usize) -> u64 {
        length.div_ceil(self.whole(CHUNK_BYTES)) as u64
    }

    /// The part of a vector in a pipeline step.
    pub(super) fn part(self, length: usize, step: u64) -> Range<usize> {
        let start = step as usize * self.whole(CHUNK_BYTES);
        start..length.min(start + self.whole(CHUNK_BYTES))
    }

    /// The slice of such a part that a rank folds.
    pub(super) fn slice(self, part_length: usize, rank: usize, ranks: usize) -> Range<usize> {
        let grains = part_length.div_ceil(self.grain);
        let edge = |rank: usize| (grains * rank / ranks * self.grain).min(part_length);
        edge(rank)..edge(rank + 1)
    }

    /// Consecutive blocks of a range.
    pub(super) fn blocks(self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let block = self.whole(BLOCK_BYTES);
        let end = range.end;
        range.step_by(block).map(move |start| start..end.min(start + block))
    }

    /// The bytes rounded down to whole grains.
    fn whole(self, bytes: usize) -> usize {
        bytes - bytes % self.grain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reduce::{ElementType, Operator};

    #[test]
    fn every_border_is_between_elements_and_nothing_is_left_out() {
        for element in ElementType::ALL {
            let kind = ReductionKind::new(element, Operator::Sum).expect("numbers can be added");
            let partition = VectorPartition::new(Some(kind));
            for elements in [1, 7, 240, 241, 2_000, 70_000] {
                let length = elements * kind.element_size();
                let mut at = 0;
                for step in 0..partition.steps(length) {
                    let part = partition.part(length, step);
                    assert!(part.len() <= CHUNK_BYTES);
                    for rank in 0..3 {
                        let slice = partition.slice(part.len(), rank, 3);
                        assert!(slice.is_empty() || slice.start.is_multiple_of(LINE), "{element}: {slice:?}");
                        for block in partition.blocks(slice) {
                            assert_eq!(part.start + block.start, at);
                            assert!(block.len() <= BLOCK_BYTES && block.len().is_multiple_of(kind.element_size()));
                            at += block.len();
                        }
                    }
                }
                assert_eq!(at, length, "{element}");
            }
        }
    }
}
