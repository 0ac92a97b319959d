//! Aggregation in the real world: the machines of `protocol::aggregation` over UDP.
//!
//! [`TreeEdges`] carries the frames of tree edges. [`NodeDataPlane`] is the data plane of a node: one machine per group.
//! [`Membership`] is a process's place in one group. `circle.rs` is for results that come by multicast.

mod membership;
mod node_data_plane;
#[cfg(test)]
mod tests;

pub use membership::Membership;
pub use node_data_plane::NodeDataPlane;
pub use transport::edges::{
    MulticastRole, MulticastSocket, ReadySockets, ReceivedMulticast, TreeEdge, TreeEdgeCounters, TreeEdgeEvent,
    TreeEdges, edge_policy,
};

use units::Span;

/// A result that has not come after so long is asked for: whoever is missing is then asked too, and found out if lost.
pub(crate) const RESULT_REQUEST_AFTER: Span = Span::from_micros(50_000);
/// The same where it may have got lost.
pub(crate) const MULTICAST_RESULT_REQUEST_AFTER: Span = Span::from_micros(2_000);
