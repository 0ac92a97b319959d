//! The operations of the demo: their inputs and their correct results.
//!
//! In: a seed, an operation's number, a rank. Out: a buffer to call the library with, and the correct results, which the oracle
//! computes from the inputs of all ranks with its own arithmetic.

use oracle::{ExactSum, Reduction, ReductionElement, ReductionOperator, ReferenceOrder, contribution, reference};
use pleach::{Communicator, ElementType, Error, ReductionKind};
use serde::{Deserialize, Serialize};
use units::{OpId, Rank};

use super::{NODES, PER_HOST, RANKS};

/// A kind of operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) enum DemoOperation {
    Barrier,
    Sum,
    FixedOrder,
    Exact,
    Largest,
    Broadcast,
    Long,
}

/// The order in which floats are folded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum DemoFoldOrder {
    /// Within hosts, then the hosts of a leaf, then the leaves: also when a node is lost.
    Tree,
    /// Within hosts, then in the order of the hosts' algorithm: recursive doubling, or a chain.
    HostAlgorithm,
}

/// The buffer of a call.
pub(super) enum DemoBuffer {
    Nothing,
    Bytes(Vec<u8>),
    Doubles(Vec<f64>),
}

impl DemoOperation {
    pub(super) const ALL: [Self; 7] =
        [Self::Barrier, Self::Sum, Self::FixedOrder, Self::Exact, Self::Largest, Self::Broadcast, Self::Long];

    /// The name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Sum => "allreduce, i64 sum, 8 B",
            Self::FixedOrder => "allreduce, f64 sum in fixed order, 512 B",
            Self::Exact => "allreduce, f64 exact sum, 64 B",
            Self::Largest => "allreduce, f32 max, 1 KiB",
            Self::Broadcast => "broadcast, 12 KiB",
            Self::Long => "allreduce, i64 sum, 256 KiB",
        }
    }

    /// Operations in one batch: many short ones, few long ones.
    pub(super) fn batch(self) -> u64 {
        match self {
            Self::Barrier | Self::Sum | Self::FixedOrder => 30,
            Self::Exact | Self::Largest | Self::Broadcast => 15,
            Self::Long => 1,
        }
    }

    /// The reduction; of a broadcast, the data of the root.
    fn operation(self) -> Reduction {
        let (element, operator, count) = match self {
            Self::Barrier => (ReductionElement::I64, ReductionOperator::Sum, 0),
            Self::Sum => (ReductionElement::I64, ReductionOperator::Sum, 1),
            Self::FixedOrder => (ReductionElement::F64, ReductionOperator::Sum, 64),
            // The oracle's inputs for a maximum have exponents over the whole range.
            Self::Exact => (ReductionElement::F64, ReductionOperator::Max, 8),
            Self::Largest => (ReductionElement::F32, ReductionOperator::Max, 256),
            Self::Broadcast => (ReductionElement::I64, ReductionOperator::Sum, 1536),
            Self::Long => (ReductionElement::I64, ReductionOperator::Sum, 1 << 15),
        };
        Reduction { element, operator, count }
    }

    /// The input of a rank.
    pub(super) fn input(self, seed: u64, op: OpId, rank: Rank) -> DemoBuffer {
        let bytes = || contribution(seed, rank, op, &self.operation());
        match self {
            Self::Barrier => DemoBuffer::Nothing,
            Self::Exact => DemoBuffer::Doubles(doubles(&bytes())),
            Self::Broadcast if rank != root(op) => DemoBuffer::Bytes(vec![0; self.operation().bytes()]),
            _ => DemoBuffer::Bytes(bytes()),
        }
    }

    /// Calls the library.
    pub(super) fn call(self, world: &Communicator, op: OpId, buffer: &mut DemoBuffer) -> Result<(), Error> {
        let kind = |element: ElementType, operator: pleach::Operator| {
            ReductionKind::new(element, operator).map_err(|error| Error::InvalidArgument { what: error.to_string() })
        };
        match (self, buffer) {
            (Self::Broadcast, DemoBuffer::Bytes(bytes)) => world.broadcast(bytes, root(op).0),
            (Self::FixedOrder, DemoBuffer::Bytes(bytes)) => {
                world.all_reduce_bytes(bytes, kind(ElementType::F64, pleach::Operator::Sum)?)
            }
            (Self::Largest, DemoBuffer::Bytes(bytes)) => {
                world.all_reduce_bytes(bytes, kind(ElementType::F32, pleach::Operator::Max)?)
            }
            (_, DemoBuffer::Bytes(bytes)) => {
                world.all_reduce_bytes(bytes, kind(ElementType::I64, pleach::Operator::Sum)?)
            }
            (_, DemoBuffer::Doubles(vector)) => world.all_reduce_exact(vector),
            (_, DemoBuffer::Nothing) => world.barrier(),
        }
    }

    /// Compares the result with the correct ones. Describes the difference if there is one.
    pub(super) fn check(self, seed: u64, op: OpId, fold_order: DemoFoldOrder, buffer: &DemoBuffer) -> Option<String> {
        let found = match buffer {
            DemoBuffer::Nothing => return None, // `PhaseStatistics` checks barriers: it has the times of all ranks.
            DemoBuffer::Bytes(bytes) => bytes.clone(),
            DemoBuffer::Doubles(vector) => vector.iter().flat_map(|value| value.to_le_bytes()).collect(),
        };
        let correct = self.correct_results(seed, op, fold_order);
        if correct.contains(&found) {
            return None;
        }
        let at = correct[0].iter().zip(&found).position(|(correct, found)| correct != found).unwrap_or(found.len());
        Some(format!("{} number {}: {} bytes, the first wrong one is byte {at}", self.name(), op.0, found.len()))
    }

    fn correct_results(self, seed: u64, op: OpId, fold_order: DemoFoldOrder) -> Vec<Vec<u8>> {
        let operation = self.operation();
        match self {
            Self::Broadcast => vec![contribution(seed, root(op), op, &operation)],
            Self::Exact => vec![exact_sums(seed, op, &operation)],
            Self::FixedOrder => {
                let orders = match fold_order {
                    DemoFoldOrder::Tree => vec![tree()],
                    DemoFoldOrder::HostAlgorithm => vec![recursive_doubling(), chain()],
                };
                orders.iter().map(|order| reference(seed, op, &operation, order)).collect()
            }
            _ => vec![reference(seed, op, &operation, &ReferenceOrder::flat(RANKS))],
        }
    }
}

