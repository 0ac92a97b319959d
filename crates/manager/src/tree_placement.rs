//! Places the tree of a group on the registered nodes (P-77, P-78).
//!
//! In: the nodes with their hints, and the group's leaders. Out: every tree that could serve them, trimmed: a node with
//! a single child in the group has no seat, and its child is attached to the next seat above. Nothing is reserved here.

use std::collections::{BTreeMap, BTreeSet};

use super::control_error::ControlError;
use super::group_spec::{FoldTree, GroupLeader};
use super::host_pattern::{HostPattern, MatchSpecificity};
use super::limits::{MAX_DEPTH, MAX_TREES};

/// A node as input of the placement. Nodes are referred to by their positions in a list that is ordered by name.
pub(super) struct PlacementNode<'a> {
    pub name: &'a str,
    pub parents: &'a [String],
    pub serves: &'a [HostPattern],
    /// Load in thousandths.
    pub load: u64,
}

/// A subtree of a trimmed tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PlacementSubtree {
    Leader(u32),
    Seat(SeatSubtree),
}

/// A seat with at least two parts, in ascending order of their lowest leaders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SeatSubtree {
    /// Position of the node.
    pub node: usize,
    pub parts: Vec<PlacementSubtree>,
}

impl PlacementSubtree {
    fn lowest(&self) -> u32 {
        match self {
            Self::Leader(leader) => *leader,
            Self::Seat(seat) => seat.parts.first().map_or(u32::MAX, Self::lowest),
        }
    }

    fn fold(&self) -> FoldTree {
        match self {
            Self::Leader(leader) => FoldTree::Leader(*leader),
            Self::Seat(seat) => seat.fold(),
        }
    }

    fn depth(&self) -> usize {
        match self {
            Self::Leader(_) => 0,
            Self::Seat(seat) => 1 + seat.parts.iter().map(Self::depth).max().unwrap_or(0),
        }
    }
}

impl SeatSubtree {
    pub(super) fn fold(&self) -> FoldTree {
        FoldTree::Fold(self.parts.iter().map(PlacementSubtree::fold).collect())
    }

    /// All seats, the root first.
    pub(super) fn seats(&self) -> Vec<&SeatSubtree> {
        let mut found = vec![self];
        for part in &self.parts {
            if let PlacementSubtree::Seat(seat) = part {
                found.extend(seat.seats());
            }
        }
        found
    }
}

impl SeatSubtree {
    /// For each of [`Self::seats`], the position of the seat above it.
    pub(super) fn parents(&self) -> Vec<Option<u32>> {
        let mut found = Vec::new();
        self.collect_parents(None, &mut found);
        found
    }

    fn collect_parents(&self, above: Option<u32>, found: &mut Vec<Option<u32>>) {
        let own = found.len() as u32;
        found.push(above);
        for part in &self.parts {
            if let PlacementSubtree::Seat(seat) = part {
                seat.collect_parents(Some(own), found);
            }
        }
    }
}

/// Children and leaders of every node before trimming.
struct UntrimmedTree {
    below: Vec<Vec<usize>>,
    leaders: Vec<Vec<u32>>,
}

impl UntrimmedTree {
    fn new(nodes: usize) -> Self {
        Self { below: vec![Vec::new(); nodes], leaders: vec![Vec::new(); nodes] }
    }

    /// The trimmed tree below a node; `None` if it has no leader.
    fn trim(&self, node: usize) -> Option<PlacementSubtree> {
        let seats = self.below[node].iter().filter_map(|child| self.trim(*child));
        let mut parts: Vec<PlacementSubtree> =
            seats.chain(self.leaders[node].iter().copied().map(PlacementSubtree::Leader)).collect();
        parts.sort_by_key(PlacementSubtree::lowest);
        if parts.len() < 2 { parts.pop() } else { Some(PlacementSubtree::Seat(SeatSubtree { node, parts })) }
    }

    fn tree(&self, root: usize) -> Result<SeatSubtree, ControlError> {
        let branch = self.trim(root);
        if branch.as_ref().is_some_and(|branch| branch.depth() > MAX_DEPTH) {
            return Err(ControlError::too_many("levels of a tree", MAX_DEPTH));
        }
        match branch {
            Some(PlacementSubtree::Seat(seat)) => Ok(seat),
            _ => Err(ControlError::TooFewLeaders),
        }
    }
}

/// What is computed once for a request.
pub(super) struct TreePlacement<'a> {
    nodes: &'a [PlacementNode<'a>],
    leaders: &'a [GroupLeader],
    /// For each node, its possible parents.
    above: Vec<Vec<usize>>,
    /// For each node, the nodes that name it as a parent.
    below: Vec<Vec<usize>>,
    /// Nodes without any hint, least loaded first: the manager arranges them.
    free: Vec<usize>,
    /// For each leader, the nodes whose patterns match it.
    served_by: Vec<Vec<(MatchSpecificity, usize)>>,
    /// For each leader, the index of its host in order of appearance; and the number of hosts.
    host_of: Vec<usize>,
    hosts: usize,
}

