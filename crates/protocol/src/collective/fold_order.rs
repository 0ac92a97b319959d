//! The order in which contributions are folded, as an aggregation tree would do it.
//!
//! In: a tree whose leaves are ranks and whose nodes fold their children from left to right (P-16), given as a function
//! from a place to its children. Out: the same order in terms of ranks alone, which ranks can play without nodes (P-48).
//!
//! A node's first operand is where its sum begins, so the first rank below a node can stand for the node. Then each
//! rank has a list of ranks whose sums it folds to the right of its own, one after the other, and the tree of nodes has
//! become a tree of ranks: 16 bytes for each, without recursion anywhere.

use std::fmt;

use reduce::{FoldError, ReductionKind};
use units::Rank;

use super::schedule::MAX_RANKS;

/// Places that a tree may have for each of its ranks: more levels than any fabric has.
const MAX_TREE_NODES_PER_RANK: usize = 64;
/// The parent of the rank that ends up with everything.
const NO_PARENT: u32 = u32::MAX;

/// Who is folded with whom, and in which order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoldOrder {
    root: u32,
    /// Where each rank's operands begin in `operands`; one more than there are ranks.
    first: Box<[u32]>,
    operands: Box<[u32]>,
    parent: Box<[u32]>,
    /// The round in which each rank's sum goes to its parent: later than whatever the rank receives, and after the
    /// operands to its left.
    round: Box<[u32]>,
    rounds: u32,
    digest: u32,
}

/// What stands at a place of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FoldTreeNode<N> {
    /// A rank with its contribution.
    Rank(Rank),
    /// A node that folds these, in this order. Without children it adds nothing.
    Node(Vec<N>),
}

impl FoldOrder {
    /// Walks a tree over the ranks `0..size` from its root. `branch` says what stands at a place.
    ///
    /// # Errors
    /// If a rank is missing, there twice or too high, or if the tree is beyond all bounds, perhaps without an end.
    pub fn from_tree<N>(
        size: u32,
        root: N,
        mut branch: impl FnMut(N) -> FoldTreeNode<N>,
    ) -> Result<Self, FoldOrderError> {
        if size == 0 || size > MAX_RANKS {
            return Err(FoldOrderError::Size(size));
        }
        let mut seen = vec![false; size as usize];
        let mut edges = Vec::with_capacity(size as usize - 1);
        // The first rank of each node that is being walked.
        let mut open: Vec<Option<u32>> = vec![None];
        // None marks where a node ends: its children are all above it on the stack.
        let mut ahead = vec![Some(root)];
        let mut places_left = MAX_TREE_NODES_PER_RANK * (size as usize + 1);
        while let Some(place) = ahead.pop() {
            let sum = match place.map(&mut branch) {
                Some(FoldTreeNode::Node(children)) => {
                    places_left = places_left.checked_sub(children.len() + 1).ok_or(FoldOrderError::TooManyPlaces)?;
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
                None => open.pop().expect("every end has its beginning"),
            };
            let Some(sum) = sum else { continue };
            match open.last_mut().expect("the outermost stays open") {
                Some(left) => edges.push((*left, sum)),
                beginning => *beginning = Some(sum),
            }
        }
        if let Some(missing) = seen.iter().position(|seen| !seen) {
            return Err(FoldOrderError::Missing(Rank(missing as u32)));
        }
        let root = open[0].expect("every rank has been seen, and there is one");
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
        Self::from_tree(size, None, |place: Option<u32>| match place {
            None => FoldTreeNode::Node((0..size).map(Some).collect()),
            Some(rank) => FoldTreeNode::Rank(Rank(rank)),
        })
    }

    /// From pairs of a rank and its next operand, where an operand's own operands have come before it.
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
        // The first round in which a rank is free to receive again, or to send.
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

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.parent.len() as u32
    }

    /// The rank that ends up with the sum of all.
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

    /// The rank into whose sum a rank's own goes; none for the root.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn parent_of(&self, rank: Rank) -> Option<Rank> {
        let parent = self.parent[rank.index()];
        (parent != NO_PARENT).then_some(Rank(parent))
    }

    /// A number that two orders share only if they are the same, or by an accident of 32 bits.
    pub fn digest(&self) -> u32 {
        self.digest
    }

    /// Folds contributions in this order: the bits that the tree would have given.
    ///
    /// # Errors
    /// If contributions differ in length or are no whole number of elements.
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
            let top = open.last_mut().expect("the root is taken off by the return");
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
            let done = open.pop().expect("it was there a moment ago").sum;
            match open.last_mut() {
                Some(below) => kind.fold(&mut below.sum, &done)?,
                None => return Ok(done),
            }
        }
    }

    pub(super) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// The round in which a rank's sum goes to its parent.
    pub(super) fn round_of(&self, rank: u32) -> u32 {
        self.round[rank as usize]
    }

    /// Which operand comes to a rank in the first round from this one on in which one comes.
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

/// Why a tree is no order of the ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FoldOrderError {
    /// No ranks, or more than [`MAX_RANKS`].
    Size(u32),
    /// A rank that the group does not have.
    Unknown(Rank),
    /// A rank would be folded twice.
    Twice(Rank),
    /// A rank would not be folded.
    Missing(Rank),
    /// The tree has many more nodes than ranks; perhaps it has no end.
    TooManyPlaces,
}

impl fmt::Display for FoldOrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(size) => write!(f, "{size} ranks cannot be put in order (1 to {MAX_RANKS} can)"),
            Self::Unknown(rank) => write!(f, "the group has no {rank}"),
            Self::Twice(rank) => write!(f, "{rank} stands twice in the tree"),
            Self::Missing(rank) => write!(f, "{rank} is missing in the tree"),
            Self::TooManyPlaces => f.write_str("the tree has many more nodes than ranks"),
        }
    }
}

impl std::error::Error for FoldOrderError {}
