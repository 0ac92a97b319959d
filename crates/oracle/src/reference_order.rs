//! The order in which a fixed-order reduction folds, as data.
//!
//! In: a tree of ranks and nodes, given as nested orders or as a function from node to children. Out: a flat sequence with
//! brackets, so that neither a million ranks nor a chain of a million nodes needs recursion.

use units::Rank;

/// The fold order, from left to right: `((rank 0 ∘ rank 1) ∘ (rank 2 ∘ rank 3))`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReferenceOrder {
    steps: Vec<ReferenceOrderStep>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReferenceOrderStep {
    /// A node begins; it has no operand yet.
    Open,
    /// A rank's contribution is the next operand.
    Rank(Rank),
    /// A node ends; its result is the next operand of the enclosing node.
    Close,
}

/// A vertex of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReferenceOrderNode<N> {
    /// A rank with its contribution.
    Rank(Rank),
    /// A node that folds these children in this order. Without children it contributes nothing.
    Node(Vec<N>),
}

impl ReferenceOrder {
    /// One rank alone.
    pub fn rank(rank: Rank) -> Self {
        Self { steps: vec![ReferenceOrderStep::Rank(rank)] }
    }

    /// A node that folds its children from first to last.
    pub fn node(children: impl IntoIterator<Item = Self>) -> Self {
        let mut steps = vec![ReferenceOrderStep::Open];
        for child in children {
            steps.extend(child.steps);
        }
        steps.push(ReferenceOrderStep::Close);
        Self { steps }
    }

    /// One node that folds ranks 0 to `ranks - 1`.
    pub fn flat(ranks: u32) -> Self {
        Self::node((0..ranks).map(|rank| Self::rank(Rank(rank))))
    }

    /// A k-nomial tree: adjacent sums merge, `radix` at a time, until one is left. The last group of each level may be smaller.
    pub fn knomial(ranks: u32, radix: u32) -> Self {
        Self::merged((0..ranks).map(|rank| Self::rank(Rank(rank))).collect(), radix)
    }

    /// Recursive exchange, also as a reduce-scatter: as [`Self::knomial`], after the first ranks have paired up so that all groups of
    /// `radix` are full.
    ///
    /// # Panics
    /// The radix is below two, or there are no ranks.
    pub fn recursive(ranks: u32, radix: u32) -> Self {
        assert!(radix >= 2, "groups of {radix} never merge");
        let fills_groups = |mut count: u32| {
            while count.is_multiple_of(radix) {
                count /= radix;
            }
            count < radix
        };
        let participants = (1..=ranks).rev().find(|count| fills_groups(*count)).expect("there is a rank");
        Self::merged(Self::paired(ranks, participants), radix)
    }

    /// Recursive halving that begins with the most distant ranks: after the first ranks have paired up so that a power of two is left,
    /// each sum of the lower half merges with the one at its place in the upper half.
    ///
    /// # Panics
    /// There are no ranks.
    pub fn halving(ranks: u32) -> Self {
        let mut sums = Self::paired(ranks, 1 << ranks.ilog2());
        for half in (0..sums.len().ilog2()).rev().map(|level| 1_usize << level) {
            sums = (0..half).map(|place| Self::node([sums[place].clone(), sums[place + half].clone()])).collect();
        }
        sums.swap_remove(0)
    }

    /// The first ranks in pairs, so that so many sums are left.
    fn paired(ranks: u32, sums: u32) -> Vec<Self> {
        let joining = ranks - sums;
        let one = |rank| Self::rank(Rank(rank));
        let pairs = (0..joining).map(|pair| Self::node([one(2 * pair), one(2 * pair + 1)]));
        pairs.chain((2 * joining..ranks).map(one)).collect()
    }

    /// One rank after the other around a ring, ending at `last`.
    pub fn ring(ranks: u32, last: u32) -> Self {
        Self::node((1..=ranks).map(|step| Self::rank(Rank((last + step) % ranks))))
    }

