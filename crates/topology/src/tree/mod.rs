//! Aggregation trees: which switches fold which operands, and where they send the result.
//!
//! In: a fabric and a [`TreeRequest`]. Out: an [`AggregationTree`], children before parents.
//! Rules: every uplink is one cable, or an edge inside one switch. Children are ordered (hosts by
//! number, then nodes by their first host), so the order of folding is fixed. From any root going
//! down, every member is reached by exactly one path, also with replication (claim SE-7).

mod builder;
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

/// What tree is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeRequest {
    /// The hosts that take part.
    pub members: TreeMembers,
    /// Copies of every result on its way up; 1 is a plain tree (claim SE-7). In a fat tree, every
    /// node below the roots has so many parents on different ports. Elsewhere there are so many
    /// trees with different roots, which share the nodes that fold hosts and, where they can, no cable.
    pub replicas: u8,
    /// Most children of a node. A node with more is split into several on the same switch.
    pub radix_limit: Option<u16>,
    /// The switch that shall be the (first) root.
    pub root: Option<NodeId>,
    /// What the tree must not touch.
    pub avoid: TreeExclusions,
}

/// The hosts that take part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TreeMembers {
    /// Every host of the fabric.
    All,
    /// These hosts; order and repetition do not matter.
    Listed(Vec<NodeId>),
}

/// What a tree must not touch, because it is broken or busy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TreeExclusions {
    /// Switches without aggregation nodes.
    pub nodes: Vec<NodeId>,
    /// Cables without tree traffic.
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
    /// Whose operands it folds, in this order.
    pub children: Vec<Downlink>,
}

/// The way from a node to one of its parents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Uplink {
    /// The parent.
    pub parent: TreeIndex,
    /// The port to it; none if the parent sits on the same switch.
    pub port: Option<FabricPort>,
    /// What the parent calls this node: its position in the parent's `children`.
    pub child: ChildIndex,
}

/// The way from a node to one of its children.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Downlink {
    /// The child.
    pub who: ChildNode,
    /// The port to it; none if the child sits on the same switch.
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

/// The way from a member's host into the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostUplink {
    /// The host.
    pub host: NodeId,
    /// Where it sends its operand; the port is the host's.
    pub uplink: Uplink,
}

/// Why no tree could be placed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlacementError {
    /// There are no members.
    NoMembers,
    /// A listed member is not a host of the fabric.
    NotAHost(NodeId),
    /// The wanted root is not a switch of the fabric.
    NotASwitch(NodeId),
    /// A member is on the list of nodes to avoid.
    MemberAvoided(NodeId),
    /// The limit of children is below two, with which no tree can be built.
    RadixTooSmall(u16),
    /// Replicas must lie between 1 and [`units::limits::MAX_COPIES`].
    ReplicasOutOfRange(u8),
    /// A level has too few usable up ports, or the fabric too few switches, for so many parents.
    TooFewParents {
        /// The level of the nodes that lack parents.
        level: u8,
        /// The replicas asked for.
        wanted: u8,
        /// How many parents they can have.
        available: u32,
    },
    /// The wanted root is not above every member of a fat tree, or only by what is to be avoided.
    RootNotAbove {
        /// The root.
        root: NodeId,
    },
    /// What is to be avoided leaves no way from this member to the others.
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

    /// A number for what each node folds: nodes that fold the same hosts in the same order and brackets share one.
    pub fn shapes(&self) -> Vec<u32> {
        let mut known: BTreeMap<Vec<(bool, u32)>, u32> = BTreeMap::new();
        let mut shapes: Vec<u32> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let children = node.children.iter().map(|child| match child.who {
                ChildNode::Host(host) => (true, host.0),
                ChildNode::Node(below) => (false, shapes[below.index()]),
            });
            let next = known.len() as u32;
            shapes.push(*known.entry(children.collect()).or_insert(next));
        }
        shapes
    }

    /// True if every root folds the members in the same order and brackets. If not, a result that depends on the
    /// order (a sum of floats) depends on which root made it.
    pub fn roots_fold_alike(&self) -> bool {
        let shapes = self.shapes();
        let mut roots = self.roots().map(|root| shapes[root.index()]);
        let first = roots.next();
        roots.all(|shape| Some(shape) == first)
    }

    /// How every member's host reaches the tree, ordered by host. A host with several ports may
    /// appear several times, once for each copy it sends.
    pub fn host_uplinks(&self, fabric: &Fabric) -> Vec<HostUplink> {
        let mut uplinks = Vec::new();
        for (parent, node) in (0..).map(TreeIndex).zip(&self.nodes) {
            for (position, child) in node.children.iter().enumerate() {
                if let ChildNode::Host(host) = child.who {
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
            Self::MemberAvoided(node) => write!(f, "{node:?} is a member and also to be avoided"),
            Self::RadixTooSmall(limit) => {
                write!(f, "a limit of {limit} children builds no tree; at least 2 are needed")
            }
            Self::ReplicasOutOfRange(replicas) => {
                write!(f, "{replicas} replicas asked for; 1 to {} are allowed", units::limits::MAX_COPIES)
            }
            Self::TooFewParents { level, wanted, available } => {
                write!(f, "nodes of level {level} can have {available} parents, but {wanted} replicas were asked for")
            }
            Self::RootNotAbove { root } => write!(f, "the wanted root, {root:?}, is not above every member"),
            Self::Unreachable(node) => {
                write!(f, "{node:?} cannot reach the tree without what is to be avoided")
            }
        }
    }
}

impl std::error::Error for PlacementError {}
