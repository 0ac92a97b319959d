//! Aggregation trees: which switches fold which operands, and where they send the result.
//!
//! In: a fabric and a [`TreeRequest`]. Out: an [`AggregationTree`], children before parents.
//! Rules: every uplink is one cable, or an edge inside one switch. Children are ordered (hosts by
//! number, then nodes by their first host), so the order of folding is fixed. From any root going
//! down, every member is reached by exactly one path, also with replication (claim SE-7).

mod builder;
mod exclusion_index;
mod formula;
mod placement;
mod search;
mod shortest_paths;

use std::collections::BTreeMap;
use std::fmt;

use units::ChildIndex;

use crate::fabric::Fabric;
use crate::parts::{Cable, FabricPort, NodeId};

pub use placement::place_tree;

/// A request for a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeRequest {
    /// The member hosts.
    pub members: TreeMembers,
    /// Copies of every result on its way up; 1 is a plain tree (claim SE-7). In a fat tree, every node
    /// below the roots has this many parents on different ports. Elsewhere there are this many trees
    /// with different roots, which share the nodes that fold hosts and, if possible, no cable.
    pub replicas: u8,
    /// The most children of a node. A node with more is split into several on the same switch.
    pub radix_limit: Option<u16>,
    /// The switch that must be the (first) root.
    pub root: Option<NodeId>,
    /// What the tree must avoid.
    pub avoid: TreeExclusions,
}

/// The member hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TreeMembers {
    /// Every host of the fabric.
    All,
    /// These hosts; order and repetition do not matter.
    Listed(Vec<NodeId>),
}

/// What a tree must avoid because it is broken or busy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TreeExclusions {
    /// Switches that must not host aggregation nodes.
    pub nodes: Vec<NodeId>,
    /// Cables that must not carry tree traffic.
    pub cables: Vec<Cable>,
}

/// A position in [`AggregationTree::nodes`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeIndex(pub u32);

/// An aggregation tree; with replication, several roots share its lower nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AggregationTree {
    /// Children before parents, roots last.
    pub nodes: Vec<TreeNode>,
}

/// An aggregation node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeNode {
    /// The switch it runs on.
    pub switch: NodeId,
    /// That switch's level in the fabric.
    pub level: u8,
    /// Where it sends its result; empty for roots.
    pub parents: Vec<Uplink>,
    /// The children whose operands it folds, in this order.
    pub children: Vec<Downlink>,
}

/// The link from a node to one of its parents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Uplink {
    /// The parent.
    pub parent: TreeIndex,
    /// The port to the parent; none if the parent is on the same switch.
    pub port: Option<FabricPort>,
    /// The position of this node in the parent's `children`.
    pub child: ChildIndex,
}

/// The link from a node to one of its children.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Downlink {
    /// The child.
    pub node: ChildNode,
    /// The port to the child; none if the child is on the same switch.
    pub port: Option<FabricPort>,
}

/// A child is a member's host or another aggregation node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ChildNode {
    /// A member's host.
    Host(NodeId),
    /// An aggregation node below.
    Node(TreeIndex),
}

/// The link from a member's host into the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostUplink {
    /// The host.
    pub host: NodeId,
    /// The host's link; the port is the host's.
    pub uplink: Uplink,
}

/// Why no tree could be placed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlacementError {
    /// There are no members.
    NoMembers,
    /// A listed member is not a host of the fabric.
    NotAHost(NodeId),
    /// The requested root is not a switch of the fabric.
    NotASwitch(NodeId),
    /// A member is among the nodes to avoid.
    MemberAvoided(NodeId),
    /// The limit of children is below two, which no tree can satisfy.
    RadixTooSmall(u16),
    /// Replicas must lie between 1 and [`units::limits::MAX_COPIES`].
    ReplicasOutOfRange(u8),
    /// A level has too few usable up ports, or the fabric too few switches, for this many parents.
    TooFewParents {
        /// The level of the nodes that lack parents.
        level: u8,
        /// The replicas requested.
        wanted: u8,
        /// How many parents are available.
        available: u32,
    },
    /// The requested root is not above every member of a fat tree, or only by way of what must be avoided.
    RootNotAbove {
        /// The root.
        root: NodeId,
    },
    /// Without what must be avoided, this member cannot reach the others.
    Unreachable(NodeId),
}

