//! Tree edges over UDP: frames between members and aggregation nodes, and results that come by multicast.

mod message_mac;
mod multicast_group;
pub mod timer_queue;
mod tree_edges;

pub use multicast_group::{MulticastRole, MulticastSocket, ReceivedMulticast};
pub use tree_edges::{ReadySockets, TreeEdge, TreeEdgeCounters, TreeEdgeEvent, TreeEdges};

use protocol::connection::{ConnectionPolicy, LossRecovery};
use units::Span;

/// How tree edges behave over UDP.
pub fn edge_policy() -> ConnectionPolicy {
    // A lone contribution that is lost is noticed by nobody but its sender, and its answer, the result, may rightly be
    // long in coming: so it is repeated soon, and then no oftener than a connection that waits for nothing.
    ConnectionPolicy {
        repair: LossRecovery::GoBackN,
        window: 256,
        timeout: Span::from_micros(5_000),
        ..ConnectionPolicy::datagram()
    }
}
