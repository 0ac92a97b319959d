//! A simple cost model of the algorithms: a cost per message, per further message in the same round, per byte on the
//! wire and per folded byte.
//!
//! The constants are orders of magnitude. Only their ratios matter, and only for where one algorithm overtakes
//! another. Halving one of them moves that crossover by a factor of two, where both algorithms cost about the same.

use super::{AggregationOffer, block_costs};
use crate::collective::recursive_exchange::participants;
use crate::collective::rounds::rounds_to_merge;
use crate::collective::{CollectiveAlgorithm, CollectiveOperation};

/// The transport between hosts, by its order of costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransportClass {
    /// Shared memory.
    SharedMemory,
    /// A fabric with kernel-bypass adapters.
    Fabric,
    /// Datagrams through the kernel.
    Datagrams,
}

/// The costs of a transport class, or of a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransportCosts {
    /// From the start of a send to the end of the receive, for an empty message.
    pub message_ns: u64,
    /// Each further message that a participant sends or receives in the same round.
    pub next_message_ns: u64,
    /// One byte on the wire, in picoseconds.
    pub byte_ps: u64,
    /// Folding one byte, in picoseconds.
    pub fold_byte_ps: u64,
}

impl TransportClass {
    /// The costs of this class.
    pub const fn costs(self) -> TransportCosts {
        match self {
            // A few cache-line transfers; then the memory bandwidth.
            Self::SharedMemory => {
                TransportCosts { message_ns: 400, next_message_ns: 150, byte_ps: 80, fold_byte_ps: FOLD_BYTE_PS }
            }
            // 100 Gb/s, with two adapters and a few switches in between (SH-7).
            Self::Fabric => {
                TransportCosts { message_ns: 1_300, next_message_ns: 100, byte_ps: 80, fold_byte_ps: FOLD_BYTE_PS }
            }
            // Two system calls and a wake-up; then one system call per message.
            Self::Datagrams => {
                TransportCosts { message_ns: 6_000, next_message_ns: 1_500, byte_ps: 200, fold_byte_ps: FOLD_BYTE_PS }
            }
        }
    }
}

/// About 10 GB/s: one stream is read, one is read and written.
const FOLD_BYTE_PS: u64 = 100;

/// The fan-in of a prescribed tree, which the model does not know: about that of today's aggregation nodes.
const PRESCRIBED_RADIX: u32 = 16;

/// The candidates of the selection; on a tie the earlier, better-known one wins.
pub(super) const CANDIDATES: [CollectiveAlgorithm; 18] = [
    CollectiveAlgorithm::Dissemination { radix: 2 },
    CollectiveAlgorithm::Dissemination { radix: 4 },
    CollectiveAlgorithm::Dissemination { radix: 8 },
    CollectiveAlgorithm::RecursiveDoubling,
    CollectiveAlgorithm::RecursiveKing { radix: 4 },
    CollectiveAlgorithm::RecursiveKing { radix: 8 },
    CollectiveAlgorithm::RecursiveKing { radix: 16 },
    CollectiveAlgorithm::RecursiveHalving,
    CollectiveAlgorithm::Rabenseifner,
    CollectiveAlgorithm::Ring,
    CollectiveAlgorithm::Tree { radix: 2 },
    CollectiveAlgorithm::Tree { radix: 4 },
    CollectiveAlgorithm::Tree { radix: 8 },
    CollectiveAlgorithm::ScatterAllgather,
    CollectiveAlgorithm::Chain,
    CollectiveAlgorithm::Direct,
    CollectiveAlgorithm::OrderedTree,
    CollectiveAlgorithm::OrderedBlocks,
];

