//! The fabric: one type for every shape.
//!
//! In: a shape. Out: nodes, ports, cables, and the next hop of a packet.
//! Rules: hosts are numbered first, then switches level by level. The routing decision depends on
//! the current node, the destination and the flow, never on the path so far. A node number that
//! does not exist is a defect of the caller and panics.

use std::fmt;
use std::sync::Arc;

use crate::bounds::{ShapeError, bounded_depth};
use crate::dragonfly::{Dragonfly, DragonflyShape};
use crate::grid::{Grid, GridBoundary};
use crate::imported::{ImportError, ImportedFabric};
use crate::parts::{Cable, FabricPort, NextHop, NodeId, NodePort};
use crate::xgft::Xgft;

/// A fabric: hosts, switches and the cables between them.
#[derive(Clone, Debug)]
pub struct Fabric {
    pub(crate) shape: FabricShape,
    // Stored here as well, so that checking a node number does not need the shape.
    hosts: u32,
    nodes: u32,
}

#[derive(Clone, Debug)]
pub(crate) enum FabricShape {
    Xgft(Xgft),
    Dragonfly(Dragonfly),
    Grid(Grid),
    Imported(Arc<ImportedFabric>),
}

/// The family a fabric belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FabricKind {
    /// An extended generalised fat tree.
    FatTree,
    /// A dragonfly+.
    DragonflyPlus,
    /// A torus, mesh or hypercube.
    Grid,
    /// A fabric read from a subnet's description.
    Imported,
}

impl Fabric {
    /// XGFT(h; m1..mh; w1..wh): a node of level i has m_i children and w_i+1 parents.
    pub fn xgft(children: &[u32], parents: &[u32]) -> Result<Self, ShapeError> {
        Xgft::new(children, parents).map(|shape| Self::new(FabricShape::Xgft(shape)))
    }

    /// The k-ary n-tree: k^n hosts and n levels of k^(n-1) switches.
    pub fn kary_ntree(k: u32, n: u32) -> Result<Self, ShapeError> {
        bounded_depth("switch levels", n as usize)?;
        let children = vec![k; n as usize];
        let mut parents = children.clone();
        parents[0] = 1;
        Self::xgft(&children, &parents)
    }

    /// A dragonfly+.
    pub fn dragonfly_plus(shape: DragonflyShape) -> Result<Self, ShapeError> {
        Dragonfly::new(shape).map(|shape| Self::new(FabricShape::Dragonfly(shape)))
    }

    /// A hypercube of 2^dimensions switches.
    pub fn hypercube(dimensions: u32, hosts_per_switch: u32) -> Result<Self, ShapeError> {
        bounded_depth("dimensions", dimensions as usize)?;
        let sizes = vec![2; dimensions as usize];
        Grid::new(GridBoundary::Single, &sizes, hosts_per_switch).map(|shape| Self::new(FabricShape::Grid(shape)))
    }

    /// A torus with these sizes, dimension 0 first.
    pub fn torus(sizes: &[u32], hosts_per_switch: u32) -> Result<Self, ShapeError> {
        Grid::new(GridBoundary::Wrapped, sizes, hosts_per_switch).map(|shape| Self::new(FabricShape::Grid(shape)))
    }

    /// A mesh (a torus without wrap-around cables) with these sizes, dimension 0 first.
    pub fn mesh(sizes: &[u32], hosts_per_switch: u32) -> Result<Self, ShapeError> {
        Grid::new(GridBoundary::Open, sizes, hosts_per_switch).map(|shape| Self::new(FabricShape::Grid(shape)))
    }

    /// The fabric that the text of `ibnetdiscover` describes. Routes are up*/down*.
    pub fn import_ibnetdiscover(text: &str) -> Result<Self, ImportError> {
        ImportedFabric::from_ibnetdiscover(text).map(|shape| Self::new(FabricShape::Imported(Arc::new(shape))))
    }

    /// The family this fabric belongs to.
    pub fn kind(&self) -> FabricKind {
        match &self.shape {
            FabricShape::Xgft(_) => FabricKind::FatTree,
            FabricShape::Dragonfly(_) => FabricKind::DragonflyPlus,
            FabricShape::Grid(_) => FabricKind::Grid,
            FabricShape::Imported(_) => FabricKind::Imported,
        }
    }

    fn new(shape: FabricShape) -> Self {
        let (hosts, nodes) = match &shape {
            FabricShape::Xgft(shape) => (shape.hosts, shape.nodes),
            FabricShape::Dragonfly(shape) => (shape.hosts, shape.hosts + shape.leaves + shape.spines),
            FabricShape::Grid(shape) => (shape.hosts, shape.hosts + shape.switches),
            FabricShape::Imported(shape) => (shape.hosts, shape.nodes()),
        };
        Self { shape, hosts, nodes }
    }

    /// Hosts; they have the numbers `0..hosts()`.
    #[inline]
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Switches; they have the numbers `hosts()..nodes()`.
    pub fn switches(&self) -> u32 {
        self.nodes - self.hosts
    }

    /// Hosts and switches together.
    #[inline]
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// True for hosts, false for switches.
    #[inline]
    pub fn is_host(&self, node: NodeId) -> bool {
        node.0 < self.hosts()
    }

    /// Ports of a node, cabled or not.
    pub fn port_count(&self, node: NodeId) -> u16 {
        self.assert_exists(node);
        match &self.shape {
            FabricShape::Xgft(shape) => shape.port_count(node),
            FabricShape::Dragonfly(shape) => shape.port_count(node),
            FabricShape::Grid(shape) => shape.port_count(node),
            FabricShape::Imported(shape) => shape.port_count(node),
        }
    }

