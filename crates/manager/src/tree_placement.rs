//! Places a group's tree over the nodes that are there (P-51, P-52).
//!
//! In: the nodes with their hints, and the group's leaders. Out: every tree that could serve them, trimmed: a node with
//! a single child in the group has no seat, and its child hangs on the next seat above. Nothing is reserved here.

use std::collections::{BTreeMap, BTreeSet};

use super::control_error::ControlError;
use super::group_spec::{FoldTree, GroupLeader};
use super::host_pattern::{HostPattern, MatchSpecificity};
use super::limits::{MAX_DEPTH, MAX_TREES};

/// A node, as placement sees it. Sites are named by their positions in a list that is ordered by name.
pub(super) struct PlacementNode<'a> {
    pub name: &'a str,
    pub parents: &'a [String],
    pub serves: &'a [HostPattern],
    /// How much of it is in use, in thousandths.
    pub load: u64,
}

/// A part of a trimmed tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PlacementSubtree {
    Leader(u32),
    Seat(SeatSubtree),
}

/// A seat with at least two parts, in ascending order of their lowest leaders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SeatSubtree {
    pub site: usize,
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

    /// Every seat, the root first.
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

/// Who hangs where before trimming.
struct UntrimmedTree {
    below: Vec<Vec<usize>>,
    leaders: Vec<Vec<u32>>,
}

impl UntrimmedTree {
    fn new(sites: usize) -> Self {
        Self { below: vec![Vec::new(); sites], leaders: vec![Vec::new(); sites] }
    }

    /// The trimmed tree below a site; none if no leader is there.
    fn trim(&self, site: usize) -> Option<PlacementSubtree> {
        let seats = self.below[site].iter().filter_map(|child| self.trim(*child));
        let mut parts: Vec<PlacementSubtree> =
            seats.chain(self.leaders[site].iter().copied().map(PlacementSubtree::Leader)).collect();
        parts.sort_by_key(PlacementSubtree::lowest);
        if parts.len() < 2 { parts.pop() } else { Some(PlacementSubtree::Seat(SeatSubtree { site, parts })) }
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

/// All that is worked out once for a request.
pub(super) struct TreePlacement<'a> {
    sites: &'a [PlacementNode<'a>],
    leaders: &'a [GroupLeader],
    /// For each site, those that may be its parent.
    above: Vec<Vec<usize>>,
    /// For each site, those that name it as a parent.
    below: Vec<Vec<usize>>,
    /// Sites that carry no hint at all: the manager arranges them. Least loaded first.
    free: Vec<usize>,
    /// For each leader, the sites that say they serve it, with how well it fits.
    served_by: Vec<Vec<(MatchSpecificity, usize)>>,
    /// For each leader, which of the hosts it is on, in order of appearance; and how many there are.
    host_of: Vec<usize>,
    hosts: usize,
}

