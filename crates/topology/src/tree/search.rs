//! Trees in any fabric, by search.
//!
//! In: sorted members and what to avoid. Out: a tree of shortest paths to the best root.
//! Rules: in a small fabric every switch is a candidate for the root, in a large one the middle between
//! distant members and a sample. With k replicas there are k trees with different roots, each avoiding
//! the cables of the earlier ones as far as possible; all trees share the node that folds a switch's own
//! hosts, which has one parent in each.

use std::collections::{BTreeMap, BTreeSet};

use super::builder::TreeBuilder;
use super::exclusion_index::ExclusionIndex;
use super::shortest_paths::ShortestPaths;
use super::{AggregationTree, ChildNode, Downlink, PlacementError, TreeIndex, TreeRequest};
use crate::fabric::Fabric;
use crate::parts::{Cable, FabricPort, NodeId, NodePort};

/// The most cables that all candidates for the root together may visit.
const SEARCH_BUDGET: u64 = 10_000_000;

pub(super) fn place_by_search(
    fabric: &Fabric,
    members: &[NodeId],
    request: &TreeRequest,
    excluded: &ExclusionIndex,
) -> Result<AggregationTree, PlacementError> {
    let mut search = RootSearch { fabric, members, excluded, used: BTreeSet::new(), entries: None };
    let mut drafts: Vec<TreeDraft> = Vec::new();
    for turn in 0..request.replicas {
        let wanted = request.root.filter(|_| turn == 0);
        let draft = search.best_draft(wanted, &drafts).map_err(|error| match turn {
            0 => error,
            _ => PlacementError::TooFewParents { level: 1, wanted: request.replicas, available: u32::from(turn) },
        })?;
        search.used.extend(draft.cables(fabric));
        search.entries = Some(draft.entries.clone());
        drafts.push(draft);
    }
    let builder = TreeBuilder::new(fabric, request.radix_limit);
    Ok(if let [draft] = &drafts[..] { assemble_one(builder, draft) } else { assemble_many(builder, &drafts) })
}

struct RootSearch<'a> {
    fabric: &'a Fabric,
    members: &'a [NodeId],
    excluded: &'a ExclusionIndex,
    /// Cables of the trees drafted so far.
    used: BTreeSet<Cable>,
    /// The switches where members enter the first tree; the other trees use the same.
    entries: Option<EntrySwitches>,
}

/// Per switch, the members that enter the tree there, and by which port of the switch.
type EntrySwitches = BTreeMap<NodeId, Vec<(NodeId, FabricPort)>>;