    /// The other end of the cable in a port; none if the port is not cabled or does not exist.
    pub fn peer(&self, node: NodeId, port: FabricPort) -> Option<NodePort> {
        self.assert_exists(node);
        match &self.shape {
            FabricShape::Xgft(shape) => shape.peer(node, port),
            FabricShape::Dragonfly(shape) => shape.peer(node, port),
            FabricShape::Grid(shape) => shape.peer(node, port),
            FabricShape::Imported(shape) => shape.peer(node, port),
        }
    }

    /// The level of a node: 0 for hosts, 1 for the switches they are cabled to, and so on.
    pub fn level(&self, node: NodeId) -> u8 {
        self.assert_exists(node);
        match &self.shape {
            FabricShape::Xgft(shape) => shape.level_of(node) as u8,
            FabricShape::Dragonfly(shape) => shape.level(node),
            FabricShape::Grid(shape) => u8::from(node.0 >= shape.hosts),
            FabricShape::Imported(shape) => shape.level(node),
        }
    }

    /// The ports of a node that are cabled, with the far ends.
    pub fn neighbours(&self, node: NodeId) -> impl Iterator<Item = (FabricPort, NodePort)> + '_ {
        (0..self.port_count(node))
            .map(FabricPort)
            .filter_map(move |port| self.peer(node, port).map(|peer| (port, peer)))
    }

    /// The cable in a port, if there is one.
    pub fn cable(&self, end: NodePort) -> Option<Cable> {
        self.peer(end.node, end.port).map(|peer| Cable::between(end, peer))
    }

    /// Every cable once, ordered by its lower end.
    pub fn cables(&self) -> impl Iterator<Item = Cable> + '_ {
        (0..self.nodes()).map(NodeId).flat_map(move |node| {
            self.neighbours(node)
                .map(move |(port, peer)| (NodePort::new(node, port), peer))
                .filter(|(here, peer)| here < peer)
                .map(|(a, b)| Cable { a, b })
        })
    }

    /// Cables, without counting them one by one.
    pub fn cable_count(&self) -> u64 {
        match &self.shape {
            FabricShape::Xgft(shape) => shape.cable_count(),
            FabricShape::Dragonfly(shape) => shape.cable_count(),
            FabricShape::Grid(shape) => shape.cable_count(),
            FabricShape::Imported(shape) => shape.cable_count(),
        }
    }

    /// The next hop of a packet at `at` with destination `to`, a host or a switch.
    ///
    /// `flow` selects among equivalent ports; flow 0 is plain D-mod-K in trees. None if the packet has
    /// arrived, or if every path would pass through a host.
    #[inline]
    pub fn next_hop(&self, at: NodeId, to: NodeId, flow: u32) -> Option<NextHop> {
        self.assert_exists(at);
        self.assert_exists(to);
        if at == to {
            return None;
        }
        match &self.shape {
            FabricShape::Xgft(shape) => shape.next_hop(at, to, flow),
            FabricShape::Dragonfly(shape) => shape.next_hop(at, to, flow),
            FabricShape::Grid(shape) => shape.next_hop(at, to, flow),
            FabricShape::Imported(shape) => shape.next_hop(at, to, flow),
        }
    }

    /// The up ports of a switch of a fat tree, all of which lead to host `to`. None if the host is below the switch, or if the
    /// fabric's formula offers no such choice.
    pub fn up_ports(&self, at: NodeId, to: NodeId) -> Option<std::ops::Range<u16>> {
        self.assert_exists(at);
        self.assert_exists(to);
        match &self.shape {
            FabricShape::Xgft(shape) if self.is_host(to) => shape.up_ports_toward(at, to),
            _ => None,
        }
    }

    /// The whole route: node and out port of every hop. Empty if `from` is `to` or there is no route.
    pub fn route(&self, from: NodeId, to: NodeId, flow: u32) -> Vec<NodePort> {
        let mut hops = Vec::new();
        let mut at = from;
        while let Some(hop) = self.next_hop(at, to, flow) {
            hops.push(NodePort::new(at, hop.port));
            at = self.peer(at, hop.port).expect("a route uses cabled ports").node;
            assert!(hops.len() <= self.nodes() as usize, "a route visits no node twice");
        }
        if at == to { hops } else { Vec::new() }
    }

    /// The name of a node: `H5` for hosts, `S12` for switches counted level by level, and the
    /// description from the subnet for imported fabrics.
    pub fn name(&self, node: NodeId) -> String {
        self.assert_exists(node);
        if let FabricShape::Imported(shape) = &self.shape {
            return shape.description(node).to_owned();
        }
        if self.is_host(node) { format!("H{}", node.0) } else { format!("S{}", node.0 - self.hosts()) }
    }

    /// The node with this name; `H5` and `S12` work in imported fabrics too.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        if let FabricShape::Imported(shape) = &self.shape
            && let Some(node) = shape.find(name)
        {
            return Some(node);
        }
        let digits = name.get(1..).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        let number: u32 = digits.parse().ok()?;
        match name.as_bytes()[0] {
            b'H' => (number < self.hosts()).then_some(NodeId(number)),
            b'S' => (number < self.switches()).then(|| NodeId(self.hosts() + number)),
            _ => None,
        }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn assert_exists(&self, node: NodeId) {
        assert!(node.0 < self.nodes(), "{node:?} does not exist in this fabric");
    }
}

impl fmt::Display for Fabric {
    /// The shape in short notation: `XGFT(3;24,12,6;1,12,6)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match &self.shape {
            FabricShape::Xgft(shape) => shape.title(),
            FabricShape::Dragonfly(shape) => shape.title(),
            FabricShape::Grid(shape) => shape.title(),
            FabricShape::Imported(shape) => shape.title(),
        })
    }
}
