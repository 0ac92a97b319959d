//! What ranks have after an operation that divides the vector into one block per rank.
//!
//! In: the contributions. Out: the elements of each block, and the results of an allgather and an alltoall, which reduce nothing. A
//! vector of any length has as many blocks as there are ranks: some are one element longer than others, or empty.

use std::ops::Range;

use units::{OpId, Rank};

use crate::contribution_table::ContributionTable;

/// The elements of block `block`, of as many blocks as there are ranks: equal parts, rounded down at both ends.
pub fn block_range(elements: usize, ranks: u32, block: u32) -> Range<usize> {
    let cut = |blocks: u32| (elements as u128 * u128::from(blocks) / u128::from(ranks)) as usize;
    cut(block)..cut(block + 1)
}

/// The elements of `owner` that are for `peer` in an alltoall. What two ranks have for each other has the same length: the elements that
/// are left over when all blocks are equal go to the pairs whose ranks, added modulo the number of ranks, are the smallest.
pub fn exchanged_range(elements: usize, ranks: u32, owner: u32, peer: u32) -> Range<usize> {
    let (equal, left) = (elements / ranks as usize, elements % ranks as usize);
    let has_more = |other: u32| ((u64::from(owner) + u64::from(other)) % u64::from(ranks)) < left as u64;
    let longer_before = longer_blocks(left as u64, ranks, owner, peer);
    let start = equal * peer as usize + longer_before;
    start..start + equal + usize::from(has_more(peer))
}

/// How many of the blocks of `owner` for the ranks below `peer` are one element longer.
fn longer_blocks(left: u64, ranks: u32, owner: u32, peer: u32) -> usize {
    // The sums of ranks run from the owner's on, and around once.
    let (first, end) = (u64::from(owner), u64::from(owner) + u64::from(peer));
    let within = |low: u64, high: u64| end.min(high).saturating_sub(first.max(low));
    let ranks = u64::from(ranks);
    (within(0, left) + within(ranks, ranks + left)) as usize
}

impl ContributionTable {
    /// The result of an allgather of so many elements, the same at every rank: each block as its rank contributes it.
    pub fn gathered(&self, op: OpId, elements: usize, ranks: u32) -> Vec<u8> {
        let blocks = (0..ranks).flat_map(|rank| self.part(Rank(rank), op, block_range(elements, ranks, rank)));
        blocks.copied().collect()
    }

    /// The result of an alltoall at a rank: what every rank has for it.
    pub fn exchanged(&self, op: OpId, elements: usize, ranks: u32, rank: Rank) -> Vec<u8> {
        let from = |peer: u32| self.part(Rank(peer), op, exchanged_range(elements, ranks, peer, rank.0));
        (0..ranks).flat_map(from).copied().collect()
    }

    fn part(&self, rank: Rank, op: OpId, elements: Range<usize>) -> &[u8] {
        let size = self.operation().element_bytes();
        &self.contribution(rank, op)[elements.start * size..elements.end * size]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_any_length_cover_the_vector() {
        for (elements, ranks) in [(0, 3), (1, 4), (7, 7), (100, 7), (5, 8), (1000, 64)] {
            let mut end = 0;
            for block in 0..ranks {
                let range = block_range(elements, ranks, block);
                assert_eq!(range.start, end);
                end = range.end;
            }
            assert_eq!(end, elements);
        }
    }

    #[test]
    fn what_two_ranks_have_for_each_other_is_equally_long() {
        for (elements, ranks) in [(0, 3), (1, 4), (7, 7), (100, 7), (5, 8), (1000, 64)] {
            for owner in 0..ranks {
                let mut end = 0;
                for peer in 0..ranks {
                    let range = exchanged_range(elements, ranks, owner, peer);
                    assert_eq!(range.start, end, "{elements} elements of {owner} for {peer}, {ranks} ranks");
                    assert_eq!(range.len(), exchanged_range(elements, ranks, peer, owner).len());
                    end = range.end;
                }
                assert_eq!(end, elements);
            }
        }
    }
}
