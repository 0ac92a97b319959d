//! Grids of switches: torus, mesh and hypercube.
//!
//! In: the size of each dimension, and hosts per switch. Out: cables and dimension-order routes.
//! Rules: a packet first travels the lowest dimension that differs, in the shorter direction (a tie
//! goes forward for even flows, backward for odd ones). In a torus, a packet that still has to cross
//! the wrap-around cable of its ring uses lane 0 and any other lane 1, so neither lane can have a
//! cycle of waiting packets. Elsewhere the lane is 0.
//!
//! Ports of a switch: its hosts first; then, per dimension, forward and backward (a hypercube has
//! one port per dimension). A ring of two has two parallel cables; a ring of one has none.

use crate::bounds::{ShapeError, at_least_one, bounded_depth, bounded_ports, bounded_product, bounded_sum};
use crate::divisor::Divisor;
use crate::parts::{FabricPort, NextHop, NodeId, NodePort};

/// The boundary of a dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GridBoundary {
    /// A ring: the last switch is cabled to the first.
    Wrapped,
    /// A line: edges have unused ports.
    Open,
    /// Two switches and one cable: a hypercube's dimension.
    Single,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum GridDirection {
    Forward,
    Backward,
}

#[derive(Clone, Copy, Debug)]
struct GridDimension {
    size: Divisor,
    /// Product of the lower sizes.
    stride: Divisor,
}

#[derive(Clone, Debug)]
pub(crate) struct Grid {
    edge: GridBoundary,
    dimensions: Vec<GridDimension>,
    hosts_per_switch: Divisor,
    pub(crate) hosts: u32,
    pub(crate) switches: u32,
}

impl Grid {
    pub(crate) fn new(edge: GridBoundary, sizes: &[u32], hosts_per_switch: u32) -> Result<Self, ShapeError> {
        bounded_depth("dimensions", sizes.len())?;
        at_least_one("hosts per switch", hosts_per_switch)?;
        for &size in sizes {
            at_least_one("the size of a dimension", size)?;
        }
        let switches = bounded_product(sizes.iter().copied())?;
        let hosts = bounded_product([switches, hosts_per_switch])?;
        bounded_sum([hosts, switches])?;
        bounded_ports(1, u64::from(hosts_per_switch) + 2 * sizes.len() as u64)?;
        let mut stride = 1;
        let dimensions = sizes.iter().map(|&size| {
            let dimension = GridDimension { size: Divisor::new(size), stride: Divisor::new(stride) };
            stride *= size;
            dimension
        });
        Ok(Self {
            edge,
            dimensions: dimensions.collect(),
            hosts_per_switch: Divisor::new(hosts_per_switch),
            hosts,
            switches,
        })
    }

    pub(crate) fn port_count(&self, node: NodeId) -> u16 {
        if node.0 < self.hosts {
            return 1;
        }
        self.port_of(self.dimensions.len(), GridDirection::Forward).0
    }

    pub(crate) fn peer(&self, node: NodeId, port: FabricPort) -> Option<NodePort> {
        let per_switch = self.hosts_per_switch.value();
        if node.0 < self.hosts {
            let below = self.hosts_per_switch.remainder(u64::from(node.0));
            return (port.0 == 0).then(|| NodePort::new(self.switch_of(node), FabricPort(below as u16)));
        }
        let switch = node.0 - self.hosts;
        if u32::from(port.0) < per_switch {
            let host = switch * per_switch + u32::from(port.0);
            return Some(NodePort::new(NodeId(host), FabricPort(0)));
        }
        self.neighbour(switch, (u32::from(port.0) - per_switch) as usize)
    }

    fn neighbour(&self, switch: u32, offset: usize) -> Option<NodePort> {
        let (index, direction) = match self.edge {
            GridBoundary::Single => (
                offset,
                if self.coordinate(switch, offset)? == 0 { GridDirection::Forward } else { GridDirection::Backward },
            ),
            _ => {
                (offset / 2, if offset.is_multiple_of(2) { GridDirection::Forward } else { GridDirection::Backward })
            }
        };
        let dimension = self.dimensions.get(index)?;
        let (size, stride) = (dimension.size.value(), dimension.stride.value());
        let here = self.coordinate(switch, index)?;
        let there = match (direction, self.edge) {
            (GridDirection::Forward, GridBoundary::Wrapped) => (here + 1) % size,
            (GridDirection::Backward, GridBoundary::Wrapped) => (here + size - 1) % size,
            (GridDirection::Forward, _) => here + 1,
            (GridDirection::Backward, _) => here.checked_sub(1)?,
        };
        if there >= size || there == here {
            return None;
        }
        let neighbour = NodeId(self.hosts + switch - here * stride + there * stride);
        let back = if direction == GridDirection::Forward { GridDirection::Backward } else { GridDirection::Forward };
        Some(NodePort::new(neighbour, self.port_of(index, back)))
    }

