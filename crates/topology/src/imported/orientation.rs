//! Which end of a cable is up.
//!
//! In: a graph. Out: a rank per switch; a hop to a higher rank goes up.
//! Rules: in up*/down* routing every packet goes up, then down, so packets cannot wait in a cycle.
//! Levels give the best ranks, since a tree then keeps all its roots; but they work only if any two
//! switches with hosts have a common switch above. If not (rings, grids, damaged trees), ranks are
//! distances from one root per connected component, with which any two switches have one.

use std::collections::{BTreeSet, VecDeque};

use super::graph::ImportedGraph;
use crate::parts::NodeId;

/// With more different sets of top switches than this, the ranks come from one root per component.
const MAX_COMPARED: usize = 1 << 10;

#[derive(Debug)]
pub(super) struct UpDownOrientation {
    /// Per switch; all are different.
    ranks: Vec<u32>,
    /// Switches, highest rank first.
    pub(super) from_top: Vec<usize>,
}

impl UpDownOrientation {
    pub(super) fn choose(graph: &ImportedGraph) -> Self {
        let hosts = graph.hosts as usize;
        let by_level: Vec<u32> = graph.levels[hosts..].iter().map(|&level| 255 - u32::from(level)).collect();
        let ranked = Self::by_depth(&by_level);
        let (depths, parts) = depths(graph);
        if ranked.have_common_tops(graph, &parts) { ranked } else { Self::by_depth(&depths) }
    }

    /// A smaller depth is up; of equal depths, the lower number is up.
    fn by_depth(depths: &[u32]) -> Self {
        let mut from_top: Vec<usize> = (0..depths.len()).collect();
        from_top.sort_by_key(|&switch| (depths[switch], switch));
        let mut ranks = vec![0; depths.len()];
        for (position, &switch) in from_top.iter().enumerate() {
            ranks[switch] = (depths.len() - position) as u32;
        }
        Self { ranks, from_top }
    }

    pub(super) fn is_up(&self, from: usize, to: usize) -> bool {
        self.ranks[to] > self.ranks[from]
    }

    /// Whether any two switches with hosts, of one component, have a common switch above.
    fn have_common_tops(&self, graph: &ImportedGraph, parts: &[usize]) -> bool {
        let tops = self.tops_above(graph);
        let has_hosts = |switch: usize| {
            let node = NodeId(graph.hosts + switch as u32);
            graph.cabled(node).any(|(_, peer)| peer.node.0 < graph.hosts)
        };
        let different: BTreeSet<(usize, &[u64])> = (0..graph.switches())
            .filter(|&switch| has_hosts(switch))
            .map(|switch| (parts[switch], tops[switch].as_slice()))
            .collect();
        let different: Vec<_> = different.into_iter().collect();
        different.len() <= MAX_COMPARED
            && different.iter().enumerate().all(|(index, one)| {
                let others = different[index + 1..].iter().take_while(|other| other.0 == one.0);
                others.into_iter().all(|other| one.1.iter().zip(other.1).any(|(a, b)| a & b != 0))
            })
    }

    /// Per switch, the set of top switches (with none above) that it reaches by going up.
    fn tops_above(&self, graph: &ImportedGraph) -> Vec<Vec<u64>> {
        let is_top = |switch: usize| !graph.switch_neighbours(switch).any(|(_, peer)| self.is_up(switch, peer));
        let tops: Vec<usize> = (0..graph.switches()).filter(|&switch| is_top(switch)).collect();
        let words = tops.len().div_ceil(64);
        let mut sets = vec![vec![0u64; words]; graph.switches()];
        for (bit, &top) in tops.iter().enumerate() {
            sets[top][bit / 64] |= 1 << (bit % 64);
        }
        for &switch in &self.from_top {
            let mut set = std::mem::take(&mut sets[switch]);
            for (_, above) in graph.switch_neighbours(switch).filter(|&(_, peer)| self.is_up(switch, peer)) {
                set.iter_mut().zip(&sets[above]).for_each(|(mine, theirs)| *mine |= theirs);
            }
            sets[switch] = set;
        }
        sets
    }
}

/// Per switch, the distance from the root of its component, and the component's number.
fn depths(graph: &ImportedGraph) -> (Vec<u32>, Vec<usize>) {
    let switches = graph.switches();
    let (mut depths, mut parts) = (vec![u32::MAX; switches], vec![usize::MAX; switches]);
    // The switch with the most cables is the root of its component.
    let mut roots: Vec<usize> = (0..switches).collect();
    roots.sort_by_key(|&switch| (std::cmp::Reverse(graph.switch_neighbours(switch).count()), switch));
    for (part, root) in roots.into_iter().enumerate() {
        if depths[root] != u32::MAX {
            continue;
        }
        (depths[root], parts[root]) = (0, part);
        let mut queue = VecDeque::from([root]);
        while let Some(at) = queue.pop_front() {
            for (_, peer) in graph.switch_neighbours(at) {
                if depths[peer] == u32::MAX {
                    (depths[peer], parts[peer]) = (depths[at] + 1, part);
                    queue.push_back(peer);
                }
            }
        }
    }
    (depths, parts)
}