impl<'a> TreePlacement<'a> {
    pub(super) fn new(nodes: &'a [PlacementNode<'a>], leaders: &'a [GroupLeader]) -> Self {
        let position: BTreeMap<&str, usize> = nodes.iter().enumerate().map(|(at, node)| (node.name, at)).collect();
        let named = |node: &PlacementNode| {
            node.parents.iter().filter_map(|name| position.get(name.as_str()).copied()).collect()
        };
        let above: Vec<Vec<usize>> = nodes.iter().map(named).collect();
        let mut below = vec![Vec::new(); nodes.len()];
        for (node, parents) in above.iter().enumerate() {
            parents.iter().for_each(|parent| below[*parent].push(node));
        }
        let is_free = |at: &usize| above[*at].is_empty() && below[*at].is_empty() && nodes[*at].serves.is_empty();
        let mut free: Vec<usize> = (0..nodes.len()).filter(is_free).collect();
        free.sort_by_key(|at| (nodes[*at].load, *at));
        let mut hosts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut host_of = Vec::with_capacity(leaders.len());
        for leader in leaders {
            let next = hosts.len();
            host_of.push(*hosts.entry(leader.host.as_str()).or_insert(next));
        }
        let served_by = leaders.iter().map(|leader| serving_nodes(nodes, leader)).collect();
        Self { nodes, leaders, above, below, free, served_by, host_of, hosts: hosts.len() }
    }

    /// Every tree that could serve all leaders, or the reason why there is none.
    pub(super) fn trees(&self, fanout: usize) -> Result<Vec<SeatSubtree>, ControlError> {
        let roots: Vec<usize> = self.hinted_roots().collect();
        let mut found = Vec::new();
        let mut reason = None;
        for (number, root) in roots.iter().take(MAX_TREES).enumerate() {
            match self.tree_below(*root, number) {
                Ok(tree) => found.push(tree),
                Err(error) => reason = reason.or(Some(error)),
            }
        }
        for first in 0..self.free.len().min(MAX_TREES) {
            match self.balanced_tree(first, fanout) {
                Ok(tree) => found.push(tree),
                Err(error) => reason = reason.or(Some(error)),
            }
        }
        if found.is_empty() && !roots.is_empty() {
            match self.joined_tree(&roots) {
                Ok(tree) => found.push(tree),
                Err(error) => reason = Some(error),
            }
        }
        found.truncate(MAX_TREES);
        if found.is_empty() { Err(reason.unwrap_or(ControlError::NoNode)) } else { Ok(found) }
    }

    /// The possible roots among the nodes with hints, and the number of nodes below each.
    pub(super) fn roots(&self) -> Vec<(usize, usize)> {
        let hinted = self.hinted_roots().map(|root| (root, self.spanning_tree(&[root], 0).len()));
        hinted.chain(self.free.iter().map(|node| (*node, 1))).take(MAX_TREES).collect()
    }

    fn hinted_roots(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.nodes.len()).filter(|node| self.above[*node].is_empty() && !self.free.contains(node))
    }

    /// Every node below these, with its parent. Where several parents are possible, different trees choose differently.
    fn spanning_tree(&self, roots: &[usize], number: usize) -> BTreeMap<usize, Option<usize>> {
        let mut reached: BTreeMap<usize, Option<usize>> = roots.iter().map(|root| (*root, None)).collect();
        let mut level: BTreeSet<usize> = roots.iter().copied().collect();
        while !level.is_empty() {
            // Level by level, so that a cycle in the hints cannot make a cycle in the tree.
            let next: BTreeSet<usize> = level.iter().flat_map(|node| self.below[*node].iter().copied()).collect();
            let next: BTreeSet<usize> = next.into_iter().filter(|node| !reached.contains_key(node)).collect();
            for node in &next {
                let choice: Vec<usize> = self.above[*node].iter().copied().filter(|up| level.contains(up)).collect();
                reached.insert(*node, Some(choice[number % choice.len()]));
            }
            level = next;
        }
        reached
    }

    /// The tree with this root, according to the hints.
    fn tree_below(&self, root: usize, number: usize) -> Result<SeatSubtree, ControlError> {
        let reached = self.spanning_tree(&[root], number);
        let mut tree = UntrimmedTree::new(self.nodes.len());
        for (node, parent) in &reached {
            if let Some(parent) = parent {
                tree.below[*parent].push(*node);
            }
        }
        let mut open = Vec::new();
        self.open_leaves(root, &tree, &mut open);
        self.attach_leaders(&mut tree, &open, |node| reached.contains_key(&node), number)?;
        tree.tree(root)
    }

    /// Leaves without patterns, which serve the remaining hosts, in tree order, so that neighbours in the list share a parent.
    fn open_leaves(&self, node: usize, tree: &UntrimmedTree, into: &mut Vec<usize>) {
        if tree.below[node].is_empty() && self.nodes[node].serves.is_empty() {
            into.push(node);
        }
        tree.below[node].iter().for_each(|child| self.open_leaves(*child, tree, into));
    }

    /// Attaches every leader to the node that names its host most exactly, or assigns it to one of the open leaves.
    fn attach_leaders(
        &self,
        tree: &mut UntrimmedTree,
        open: &[usize],
        is_usable: impl Fn(usize) -> bool,
        number: usize,
    ) -> Result<(), ControlError> {
        for (leader, servers) in self.served_by.iter().enumerate() {
            let usable: Vec<(MatchSpecificity, usize)> =
                servers.iter().copied().filter(|(_, node)| is_usable(*node)).collect();
            let best = usable.iter().map(|(specificity, _)| *specificity).max();
            let equal: Vec<usize> =
                usable.iter().filter(|(specificity, _)| Some(*specificity) == best).map(|(_, node)| *node).collect();
            let node = match (equal.len(), open.len()) {
                (0, 0) => return Err(ControlError::NotServed { host: self.leaders[leader].host.clone() }),
                (0, leaves) => open[self.host_of[leader] * leaves / self.hosts],
                (choice, _) => equal[number % choice],
            };
            tree.leaders[node].push(leader as u32);
        }
        Ok(())
    }

    /// A balanced tree of nodes without hints: as few leaves as the fan-out allows, each with a contiguous share of the
    /// hosts. `first` rotates the order, so that different trees have different roots.
    fn balanced_tree(&self, first: usize, fanout: usize) -> Result<SeatSubtree, ControlError> {
        let fanout = fanout.max(2);
        let order: Vec<usize> = self.free.iter().cycle().skip(first).take(self.free.len()).copied().collect();
        let wanted = self.hosts.div_ceil(fanout).max(1);
        let fits = |leaves: &usize| level_sizes(*leaves, fanout).iter().sum::<usize>() <= order.len();
        // With too few nodes, the leaves get larger shares.
        let leaves = (1..=wanted.min(order.len())).rev().find(fits).unwrap_or(1);
        let sizes = level_sizes(leaves, fanout);
        let mut tree = UntrimmedTree::new(self.nodes.len());
        let (mut upper, mut rest): (&[usize], &[usize]) = order.split_at(1);
        for size in &sizes[1..] {
            let (level, after) = rest.split_at(*size);
            for (at, node) in level.iter().enumerate() {
                tree.below[upper[at * upper.len() / size]].push(*node);
            }
            (upper, rest) = (level, after);
        }
        for (leader, host) in self.host_of.iter().enumerate() {
            tree.leaders[upper[host * upper.len() / self.hosts]].push(leader as u32);
        }
        tree.tree(order[0])
    }

    /// No tree of the hints covers all leaders: joins the needed roots under a node without hints, or under the first of them.
    fn joined_tree(&self, roots: &[usize]) -> Result<SeatSubtree, ControlError> {
        let reached = self.spanning_tree(roots, 0);
        let mut tree = UntrimmedTree::new(self.nodes.len());
        for (node, parent) in &reached {
            if let Some(parent) = parent {
                tree.below[*parent].push(*node);
            }
        }
        let joint = self.free.first().copied();
        let mut open: Vec<usize> = joint.into_iter().collect();
        if open.is_empty() {
            roots.iter().for_each(|root| self.open_leaves(*root, &tree, &mut open));
        }
        self.attach_leaders(&mut tree, &open, |node| reached.contains_key(&node), 0)?;
        let used: Vec<usize> = roots.iter().copied().filter(|root| tree.trim(*root).is_some()).collect();
        let joint = joint.or(used.first().copied()).ok_or(ControlError::NoNode)?;
        tree.below[joint].extend(used.into_iter().filter(|root| *root != joint));
        tree.tree(joint)
    }
}

fn serving_nodes(nodes: &[PlacementNode], leader: &GroupLeader) -> Vec<(MatchSpecificity, usize)> {
    let fits = |(at, node): (usize, &PlacementNode)| {
        node.serves.iter().filter_map(|pattern| pattern.specificity(leader)).max().map(|fit| (fit, at))
    };
    nodes.iter().enumerate().filter_map(fits).collect()
}

/// The number of nodes on each level of a balanced tree, from the root to the leaves.
fn level_sizes(leaves: usize, fanout: usize) -> Vec<usize> {
    let mut sizes = vec![leaves];
    while sizes[0] > 1 {
        sizes.insert(0, sizes[0].div_ceil(fanout));
    }
    sizes
}