impl TreeRequest {
    /// A plain tree over every host.
    pub fn all() -> Self {
        Self {
            members: TreeMembers::All,
            replicas: 1,
            radix_limit: None,
            root: None,
            avoid: TreeExclusions::default(),
        }
    }

    /// A plain tree over these hosts.
    pub fn over(members: impl IntoIterator<Item = NodeId>) -> Self {
        Self { members: TreeMembers::Listed(members.into_iter().collect()), ..Self::all() }
    }

    /// The same, with this many parents per node.
    pub fn with_replicas(self, replicas: u8) -> Self {
        Self { replicas, ..self }
    }
}

impl TreeIndex {
    /// The number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for TreeIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tree node {}", self.0)
    }
}

impl AggregationTree {
    /// The node at a position.
    pub fn node(&self, index: TreeIndex) -> &TreeNode {
        &self.nodes[index.index()]
    }

    /// Nodes without parents. A plain tree has one.
    pub fn roots(&self) -> impl Iterator<Item = TreeIndex> + '_ {
        (0..).map(TreeIndex).zip(&self.nodes).filter(|(_, node)| node.parents.is_empty()).map(|(index, _)| index)
    }

    /// A number per node that identifies its fold: nodes that fold the same hosts in the same order and nesting have the same.
    pub fn shapes(&self) -> Vec<u32> {
        let mut known: BTreeMap<Vec<(bool, u32)>, u32> = BTreeMap::new();
        let mut shapes: Vec<u32> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let children = node.children.iter().map(|child| match child.node {
                ChildNode::Host(host) => (true, host.0),
                ChildNode::Node(below) => (false, shapes[below.index()]),
            });
            let next = known.len() as u32;
            shapes.push(*known.entry(children.collect()).or_insert(next));
        }
        shapes
    }

    /// Whether every root folds the members in the same order and nesting. If not, a result that depends on the
    /// order (a sum of floats) depends on the root that computed it.
    pub fn roots_fold_alike(&self) -> bool {
        let shapes = self.shapes();
        let mut roots = self.roots().map(|root| shapes[root.index()]);
        let first = roots.next();
        roots.all(|shape| Some(shape) == first)
    }

    /// How every member's host reaches the tree, ordered by host. A host with several ports may
    /// occur several times, once for each copy that it sends.
    pub fn host_uplinks(&self, fabric: &Fabric) -> Vec<HostUplink> {
        let mut uplinks = Vec::new();
        for (parent, node) in (0..).map(TreeIndex).zip(&self.nodes) {
            for (position, child) in node.children.iter().enumerate() {
                if let ChildNode::Host(host) = child.node {
                    let port = child.port.and_then(|port| fabric.peer(node.switch, port)).map(|peer| peer.port);
                    let uplink = Uplink { parent, port, child: ChildIndex::from_position(position) };
                    uplinks.push(HostUplink { host, uplink });
                }
            }
        }
        uplinks.sort_by_key(|link| (link.host, link.uplink.parent));
        uplinks
    }
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMembers => write!(f, "a tree needs at least one member"),
            Self::NotAHost(node) => write!(f, "{node:?} is not a host of this fabric, so it cannot be a member"),
            Self::NotASwitch(node) => write!(f, "{node:?} is not a switch of this fabric, so it cannot be a root"),
            Self::MemberAvoided(node) => write!(f, "{node:?} is a member and must also be avoided"),
            Self::RadixTooSmall(limit) => {
                write!(f, "no tree has at most {limit} children per node; the limit must be at least 2")
            }
            Self::ReplicasOutOfRange(replicas) => {
                write!(f, "{replicas} replicas requested; 1 to {} are allowed", units::limits::MAX_COPIES)
            }
            Self::TooFewParents { level, wanted, available } => {
                write!(f, "nodes of level {level} can have {available} parents, but {wanted} replicas were requested")
            }
            Self::RootNotAbove { root } => write!(f, "the requested root, {root:?}, is not above every member"),
            Self::Unreachable(node) => {
                write!(f, "{node:?} cannot reach the tree without the switches and cables to avoid")
            }
        }
    }
}

impl std::error::Error for PlacementError {}
