//! Trees in any fabric, by search.
//!
//! In: sorted members and what to avoid. Out: a tree of shortest ways to the best root.
//! Rules: small fabrics try every switch as the root, large ones the middle between far members and
//! a sample. With k replicas there are k trees with different roots, each keeping off the cables
//! of the earlier ones as far as it can; the node that folds a switch's own hosts is shared by all
//! of them and has one parent in each.

use std::collections::{BTreeMap, BTreeSet};

use super::builder::TreeBuilder;
use super::placement::ExclusionIndex;
use super::shortest_paths::ShortestPaths;
use super::{AggregationTree, ChildNode, Downlink, PlacementError, TreeIndex, TreeRequest};
use crate::fabric::Fabric;
use crate::parts::{Cable, FabricPort, NodeId, NodePort};

/// Cables that all trials of a root together may look at.
const SEARCH_BUDGET: u64 = 10_000_000;

pub(super) fn place_by_search(
    fabric: &Fabric,
    members: &[NodeId],
    request: &TreeRequest,
    barred: &ExclusionIndex,
) -> Result<AggregationTree, PlacementError> {
    let mut search = RootSearch { fabric, members, barred, used: BTreeSet::new(), seats: None };
    let mut drafts: Vec<TreeDraft> = Vec::new();
    for turn in 0..request.replicas {
        let wanted = request.root.filter(|_| turn == 0);
        let draft = search.best_draft(wanted, &drafts).map_err(|error| match turn {
            0 => error,
            _ => PlacementError::TooFewParents { level: 1, wanted: request.replicas, available: u32::from(turn) },
        })?;
        search.used.extend(draft.cables(fabric));
        search.seats = Some(draft.seats.clone());
        drafts.push(draft);
    }
    let assembly = TreeBuilder::new(fabric, request.radix_limit);
    Ok(if let [draft] = &drafts[..] { assemble_one(assembly, draft) } else { assemble_many(assembly, &drafts) })
}

struct RootSearch<'a> {
    fabric: &'a Fabric,
    members: &'a [NodeId],
    barred: &'a ExclusionIndex,
    /// Cables of the trees drawn so far.
    used: BTreeSet<Cable>,
    /// Where members enter the first tree; the others must agree.
    seats: Option<EntrySwitches>,
}

/// Per switch, the members that enter the tree there, and by which port of the switch.
type EntrySwitches = BTreeMap<NodeId, Vec<(NodeId, FabricPort)>>;

/// A tree before it is assembled.
struct TreeDraft {
    root: NodeId,
    seats: EntrySwitches,
    /// Per switch below the root, farthest first: its port toward the root.
    uplinks: Vec<NodePort>,
    /// Per switch, the switches below it with the ports to them, in the order of their numbers.
    below: BTreeMap<NodeId, Vec<(NodeId, FabricPort)>>,
}

/// What to minimise: cables shared with earlier trees, switches, depth.
type DraftScore = (usize, usize, u64);

