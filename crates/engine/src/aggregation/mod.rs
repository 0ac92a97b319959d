//! Aggregation over UDP: drives the machines of `protocol::aggregation` over tree edges.
//!
//! [`TreeEdges`] carries the frames. [`NodeDataPlane`] is the data plane of an aggregation node: one machine per group.
//! [`Membership`] is the membership of a process in one group.

mod membership;
mod node_data_plane;
mod node_pace;
#[cfg(test)]
mod tests;

pub use membership::Membership;
pub use node_data_plane::NodeDataPlane;
pub use transport::edges::{
    MulticastRole, MulticastSocket, ReadySockets, ReceivedMulticast, TreeEdge, TreeEdgeCounters, TreeEdgeEvent,
    TreeEdges, edge_policy,
};

use units::Span;

/// A result that is overdue by this long is requested: the request reaches the missing members too, and reveals lost ones.
pub(crate) const RESULT_REQUEST_AFTER: Span = Span::from_micros(50_000);
/// The same for results by multicast, which may be lost.
pub(crate) const MULTICAST_RESULT_REQUEST_AFTER: Span = Span::from_micros(2_000);
