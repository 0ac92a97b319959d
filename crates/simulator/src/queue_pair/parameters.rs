//! The parameters of a run: connections, their paths, and the messages of each end.

use protocol::connection::ConnectionPolicy;
use protocol::connection::path::{MigrationRole, PathPolicy};
use topology::NodeId;
use units::{Psn, SimSpan, SimTime};

use super::program_step::HostProgram;

/// All connections of a run.
#[derive(Clone, Debug)]
pub struct QueuePairRunParameters {
    /// The connections.
    pub connections: Vec<ConnectionPlan>,
    /// Whether hosts are notified about their own cables.
    pub notice: LinkNotification,
    /// Programs of the hosts, in addition to the planned messages of the ends.
    pub programs: Vec<HostProgram>,
}

/// Whether a host is notified when one of its own cables goes down or comes up. It never is about cables between switches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkNotification {
    /// Immediately, by its adapter.
    Notified,
    /// Never: it must detect the change itself.
    Silent,
}

/// One connection.
#[derive(Clone, Debug)]
pub struct ConnectionPlan {
    /// Its two ends, on different hosts.
    pub ends: [ConnectionEndPlan; 2],
    /// The number of paths, on the most disjoint routes of the topology, best first.
    pub paths: u8,
    /// The policy of the connection.
    pub policy: ConnectionPolicy,
    /// How its paths are probed and chosen.
    pub path_policy: PathPolicy,
    /// Largest payload of a packet: a power of two, 256 to 4096 bytes.
    pub mtu: u32,
}

/// One end of a connection and its application.
#[derive(Clone, Debug)]
pub struct ConnectionEndPlan {
    /// The host.
    pub host: NodeId,
    /// Whether it follows when both ends migrate at once: one end does, the other does not.
    pub role: MigrationRole,
    /// The sequence number of its first packet.
    pub first_psn: Psn,
    /// The messages that it sends, in order.
    pub messages: Vec<MessagePlan>,
    /// Sends posted at once.
    pub sends_at_once: usize,
    /// Receives posted in advance; each used one is replaced.
    pub receives: u32,
    /// The delay before a used receive is replaced.
    pub repost_after: SimSpan,
}

/// A message without its contents, which follow from the seed of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessagePlan {
    /// The earliest time to post it.
    pub not_before: SimTime,
    /// Its length in bytes, at most [`MAX_MESSAGE_BYTES`].
    pub length: u32,
    /// The verb that sends it.
    pub kind: MessageVerb,
}

/// The longest message of a run.
pub const MAX_MESSAGE_BYTES: u32 = 1 << 20;

/// The verb that sends a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageVerb {
    /// A send.
    Send,
    /// A send whose immediate data is its number.
    NumberedSend,
    /// A write, with its number as immediate data.
    Write,
}