impl RootSearch<'_> {
    fn best_draft(&self, wanted: Option<NodeId>, earlier: &[TreeDraft]) -> Result<TreeDraft, PlacementError> {
        let candidates = match wanted {
            Some(root) => vec![root],
            None => self.candidates(),
        };
        let mut best: Option<(DraftScore, NodeId, ShortestPaths)> = None;
        let mut lost = self.members[0];
        for root in candidates {
            if self.barred.has_node(root) || earlier.iter().any(|draft| draft.root == root) {
                continue;
            }
            let reach = self.reach(root);
            match self.score(root, &reach) {
                Err(member) => lost = lost.max(member),
                Ok(score) if best.as_ref().is_none_or(|(least, ..)| score < *least) => {
                    best = Some((score, root, reach));
                }
                Ok(_) => {}
            }
        }
        let (_, root, reach) = best.ok_or(PlacementError::Unreachable(lost))?;
        let mut draft = self.draft(root, &reach).map_err(PlacementError::Unreachable)?;
        if wanted.is_none() && earlier.is_empty() {
            draft.lower_root();
        }
        Ok(draft)
    }

    /// Switches worth trying as the root.
    fn candidates(&self) -> Vec<NodeId> {
        let (hosts, switches) = (self.fabric.hosts(), self.fabric.switches());
        let trial = 2 * self.fabric.cable_count() + self.members.len() as u64;
        let tries = (SEARCH_BUDGET / trial).clamp(2, u64::from(switches).max(2)) as u32;
        if tries >= switches {
            return (hosts..hosts + switches).map(NodeId).collect();
        }
        let sample = (0..tries).map(|turn| hosts + (u64::from(turn) * u64::from(switches) / u64::from(tries)) as u32);
        self.middle().into_iter().chain(sample.map(NodeId)).collect()
    }

    /// The switch halfway between two members that are far from each other, and a member's own.
    fn middle(&self) -> Vec<NodeId> {
        let Some((_, first)) = self.fabric.neighbours(self.members[0]).next() else {
            return Vec::new();
        };
        let from_first = self.reach(first.node);
        let Some(far) = self.farthest(&from_first) else {
            return vec![first.node];
        };
        let from_far = self.reach(far);
        let Some(mut at) = self.farthest(&from_far) else {
            return vec![first.node];
        };
        for _ in 0..from_far.steps(at) / 2 {
            let Some(port) = from_far.toward(at) else { break };
            at = self.fabric.peer(at, port).expect("a way uses cabled ports").node;
        }
        vec![at, first.node]
    }

    fn farthest(&self, reach: &ShortestPaths) -> Option<NodeId> {
        let entries = self.members.iter().filter_map(|&member| reach.entry(self.fabric, member, self.barred));
        entries.map(|(peer, _)| peer.node).max_by_key(|&switch| reach.cost(switch))
    }

    fn reach(&self, root: NodeId) -> ShortestPaths {
        ShortestPaths::from(self.fabric, root, self.barred, &self.used)
    }

    /// How good the tree of shortest ways to `root` would be; else a member that has no way.
    fn score(&self, root: NodeId, reach: &ShortestPaths) -> Result<DraftScore, NodeId> {
        let mut joined = vec![false; self.fabric.switches() as usize];
        let mut joins =
            |switch: NodeId| !std::mem::replace(&mut joined[(switch.0 - self.fabric.hosts()) as usize], true);
        joins(root);
        let (mut shared, mut switches, mut depth) = (0, 1, 0);
        let mut join = |seat: NodeId| {
            depth = depth.max(reach.cost(seat).unwrap_or(0));
            let mut at = seat;
            while joins(at) {
                let (here, parent) = self.step(at, reach);
                switches += 1;
                shared += usize::from(self.used.contains(&Cable::between(here, parent)));
                at = parent.node;
            }
        };
        match &self.seats {
            Some(seats) => {
                for (&switch, seated) in seats {
                    reach.cost(switch).ok_or(seated[0].0)?;
                    join(switch);
                }
            }
            None => {
                for &member in self.members {
                    let (entry, _) = reach.entry(self.fabric, member, self.barred).ok_or(member)?;
                    join(entry.node);
                }
            }
        }
        Ok((shared, switches, depth))
    }

    /// The next cable toward the root: its near end and its far end.
    fn step(&self, at: NodeId, reach: &ShortestPaths) -> (NodePort, NodePort) {
        let port = reach.toward(at).expect("every seat has been reached");
        let parent = self.fabric.peer(at, port).expect("a way uses cabled ports");
        (NodePort::new(at, port), parent)
    }

    /// The tree of shortest ways to `root`, pruned to the members; else a member that has no way.
    fn draft(&self, root: NodeId, reach: &ShortestPaths) -> Result<TreeDraft, NodeId> {
        let seats = match &self.seats {
            Some(seats) => seats.clone(),
            None => self.seat_members(reach)?,
        };
        let mut below: BTreeMap<NodeId, Vec<(NodeId, FabricPort)>> = BTreeMap::new();
        let mut joined: BTreeSet<NodeId> = BTreeSet::from([root]);
        let mut uplinks = Vec::new();
        for &seat in seats.keys() {
            let mut at = seat;
            while joined.insert(at) {
                let (here, parent) = self.step(at, reach);
                below.entry(parent.node).or_default().push((at, parent.port));
                uplinks.push(here);
                at = parent.node;
            }
        }
        below.values_mut().for_each(|switches| switches.sort_unstable());
        uplinks.sort_by_key(|uplink| (std::cmp::Reverse(reach.cost(uplink.node)), uplink.node));
        Ok(TreeDraft { root, seats, uplinks, below })
    }

    /// Lets every member enter at its nearest switch.
    fn seat_members(&self, reach: &ShortestPaths) -> Result<EntrySwitches, NodeId> {
        let mut seats = EntrySwitches::new();
        for &member in self.members {
            let (peer, _) = reach.entry(self.fabric, member, self.barred).ok_or(member)?;
            seats.entry(peer.node).or_default().push((member, peer.port));
        }
        Ok(seats)
    }
}