/// All ranks broadcast in turn.
fn root(op: OpId) -> Rank {
    Rank(op.0 % RANKS)
}

fn doubles(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
}

fn exact_sums(seed: u64, op: OpId, operation: &Reduction) -> Vec<u8> {
    let mut sums = vec![ExactSum::new(ReductionElement::WideF64); operation.count];
    for rank in 0..RANKS {
        let values = doubles(&contribution(seed, Rank(rank), op, operation));
        sums.iter_mut().zip(values).for_each(|(sum, value)| sum.add(value));
    }
    sums.iter().flat_map(|sum| sum.round().to_le_bytes()).collect()
}

fn hosts() -> Vec<ReferenceOrder> {
    let ranks = |host: u32| (0..PER_HOST).map(move |local| ReferenceOrder::rank(Rank(host * PER_HOST + local)));
    (0..RANKS / PER_HOST).map(|host| ReferenceOrder::node(ranks(host))).collect()
}

/// Each leaf has the same number of hosts, in order.
fn tree() -> ReferenceOrder {
    let hosts = hosts();
    let share = hosts.len() / (NODES as usize - 1);
    ReferenceOrder::node(hosts.chunks(share).map(|hosts| ReferenceOrder::node(hosts.to_vec())))
}

fn recursive_doubling() -> ReferenceOrder {
    let mut orders = hosts();
    while orders.len() > 1 {
        orders = orders.chunks(2).map(|pair| ReferenceOrder::node(pair.to_vec())).collect();
    }
    orders.remove(0)
}

fn chain() -> ReferenceOrder {
    ReferenceOrder::node(hosts())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_bit_is_detected() {
        for operation in DemoOperation::ALL.into_iter().filter(|operation| *operation != DemoOperation::Barrier) {
            let mut correct = operation.correct_results(7, OpId(3), DemoFoldOrder::Tree).remove(0);
            let as_buffer = |bytes: &[u8]| match operation {
                DemoOperation::Exact => DemoBuffer::Doubles(doubles(bytes)),
                _ => DemoBuffer::Bytes(bytes.to_vec()),
            };
            assert_eq!(operation.check(7, OpId(3), DemoFoldOrder::Tree, &as_buffer(&correct)), None, "{operation:?}");
            let middle = correct.len() / 2;
            correct[middle] ^= 1;
            let check = operation.check(7, OpId(3), DemoFoldOrder::Tree, &as_buffer(&correct));
            assert!(check.is_some_and(|text| text.ends_with(&format!("byte {middle}"))), "{operation:?}");
        }
    }

    #[test]
    fn the_fold_order_shows_in_the_bits() {
        let operation = DemoOperation::FixedOrder.operation();
        let bits = |order: &ReferenceOrder| reference(1, OpId(1), &operation, order);
        assert_ne!(bits(&tree()), bits(&chain()));
        assert_eq!(bits(&tree()), bits(&recursive_doubling()), "two leaves of two hosts are pairs of pairs");
    }
}
