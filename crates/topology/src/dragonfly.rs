//! Dragonfly+: groups of leaves and spines, spines of different groups joined by global cables.
//!
//! In: five numbers. Out: cables and minimal routes.
//! Rules: inside a group every leaf is cabled to every spine. A group's global ports, counted spine
//! by spine, are assigned to the other groups in turn, so each pair of groups has the same number of
//! cables. A packet goes leaf, spine, global cable, spine, leaf; up, global, down is a strict
//! order, so one lane is free of deadlock.
//!
//! A route is longer than minimal only if it starts at a spine without a cable to the destination's
//! group, or ends at a spine without such a cable: it turns at a leaf instead of visiting a third
//! group. Routes between hosts are never affected.

use crate::bounds::{ShapeError, at_least_one, bounded_ports, bounded_product, bounded_sum};
use crate::parts::{FabricPort, NextHop, NodeId, NodePort};

/// The parameters of a dragonfly+.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DragonflyShape {
    /// Groups.
    pub groups: u32,
    /// Leaf switches of each group.
    pub leaves_per_group: u32,
    /// Spine switches of each group.
    pub spines_per_group: u32,
    /// Hosts of each leaf.
    pub hosts_per_leaf: u32,
    /// Global ports of each spine. Multiplied by the spines it must be a multiple of the number of
    /// other groups; zero if there is only one group.
    pub global_ports_per_spine: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Dragonfly {
    shape: DragonflyShape,
    pub(crate) hosts: u32,
    pub(crate) leaves: u32,
    pub(crate) spines: u32,
    /// Cables between each pair of groups.
    cables_per_pair: u32,
}

/// The position of a switch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DragonflySwitch {
    Leaf { group: u32, leaf: u32 },
    Spine { group: u32, spine: u32 },
}

impl DragonflySwitch {
    fn group(self) -> u32 {
        match self {
            Self::Leaf { group, .. } | Self::Spine { group, .. } => group,
        }
    }
}

impl Dragonfly {
    pub(crate) fn new(shape: DragonflyShape) -> Result<Self, ShapeError> {
        at_least_one("groups", shape.groups)?;
        at_least_one("leaves per group", shape.leaves_per_group)?;
        at_least_one("spines per group", shape.spines_per_group)?;
        at_least_one("hosts per leaf", shape.hosts_per_leaf)?;
        let leaves = bounded_product([shape.groups, shape.leaves_per_group])?;
        let spines = bounded_product([shape.groups, shape.spines_per_group])?;
        let hosts = bounded_product([leaves, shape.hosts_per_leaf])?;
        bounded_sum([hosts, leaves, spines])?;
        bounded_ports(1, u64::from(shape.hosts_per_leaf) + u64::from(shape.spines_per_group))?;
        bounded_ports(2, u64::from(shape.leaves_per_group) + u64::from(shape.global_ports_per_spine))?;
        let ports = u64::from(shape.spines_per_group) * u64::from(shape.global_ports_per_spine);
        let other_groups = shape.groups - 1;
        let uneven = match other_groups {
            0 => ports != 0,
            others => ports == 0 || !ports.is_multiple_of(u64::from(others)),
        };
        if uneven {
            return Err(ShapeError::UnevenGlobalPorts { ports, other_groups });
        }
        let cables_per_pair = if other_groups == 0 { 0 } else { (ports / u64::from(other_groups)) as u32 };
        Ok(Self { shape, hosts, leaves, spines, cables_per_pair })
    }

    pub(crate) fn level(&self, node: NodeId) -> u8 {
        u8::from(node.0 >= self.hosts) + u8::from(node.0 >= self.hosts + self.leaves)
    }

    pub(crate) fn port_count(&self, node: NodeId) -> u16 {
        match self.level(node) {
            0 => 1,
            1 => (self.shape.hosts_per_leaf + self.shape.spines_per_group) as u16,
            _ => (self.shape.leaves_per_group + self.shape.global_ports_per_spine) as u16,
        }
    }

    pub(crate) fn cable_count(&self) -> u64 {
        let inside = u64::from(self.leaves) * u64::from(self.shape.spines_per_group);
        let global = u64::from(self.spines) * u64::from(self.shape.global_ports_per_spine) / 2;
        u64::from(self.hosts) + inside + global
    }

    pub(crate) fn peer(&self, node: NodeId, port: FabricPort) -> Option<NodePort> {
        let port = u32::from(port.0);
        if node.0 < self.hosts {
            let below = node.0 % self.shape.hosts_per_leaf;
            return (port == 0).then(|| NodePort::new(self.switch_of(node), FabricPort(below as u16)));
        }
        match self.position(node) {
            DragonflySwitch::Leaf { group, leaf } => self.leaf_peer(node, group, leaf, port),
            DragonflySwitch::Spine { group, spine } => self.spine_peer(group, spine, port),
        }
    }

    fn leaf_peer(&self, node: NodeId, group: u32, leaf: u32, port: u32) -> Option<NodePort> {
        let DragonflyShape { hosts_per_leaf, spines_per_group, .. } = self.shape;
        if port < hosts_per_leaf {
            let host = (node.0 - self.hosts) * hosts_per_leaf + port;
            return Some(NodePort::new(NodeId(host), FabricPort(0)));
        }
        let spine = port - hosts_per_leaf;
        (spine < spines_per_group)
            .then(|| NodePort::new(self.node(DragonflySwitch::Spine { group, spine }), FabricPort(leaf as u16)))
    }

