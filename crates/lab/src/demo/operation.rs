//! What ranks play: kinds of operations, what goes in, and what must come out.
//!
//! In: a seed, an operation's number, a rank. Out: a buffer to call the library with, and the results that are right, as the
//! oracle computes them from everybody's inputs with arithmetic of its own.

use oracle::{Element, ExactSum, Operator, Reduction, ReferenceOrder, contribution, reference};
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

/// In which order floats are folded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum DemoFoldOrder {
    /// Within hosts, then the hosts of a leaf, then the leaves: also when a node is lost.
    AsInTree,
    /// Within hosts, then as the hosts' algorithm has it: pair by pair, or one after the other.
    AmongHosts,
}

/// What a call works on.
pub(super) enum DemoBuffer {
    Nothing,
    Bytes(Vec<u8>),
    Doubles(Vec<f64>),
}

impl DemoOperation {
    pub(super) const ALL: [Self; 7] =
        [Self::Barrier, Self::Sum, Self::FixedOrder, Self::Exact, Self::Largest, Self::Broadcast, Self::Long];

    /// For people.
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

    /// Operations in a row: many short ones, few long ones.
    pub(super) fn batch(self) -> u64 {
        match self {
            Self::Barrier | Self::Sum | Self::FixedOrder => 30,
            Self::Exact | Self::Largest | Self::Broadcast => 15,
            Self::Long => 1,
        }
    }

    /// What is folded; of a broadcast, what the root has.
    fn operation(self) -> Reduction {
        let (element, operator, count) = match self {
            Self::Barrier => (Element::I64, Operator::Sum, 0),
            Self::Sum => (Element::I64, Operator::Sum, 1),
            Self::FixedOrder => (Element::F64, Operator::Sum, 64),
            // The oracle's numbers for a maximum have exponents from end to end.
            Self::Exact => (Element::F64, Operator::Max, 8),
            Self::Largest => (Element::F32, Operator::Max, 256),
            Self::Broadcast => (Element::I64, Operator::Sum, 1536),
            Self::Long => (Element::I64, Operator::Sum, 1 << 15),
        };
        Reduction { element, operator, count }
    }

    /// What a rank puts in.
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
    pub(super) fn play(self, world: &Communicator, op: OpId, buffer: &mut DemoBuffer) -> Result<(), Error> {
        let kind = |element: ElementType, operator: pleach::Operator| {
            ReductionKind::new(element, operator).map_err(|error| Error::Argument { what: error.to_string() })
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

    /// What is wrong with what came out.
    pub(super) fn objection(
        self,
        seed: u64,
        op: OpId,
        folding: DemoFoldOrder,
        buffer: &DemoBuffer,
    ) -> Option<String> {
        let found = match buffer {
            DemoBuffer::Nothing => return None, // Whether all had come, only who sees all can tell.
            DemoBuffer::Bytes(bytes) => bytes.clone(),
            DemoBuffer::Doubles(vector) => vector.iter().flat_map(|value| value.to_le_bytes()).collect(),
        };
        let right = self.right_results(seed, op, folding);
        if right.contains(&found) {
            return None;
        }
        let at = right[0].iter().zip(&found).position(|(right, found)| right != found).unwrap_or(found.len());
        Some(format!("{} number {}: {} bytes, the first wrong one is byte {at}", self.name(), op.0, found.len()))
    }

    fn right_results(self, seed: u64, op: OpId, folding: DemoFoldOrder) -> Vec<Vec<u8>> {
        let operation = self.operation();
        match self {
            Self::Broadcast => vec![contribution(seed, root(op), op, &operation)],
            Self::Exact => vec![exact_sums(seed, op, &operation)],
            Self::FixedOrder => {
                let orders = match folding {
                    DemoFoldOrder::AsInTree => vec![in_tree()],
                    DemoFoldOrder::AmongHosts => vec![pair_by_pair(), one_after_the_other()],
                };
                orders.iter().map(|order| reference(seed, op, &operation, order)).collect()
            }
            _ => vec![reference(seed, op, &operation, &ReferenceOrder::flat(RANKS))],
        }
    }
}

/// Everyone broadcasts in turn.
fn root(op: OpId) -> Rank {
    Rank(op.0 % RANKS)
}

fn doubles(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
}

fn exact_sums(seed: u64, op: OpId, operation: &Reduction) -> Vec<u8> {
    let mut sums = vec![ExactSum::new(Element::WideF64); operation.count];
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

/// As the leaves share the hosts: in order, each as many as the others.
fn in_tree() -> ReferenceOrder {
    let hosts = hosts();
    let share = hosts.len() / (NODES as usize - 1);
    ReferenceOrder::node(hosts.chunks(share).map(|hosts| ReferenceOrder::node(hosts.to_vec())))
}

fn pair_by_pair() -> ReferenceOrder {
    let mut orders = hosts();
    while orders.len() > 1 {
        orders = orders.chunks(2).map(|pair| ReferenceOrder::node(pair.to_vec())).collect();
    }
    orders.remove(0)
}

fn one_after_the_other() -> ReferenceOrder {
    ReferenceOrder::node(hosts())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_bit_is_objected_to() {
        for piece in DemoOperation::ALL.into_iter().filter(|piece| *piece != DemoOperation::Barrier) {
            let mut right = piece.right_results(7, OpId(3), DemoFoldOrder::AsInTree).remove(0);
            let as_buffer = |bytes: &[u8]| match piece {
                DemoOperation::Exact => DemoBuffer::Doubles(doubles(bytes)),
                _ => DemoBuffer::Bytes(bytes.to_vec()),
            };
            assert_eq!(piece.objection(7, OpId(3), DemoFoldOrder::AsInTree, &as_buffer(&right)), None, "{piece:?}");
            let middle = right.len() / 2;
            right[middle] ^= 1;
            let objection = piece.objection(7, OpId(3), DemoFoldOrder::AsInTree, &as_buffer(&right));
            assert!(objection.is_some_and(|text| text.ends_with(&format!("byte {middle}"))), "{piece:?}");
        }
    }

    #[test]
    fn the_order_of_floats_can_be_seen_in_the_bits() {
        let operation = DemoOperation::FixedOrder.operation();
        let bits = |order: &ReferenceOrder| reference(1, OpId(1), &operation, order);
        assert_ne!(bits(&in_tree()), bits(&one_after_the_other()));
        assert_eq!(bits(&in_tree()), bits(&pair_by_pair()), "two leaves of two hosts are pairs of pairs");
    }
}