/// A tree before it is built.
struct TreeDraft {
    root: NodeId,
    entries: EntrySwitches,
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
        let mut unreachable = self.members[0];
        for root in candidates {
            if self.excluded.has_node(root) || earlier.iter().any(|draft| draft.root == root) {
                continue;
            }
            let paths = self.paths(root);
            match self.score(root, &paths) {
                Err(member) => unreachable = unreachable.max(member),
                Ok(score) if best.as_ref().is_none_or(|(least, ..)| score < *least) => {
                    best = Some((score, root, paths));
                }
                Ok(_) => {}
            }
        }
        let (_, root, paths) = best.ok_or(PlacementError::Unreachable(unreachable))?;
        let mut draft = self.draft(root, &paths).map_err(PlacementError::Unreachable)?;
        if wanted.is_none() && earlier.is_empty() {
            draft.lower_root();
        }
        Ok(draft)
    }

    /// Candidates for the root.
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

    /// The switch halfway between two distant members, and a member's own switch.
    fn middle(&self) -> Vec<NodeId> {
        let Some((_, first)) = self.fabric.neighbours(self.members[0]).next() else {
            return Vec::new();
        };
        let from_first = self.paths(first.node);
        let Some(far) = self.farthest(&from_first) else {
            return vec![first.node];
        };
        let from_far = self.paths(far);
        let Some(mut at) = self.farthest(&from_far) else {
            return vec![first.node];
        };
        for _ in 0..from_far.steps(at) / 2 {
            let Some(port) = from_far.toward(at) else { break };
            at = self.fabric.peer(at, port).expect("a path uses cabled ports").node;
        }
        vec![at, first.node]
    }

    fn farthest(&self, paths: &ShortestPaths) -> Option<NodeId> {
        let entries = self.members.iter().filter_map(|&member| paths.entry(self.fabric, member, self.excluded));
        entries.map(|(peer, _)| peer.node).max_by_key(|&switch| paths.cost(switch))
    }

    fn paths(&self, root: NodeId) -> ShortestPaths {
        ShortestPaths::from(self.fabric, root, self.excluded, &self.used)
    }

    /// The score of the tree of shortest paths to `root`; the error is a member without a path.
    fn score(&self, root: NodeId, paths: &ShortestPaths) -> Result<DraftScore, NodeId> {
        let mut joined = vec![false; self.fabric.switches() as usize];
        let mut joins =
            |switch: NodeId| !std::mem::replace(&mut joined[(switch.0 - self.fabric.hosts()) as usize], true);
        joins(root);
        let (mut shared, mut switches, mut depth) = (0, 1, 0);
        let mut join = |entry: NodeId| {
            depth = depth.max(paths.cost(entry).unwrap_or(0));
            let mut at = entry;
            while joins(at) {
                let (here, parent) = self.step(at, paths);
                switches += 1;
                shared += usize::from(self.used.contains(&Cable::between(here, parent)));
                at = parent.node;
            }
        };
        match &self.entries {
            Some(entries) => {
                for (&switch, members) in entries {
                    paths.cost(switch).ok_or(members[0].0)?;
                    join(switch);
                }
            }
            None => {
                for &member in self.members {
                    let (entry, _) = paths.entry(self.fabric, member, self.excluded).ok_or(member)?;
                    join(entry.node);
                }
            }
        }
        Ok((shared, switches, depth))
    }

    /// The next cable toward the root: its near end and its far end.
    fn step(&self, at: NodeId, paths: &ShortestPaths) -> (NodePort, NodePort) {
        let port = paths.toward(at).expect("every entry switch has a path");
        let parent = self.fabric.peer(at, port).expect("a path uses cabled ports");
        (NodePort::new(at, port), parent)
    }

    /// The tree of shortest paths to `root`, reduced to the members; the error is a member without a path.
    fn draft(&self, root: NodeId, paths: &ShortestPaths) -> Result<TreeDraft, NodeId> {
        let entries = match &self.entries {
            Some(entries) => entries.clone(),
            None => self.assign_members(paths)?,
        };
        let mut below: BTreeMap<NodeId, Vec<(NodeId, FabricPort)>> = BTreeMap::new();
        let mut joined: BTreeSet<NodeId> = BTreeSet::from([root]);
        let mut uplinks = Vec::new();
        for &entry in entries.keys() {
            let mut at = entry;
            while joined.insert(at) {
                let (here, parent) = self.step(at, paths);
                below.entry(parent.node).or_default().push((at, parent.port));
                uplinks.push(here);
                at = parent.node;
            }
        }
        below.values_mut().for_each(|switches| switches.sort_unstable());
        uplinks.sort_by_key(|uplink| (std::cmp::Reverse(paths.cost(uplink.node)), uplink.node));
        Ok(TreeDraft { root, entries, uplinks, below })
    }

    /// Assigns every member to its nearest switch.
    fn assign_members(&self, paths: &ShortestPaths) -> Result<EntrySwitches, NodeId> {
        let mut entries = EntrySwitches::new();
        for &member in self.members {
            let (peer, _) = paths.entry(self.fabric, member, self.excluded).ok_or(member)?;
            entries.entry(peer.node).or_default().push((member, peer.port));
        }
        Ok(entries)
    }
}

impl TreeDraft {
    /// Moves the root down to the first branch of the tree: a sampled root may be outside.
    fn lower_root(&mut self) {
        while !self.entries.contains_key(&self.root) && self.below[&self.root].len() == 1 {
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
        let members = self.entries.get(&switch).map_or(&[][..], Vec::as_slice);
        members.iter().map(|&(host, port)| Downlink { node: ChildNode::Host(host), port: Some(port) }).collect()
    }

    fn nodes_below(&self, switch: NodeId, placed: &BTreeMap<NodeId, TreeIndex>) -> Vec<Downlink> {
        let below = self.below.get(&switch).map_or(&[][..], Vec::as_slice);
        below
            .iter()
            .map(|(below, port)| Downlink { node: ChildNode::Node(placed[below]), port: Some(*port) })
            .collect()
    }
}

/// One tree: a node folds the hosts of its switch and the nodes below.
fn assemble_one(mut builder: TreeBuilder<'_>, draft: &TreeDraft) -> AggregationTree {
    let mut placed = BTreeMap::new();
    for switch in draft.switches() {
        let mut children = draft.hosts_of(switch);
        children.extend(draft.nodes_below(switch, &placed));
        placed.insert(switch, builder.add(switch, children));
    }
    builder.finish()
}

/// Several trees: the nodes that fold hosts are shared, the others belong to one tree each.
fn assemble_many(mut builder: TreeBuilder<'_>, drafts: &[TreeDraft]) -> AggregationTree {
    let shared: BTreeMap<NodeId, TreeIndex> =
        drafts[0].entries.keys().map(|&switch| (switch, builder.add(switch, drafts[0].hosts_of(switch)))).collect();
    for draft in drafts {
        let mut placed = shared.clone();
        for switch in draft.switches() {
            let mut children = draft.nodes_below(switch, &placed);
            if children.is_empty() && switch != draft.root {
                continue; // The shared node of this switch sends directly to the next one.
            }
            if let Some(&own) = shared.get(&switch) {
                children.insert(0, Downlink { node: ChildNode::Node(own), port: None });
            }
            placed.insert(switch, builder.add(switch, children));
        }
    }
    builder.finish()
}
