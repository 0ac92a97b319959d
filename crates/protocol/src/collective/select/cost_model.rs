//! What algorithms cost, by a plain model: so much for a message, so much for each further one of the same round, so
//! much for a byte on the wire and for a byte folded.
//!
//! The constants are orders of magnitude. Only their ratios matter, and only for where one algorithm overtakes another;
//! halving any of them moves that place by a factor of two, where the two cost about the same.

use super::AggregationOffer;
use crate::collective::recursive_exchange::participants;
use crate::collective::{CollectiveAlgorithm, CollectiveOperation};

/// What lies between hosts, by the magnitude of its costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransportClass {
    /// Memory that the ranks share.
    SharedMemory,
    /// A fabric whose adapters bypass the kernel.
    Fabric,
    /// Datagrams through the kernel.
    Datagrams,
}

/// The costs of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransportCosts {
    /// From the start of a send to the end of the receive, for an empty message.
    pub message_ns: u64,
    /// What each further message adds that a party sends or receives in the same round.
    pub next_message_ns: u64,
    /// Time of a byte on the wire.
    pub byte_ps: u64,
    /// Time to fold a byte.
    pub fold_byte_ps: u64,
}

impl TransportClass {
    /// The costs of this class.
    pub const fn costs(self) -> TransportCosts {
        match self {
            // A cache line changes hands a few times; then the memory's bandwidth.
            Self::SharedMemory => {
                TransportCosts { message_ns: 400, next_message_ns: 150, byte_ps: 80, fold_byte_ps: FOLD_BYTE_PS }
            }
            // 100 Gb/s, and two adapters and a few switches between (SH-7).
            Self::Fabric => {
                TransportCosts { message_ns: 1_300, next_message_ns: 100, byte_ps: 80, fold_byte_ps: FOLD_BYTE_PS }
            }
            // Two system calls and a wake-up; then a system call each.
            Self::Datagrams => {
                TransportCosts { message_ns: 6_000, next_message_ns: 1_500, byte_ps: 200, fold_byte_ps: FOLD_BYTE_PS }
            }
        }
    }
}

/// About 10 GB/s: one stream read, one read and written.
const FOLD_BYTE_PS: u64 = 100;

/// The prescribed tree is not known to the model; aggregation nodes of today's switches have about as many children.
const PRESCRIBED_RADIX: u32 = 16;

/// What the selector looks at, better-known first where estimates tie.
pub(super) const CANDIDATES: [CollectiveAlgorithm; 15] = [
    CollectiveAlgorithm::Dissemination { radix: 2 },
    CollectiveAlgorithm::Dissemination { radix: 4 },
    CollectiveAlgorithm::Dissemination { radix: 8 },
    CollectiveAlgorithm::RecursiveDoubling,
    CollectiveAlgorithm::RecursiveKing { radix: 4 },
    CollectiveAlgorithm::RecursiveKing { radix: 8 },
    CollectiveAlgorithm::RecursiveKing { radix: 16 },
    CollectiveAlgorithm::Rabenseifner,
    CollectiveAlgorithm::Ring,
    CollectiveAlgorithm::Tree { radix: 2 },
    CollectiveAlgorithm::Tree { radix: 4 },
    CollectiveAlgorithm::Tree { radix: 8 },
    CollectiveAlgorithm::ScatterAllgather,
    CollectiveAlgorithm::OrderedTree,
    CollectiveAlgorithm::OrderedBlocks,
];

