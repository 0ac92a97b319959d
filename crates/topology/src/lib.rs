//! The fabric as data: shapes, routes, aggregation trees, alternate paths.
//!
//! In: a few numbers (`XGFT(3;24,12,6;1,12,6)`) or the text of `ibnetdiscover`. Out: who is cabled
//! to whom, which port a packet leaves by, where aggregation nodes sit, and which path to arm as
//! the alternate. Everything is a pure function of its arguments. Regular shapes are formulas, so
//! a fabric of a million hosts costs a few hundred bytes and no routing table.
//!
//! Reading order: [`Fabric`], then [`place`] and [`AggregationTree`], then [`Path`].

#![forbid(unsafe_code)]

mod alternates;
mod bounds;
mod divisor;
mod dragonfly;
mod fabric;
mod grid;
mod imported;
mod parts;
mod tree;
mod ways;
mod xgft;
mod xgft_route;

pub use alternates::Path;
pub use bounds::{MAX_LEVELS, MAX_NODES, MAX_PORTS, ShapeError};
pub use dragonfly::DragonflyShape;
pub use fabric::{Fabric, Kind};
pub use imported::{ImportError, ImportProblem, MAX_IMPORTED_BYTES, MAX_IMPORTED_NODES, MAX_IMPORTED_SWITCHES};
pub use parts::{Cable, Endpoint, Hop, NodeId, PortIndex};
pub use tree::{
    AggregationTree, Avoid, Child, ChildNode, HostUplink, Members, PlaceError, TreeIndex, TreeNode, TreeRequest,
    Uplink, place,
};

pub use ways::Way;