    fn merged(mut sums: Vec<Self>, radix: u32) -> Self {
        while sums.len() > 1 {
            let mut left = sums.into_iter().peekable();
            sums = Vec::new();
            while left.peek().is_some() {
                sums.push(Self::node(left.by_ref().take(radix as usize)));
            }
        }
        sums.pop().expect("there is a rank")
    }

    /// Walks a tree from its root. `branch` returns the vertex for a key.
    pub fn from_tree<N>(root: N, mut branch: impl FnMut(N) -> ReferenceOrderNode<N>) -> Self {
        let mut steps = Vec::new();
        // None marks the end of a node: its children are all above it on the stack.
        let mut ahead = vec![Some(root)];
        while let Some(place) = ahead.pop() {
            match place.map(&mut branch) {
                None => steps.push(ReferenceOrderStep::Close),
                Some(ReferenceOrderNode::Rank(rank)) => steps.push(ReferenceOrderStep::Rank(rank)),
                Some(ReferenceOrderNode::Node(children)) => {
                    steps.push(ReferenceOrderStep::Open);
                    ahead.push(None);
                    ahead.extend(children.into_iter().rev().map(Some));
                }
            }
        }
        Self { steps }
    }

    /// The ranks, in fold order.
    pub fn ranks(&self) -> impl Iterator<Item = Rank> {
        self.steps.iter().filter_map(|step| match step {
            ReferenceOrderStep::Rank(rank) => Some(*rank),
            ReferenceOrderStep::Open | ReferenceOrderStep::Close => None,
        })
    }

    pub(crate) fn steps(&self) -> &[ReferenceOrderStep] {
        &self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_from_children_equals_the_tree_from_nested_orders() {
        let children = |place: u32| match place {
            100 => ReferenceOrderNode::Node(vec![101, 2, 102]),
            101 => ReferenceOrderNode::Node(vec![0, 1]),
            102 => ReferenceOrderNode::Node(vec![3]),
            rank => ReferenceOrderNode::Rank(Rank(rank)),
        };
        let nested = ReferenceOrder::node([
            ReferenceOrder::flat(2),
            ReferenceOrder::rank(Rank(2)),
            ReferenceOrder::node([ReferenceOrder::rank(Rank(3))]),
        ]);
        let walked = ReferenceOrder::from_tree(100, children);
        assert_eq!(walked, nested);
        assert_eq!(walked.ranks().map(|rank| rank.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn groups_merge_until_one_is_left() {
        let node = |children: &[ReferenceOrder]| ReferenceOrder::node(children.to_vec());
        let one = |rank| ReferenceOrder::rank(Rank(rank));
        let pair = |first| node(&[one(first), one(first + 1)]);
        assert_eq!(ReferenceOrder::knomial(3, 2), node(&[pair(0), node(&[one(2)])]));
        // Five ranks: two pair up, and the four sums exchange.
        assert_eq!(ReferenceOrder::recursive(5, 2), node(&[node(&[pair(0), one(2)]), pair(3)]));
        assert_eq!(ReferenceOrder::ring(3, 0), node(&[one(1), one(2), one(0)]));
        // The same sums of five ranks, but the halves merge crosswise.
        let sums = [pair(0), one(2), one(3), one(4)];
        let halves = [node(&[sums[0].clone(), sums[2].clone()]), node(&[sums[1].clone(), sums[3].clone()])];
        assert_eq!(ReferenceOrder::halving(5), node(&halves));
        assert_eq!(ReferenceOrder::halving(1), one(0));
    }

    #[test]
    fn a_chain_of_a_million_nodes_does_not_exhaust_the_stack() {
        let chain = ReferenceOrder::from_tree(0_u32, |depth| match depth {
            2_000_000.. => ReferenceOrderNode::Rank(Rank(depth - 2_000_000)),
            1_000_000 => ReferenceOrderNode::Node(vec![3_000_000]),
            _ => ReferenceOrderNode::Node(vec![depth + 1, 2_000_000 + depth]),
        });
        assert_eq!(chain.ranks().count(), 1_000_001);
    }
}