impl<'a> TreePlacement<'a> {
    pub(super) fn new(sites: &'a [PlacementNode<'a>], leaders: &'a [GroupLeader]) -> Self {
        let position: BTreeMap<&str, usize> = sites.iter().enumerate().map(|(at, site)| (site.name, at)).collect();
        let named = |site: &PlacementNode| {
            site.parents.iter().filter_map(|name| position.get(name.as_str()).copied()).collect()
        };
        let above: Vec<Vec<usize>> = sites.iter().map(named).collect();
        let mut below = vec![Vec::new(); sites.len()];
        for (site, parents) in above.iter().enumerate() {
            parents.iter().for_each(|parent| below[*parent].push(site));
        }
        let is_free = |at: &usize| above[*at].is_empty() && below[*at].is_empty() && sites[*at].serves.is_empty();
        let mut free: Vec<usize> = (0..sites.len()).filter(is_free).collect();
        free.sort_by_key(|at| (sites[*at].load, *at));
        let mut hosts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut host_of = Vec::with_capacity(leaders.len());
        for leader in leaders {
            let next = hosts.len();
            host_of.push(*hosts.entry(leader.host.as_str()).or_insert(next));
        }
        let served_by = leaders.iter().map(|leader| serving_nodes(sites, leader)).collect();
        Self { sites, leaders, above, below, free, served_by, host_of, hosts: hosts.len() }
    }

    /// Every tree that could serve all leaders; the reason why there is none.
    pub(super) fn trees(&self, fanout: usize) -> Result<Vec<SeatSubtree>, ControlError> {
        let tops: Vec<usize> = self.tops().collect();
        let mut found = Vec::new();
        let mut reason = None;
        for (number, top) in tops.iter().take(MAX_TREES).enumerate() {
            match self.below_top(*top, number) {
                Ok(tree) => found.push(tree),
                Err(refusal) => reason = reason.or(Some(refusal)),
            }
        }
        for first in 0..self.free.len().min(MAX_TREES) {
            match self.arranged(first, fanout) {
                Ok(tree) => found.push(tree),
                Err(refusal) => reason = reason.or(Some(refusal)),
            }
        }
        if found.is_empty() && !tops.is_empty() {
            match self.joined(&tops) {
                Ok(tree) => found.push(tree),
                Err(refusal) => reason = Some(refusal),
            }
        }
        found.truncate(MAX_TREES);
        if found.is_empty() { Err(reason.unwrap_or(ControlError::NoNode)) } else { Ok(found) }
    }

    /// The possible roots among the sites with hints, and the nodes below each.
    pub(super) fn roots(&self) -> Vec<(usize, usize)> {
        let hinted = self.tops().map(|top| (top, self.spread(&[top], 0).len()));
        hinted.chain(self.free.iter().map(|site| (*site, 1))).take(MAX_TREES).collect()
    }

    fn tops(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.sites.len()).filter(|site| self.above[*site].is_empty() && !self.free.contains(site))
    }

    /// Every site below these, with its parent among them. Where there is a choice, different trees choose differently.
    fn spread(&self, tops: &[usize], number: usize) -> BTreeMap<usize, Option<usize>> {
        let mut reached: BTreeMap<usize, Option<usize>> = tops.iter().map(|top| (*top, None)).collect();
        let mut level: BTreeSet<usize> = tops.iter().copied().collect();
        while !level.is_empty() {
            // Level by level, so that hints which run in a circle cannot make one.
            let next: BTreeSet<usize> = level.iter().flat_map(|site| self.below[*site].iter().copied()).collect();
            let next: BTreeSet<usize> = next.into_iter().filter(|site| !reached.contains_key(site)).collect();
            for site in &next {
                let choice: Vec<usize> = self.above[*site].iter().copied().filter(|up| level.contains(up)).collect();
                reached.insert(*site, Some(choice[number % choice.len()]));
            }
            level = next;
        }
        reached
    }

    /// The tree with this root, as the hints have it.
    fn below_top(&self, top: usize, number: usize) -> Result<SeatSubtree, ControlError> {
        let reached = self.spread(&[top], number);
        let mut shape = UntrimmedTree::new(self.sites.len());
        for (site, parent) in &reached {
            if let Some(parent) = parent {
                shape.below[*parent].push(*site);
            }
        }
        let mut open = Vec::new();
        self.open_leaves(top, &shape, &mut open);
        self.seat_leaders(&mut shape, &open, |site| reached.contains_key(&site), number)?;
        shape.tree(top)
    }

    /// Leaves that serve whoever is left, in the order of the tree, so that neighbours in the list share a parent.
    fn open_leaves(&self, site: usize, shape: &UntrimmedTree, into: &mut Vec<usize>) {
        if shape.below[site].is_empty() && self.sites[site].serves.is_empty() {
            into.push(site);
        }
        shape.below[site].iter().for_each(|child| self.open_leaves(*child, shape, into));
    }

    /// Puts every leader under the site that names its host best, or shares it out among the open leaves.
    fn seat_leaders(
        &self,
        shape: &mut UntrimmedTree,
        open: &[usize],
        is_usable: impl Fn(usize) -> bool,
        number: usize,
    ) -> Result<(), ControlError> {
        for (leader, servers) in self.served_by.iter().enumerate() {
            let usable: Vec<(MatchSpecificity, usize)> =
                servers.iter().copied().filter(|(_, site)| is_usable(*site)).collect();
            let best = usable.iter().map(|(fit, _)| *fit).max();
            let equal: Vec<usize> =
                usable.iter().filter(|(fit, _)| Some(*fit) == best).map(|(_, site)| *site).collect();
            let site = match (equal.len(), open.len()) {
                (0, 0) => return Err(ControlError::NotServed { host: self.leaders[leader].host.clone() }),
                (0, leaves) => open[self.host_of[leader] * leaves / self.hosts],
                (choice, _) => equal[number % choice],
            };
            shape.leaders[site].push(leader as u32);
        }
        Ok(())
    }

    /// A balanced tree of nodes without hints: as few leaves as the fan-out allows, each with a contiguous share of the
    /// hosts. `first` turns the order, so that different trees have different roots.
    fn arranged(&self, first: usize, fanout: usize) -> Result<SeatSubtree, ControlError> {
        let fanout = fanout.max(2);
        let order: Vec<usize> = self.free.iter().cycle().skip(first).take(self.free.len()).copied().collect();
        let wanted = self.hosts.div_ceil(fanout).max(1);
        let fits = |leaves: &usize| level_sizes(*leaves, fanout).iter().sum::<usize>() <= order.len();
        // With too few nodes, the leaves take larger shares.
        let leaves = (1..=wanted.min(order.len())).rev().find(fits).unwrap_or(1);
        let sizes = level_sizes(leaves, fanout);
        let mut shape = UntrimmedTree::new(self.sites.len());
        let (mut upper, mut rest): (&[usize], &[usize]) = order.split_at(1);
        for size in &sizes[1..] {
            let (level, after) = rest.split_at(*size);
            for (at, site) in level.iter().enumerate() {
                shape.below[upper[at * upper.len() / size]].push(*site);
            }
            (upper, rest) = (level, after);
        }
        for (leader, host) in self.host_of.iter().enumerate() {
            shape.leaders[upper[host * upper.len() / self.hosts]].push(leader as u32);
        }
        shape.tree(order[0])
    }

    /// No tree of the hints covers everyone: the tops that are needed are joined under one more node without hints, or
    /// under the first of them.
    fn joined(&self, tops: &[usize]) -> Result<SeatSubtree, ControlError> {
        let reached = self.spread(tops, 0);
        let mut shape = UntrimmedTree::new(self.sites.len());
        for (site, parent) in &reached {
            if let Some(parent) = parent {
                shape.below[*parent].push(*site);
            }
        }
        let joint = self.free.first().copied();
        let mut open: Vec<usize> = joint.into_iter().collect();
        if open.is_empty() {
            tops.iter().for_each(|top| self.open_leaves(*top, &shape, &mut open));
        }
        self.seat_leaders(&mut shape, &open, |site| reached.contains_key(&site), 0)?;
        let used: Vec<usize> = tops.iter().copied().filter(|top| shape.trim(*top).is_some()).collect();
        let joint = joint.or(used.first().copied()).ok_or(ControlError::NoNode)?;
        shape.below[joint].extend(used.into_iter().filter(|top| *top != joint));
        shape.tree(joint)
    }
}

fn serving_nodes(sites: &[PlacementNode], leader: &GroupLeader) -> Vec<(MatchSpecificity, usize)> {
    let fits = |(at, site): (usize, &PlacementNode)| {
        site.serves.iter().filter_map(|pattern| pattern.fit(leader)).max().map(|fit| (fit, at))
    };
    sites.iter().enumerate().filter_map(fits).collect()
}

/// How many nodes each level of a balanced tree has, from the root to its leaves.
fn level_sizes(leaves: usize, fanout: usize) -> Vec<usize> {
    let mut sizes = vec![leaves];
    while sizes[0] > 1 {
        sizes.insert(0, sizes[0].div_ceil(fanout));
    }
    sizes
}
