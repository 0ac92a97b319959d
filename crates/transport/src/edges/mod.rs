//! Tree edges over UDP: frames between members and aggregation nodes, results by multicast, and bulk transfers.

mod edge_event;
mod message_codec;
mod multicast_group;
mod peer_responses;
mod ready_sockets;
mod transfer_packets;
mod tree_edges;

pub use crate::macs::{EdgeSide, KeyedMacs};
pub use edge_event::{TreeEdgeCounters, TreeEdgeEvent};
pub use multicast_group::{MulticastRole, MulticastSocket, ReceivedMulticast};
pub use ready_sockets::ReadySockets;
pub use transfer_packets::{NoTransfers, TransferPackets, TransferSink, UnverifiedPart};
pub use tree_edges::{TreeEdge, TreeEdges};

use protocol::connection::{ConnectionPolicy, CopyPolicy, LossRecovery};
use units::Span;

/// The connection policy of tree edges over UDP.
pub fn edge_policy() -> ConnectionPolicy {
    // Only the sender notices that a lone contribution is lost, and its reply, the result, may legitimately take long.
    // So the sender repeats it soon, and then no more often than a connection with nothing to wait for.
    ConnectionPolicy {
        loss_recovery: LossRecovery::GoBackN,
        // The repair of a damaged packet takes a round trip, which is as long as a whole short operation.
        replication: CopyPolicy::Measured,
        window: 256,
        timeout: Span::from_micros(5_000),
        ..ConnectionPolicy::datagram()
    }
}
