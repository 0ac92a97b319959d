//! Extended generalised fat trees, after Öhring et al.: the shape of XGFT(h; m1..mh; w1..wh).
//!
//! In: children per node (m) and parents per node (w), level by level from the hosts. Out: counts,
//! levels and cables by formula (claims SE-10 and SE-11); routes are in `xgft_route`.
//!
//! A node of level i is a pair: the *subtree* it tops (digits x_h..x_i+1, so hosts p with
//! p / (m1..mi) == subtree are below it) and its *plane* among the switches that top the same
//! subtree (digits y_1..y_i, y_1 the most significant, so the parents of one switch are neighbours
//! in number, as in the figures of the soft-error paper). Within a level, nodes are numbered
//! subtree by subtree. Ports 0..m are down, the w up ports follow.

use crate::bounds::{
    MAX_LEVELS, ShapeError, at_least_one, bounded_depth, bounded_ports, bounded_product, bounded_sum,
};
use crate::divisor::Divisor;
use crate::parts::{FabricPort, NodeId, NodePort};

/// The shape: one entry per level, hosts first.
#[derive(Clone, Debug)]
pub(crate) struct Xgft {
    pub(crate) levels: Vec<XgftLevel>,
    /// Per switch level, the number of its first switch; unused entries exceed every node number.
    firsts: [u32; MAX_LEVELS],
    pub(crate) hosts: u32,
    pub(crate) nodes: u32,
}

/// The parameters of a level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XgftLevel {
    /// Number of the level's first node.
    pub(crate) first: u32,
    /// Nodes of the level.
    pub(crate) count: u32,
    /// m_i: children of each node; zero for hosts.
    pub(crate) children: u32,
    /// w_i+1: parents of each node; 1 for roots although they have none (`top` identifies them).
    pub(crate) parents: Divisor,
    /// m1..mi: hosts below each node.
    pub(crate) hosts_below: Divisor,
    /// m1..mi-1: hosts below each child.
    pub(crate) hosts_per_child: Divisor,
    /// w1..wi: switches that top the same subtree.
    pub(crate) planes: Divisor,
}

/// The position of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct XgftCoordinates {
    pub(crate) level: usize,
    pub(crate) subtree: u32,
    pub(crate) plane: u32,
}

impl Xgft {
    pub(crate) fn new(children: &[u32], parents: &[u32]) -> Result<Self, ShapeError> {
        if children.len() != parents.len() {
            return Err(ShapeError::UnequalLists { children: children.len(), parents: parents.len() });
        }
        let height = children.len();
        bounded_depth("switch levels", height)?;
        for (&m, &w) in children.iter().zip(parents) {
            at_least_one("children per node (m)", m)?;
            at_least_one("parents per node (w)", w)?;
        }
        let mut levels = Vec::with_capacity(height + 1);
        let mut first = 0;
        for level in 0..=height {
            let (below, above) = children.split_at(level);
            let hosts_below = bounded_product(below.iter().copied())?;
            let planes = bounded_product(parents[..level].iter().copied())?;
            let subtrees = bounded_product(above.iter().copied())?;
            let count = bounded_product([subtrees, planes])?;
            let down = if level == 0 { 0 } else { children[level - 1] };
            let up = parents.get(level).copied().unwrap_or(0);
            bounded_ports(level, u64::from(down) + u64::from(up))?;
            levels.push(XgftLevel {
                first,
                count,
                children: down,
                parents: Divisor::new(up.max(1)),
                hosts_below: Divisor::new(hosts_below),
                hosts_per_child: Divisor::new(hosts_below / down.max(1)),
                planes: Divisor::new(planes),
            });
            first = bounded_sum([first, count])?;
        }
        let mut firsts = [u32::MAX; MAX_LEVELS];
        for (slot, level) in firsts.iter_mut().zip(&levels[1..]) {
            *slot = level.first;
        }
        Ok(Self { hosts: levels[0].count, nodes: first, levels, firsts })
    }

    /// The number of the roots' level.
    pub(crate) fn top(&self) -> usize {
        self.levels.len() - 1
    }

    #[inline]
    pub(crate) fn level_of(&self, node: NodeId) -> usize {
        // Counting is faster than searching: no branch can be mispredicted. Few trees have more than four levels.
        let count = |firsts: &[u32]| firsts.iter().map(|&first| usize::from(node.0 >= first)).sum::<usize>();
        let (low, high) = self.firsts.split_at(4);
        if self.levels.len() <= 5 { count(low) } else { count(low) + count(high) }
    }

    pub(crate) fn coordinates(&self, node: NodeId) -> XgftCoordinates {
        let level = self.level_of(node);
        let of = &self.levels[level];
        let position = u64::from(node.0 - of.first);
        XgftCoordinates { level, subtree: of.planes.divide(position), plane: of.planes.remainder(position) }
    }

    pub(crate) fn node(&self, coordinates: XgftCoordinates) -> NodeId {
        let of = &self.levels[coordinates.level];
        NodeId(of.first + coordinates.subtree * of.planes.value() + coordinates.plane)
    }

    /// w_level+1, which is zero for roots.
    pub(crate) fn up_ports(&self, level: usize) -> u32 {
        if level == self.top() { 0 } else { self.levels[level].parents.value() }
    }

    pub(crate) fn port_count(&self, node: NodeId) -> u16 {
        let level = self.level_of(node);
        (self.levels[level].children + self.up_ports(level)) as u16
    }

    pub(crate) fn peer(&self, node: NodeId, port: FabricPort) -> Option<NodePort> {
        let coordinates = self.coordinates(node);
        let children = self.levels[coordinates.level].children;
        let port = u32::from(port.0);
        if port < children {
            return Some(self.child(coordinates, port));
        }
        let up = port - children;
        (up < self.up_ports(coordinates.level)).then(|| self.parent(coordinates, up))
    }

    fn child(&self, coordinates: XgftCoordinates, port: u32) -> NodePort {
        let below = &self.levels[coordinates.level - 1];
        let plane = u64::from(coordinates.plane);
        let child = XgftCoordinates {
            level: coordinates.level - 1,
            subtree: coordinates.subtree * self.levels[coordinates.level].children + port,
            plane: below.parents.divide(plane),
        };
        let up = below.children + below.parents.remainder(plane);
        NodePort::new(self.node(child), FabricPort(up as u16))
    }

    fn parent(&self, coordinates: XgftCoordinates, up: u32) -> NodePort {
        let children = self.levels[coordinates.level + 1].children;
        let parent = XgftCoordinates {
            level: coordinates.level + 1,
            subtree: coordinates.subtree / children,
            plane: coordinates.plane * self.levels[coordinates.level].parents.value() + up,
        };
        NodePort::new(self.node(parent), FabricPort((coordinates.subtree % children) as u16))
    }

    pub(crate) fn cable_count(&self) -> u64 {
        (0..self.top()).map(|level| u64::from(self.levels[level].count) * u64::from(self.up_ports(level))).sum()
    }

    /// The usual notation: `XGFT(3;24,12,6;1,12,6)`.
    pub(crate) fn title(&self) -> String {
        let join = |numbers: Vec<u32>| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let children = self.levels[1..].iter().map(|level| level.children).collect();
        let parents = (0..self.top()).map(|level| self.up_ports(level)).collect();
        format!("XGFT({};{};{})", self.top(), join(children), join(parents))
    }
}
