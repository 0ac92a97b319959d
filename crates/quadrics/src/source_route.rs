//! Source routes: one tag for each switch of the path, which that switch removes (QN-4).
//!
//! A tag names one port, or several adjacent ports, of which the switch picks the least loaded. Up to the level where the
//! paths of source and destination meet the tags name all up ports, from there on one down port.

use super::quaternary_tree::{ARITY, MAX_DIMENSION, QuaternaryTree};

/// The ports from which a switch may choose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RouteTag {
    pub(crate) first: u8,
    pub(crate) last: u8,
}

/// The tags of the longest route: up to the top and down again.
const MAX_TAGS: usize = 2 * MAX_DIMENSION as usize - 1;

/// The route of a packet to one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SourceRoute {
    /// First and last port of each tag, three bits each.
    tags: [u8; MAX_TAGS],
    taken: u8,
    length: u8,
}

impl SourceRoute {
    /// The shortest route, adaptive on the way up.
    pub(crate) fn new(tree: QuaternaryTree, from: u32, to: u32) -> Self {
        let top = tree.meeting_level(from, to);
        let mut route = Self { tags: [0; MAX_TAGS], taken: 0, length: (2 * top + 1) as u8 };
        for level in 0..top {
            route.tags[level as usize] = (ARITY | (2 * ARITY - 1) << 3) as u8;
        }
        for level in 0..=top {
            let port = (to >> (2 * level)) & 3;
            route.tags[(2 * top - level) as usize] = (port | port << 3) as u8;
        }
        route
    }

    /// Removes and returns the tag for the next switch; none at the destination.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<RouteTag> {
        let tag = *self.tags[..self.length as usize].get(self.taken as usize)?;
        self.taken += 1;
        Some(RouteTag { first: tag & 7, last: tag >> 3 })
    }

    /// The number of links of the route.
    pub(crate) const fn links(&self) -> u32 {
        self.length as u32 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_name_all_up_ports_on_the_way_up_and_one_port_on_the_way_down() {
        let tree = QuaternaryTree::new(3).expect("the dimension is valid");
        let mut route = SourceRoute::new(tree, 0, 0b11_10_01);
        let up = RouteTag { first: 4, last: 7 };
        let down = |port| RouteTag { first: port, last: port };
        let tags: Vec<RouteTag> = std::iter::from_fn(|| route.take()).collect();
        assert_eq!(tags, [up, up, down(3), down(2), down(1)]);
        assert_eq!(route.links(), 6);
        assert_eq!(SourceRoute::new(tree, 4, 7).links(), 2);
    }
}