impl TransportCosts {
    /// An estimate for hosts alone.
    pub(super) fn hosts_ns(
        &self,
        algorithm: CollectiveAlgorithm,
        collective: &CollectiveOperation,
        parties: u32,
        bytes: u32,
    ) -> u64 {
        let (size, radix) = (u64::from(parties), u64::from(algorithm.radix()));
        let bytes = u64::from(bytes);
        let block = bytes / size;
        let levels = u64::from(levels(parties, algorithm.radix().into()));
        let fold = FoldedBytes::of(collective);
        match algorithm {
            CollectiveAlgorithm::RecursiveDoubling | CollectiveAlgorithm::RecursiveKing { .. } => {
                let exchanges = exchanges(parties, algorithm.radix().into());
                let exchange = |others: u32| self.exchange_ns(others.into(), bytes);
                exchanges.map(exchange).sum::<u64>() + self.joining_ns(parties, algorithm.radix().into(), bytes)
            }
            CollectiveAlgorithm::Rabenseifner => {
                let splits = u64::from(participants(parties, 2).ilog2());
                2 * splits * self.message_ns
                    + self.bytes_ns(2 * (bytes - block), FoldedBytes::Nothing)
                    + self.bytes_ns(bytes - block, FoldedBytes::Only)
                    + self.joining_ns(parties, 2, bytes)
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
            CollectiveAlgorithm::Dissemination { .. } => levels * self.exchange_ns(radix.min(size) - 1, 0),
            CollectiveAlgorithm::OrderedTree => {
                let up = u64::from(self::levels(parties, PRESCRIBED_RADIX));
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

    /// An estimate for aggregation: a message for each hop up and down, and every node takes in its children's vectors one
    /// after the other and answers them; levels work in a pipeline.
    pub(super) fn aggregation_ns(&self, offer: &AggregationOffer, bytes: u32) -> u64 {
        let hops = 2 * u64::from(offer.levels).max(1);
        let children = u64::from(offer.children).max(2);
        hops * self.message_ns
            + 2 * (children - 1) * self.next_message_ns
            + self.bytes_ns(children.saturating_mul(bytes.into()), FoldedBytes::Nothing)
    }

    /// An estimate for a multicast: one message that all hear at once. What it costs now and then to learn that all have it is
    /// no part of it, because nobody waits for that.
    pub(super) fn multicast_ns(&self, bytes: u32) -> u64 {
        self.round_ns(1, bytes.into(), FoldedBytes::Nothing)
    }

    /// What becomes of an estimate where so many parties share a processor, each with so many messages to send and as many
    /// to receive: they cannot be quicker than that processor.
    pub(super) fn crowded_ns(&self, idle_ns: u64, messages: u64, per_processor: u32) -> u64 {
        match per_processor {
            0 | 1 => idle_ns,
            _ => idle_ns.max(messages.saturating_mul(per_processor.into()).saturating_mul(self.message_ns)),
        }
    }

    /// A round in which a party sends as many messages as it receives, and folds them.
    fn exchange_ns(&self, messages: u64, bytes: u64) -> u64 {
        self.round_ns(messages, bytes, FoldedBytes::All) + messages.saturating_sub(1) * self.next_message_ns
    }

    /// A round in which a party sends or receives so many messages.
    fn round_ns(&self, messages: u64, bytes: u64, fold: FoldedBytes) -> u64 {
        self.message_ns
            + messages.saturating_sub(1) * self.next_message_ns
            + self.bytes_ns(messages.saturating_mul(bytes), fold)
    }

    fn bytes_ns(&self, bytes: u64, fold: FoldedBytes) -> u64 {
        let byte_ps = match fold {
            FoldedBytes::Nothing => self.byte_ps,
            FoldedBytes::All => self.byte_ps + self.fold_byte_ps,
            FoldedBytes::Only => self.fold_byte_ps,
        };
        bytes.saturating_mul(byte_ps) / 1000
    }

    /// What it costs that some ranks join a neighbour before and are told the result after.
    fn joining_ns(&self, parties: u32, radix: u32, bytes: u64) -> u64 {
        if participants(parties, radix) == parties {
            0
        } else {
            self.round_ns(1, bytes, FoldedBytes::All) + self.round_ns(1, bytes, FoldedBytes::Nothing)
        }
    }
}

/// What of the bytes is folded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FoldedBytes {
    Nothing,
    /// All that is received.
    All,
    /// All, and the wire is counted elsewhere.
    Only,
}

impl FoldedBytes {
    fn of(collective: &CollectiveOperation) -> Self {
        if collective.kind().is_some() { Self::All } else { Self::Nothing }
    }
}

/// Messages that a party sends, on average.
pub(super) fn messages(algorithm: CollectiveAlgorithm, collective: &CollectiveOperation, parties: u32) -> u64 {
    let (size, radix) = (u64::from(parties), u64::from(algorithm.radix()));
    let levels = u64::from(levels(parties, algorithm.radix().into()));
    let goes_both_ways = matches!(collective, CollectiveOperation::AllReduce { .. } | CollectiveOperation::Barrier);
    match algorithm {
        CollectiveAlgorithm::RecursiveDoubling | CollectiveAlgorithm::RecursiveKing { .. } => {
            exchanges(parties, algorithm.radix().into()).map(u64::from).sum()
        }
        CollectiveAlgorithm::Rabenseifner => 2 * levels,
        CollectiveAlgorithm::Ring | CollectiveAlgorithm::OrderedBlocks => 2 * (size - 1),
        CollectiveAlgorithm::ScatterAllgather => size,
        CollectiveAlgorithm::Dissemination { .. } => levels * (radix.min(size) - 1),
        CollectiveAlgorithm::Tree { .. } | CollectiveAlgorithm::OrderedTree => 1 + u64::from(goes_both_ways),
    }
}

/// How many others a rank exchanges with in each round of recursive k-ing.
fn exchanges(parties: u32, radix: u32) -> impl Iterator<Item = u32> {
    let participants = participants(parties, radix);
    let strides = std::iter::successors(Some(1_u32), move |stride| stride.checked_mul(radix));
    strides.take_while(move |stride| *stride < participants).map(move |stride| radix.min(participants / stride) - 1)
}

/// How many times groups of `radix` merge until all are one.
fn levels(parties: u32, radix: u32) -> u32 {
    let (mut levels, mut merged) = (0, 1_u64);
    while merged < u64::from(parties) {
        merged *= u64::from(radix);
        levels += 1;
    }
    levels
}
