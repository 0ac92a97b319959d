//! The order in which the oracle folds what a simulated run folds: as its tree does, or as an algorithm among hosts does.

use oracle::{ContributionTable, Reduction, ReferenceOrder, ReferenceOrderNode};
use protocol::collective::CollectiveAlgorithm;
use reduce::ReductionKind;
use topology::{AggregationTree, ChildNode, NodeId};
use units::{OpId, Rank};

/// In which order the elements of a segment are folded.
pub(crate) enum ReferenceFold {
    /// All in one order.
    Same(ReferenceOrder),
    /// Split into one block for each rank, which is folded around the ring and ends at that rank.
    Ring,
}

impl ReferenceFold {
    /// As a tree does whose hosts have these ranks.
    pub(crate) fn of_tree(tree: &AggregationTree, rank_of: impl Fn(NodeId) -> Rank) -> Self {
        let root = tree.roots().next().expect("a tree has a root");
        Self::Same(ReferenceOrder::from_tree(ChildNode::Node(root), |place| match place {
            ChildNode::Host(host) => ReferenceOrderNode::Rank(rank_of(host)),
            ChildNode::Node(node) => {
                ReferenceOrderNode::Node(tree.node(node).children.iter().map(|child| child.node).collect())
            }
        }))
    }

    /// As so many ranks do with an algorithm.
    pub(crate) fn of_algorithm(algorithm: CollectiveAlgorithm, ranks: u32) -> Self {
        let radix = u32::from(algorithm.radix());
        match algorithm {
            CollectiveAlgorithm::Ring => Self::Ring,
            CollectiveAlgorithm::Tree { .. } => Self::Same(ReferenceOrder::knomial(ranks, radix)),
            _ => Self::Same(ReferenceOrder::recursive(ranks, radix)),
        }
    }

    /// The bits that every one of so many ranks with a result must have in the first elements of an operation.
    pub(crate) fn result(&self, table: &ContributionTable, op: OpId, elements: usize, ranks: u32) -> Vec<u8> {
        match self {
            Self::Same(order) => table.reference_range(op, order, 0..elements),
            Self::Ring => {
                let cut = |block: u32| (elements as u64 * u64::from(block) / u64::from(ranks)) as usize;
                let block = |last: u32| match cut(last)..cut(last + 1) {
                    empty if empty.is_empty() => Vec::new(),
                    range => table.reference_range(op, &ReferenceOrder::ring(ranks, last), range),
                };
                (0..ranks).flat_map(block).collect()
            }
        }
    }
}

/// The oracle's own description of a reduction.
pub(crate) fn oracle_reduction(kind: ReductionKind, count: usize) -> Reduction {
    let same_name = "the oracle uses the same names of elements and operators";
    Reduction {
        element: kind.element().name().parse().expect(same_name),
        operator: kind.operator().name().parse().expect(same_name),
        count,
    }
}