    fn spine_peer(&self, group: u32, spine: u32, port: u32) -> Option<NodePort> {
        let DragonflyShape { hosts_per_leaf, leaves_per_group, global_ports_per_spine, .. } = self.shape;
        if port < leaves_per_group {
            let leaf = self.node(DragonflySwitch::Leaf { group, leaf: port });
            return Some(NodePort::new(leaf, FabricPort((hosts_per_leaf + spine) as u16)));
        }
        if port - leaves_per_group >= global_ports_per_spine {
            return None;
        }
        let global = spine * global_ports_per_spine + port - leaves_per_group;
        let others = self.shape.groups - 1;
        let (turn, copy) = (global % others, global / others);
        let other = if turn < group { turn } else { turn + 1 };
        let landing = self.global_port(other, group, copy);
        let position = DragonflySwitch::Spine { group: other, spine: landing / global_ports_per_spine };
        let port = leaves_per_group + landing % global_ports_per_spine;
        Some(NodePort::new(self.node(position), FabricPort(port as u16)))
    }

    /// The global port of `group` that holds its `copy`-th cable to `other`.
    fn global_port(&self, group: u32, other: u32, copy: u32) -> u32 {
        let turn = if other < group { other } else { other - 1 };
        copy * (self.shape.groups - 1) + turn
    }

    /// The copies of the cable between two groups that end on one spine of `group`.
    fn copies_on(&self, group: u32, spine: u32, other: u32) -> std::ops::Range<u32> {
        let others = self.shape.groups - 1;
        let turn = self.global_port(group, other, 0);
        let first = spine * self.shape.global_ports_per_spine;
        let after = first + self.shape.global_ports_per_spine;
        first.saturating_sub(turn).div_ceil(others)..after.saturating_sub(turn).div_ceil(others)
    }

    #[inline]
    pub(crate) fn next_hop(&self, at: NodeId, to: NodeId, flow: u32) -> Option<NextHop> {
        if at.0 < self.hosts {
            return Some(NextHop::on_lane_0(0));
        }
        let switch = self.switch_of(to);
        if at == switch {
            return Some(NextHop::on_lane_0(to.0 % self.shape.hosts_per_leaf));
        }
        let spread = u64::from(to.0) + u64::from(flow);
        let target = self.position(switch);
        Some(NextHop::on_lane_0(match self.position(at) {
            DragonflySwitch::Leaf { group, .. } => self.port_from_leaf(group, target, spread),
            DragonflySwitch::Spine { group, spine } => self.port_from_spine(group, spine, target, spread),
        }))
    }

    fn port_from_leaf(&self, group: u32, target: DragonflySwitch, spread: u64) -> u32 {
        let spine = if group == target.group() {
            match target {
                DragonflySwitch::Spine { spine, .. } => spine,
                DragonflySwitch::Leaf { .. } => pick(0..self.shape.spines_per_group, spread),
            }
        } else {
            let copy = pick(self.useful_copies(0..self.cables_per_pair, group, target), spread);
            self.global_port(group, target.group(), copy) / self.shape.global_ports_per_spine
        };
        self.shape.hosts_per_leaf + spine
    }

    fn port_from_spine(&self, group: u32, spine: u32, target: DragonflySwitch, spread: u64) -> u32 {
        let any_leaf = || pick(0..self.shape.leaves_per_group, spread);
        if group == target.group() {
            return match target {
                DragonflySwitch::Leaf { leaf, .. } => leaf,
                DragonflySwitch::Spine { .. } => any_leaf(),
            };
        }
        let own = self.copies_on(group, spine, target.group());
        if own.is_empty() {
            return any_leaf();
        }
        let copy = pick(self.useful_copies(own, group, target), spread);
        let global = self.global_port(group, target.group(), copy);
        self.shape.leaves_per_group + global % self.shape.global_ports_per_spine
    }

    /// Of these copies, those that end at the wanted spine; all of them if none does or the target is a leaf.
    fn useful_copies(
        &self,
        copies: std::ops::Range<u32>,
        group: u32,
        target: DragonflySwitch,
    ) -> std::ops::Range<u32> {
        let DragonflySwitch::Spine { group: there, spine } = target else {
            return copies;
        };
        let landing = self.copies_on(there, spine, group);
        let both = copies.start.max(landing.start)..copies.end.min(landing.end);
        if both.is_empty() { copies } else { both }
    }

    fn position(&self, switch: NodeId) -> DragonflySwitch {
        let DragonflyShape { leaves_per_group, spines_per_group, .. } = self.shape;
        let position = switch.0 - self.hosts;
        if position < self.leaves {
            return DragonflySwitch::Leaf { group: position / leaves_per_group, leaf: position % leaves_per_group };
        }
        let position = position - self.leaves;
        DragonflySwitch::Spine { group: position / spines_per_group, spine: position % spines_per_group }
    }

    fn node(&self, position: DragonflySwitch) -> NodeId {
        NodeId(match position {
            DragonflySwitch::Leaf { group, leaf } => self.hosts + group * self.shape.leaves_per_group + leaf,
            DragonflySwitch::Spine { group, spine } => {
                self.hosts + self.leaves + group * self.shape.spines_per_group + spine
            }
        })
    }

    pub(crate) fn switch_of(&self, node: NodeId) -> NodeId {
        if node.0 < self.hosts { NodeId(self.hosts + node.0 / self.shape.hosts_per_leaf) } else { node }
    }

    pub(crate) fn title(&self) -> String {
        let DragonflyShape { groups, leaves_per_group, spines_per_group, hosts_per_leaf, .. } = self.shape;
        format!(
            "dragonfly+ of {groups} groups of {leaves_per_group} leaves and {spines_per_group} spines \
             with {hosts_per_leaf} hosts per leaf"
        )
    }
}

/// The element of a range that a spread number selects.
fn pick(range: std::ops::Range<u32>, spread: u64) -> u32 {
    range.start + (spread % u64::from(range.end - range.start)) as u32
}