    #[inline]
    pub(crate) fn next_hop(&self, at: NodeId, to: NodeId, flow: u32) -> Option<NextHop> {
        if at.0 < self.hosts {
            return Some(NextHop::on_lane_0(0));
        }
        let here = at.0 - self.hosts;
        let target = self.switch_of(to).0 - self.hosts;
        if here == target {
            return Some(NextHop::on_lane_0(self.hosts_per_switch.remainder(u64::from(to.0))));
        }
        for (index, dimension) in self.dimensions.iter().enumerate() {
            let from = dimension.size.remainder(u64::from(dimension.stride.divide(u64::from(here))));
            let into = dimension.size.remainder(u64::from(dimension.stride.divide(u64::from(target))));
            if from != into {
                let (direction, lane) = self.direction_and_lane(dimension.size.value(), from, into, flow);
                return Some(NextHop { port: self.port_of(index, direction), lane });
            }
        }
        None
    }

    /// The direction and the lane.
    fn direction_and_lane(&self, size: u32, from: u32, into: u32, flow: u32) -> (GridDirection, u8) {
        let direct = if into > from { GridDirection::Forward } else { GridDirection::Backward };
        if self.edge != GridBoundary::Wrapped {
            return (direct, 0);
        }
        let ahead = if into > from { into - from } else { into + size - from };
        let behind = size - ahead;
        let direction = match ahead.cmp(&behind) {
            std::cmp::Ordering::Less => GridDirection::Forward,
            std::cmp::Ordering::Greater => GridDirection::Backward,
            std::cmp::Ordering::Equal if flow.is_multiple_of(2) => GridDirection::Forward,
            std::cmp::Ordering::Equal => GridDirection::Backward,
        };
        (direction, u8::from(direction == direct))
    }

    pub(crate) fn switch_of(&self, node: NodeId) -> NodeId {
        if node.0 < self.hosts {
            return NodeId(self.hosts + self.hosts_per_switch.divide(u64::from(node.0)));
        }
        node
    }

    fn coordinate(&self, switch: u32, index: usize) -> Option<u32> {
        let dimension = self.dimensions.get(index)?;
        Some(dimension.size.remainder(u64::from(dimension.stride.divide(u64::from(switch)))))
    }

    fn port_of(&self, index: usize, direction: GridDirection) -> FabricPort {
        let offset = match (self.edge, direction) {
            (GridBoundary::Single, _) => index,
            (_, GridDirection::Forward) => 2 * index,
            (_, GridDirection::Backward) => 2 * index + 1,
        };
        FabricPort(self.hosts_per_switch.value() as u16 + offset as u16)
    }

    pub(crate) fn cable_count(&self) -> u64 {
        let between: u64 = self.dimensions.iter().map(|dimension| self.cables_along(dimension)).sum();
        u64::from(self.hosts) + between
    }

    fn cables_along(&self, dimension: &GridDimension) -> u64 {
        let size = u64::from(dimension.size.value());
        let lines = u64::from(self.switches) / size;
        match self.edge {
            GridBoundary::Wrapped if size == 1 => 0,
            GridBoundary::Wrapped => lines * size,
            GridBoundary::Open | GridBoundary::Single => lines * (size - 1),
        }
    }

    pub(crate) fn title(&self) -> String {
        let sizes: Vec<_> = self.dimensions.iter().map(|dimension| dimension.size.value().to_string()).collect();
        let hosts = self.hosts_per_switch.value();
        match self.edge {
            GridBoundary::Wrapped => format!("torus {} with {hosts} hosts per switch", sizes.join("x")),
            GridBoundary::Open => format!("mesh {} with {hosts} hosts per switch", sizes.join("x")),
            GridBoundary::Single => format!("hypercube of {} dimensions with {hosts} hosts per switch", sizes.len()),
        }
    }
}
