//! The parameters of a messaging run: hosts, rails, costs and the commands of each rank.

use protocol::connection::ConnectionPolicy;
use protocol::connection::path::PathPolicy;
use protocol::messaging::{MessageSelector, MessagingSettings};
use topology::NodeId;
use units::{Rank, SimSpan, SimTime};

use crate::packet_body::PacketFraming;
use crate::queue_pair::LinkNotification;

/// The hosts, their connections and their commands.
#[derive(Clone, Debug)]
pub struct MessagingRunParameters {
    /// The hosts, one rank on each.
    pub hosts: Vec<NodeId>,
    /// Rails between each pair of hosts.
    pub rails: u8,
    /// Paths of each rail; the first of rail `r` is the `r`-th best route.
    pub paths: u8,
    /// The policy of the connections.
    pub policy: ConnectionPolicy,
    /// How their paths are probed.
    pub path_policy: PathPolicy,
    /// Largest payload of a packet.
    pub mtu: u32,
    /// Whether packets are InfiniBand's or datagrams, whose ICRC may be shortened.
    pub framing: PacketFraming,
    /// The settings of the messaging endpoints.
    pub settings: MessagingSettings,
    /// Whether hosts are notified about their own cables.
    pub notice: LinkNotification,
    /// The time of the processors to copy and to check; none for no time.
    pub costs: Option<MessagingCosts>,
    /// The commands, sorted by time.
    pub orders: Vec<MessagingCommand>,
}

/// The time of the processors. Each host has one, which does one task after another while the network runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessagingCosts {
    /// Picoseconds to copy a byte at either end, with its checksum if there is one.
    pub copy_ps_per_byte: u64,
    /// The time to post a packet.
    pub gap: SimSpan,
    /// The most bytes of a received packet that remain to be copied: the others were copied while they arrived.
    pub uncopied_bytes: usize,
    /// Picoseconds to read a byte in a separate pass over the message, before it is sent and after it is received.
    pub separate_pass_ps_per_byte: u64,
}

/// A command to a rank.
#[derive(Clone, Copy, Debug)]
pub struct MessagingCommand {
    /// The time.
    pub at: SimTime,
    /// The rank.
    pub rank: Rank,
    /// The operation.
    pub action: MessagingOperation,
}

/// The operation of a [`MessagingCommand`].
#[derive(Clone, Copy, Debug)]
pub enum MessagingOperation {
    /// Sends a message.
    Send {
        /// The receiver.
        to: Rank,
        /// The tag.
        tag: u64,
        /// Bytes of the message; its contents follow from the seed and the number of the command.
        length: usize,
        /// The corruption of the next packet with a body from this rank to `to`.
        corruption: CorruptionPoint,
    },
    /// Posts a receive.
    Receive {
        /// The messages to match.
        wanted: MessageSelector,
        /// Bytes of the buffer.
        room: usize,
    },
}

/// Where one bit of a packet flips, out of reach of the CRCs of the frames that carry it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CorruptionPoint {
    /// No corruption.
    None,
    /// On the way into the sender's adapter, before it computes the CRCs.
    BeforePacketCheck,
    /// In the receiver's memory, after the CRCs were checked.
    AfterPacketCheck,
}