impl TreeDraft {
    /// Moves the root down to where the tree first branches: a sampled root may lie aside.
    fn lower_root(&mut self) {
        while !self.seats.contains_key(&self.root) && self.below[&self.root].len() == 1 {
            self.below.remove(&self.root);
            self.root = self.uplinks.pop().expect("the root has a child").node;
        }
    }

    fn cables<'a>(&'a self, fabric: &'a Fabric) -> impl Iterator<Item = Cable> + 'a {
        self.uplinks.iter().filter_map(|&end| fabric.cable(end))
    }

    /// Switches of the tree, children before parents.
    fn switches(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.uplinks.iter().map(|uplink| uplink.node).chain([self.root])
    }

    fn hosts_of(&self, switch: NodeId) -> Vec<Downlink> {
        let seated = self.seats.get(&switch).map_or(&[][..], Vec::as_slice);
        seated.iter().map(|&(host, port)| Downlink { who: ChildNode::Host(host), port: Some(port) }).collect()
    }

    fn nodes_below(&self, switch: NodeId, placed: &BTreeMap<NodeId, TreeIndex>) -> Vec<Downlink> {
        let below = self.below.get(&switch).map_or(&[][..], Vec::as_slice);
        below
            .iter()
            .map(|(below, port)| Downlink { who: ChildNode::Node(placed[below]), port: Some(*port) })
            .collect()
    }
}

/// One tree: a node folds the hosts of its switch and the nodes below.
fn assemble_one(mut assembly: TreeBuilder<'_>, draft: &TreeDraft) -> AggregationTree {
    let mut placed = BTreeMap::new();
    for switch in draft.switches() {
        let mut children = draft.hosts_of(switch);
        children.extend(draft.nodes_below(switch, &placed));
        placed.insert(switch, assembly.add(switch, children));
    }
    assembly.finish()
}

/// Several trees: the nodes that fold hosts are shared, the others belong to one tree each.
fn assemble_many(mut assembly: TreeBuilder<'_>, drafts: &[TreeDraft]) -> AggregationTree {
    let shared: BTreeMap<NodeId, TreeIndex> =
        drafts[0].seats.keys().map(|&switch| (switch, assembly.add(switch, drafts[0].hosts_of(switch)))).collect();
    for draft in drafts {
        let mut placed = shared.clone();
        for switch in draft.switches() {
            let mut children = draft.nodes_below(switch, &placed);
            if children.is_empty() && switch != draft.root {
                continue; // The shared node of this switch reports straight to the next one.
            }
            if let Some(&own) = shared.get(&switch) {
                children.insert(0, Downlink { who: ChildNode::Node(own), port: None });
            }
            placed.insert(switch, assembly.add(switch, children));
        }
    }
    assembly.finish()
}
