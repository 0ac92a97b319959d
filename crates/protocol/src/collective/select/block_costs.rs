//! The cost model of collectives that move blocks or prefixes: what aggregation nodes do not do.
//!
//! The same costs and the same caveats as in [`super::cost_model`].

use super::cost_model::{FoldedBytes, TransportCosts};
use crate::collective::recursive_exchange::participants;
use crate::collective::rounds::rounds_to_merge;
use crate::collective::{CollectiveAlgorithm, CollectiveOperation, ScanExtent};

impl TransportCosts {
    /// Estimate for a point-to-point algorithm; `bytes` are the blocks of all ranks together, or the vector of a scan.
    pub(super) fn block_ns(
        &self,
        algorithm: CollectiveAlgorithm,
        collective: &CollectiveOperation,
        ranks: u32,
        bytes: u32,
    ) -> u64 {
        let (size, bytes) = (u64::from(ranks), u64::from(bytes));
        let block = bytes / size;
        let others = bytes - block;
        let radix = u64::from(algorithm.radix());
        let levels = u64::from(rounds_to_merge(ranks, algorithm.radix().into()));
        let fold = if collective.kind().is_some() { FoldedBytes::All } else { FoldedBytes::Nothing };
        let merge_ns = levels * self.round_ns(radix.min(size) - 1, 0, FoldedBytes::Nothing);
        match (algorithm, collective) {
            (CollectiveAlgorithm::RecursiveDoubling, CollectiveOperation::Scan { extent, .. }) => {
                self.shift_ns(*extent, bytes) + levels * self.round_ns(1, bytes, fold)
            }
            (CollectiveAlgorithm::Chain, CollectiveOperation::Scan { extent, .. }) => {
                self.shift_ns(*extent, bytes) + (size - 1) * self.message_ns + self.bytes_ns(bytes, fold)
            }
            (CollectiveAlgorithm::RecursiveDoubling | CollectiveAlgorithm::RecursiveHalving, _) => {
                let exchanges = u64::from(participants(ranks, 2).ilog2());
                exchanges * self.message_ns + self.bytes_ns(others, fold) + self.joining_ns(ranks, 2, bytes)
            }
            (CollectiveAlgorithm::Tree { .. }, CollectiveOperation::ReduceScatter { .. }) => {
                // The whole vector at every level of the reduce.
                levels * self.round_ns(radix.min(size) - 1, bytes, fold)
                    + merge_ns
                    + self.bytes_ns(others, FoldedBytes::Nothing)
            }
            (CollectiveAlgorithm::Tree { .. }, _) => merge_ns + self.bytes_ns(others, FoldedBytes::Nothing),
            (CollectiveAlgorithm::Direct, CollectiveOperation::AllToAll) => {
                self.round_ns(2 * (size - 1), 0, FoldedBytes::Nothing) + self.bytes_ns(others, FoldedBytes::Nothing)
            }
            (CollectiveAlgorithm::Direct, _) => self.round_ns(size - 1, block, FoldedBytes::Nothing),
            _ => (size - 1) * self.round_ns(1, block, fold),
        }
    }

    /// The round in which an exclusive scan moves every operand to the next rank.
    fn shift_ns(&self, extent: ScanExtent, bytes: u64) -> u64 {
        match extent {
            ScanExtent::Inclusive => 0,
            ScanExtent::Exclusive => self.round_ns(1, bytes, FoldedBytes::Nothing),
        }
    }
}

/// Average number of messages that a participant sends.
pub(super) fn messages(algorithm: CollectiveAlgorithm, collective: &CollectiveOperation, ranks: u32) -> u64 {
    let levels = u64::from(rounds_to_merge(ranks, algorithm.radix().into()));
    match (algorithm, collective) {
        (CollectiveAlgorithm::RecursiveDoubling | CollectiveAlgorithm::RecursiveHalving, _) => levels,
        (CollectiveAlgorithm::Tree { .. }, CollectiveOperation::ReduceScatter { .. }) => 2,
        (CollectiveAlgorithm::Direct, CollectiveOperation::AllToAll) | (CollectiveAlgorithm::Ring, _) => {
            u64::from(ranks) - 1
        }
        _ => 1,
    }
}
