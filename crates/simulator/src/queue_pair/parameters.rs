//! What an exchange is made of: who talks to whom, over how many paths, and what each end says.

use protocol::connection::ConnectionPolicy;
use protocol::connection::path::{MigrationRole, PathPolicy};
use topology::NodeId;
use units::{Psn, SimSpan, SimTime};

use super::program::HostProgram;

/// All connections of an exchange.
#[derive(Clone, Debug)]
pub struct QueuePairRunParameters {
    /// The connections.
    pub connections: Vec<ConnectionPlan>,
    /// Whether hosts hear of their own cables.
    pub notice: LinkNotification,
    /// What hosts do besides what the ends of the connections say by themselves.
    pub programs: Vec<HostProgram>,
}

/// Whether a host hears when one of its own cables goes down or comes up again. Cables between switches are always silent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkNotification {
    /// At once, from its adapter.
    Noticed,
    /// Never: it must find out by itself.
    Silent,
}

/// One connection.
#[derive(Clone, Debug)]
pub struct ConnectionPlan {
    /// Its two ends, on different hosts.
    pub ends: [ConnectionEndPlan; 2],
    /// Paths: as many of the most disjoint ways that the topology knows, best first.
    pub paths: u8,
    /// How the connection behaves.
    pub policy: ConnectionPolicy,
    /// How its paths are watched and chosen.
    pub path_policy: PathPolicy,
    /// Most payload of a packet: a power of two, 256 to 4096 bytes.
    pub mtu: u32,
}

/// One end of a connection and its application.
#[derive(Clone, Debug)]
pub struct ConnectionEndPlan {
    /// Where it is.
    pub host: NodeId,
    /// Whether it follows when both ends move at once: one end does, the other does not.
    pub role: MigrationRole,
    /// The number of its first packet.
    pub first_psn: Psn,
    /// What it says, in this order.
    pub messages: Vec<MessagePlan>,
    /// How many sends it posts at once.
    pub sends_at_once: usize,
    /// How many receives it posts in advance; a new one for each that is used.
    pub receives: u32,
    /// How long it takes to post that.
    pub repost_after: SimSpan,
}

/// A message, without its contents: those follow from the exchange's seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessagePlan {
    /// Posted no earlier than this.
    pub not_before: SimTime,
    /// Its length in bytes, at most [`MAX_MESSAGE_BYTES`].
    pub length: u32,
    /// How it is sent.
    pub kind: MessageVerb,
}

/// The longest message of an exchange.
pub const MAX_MESSAGE_BYTES: u32 = 1 << 20;

/// How a message is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageVerb {
    /// A send.
    Send,
    /// A send whose immediate data is its number.
    NumberedSend,
    /// A write, with its number as immediate data.
    Write,
}