impl TransportCosts {
    /// Estimate for a point-to-point algorithm.
    pub(super) fn point_to_point_ns(
        &self,
        algorithm: CollectiveAlgorithm,
        collective: &CollectiveOperation,
        ranks: u32,
        bytes: u32,
    ) -> u64 {
        if !collective.can_aggregate() {
            return self.block_ns(algorithm, collective, ranks, bytes);
        }
        let (size, radix) = (u64::from(ranks), u64::from(algorithm.radix()));
        let bytes = u64::from(bytes);
        let block = bytes / size;
        let levels = u64::from(rounds_to_merge(ranks, algorithm.radix().into()));
        let fold = FoldedBytes::of(collective);
        match algorithm {
            CollectiveAlgorithm::RecursiveDoubling | CollectiveAlgorithm::RecursiveKing { .. } => {
                let exchanges = exchanges(ranks, algorithm.radix().into());
                let exchange = |others: u32| self.exchange_ns(others.into(), bytes);
                exchanges.map(exchange).sum::<u64>() + self.joining_ns(ranks, algorithm.radix().into(), bytes)
            }
            CollectiveAlgorithm::Rabenseifner => {
                let splits = u64::from(participants(ranks, 2).ilog2());
                2 * splits * self.message_ns
                    + self.bytes_ns(2 * (bytes - block), FoldedBytes::Nothing)
                    + self.bytes_ns(bytes - block, FoldedBytes::Only)
                    + self.joining_ns(ranks, 2, bytes)
            }
            CollectiveAlgorithm::Ring | CollectiveAlgorithm::OrderedBlocks => {
                (size - 1)
                    * (self.round_ns(1, block, FoldedBytes::All) + self.round_ns(1, block, FoldedBytes::Nothing))
            }
            CollectiveAlgorithm::Tree { .. } => {
                let passes =
                    if matches!(collective, CollectiveOperation::AllReduce { .. } | CollectiveOperation::Barrier) {
                        2
                    } else {
                        1
                    };
                passes * levels * self.round_ns(radix.min(size) - 1, bytes, fold)
            }
            CollectiveAlgorithm::ScatterAllgather => {
                levels * self.message_ns
                    + self.bytes_ns(bytes - block, FoldedBytes::Nothing)
                    + (size - 1) * self.round_ns(1, block, FoldedBytes::Nothing)
            }
            CollectiveAlgorithm::Chain => (size - 1) * self.message_ns + self.bytes_ns(bytes, fold),
            CollectiveAlgorithm::Dissemination { .. } => levels * self.exchange_ns(radix.min(size) - 1, 0),
            CollectiveAlgorithm::RecursiveHalving | CollectiveAlgorithm::Direct => {
                self.block_ns(algorithm, collective, ranks, bytes as u32)
            }
            CollectiveAlgorithm::OrderedTree => {
                let up = u64::from(rounds_to_merge(ranks, PRESCRIBED_RADIX));
                let fan_in = u64::from(PRESCRIBED_RADIX).min(size) - 1;
                let down = match collective {
                    CollectiveOperation::Reduce { .. } => 1,
                    _ => levels,
                };
                up * self.round_ns(fan_in, bytes, FoldedBytes::All)
                    + down * self.round_ns(1, bytes, FoldedBytes::Nothing)
            }
        }
    }

    /// Estimate for aggregation: one message per hop in each direction; every node receives its children's vectors
    /// one after the other and answers them; levels form a pipeline.
    pub(super) fn aggregation_ns(&self, offer: &AggregationOffer, bytes: u32) -> u64 {
        let hops = 2 * u64::from(offer.levels).max(1);
        let children = u64::from(offer.children).max(2);
        hops * self.message_ns
            + 2 * (children - 1) * self.next_message_ns
            + self.bytes_ns(children.saturating_mul(bytes.into()), FoldedBytes::Nothing)
    }

    /// Estimate for a multicast: one message that all hosts receive at once. The occasional acknowledgement barrier
    /// does not count, because no rank waits for it.
    pub(super) fn multicast_ns(&self, bytes: u32) -> u64 {
        self.round_ns(1, bytes.into(), FoldedBytes::Nothing)
    }

