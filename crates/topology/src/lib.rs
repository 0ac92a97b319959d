//! The fabric as data: shapes, routes, aggregation trees, alternate paths.
//!
//! In: a few numbers (`XGFT(3;24,12,6;1,12,6)`) or the text of `ibnetdiscover`. Out: the cables, the
//! next port of a packet, the placement of aggregation nodes, and the path to arm as the alternate.
//! Everything is a pure function of its arguments. Regular shapes are formulas, so a fabric of a
//! million hosts takes a few hundred bytes and no routing table.
//!
//! Reading order: [`Fabric`], then [`place_tree`] and [`AggregationTree`], then [`DisjointPath`].

#![forbid(unsafe_code)]

mod alternate_paths;
mod bounds;
mod disjoint_paths;
mod divisor;
mod dragonfly;
mod fabric;
mod grid;
mod host_list;
mod imported;
mod parts;
mod tree;
mod xgft;
mod xgft_route;

pub use alternate_paths::DisjointPath;
pub use bounds::{MAX_LEVELS, MAX_NODES, MAX_PORTS, ShapeError};
pub use dragonfly::DragonflyShape;
pub use fabric::{Fabric, FabricKind};
pub use host_list::{MAX_LISTED_HOSTS, expand_host_list};
pub use imported::{ImportError, ImportProblem, MAX_IMPORTED_BYTES, MAX_IMPORTED_NODES, MAX_IMPORTED_SWITCHES};
pub use parts::{Cable, FabricPort, NextHop, NodeId, NodePort};
pub use tree::{
    AggregationTree, ChildNode, Downlink, HostUplink, PlacementError, TreeExclusions, TreeIndex, TreeMembers,
    TreeNode, TreeRequest, Uplink, place_tree,
};

pub use disjoint_paths::FlowPath;
