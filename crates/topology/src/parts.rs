//! The parts a fabric is made of: nodes, ports, cables, hops.

use std::fmt;

/// A host or a switch. Hosts are numbered first, then switches, level by level.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeId(pub u32);

/// A port of a node, counted from zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FabricPort(pub u16);

/// One end of a cable: a port of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodePort {
    /// The node.
    pub node: NodeId,
    /// Its port.
    pub port: FabricPort,
}

/// A cable between two ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cable {
    /// The end on the lower level, or with the lower number on the same level.
    pub a: NodePort,
    /// The other end.
    pub b: NodePort,
}

/// A routing decision.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NextHop {
    /// The port it leaves by.
    pub port: FabricPort,
    /// The virtual lane to use; 1 only past the dateline of a torus ring.
    pub lane: u8,
}

impl NodeId {
    /// The number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl FabricPort {
    /// The number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl NodePort {
    /// The port `port` of `node`.
    pub const fn new(node: NodeId, port: FabricPort) -> Self {
        Self { node, port }
    }
}

impl Cable {
    /// The cable between two ends, given in any order.
    pub fn between(one: NodePort, other: NodePort) -> Self {
        if one <= other { Self { a: one, b: other } } else { Self { a: other, b: one } }
    }
}

impl NextHop {
    /// A hop on lane 0.
    pub(crate) const fn on_lane_0(port: u32) -> Self {
        Self { port: FabricPort(port as u16), lane: 0 }
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

impl fmt::Debug for FabricPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {}", self.0)
    }
}

impl fmt::Debug for NodePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.node, self.port)
    }
}
