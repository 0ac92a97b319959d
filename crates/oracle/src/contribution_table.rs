//! The contributions of all ranks as windows of one table, so that every bit of millions of results can be judged.
//!
//! In: a seed, the number of ranks and a reduction. Out: the contribution of each rank to each operation, and the reference. The
//! table has the numbers of [`crate::contribution`]. Each contribution is a window of it; the windows of one operation start at
//! different elements for different ranks, and at other elements in the next operation. So a lost, duplicated, stale or shifted
//! contribution changes the result, as it does with contributions drawn one by one, and neither drawing nor decoding is repeated.

use units::{GOLDEN_GAMMA, OpId, Rank, mix64};

use crate::column::Column;
use crate::contribution::table_numbers;
use crate::reduction::Reduction;
use crate::reference::reference_of;
use crate::reference_order::ReferenceOrder;

/// The fewest and the most first elements of windows. There are at least twice as many as ranks: if every element began a window, the sum of
/// all would be the same in every operation, and a stale result go unnoticed.
const MIN_STARTS: u32 = 1 << 12;
const MAX_STARTS: u32 = 1 << 24;
/// Ranks start so many elements apart, modulo a power of two: an odd number, so that no two ranks share a window.
const RANK_STRIDE: u32 = 0x9e37_79b1;

/// The contributions to all operations of a run.
#[derive(Clone, Debug)]
pub struct ContributionTable {
    seed: u64,
    operation: Reduction,
    /// A power of two.
    starts: u32,
    bytes: Vec<u8>,
    /// The same numbers, decoded; none for exact sums.
    numbers: Option<Column>,
}

impl ContributionTable {
    /// A table for a group of so many ranks.
    ///
    /// # Panics
    /// The operation is not defined for the element type.
    pub fn new(seed: u64, ranks: u32, operation: Reduction) -> Self {
        assert!(operation.is_defined(), "{operation} is not defined");
        let starts = ranks.saturating_mul(2).clamp(MIN_STARTS, MAX_STARTS).next_power_of_two();
        let bytes = table_numbers(seed, &operation, starts as usize + operation.count);
        let numbers = Column::decode(&operation, &bytes);
        Self { seed, operation, starts, bytes, numbers }
    }

    /// The reduction.
    pub fn operation(&self) -> &Reduction {
        &self.operation
    }

    /// The contribution of `rank` to operation number `op`.
    pub fn contribution(&self, rank: Rank, op: OpId) -> &[u8] {
        let start = self.start(rank, op) * self.operation.element_bytes();
        &self.bytes[start..start + self.operation.bytes()]
    }

    /// The result of folding the contribution of each rank of `order`.
    ///
    /// # Panics
    /// The order has no rank.
    pub fn reference(&self, op: OpId, order: &ReferenceOrder) -> Vec<u8> {
        self.reference_range(op, order, 0..self.operation.count)
    }

    /// As [`Self::reference`], for a range of the vector's elements.
    ///
    /// # Panics
    /// The order has no rank, or the range is not within the vector.
    pub fn reference_range(&self, op: OpId, order: &ReferenceOrder, elements: std::ops::Range<usize>) -> Vec<u8> {
        assert!(elements.end <= self.operation.count, "{elements:?} is not within {}", self.operation);
        let part = Reduction { count: elements.len(), ..self.operation };
        match &self.numbers {
            Some(numbers) => numbers.fold(&part, order, |rank| self.start(rank, op) + elements.start).encode(&part),
            None => reference_of(&part, order, |rank| {
                let first = elements.start * part.element_bytes();
                self.contribution(rank, op)[first..first + part.bytes()].to_vec()
            }),
        }
    }

    /// The first element of a window.
    fn start(&self, rank: Rank, op: OpId) -> usize {
        let of_op = mix64(self.seed ^ mix64(u64::from(op.0).wrapping_add(GOLDEN_GAMMA))) as u32;
        (of_op.wrapping_add(rank.0.wrapping_mul(RANK_STRIDE)) & (self.starts - 1)) as usize
    }
}
