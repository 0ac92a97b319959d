//! The members of a group: ranks on nodes, their tree, and whether one multicast reaches exactly them.

use std::fmt;

use units::Rank;

use super::super::MAX_RANKS;

/// The members of a group and their balanced tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuadricsMembers {
    /// Nodes by rank, ascending.
    nodes: MemberNodes,
    root: Rank,
    arity: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum MemberNodes {
    /// Rank `n` is node `first + n`.
    Range { first: u32, count: u32 },
    /// Rank `n` is the `n`-th node of the list.
    List(Vec<u32>),
}

/// Why nodes do not form a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuadricsMembersError {
    /// No nodes.
    Empty,
    /// Too many nodes.
    TooMany,
    /// A duplicate node, or the nodes are not in ascending order.
    NotAscending,
    /// The root is not a member.
    NoSuchRoot,
    /// The arity of the tree is zero.
    NoArity,
}

impl fmt::Display for QuadricsMembersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the group has no members",
            Self::TooMany => "the group has too many members",
            Self::NotAscending => "the group's nodes are not in ascending order",
            Self::NoSuchRoot => "the root is not a member of the group",
            Self::NoArity => "the arity of the tree is 0",
        })
    }
}

impl std::error::Error for QuadricsMembersError {}

impl QuadricsMembers {
    /// The `count` nodes from `first` on.
    ///
    /// # Errors
    /// If they do not form a group.
    pub fn range(first: u32, count: u32, root: Rank, arity: u32) -> Result<Self, QuadricsMembersError> {
        if first.checked_add(count).is_none() {
            return Err(QuadricsMembersError::TooMany);
        }
        Self { nodes: MemberNodes::Range { first, count }, root, arity }.checked()
    }

    /// These nodes, in ascending order.
    ///
    /// # Errors
    /// If they do not form a group.
    pub fn list(nodes: Vec<u32>, root: Rank, arity: u32) -> Result<Self, QuadricsMembersError> {
        if !nodes.is_sorted_by(|a, b| a < b) {
            return Err(QuadricsMembersError::NotAscending);
        }
        Self { nodes: MemberNodes::List(nodes), root, arity }.checked()
    }

    fn checked(self) -> Result<Self, QuadricsMembersError> {
        match self.size() {
            0 => Err(QuadricsMembersError::Empty),
            size if size > MAX_RANKS => Err(QuadricsMembersError::TooMany),
            size if self.root.0 >= size => Err(QuadricsMembersError::NoSuchRoot),
            _ if self.arity == 0 => Err(QuadricsMembersError::NoArity),
            _ => Ok(self),
        }
    }

    /// The number of members.
    pub fn size(&self) -> u32 {
        match &self.nodes {
            MemberNodes::Range { count, .. } => *count,
            MemberNodes::List(nodes) => nodes.len() as u32,
        }
    }

    /// The root of the tree and of all multicasts.
    pub const fn root(&self) -> Rank {
        self.root
    }

    /// The node of a rank; none if the rank is not a member.
    pub fn node(&self, rank: Rank) -> Option<u32> {
        match &self.nodes {
            MemberNodes::Range { first, count } => (rank.0 < *count).then_some(first + rank.0),
            MemberNodes::List(nodes) => nodes.get(rank.index()).copied(),
        }
    }

    /// First and last node, if one multicast reaches exactly the members: hardware multicast needs contiguous nodes
    /// (QN-6).
    pub fn contiguous(&self) -> Option<(u32, u32)> {
        match &self.nodes {
            MemberNodes::Range { first, count } => Some((*first, first + count - 1)),
            MemberNodes::List(nodes) => {
                let (first, last) = (*nodes.first()?, *nodes.last()?);
                (last - first + 1 == nodes.len() as u32).then_some((first, last))
            }
        }
    }

    /// A rank's position in the tree, counted from the root.
    fn place(&self, rank: Rank) -> u32 {
        (rank.0 + self.size() - self.root.0) % self.size()
    }

    fn rank(&self, place: u32) -> Rank {
        Rank((place + self.root.0) % self.size())
    }

    /// The parent of a rank in the balanced tree; none at the root.
    pub fn parent(&self, rank: Rank) -> Option<Rank> {
        let place = self.place(rank);
        (place > 0).then(|| self.rank((place - 1) / self.arity))
    }

    /// The number of children of a rank.
    pub fn children(&self, rank: Rank) -> u32 {
        let first = u64::from(self.place(rank)) * u64::from(self.arity) + 1;
        u64::from(self.size()).saturating_sub(first).min(u64::from(self.arity)) as u32
    }

    /// The `index`-th child of a rank.
    pub fn child(&self, rank: Rank, index: u32) -> Option<Rank> {
        (index < self.children(rank)).then(|| self.rank(self.place(rank) * self.arity + 1 + index))
    }

    /// The index of a child at its parent.
    pub fn index_of_child(&self, parent: Rank, child: Rank) -> Option<u32> {
        if child.0 >= self.size() || self.parent(child)? != parent {
            return None;
        }
        Some((self.place(child) - 1) % self.arity)
    }
}
