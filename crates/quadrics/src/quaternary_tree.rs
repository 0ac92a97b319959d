//! The 4-ary n-tree: 4^n nodes, n levels of 4^(n-1) switches, and between two levels as many cables as nodes (QN-3).
//!
//! Switch `(word, level)` has a word of n-1 base-4 digits. Ports 0 to 3 lead down, 4 to 7 up. The `u`-th up port of
//! `(word, level)` leads to `(word with digit level set to u, level + 1)`; so all adjacency follows from the numbers, and
//! nothing is stored. A cable is two links, one up and one down.

use std::ops::RangeInclusive;

/// The number of down ports of a switch, and of its up ports.
pub(crate) const ARITY: u32 = 4;
/// The most dimensions: 65,536 nodes.
pub const MAX_DIMENSION: u32 = 8;

/// One direction of a cable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct TreeLink(pub(crate) u32);

/// A switch, by its coordinates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EliteSwitch {
    pub(crate) word: u32,
    pub(crate) level: u32,
}

/// The far end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TreeLinkEnd {
    Node(u32),
    Switch(EliteSwitch),
}

/// The topology.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuaternaryTree {
    dimension: u32,
}

impl QuaternaryTree {
    /// A tree of 1 to [`MAX_DIMENSION`] dimensions.
    pub(crate) fn new(dimension: u32) -> Option<Self> {
        (1..=MAX_DIMENSION).contains(&dimension).then_some(Self { dimension })
    }

    pub(crate) const fn dimension(self) -> u32 {
        self.dimension
    }

    pub(crate) const fn nodes(self) -> u32 {
        1 << (2 * self.dimension)
    }

    pub(crate) const fn switches(self) -> u32 {
        self.dimension * (self.nodes() / ARITY)
    }

    /// The number of links, both directions.
    pub(crate) const fn links(self) -> u32 {
        2 * self.dimension * self.nodes()
    }

    /// The number of a switch, counted from the leaves up.
    #[inline]
    pub(crate) const fn index(self, switch: EliteSwitch) -> u32 {
        switch.level * (self.nodes() / ARITY) + switch.word
    }

    /// The lowest level with a switch above both nodes.
    #[inline]
    pub(crate) const fn meeting_level(self, a: u32, b: u32) -> u32 {
        let differ = (a ^ b) >> 2;
        (32 - differ.leading_zeros()).div_ceil(2)
    }

    /// The link from a node into the network.
    #[inline]
    pub(crate) const fn injection(self, node: u32) -> TreeLink {
        TreeLink(node * 2)
    }

    /// The link out of a port of a switch; ports 4 to 7 of the top level do not exist.
    #[inline]
    pub(crate) fn out(self, switch: EliteSwitch, port: u32) -> TreeLink {
        let EliteSwitch { word, level } = switch;
        if port >= ARITY {
            debug_assert!(level + 1 < self.dimension, "the top level has no up ports");
            return TreeLink(((level + 1) * self.nodes() + word * ARITY + (port - ARITY)) * 2);
        }
        if level == 0 {
            return TreeLink((word * ARITY + port) * 2 + 1);
        }
        let shift = 2 * (level - 1);
        let digit = (word >> shift) & 3;
        let below = word & !(3 << shift) | port << shift;
        TreeLink((level * self.nodes() + below * ARITY + digit) * 2 + 1)
    }

    /// The far end of a link.
    #[inline]
    pub(crate) fn end(self, link: TreeLink) -> TreeLinkEnd {
        let position = link.0 >> 1;
        let (level, index) = (position >> (2 * self.dimension), position & (self.nodes() - 1));
        if link.0 & 1 == 0 {
            if level == 0 {
                return TreeLinkEnd::Switch(EliteSwitch { word: index >> 2, level: 0 });
            }
            let shift = 2 * (level - 1);
            let word = (index >> 2) & !(3 << shift) | (index & 3) << shift;
            return TreeLinkEnd::Switch(EliteSwitch { word, level });
        }
        if level == 0 {
            TreeLinkEnd::Node(index)
        } else {
            TreeLinkEnd::Switch(EliteSwitch { word: index >> 2, level: level - 1 })
        }
    }

    /// Whether a link leads up.
    #[inline]
    pub(crate) const fn leads_up(self, link: TreeLink) -> bool {
        link.0 & 1 == 0
    }

    /// For a link that leads down: the number of links from its far end to the nodes below.
    #[inline]
    pub(crate) const fn level_of(self, link: TreeLink) -> u32 {
        (link.0 >> 1) >> (2 * self.dimension)
    }

    /// For a link that leads up out of a switch: the number of that switch.
    #[inline]
    pub(crate) const fn switch_of_up_link(self, link: TreeLink) -> Option<u32> {
        let level = self.level_of(link);
        if link.0 & 1 == 1 || level == 0 {
            return None;
        }
        let index = (link.0 >> 1) & (self.nodes() - 1);
        Some((level - 1) * (self.nodes() / ARITY) + (index >> 2))
    }

    /// The nodes below a port of a switch.
    pub(crate) const fn below(self, switch: EliteSwitch, port: u32) -> RangeInclusive<u32> {
        let shift = 2 * switch.level;
        let first = ((switch.word >> shift) * ARITY + port) << shift;
        first..=first + (1 << shift) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_dimension_n_has_the_nodes_and_switches_of_the_paper() {
        let sizes: Vec<(u32, u32)> =
            (1..=3).filter_map(QuaternaryTree::new).map(|tree| (tree.nodes(), tree.switches())).collect();
        assert_eq!(sizes, [(4, 1), (16, 8), (64, 48)]); // QN-3
        assert!(QuaternaryTree::new(0).is_none() && QuaternaryTree::new(MAX_DIMENSION + 1).is_none());
    }

    #[test]
    fn every_path_up_and_down_ends_at_its_node() {
        for tree in (1..=4).filter_map(QuaternaryTree::new) {
            for (from, to) in [(0, 1), (0, tree.nodes() - 1), (tree.nodes() / 3, tree.nodes() / 2), (2, 2)] {
                for up in 0..ARITY {
                    let top = tree.meeting_level(from, to);
                    let mut at = tree.end(tree.injection(from));
                    let port = |switch: EliteSwitch, goes_up: bool| match goes_up {
                        true => tree.end(tree.out(switch, ARITY + up)),
                        false => tree.end(tree.out(switch, (to >> (2 * switch.level)) & 3)),
                    };
                    for step in 0..=2 * top {
                        let TreeLinkEnd::Switch(switch) = at else { panic!("the path reaches a node too early") };
                        assert_eq!(switch.level, if step <= top { step } else { 2 * top - step });
                        at = port(switch, step < top);
                    }
                    assert_eq!(at, TreeLinkEnd::Node(to));
                }
            }
        }
    }

    #[test]
    fn down_ports_partition_the_nodes_and_links_know_their_switch() {
        let tree = QuaternaryTree::new(3).expect("the dimension is valid");
        let top = EliteSwitch { word: 5, level: 2 };
        let parts: Vec<_> = (0..ARITY).map(|port| tree.below(top, port)).collect();
        assert_eq!(parts, [0..=15, 16..=31, 32..=47, 48..=63]);
        let leaf = EliteSwitch { word: 7, level: 0 };
        assert_eq!(tree.below(leaf, 2), 30..=30);
        assert_eq!(tree.switch_of_up_link(tree.out(leaf, 6)), Some(tree.index(leaf)));
        assert_eq!(tree.switch_of_up_link(tree.out(leaf, 1)), None);
        assert_eq!(tree.switch_of_up_link(tree.injection(9)), None);
    }
}
