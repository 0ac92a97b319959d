//! The order in which an aggregation tree folds contributions, for ranks to reproduce.
//!
//! In: a tree whose leaves are ranks and whose nodes fold their children from left to right (P-35), as a function
//! from a node to its children. Out: the same order as a tree of ranks, which ranks can run without nodes (P-57).
//!
//! A node's fold starts with its first operand, so the first rank below a node can represent it. Then each rank has a
//! list of ranks whose sums it folds to the right of its own, one after the other, and the tree of nodes has become a
//! tree of ranks: 16 bytes per rank, without any recursion.

use std::fmt;

use reduce::{FoldError, ReductionKind};
use units::Rank;

use super::step::MAX_RANKS;

/// How many nodes a tree may have per rank: more levels than any fabric has.
const MAX_TREE_NODES_PER_RANK: usize = 64;
/// The parent of the root.
const NO_PARENT: u32 = u32::MAX;

/// The order in which ranks fold each other's sums.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoldOrder {
    root: u32,
    /// The first operand of each rank in `operands`, and the end of the last rank's.
    first: Box<[u32]>,
    operands: Box<[u32]>,
    parent: Box<[u32]>,
    /// The round in which each rank sends its sum to its parent: after all that the rank receives, and after the
    /// operands to its left.
    round: Box<[u32]>,
    rounds: u32,
    digest: u32,
}

/// A vertex of an aggregation tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FoldTreeNode<N> {
    /// A rank with its contribution.
    Rank(Rank),
    /// A node that folds these children in order. Without children it contributes nothing.
    Node(Vec<N>),
}

impl FoldOrder {
    /// Walks a tree over the ranks `0..size` from its root. `vertex` returns the vertex at a position.
    ///
    /// # Errors
    /// If a rank is missing, duplicated or out of range, or if the tree is too large or infinite.
    pub fn from_tree<N>(
        size: u32,
        root: N,
        mut vertex: impl FnMut(N) -> FoldTreeNode<N>,
    ) -> Result<Self, FoldOrderError> {
        if size == 0 || size > MAX_RANKS {
            return Err(FoldOrderError::Size(size));
        }
        let mut seen = vec![false; size as usize];
        let mut edges = Vec::with_capacity(size as usize - 1);
        // The first rank of each open node.
        let mut open: Vec<Option<u32>> = vec![None];
        // None marks the end of a node, below its children on the stack.
        let mut ahead = vec![Some(root)];
        let mut nodes_left = MAX_TREE_NODES_PER_RANK * (size as usize + 1);
        while let Some(position) = ahead.pop() {
            let sum = match position.map(&mut vertex) {
                Some(FoldTreeNode::Node(children)) => {
                    nodes_left = nodes_left.checked_sub(children.len() + 1).ok_or(FoldOrderError::TooManyNodes)?;
                    open.push(None);
                    ahead.push(None);
                    ahead.extend(children.into_iter().rev().map(Some));
                    continue;
                }
                Some(FoldTreeNode::Rank(rank)) => {
                    let seen = seen.get_mut(rank.index()).ok_or(FoldOrderError::Unknown(rank))?;
                    if std::mem::replace(seen, true) {
                        return Err(FoldOrderError::Twice(rank));
                    }
                    Some(rank.0)
                }
                None => open.pop().expect("every end mark has an open node"),
            };
            let Some(sum) = sum else { continue };
            match open.last_mut().expect("the outermost entry stays") {
                Some(left) => edges.push((*left, sum)),
                beginning => *beginning = Some(sum),
            }
        }
        if let Some(missing) = seen.iter().position(|seen| !seen) {
            return Err(FoldOrderError::Missing(Rank(missing as u32)));
        }
        let root = open[0].expect("every rank was seen, and there is at least one");
        Ok(Self::from_edges(size, root, &edges))
    }

    /// One node that folds all ranks from first to last.
    ///
    /// # Errors
    /// If there are none or too many.
    pub fn flat(size: u32) -> Result<Self, FoldOrderError> {
        if size > MAX_RANKS {
            return Err(FoldOrderError::Size(size));
        }
        Self::from_tree(size, None, |position: Option<u32>| match position {
            None => FoldTreeNode::Node((0..size).map(Some).collect()),
            Some(rank) => FoldTreeNode::Rank(Rank(rank)),
        })
    }