    /// Adjusts an estimate for participants that share a processor: together they cannot be faster than the processor
    /// handles the messages that each of them sends and receives.
    pub(super) fn oversubscribed_ns(&self, idle_ns: u64, messages: u64, ranks_per_processor: u32) -> u64 {
        match ranks_per_processor {
            0 | 1 => idle_ns,
            _ => idle_ns.max(messages.saturating_mul(ranks_per_processor.into()).saturating_mul(self.message_ns)),
        }
    }

    /// A round in which a participant sends as many messages as it receives, and folds them.
    fn exchange_ns(&self, messages: u64, bytes: u64) -> u64 {
        self.round_ns(messages, bytes, FoldedBytes::All) + messages.saturating_sub(1) * self.next_message_ns
    }

    /// A round in which a participant sends or receives so many messages.
    pub(super) fn round_ns(&self, messages: u64, bytes: u64, fold: FoldedBytes) -> u64 {
        self.message_ns
            + messages.saturating_sub(1) * self.next_message_ns
            + self.bytes_ns(messages.saturating_mul(bytes), fold)
    }

    pub(super) fn bytes_ns(&self, bytes: u64, fold: FoldedBytes) -> u64 {
        let byte_ps = match fold {
            FoldedBytes::Nothing => self.byte_ps,
            FoldedBytes::All => self.byte_ps + self.fold_byte_ps,
            FoldedBytes::Only => self.fold_byte_ps,
        };
        bytes.saturating_mul(byte_ps) / 1000
    }

    /// The cost of the extra rounds for ranks that join a neighbour.
    pub(super) fn joining_ns(&self, size: u32, radix: u32, bytes: u64) -> u64 {
        if participants(size, radix) == size {
            0
        } else {
            self.round_ns(1, bytes, FoldedBytes::All) + self.round_ns(1, bytes, FoldedBytes::Nothing)
        }
    }
}

/// Which bytes are folded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FoldedBytes {
    Nothing,
    /// All received bytes.
    All,
    /// All, without the cost of the wire.
    Only,
}

impl FoldedBytes {
    fn of(collective: &CollectiveOperation) -> Self {
        if collective.kind().is_some() { Self::All } else { Self::Nothing }
    }
}

/// Average number of messages that a participant sends.
pub(super) fn messages(algorithm: CollectiveAlgorithm, collective: &CollectiveOperation, ranks: u32) -> u64 {
    let (size, radix) = (u64::from(ranks), u64::from(algorithm.radix()));
    let levels = u64::from(rounds_to_merge(ranks, algorithm.radix().into()));
    if !collective.can_aggregate() {
        return block_costs::messages(algorithm, collective, ranks);
    }
    let goes_both_ways = matches!(collective, CollectiveOperation::AllReduce { .. } | CollectiveOperation::Barrier);
    match algorithm {
        CollectiveAlgorithm::RecursiveDoubling | CollectiveAlgorithm::RecursiveKing { .. } => {
            exchanges(ranks, algorithm.radix().into()).map(u64::from).sum()
        }
        CollectiveAlgorithm::Rabenseifner => 2 * levels,
        CollectiveAlgorithm::Ring | CollectiveAlgorithm::OrderedBlocks => 2 * (size - 1),
        CollectiveAlgorithm::ScatterAllgather => size,
        CollectiveAlgorithm::Chain => 1,
        CollectiveAlgorithm::Dissemination { .. } => levels * (radix.min(size) - 1),
        CollectiveAlgorithm::RecursiveHalving => levels,
        CollectiveAlgorithm::Direct => size - 1,
        CollectiveAlgorithm::Tree { .. } | CollectiveAlgorithm::OrderedTree => 1 + u64::from(goes_both_ways),
    }
}

/// The number of peers of a rank in each round of recursive k-ing.
fn exchanges(size: u32, radix: u32) -> impl Iterator<Item = u32> {
    let participants = participants(size, radix);
    let strides = std::iter::successors(Some(1_u32), move |stride| stride.checked_mul(radix));
    strides.take_while(move |stride| *stride < participants).map(move |stride| radix.min(participants / stride) - 1)
}
