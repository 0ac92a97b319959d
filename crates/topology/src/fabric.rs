//! The fabric: one type for every shape.
//!
//! In: a shape. Out: nodes, ports, cables, and the next hop of a packet.
//! Rules: hosts are numbered first, then switches level by level. The routing decision depends on
//! where the packet is, where it goes and its flow, never on the way so far. Asking about a node
//! that does not exist is a bug of the caller and panics.

use std::fmt;
use std::sync::Arc;

use crate::bounds::{ShapeError, bounded_depth};
use crate::dragonfly::{Dragonfly, DragonflyShape};
use crate::grid::{Edge, Grid};
use crate::imported::{ImportError, Imported};
use crate::parts::{Cable, Endpoint, Hop, NodeId, PortIndex};
use crate::xgft::Xgft;

/// A fabric: hosts, switches and the cables between them.
#[derive(Clone, Debug)]
pub struct Fabric {
    pub(crate) shape: Shape,
    // Kept beside the shape so that checking a node's number costs no look at it.
    hosts: u32,
    nodes: u32,
}

#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Xgft(Xgft),
    Dragonfly(Dragonfly),
    Grid(Grid),
    Imported(Arc<Imported>),
}

/// The family a fabric belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
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
        Xgft::new(children, parents).map(|shape| Self::new(Shape::Xgft(shape)))
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
        Dragonfly::new(shape).map(|shape| Self::new(Shape::Dragonfly(shape)))
    }

    /// A hypercube of 2^dimensions switches.
    pub fn hypercube(dimensions: u32, hosts_per_switch: u32) -> Result<Self, ShapeError> {
        bounded_depth("dimensions", dimensions as usize)?;
        let sizes = vec![2; dimensions as usize];
        Grid::new(Edge::Single, &sizes, hosts_per_switch).map(|shape| Self::new(Shape::Grid(shape)))
    }

    /// A torus with these sizes, dimension 0 first.
    pub fn torus(sizes: &[u32], hosts_per_switch: u32) -> Result<Self, ShapeError> {
        Grid::new(Edge::Wrapped, sizes, hosts_per_switch).map(|shape| Self::new(Shape::Grid(shape)))
    }

    /// A mesh (a torus without wrap-around cables) with these sizes, dimension 0 first.
    pub fn mesh(sizes: &[u32], hosts_per_switch: u32) -> Result<Self, ShapeError> {
        Grid::new(Edge::Open, sizes, hosts_per_switch).map(|shape| Self::new(Shape::Grid(shape)))
    }

    /// The fabric that the text of `ibnetdiscover` describes. Routes are up*/down*.
    pub fn import_ibnetdiscover(text: &str) -> Result<Self, ImportError> {
        Imported::from_ibnetdiscover(text).map(|shape| Self::new(Shape::Imported(Arc::new(shape))))
    }

    /// The family this fabric belongs to.
    pub fn kind(&self) -> Kind {
        match &self.shape {
            Shape::Xgft(_) => Kind::FatTree,
            Shape::Dragonfly(_) => Kind::DragonflyPlus,
            Shape::Grid(_) => Kind::Grid,
            Shape::Imported(_) => Kind::Imported,
        }
    }

    fn new(shape: Shape) -> Self {
        let (hosts, nodes) = match &shape {
            Shape::Xgft(shape) => (shape.hosts, shape.nodes),
            Shape::Dragonfly(shape) => (shape.hosts, shape.hosts + shape.leaves + shape.spines),
            Shape::Grid(shape) => (shape.hosts, shape.hosts + shape.switches),
            Shape::Imported(shape) => (shape.hosts, shape.nodes()),
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
            Shape::Xgft(shape) => shape.port_count(node),
            Shape::Dragonfly(shape) => shape.port_count(node),
            Shape::Grid(shape) => shape.port_count(node),
            Shape::Imported(shape) => shape.port_count(node),
        }
    }

    /// The other end of the cable in a port; none if the port is not cabled or does not exist.
    pub fn peer(&self, node: NodeId, port: PortIndex) -> Option<Endpoint> {
        self.assert_exists(node);
        match &self.shape {
            Shape::Xgft(shape) => shape.peer(node, port),
            Shape::Dragonfly(shape) => shape.peer(node, port),
            Shape::Grid(shape) => shape.peer(node, port),
            Shape::Imported(shape) => shape.peer(node, port),
        }
    }

    /// The level of a node: 0 for hosts, 1 for the switches they are cabled to, and so on.
    pub fn level(&self, node: NodeId) -> u8 {
        self.assert_exists(node);
        match &self.shape {
            Shape::Xgft(shape) => shape.level_of(node) as u8,
            Shape::Dragonfly(shape) => shape.level(node),
            Shape::Grid(shape) => u8::from(node.0 >= shape.hosts),
            Shape::Imported(shape) => shape.level(node),
        }
    }

    /// The ports of a node that are cabled, with the far ends.
    pub fn neighbours(&self, node: NodeId) -> impl Iterator<Item = (PortIndex, Endpoint)> + '_ {
        (0..self.port_count(node))
            .map(PortIndex)
            .filter_map(move |port| self.peer(node, port).map(|peer| (port, peer)))
    }

    /// The cable in a port, if there is one.
    pub fn cable(&self, end: Endpoint) -> Option<Cable> {
        self.peer(end.node, end.port).map(|peer| Cable::between(end, peer))
    }

    /// Every cable once, ordered by its lower end.
    pub fn cables(&self) -> impl Iterator<Item = Cable> + '_ {
        (0..self.nodes()).map(NodeId).flat_map(move |node| {
            self.neighbours(node)
                .map(move |(port, peer)| (Endpoint::new(node, port), peer))
                .filter(|(here, peer)| here < peer)
                .map(|(a, b)| Cable { a, b })
        })
    }

    /// Cables, without counting them one by one.
    pub fn cable_count(&self) -> u64 {
        match &self.shape {
            Shape::Xgft(shape) => shape.cable_count(),
            Shape::Dragonfly(shape) => shape.cable_count(),
            Shape::Grid(shape) => shape.cable_count(),
            Shape::Imported(shape) => shape.cable_count(),
        }
    }

    /// The next hop of a packet at `at` on its way to `to`, a host or a switch.
    ///
    /// `flow` spreads packets where the routing leaves a choice; flow 0 is plain D-mod-K in trees.
    /// None if the packet is there, or if no way exists that does not lead through a host.
    #[inline]
    pub fn next_hop(&self, at: NodeId, to: NodeId, flow: u32) -> Option<Hop> {
        self.assert_exists(at);
        self.assert_exists(to);
        if at == to {
            return None;
        }
        match &self.shape {
            Shape::Xgft(shape) => shape.next_hop(at, to, flow),
            Shape::Dragonfly(shape) => shape.next_hop(at, to, flow),
            Shape::Grid(shape) => shape.next_hop(at, to, flow),
            Shape::Imported(shape) => shape.next_hop(at, to, flow),
        }
    }

    /// The whole way: node and out port of every hop. Empty if `from` is `to` or no way exists.
    pub fn route(&self, from: NodeId, to: NodeId, flow: u32) -> Vec<Endpoint> {
        let mut hops = Vec::new();
        let mut at = from;
        while let Some(hop) = self.next_hop(at, to, flow) {
            hops.push(Endpoint::new(at, hop.port));
            at = self.peer(at, hop.port).expect("a route uses cabled ports").node;
            assert!(hops.len() <= self.nodes() as usize, "a route never comes back to a node");
        }
        if at == to { hops } else { Vec::new() }
    }

    /// What people call a node: `H5` for hosts, `S12` for switches counted level by level, and the
    /// description from the subnet for imported fabrics.
    pub fn name(&self, node: NodeId) -> String {
        self.assert_exists(node);
        if let Shape::Imported(shape) = &self.shape {
            return shape.description(node).to_owned();
        }
        if self.is_host(node) { format!("H{}", node.0) } else { format!("S{}", node.0 - self.hosts()) }
    }

    /// The node with this name; `H5` and `S12` work in imported fabrics too.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        if let Shape::Imported(shape) = &self.shape
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
    /// The shape in a few words: `XGFT(3;24,12,6;1,12,6)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match &self.shape {
            Shape::Xgft(shape) => shape.title(),
            Shape::Dragonfly(shape) => shape.title(),
            Shape::Grid(shape) => shape.title(),
            Shape::Imported(shape) => shape.title(),
        })
    }
}