    /// From pairs of a rank and its next operand; an operand's own operands come before it.
    fn from_edges(size: u32, root: u32, edges: &[(u32, u32)]) -> Self {
        let mut first = vec![0; size as usize + 1];
        for (left, _) in edges {
            first[*left as usize + 1] += 1;
        }
        for rank in 0..size as usize {
            first[rank + 1] += first[rank];
        }
        let mut operands = vec![0; edges.len()];
        let mut filled = first.clone();
        let mut parent = vec![NO_PARENT; size as usize];
        let mut round = vec![0; size as usize];
        // The first round in which a rank can receive or send again.
        let mut free = vec![0_u32; size as usize];
        for (left, right) in edges {
            let (left_index, right_index) = (*left as usize, *right as usize);
            operands[filled[left_index] as usize] = *right;
            filled[left_index] += 1;
            parent[right_index] = *left;
            round[right_index] = free[left_index].max(free[right_index]);
            free[left_index] = round[right_index] + 1;
        }
        let digest = digest(root, edges);
        Self {
            root,
            first: first.into(),
            operands: operands.into(),
            parent: parent.into(),
            round: round.into(),
            rounds: free[root as usize],
            digest,
        }
    }

    /// The number of ranks.
    pub fn size(&self) -> u32 {
        self.parent.len() as u32
    }

    /// The rank that ends up with the total.
    pub fn root(&self) -> Rank {
        Rank(self.root)
    }

    /// The ranks whose sums a rank folds to the right of its own, in this order.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn operands_of(&self, rank: Rank) -> impl ExactSizeIterator<Item = Rank> + '_ {
        self.operands[self.operand_range(rank.0)].iter().map(|operand| Rank(*operand))
    }

    /// The rank that folds this rank's sum into its own; none for the root.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn parent_of(&self, rank: Rank) -> Option<Rank> {
        let parent = self.parent[rank.index()];
        (parent != NO_PARENT).then_some(Rank(parent))
    }

    /// A digest of the order.
    pub fn digest(&self) -> u32 {
        self.digest
    }

    /// Folds contributions in this order: the result has the bits of the tree's.
    ///
    /// # Errors
    /// If contributions differ in length or are not a multiple of the element size.
    pub fn fold<'a>(
        &self,
        kind: ReductionKind,
        contribution: impl Fn(Rank) -> &'a [u8],
    ) -> Result<Vec<u8>, FoldError> {
        struct Open {
            rank: u32,
            next: usize,
            sum: Vec<u8>,
        }
        let begin = |rank: u32| Open {
            rank,
            next: self.first[rank as usize] as usize,
            sum: contribution(Rank(rank)).to_vec(),
        };
        let mut open = vec![begin(self.root)];
        loop {
            let top = open.last_mut().expect("popping the root returns");
            if top.next < self.operand_range(top.rank).end {
                let operand = self.operands[top.next];
                top.next += 1;
                if self.operand_range(operand).is_empty() {
                    kind.fold(&mut top.sum, contribution(Rank(operand)))?;
                } else {
                    open.push(begin(operand));
                }
                continue;
            }
            let done = open.pop().expect("it was the last").sum;
            match open.last_mut() {
                Some(below) => kind.fold(&mut below.sum, &done)?,
                None => return Ok(done),
            }
        }
    }

    pub(super) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// The round in which a rank sends its sum to its parent.
    pub(super) fn round_of(&self, rank: u32) -> u32 {
        self.round[rank as usize]
    }

    /// The next operand that a rank receives in this round or later.
    pub(super) fn operand_from(&self, rank: u32, round: u32) -> Option<u32> {
        let operands = &self.operands[self.operand_range(rank)];
        operands.get(operands.partition_point(|operand| self.round_of(*operand) < round)).copied()
    }

    fn operand_range(&self, rank: u32) -> std::ops::Range<usize> {
        self.first[rank as usize] as usize..self.first[rank as usize + 1] as usize
    }
}

fn digest(root: u32, edges: &[(u32, u32)]) -> u32 {
    let numbers = std::iter::once(root).chain(edges.iter().flat_map(|(left, right)| [*left, *right]));
    checksum::crc32c(&[&numbers.flat_map(u32::to_le_bytes).collect::<Vec<_>>()])
}

/// Why a tree is not an order of the ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FoldOrderError {
    /// No ranks, or more than [`MAX_RANKS`].
    Size(u32),
    /// A rank outside the group.
    Unknown(Rank),
    /// A duplicate rank.
    Twice(Rank),
    /// A missing rank.
    Missing(Rank),
    /// The tree has too many nodes for its ranks, or is infinite.
    TooManyNodes,
}

impl fmt::Display for FoldOrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(size) => write!(f, "a tree cannot have {size} ranks (1 to {MAX_RANKS} are supported)"),
            Self::Unknown(rank) => write!(f, "{rank} is in the tree but not in the group"),
            Self::Twice(rank) => write!(f, "{rank} is in the tree twice"),
            Self::Missing(rank) => write!(f, "{rank} is missing in the tree"),
            Self::TooManyNodes => f.write_str("the tree has too many nodes for its number of ranks"),
        }
    }
}

impl std::error::Error for FoldOrderError {}
