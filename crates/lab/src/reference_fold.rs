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
            CollectiveAlgorithm::RecursiveHalving => Self::Same(ReferenceOrder::halving(ranks)),
            CollectiveAlgorithm::Tree { .. } => Self::Same(ReferenceOrder::knomial(ranks, radix)),
            _ => Self::Same(ReferenceOrder::recursive(ranks, radix)),
        }
    }

    /// The bits that every one of so many ranks with a result must have in the first elements of an operation.
    pub(crate) fn result(&self, table: &ContributionTable, op: OpId, elements: usize, ranks: u32) -> Vec<u8> {
        match self {
            Self::Same(order) => table.reference_range(op, order, 0..elements),
            Self::Ring => {
                (0..ranks).flat_map(|last| self.block_result(table, op, elements, (ranks, Rank(last)))).collect()
            }
        }
    }

    /// The bits of the block of one of so many ranks.
    pub(crate) fn block_result(
        &self,
        table: &ContributionTable,
        op: OpId,
        elements: usize,
        (ranks, rank): (u32, Rank),
    ) -> Vec<u8> {
        let range = oracle::block_range(elements, ranks, rank.0);
        match self {
            _ if range.is_empty() => Vec::new(),
            Self::Same(order) => table.reference_range(op, order, range),
            Self::Ring => table.reference_range(op, &ReferenceOrder::ring(ranks, rank.0), range),
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
