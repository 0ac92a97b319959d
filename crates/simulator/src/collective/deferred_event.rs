//! Events that do not travel on a link: messages inside a switch, the passage of a unit's port, and the software of hosts.
//!
//! Every deferred event has a number, and the timer with that number handles it (`deferred_handling`).

use std::rc::Rc;

use protocol::Payload;
use protocol::aggregation::{AggregationMessage, EdgeIndex};
use protocol::connection::{Frame, OutgoingFrame};
use units::Rank;

use super::aggregation_unit::UnitPorts;
use crate::packet::ChannelId;
use crate::packet_body::{EdgeEnd, PacketBody, ParticipantIndex};

/// An event that does not travel on a link.
pub(super) enum DeferredEvent {
    /// A body reaches a machine without a link.
    WithoutLink { to: EdgeEnd, body: Rc<PacketBody> },
    /// The tail of a packet for a node would have passed an idle port.
    AtPort { node: ParticipantIndex, packet: IngressPacket },
    /// A packet has passed the port.
    Passed { packet: IngressPacket },
    /// A node's packet is ready to leave.
    ReadyToLeave { node: ParticipantIndex, egress: EgressMessage },
    /// A node's port is free, and packets wait there.
    PortFree { node: ParticipantIndex },
    /// A member enters the present operation late.
    LateEntry { rank: Rank, own: Option<Payload> },
    /// An event of a host's software.
    Host { rank: Rank, event: HostSoftwareEvent },
}

/// An event of a host's software.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HostSoftwareEvent {
    /// A segment has been posted.
    Posted,
    /// The processor can see a result.
    Visible,
    /// The processor has received the result.
    Taken,
}

/// A packet on its way to a node.
pub(super) struct IngressPacket {
    pub(super) channel: ChannelId,
    pub(super) bytes: u32,
    pub(super) body: Rc<PacketBody>,
}

/// A packet or multicast from a node.
pub(super) enum EgressMessage {
    /// A frame over an edge.
    Over { edge: EdgeIndex, outgoing: OutgoingFrame<AggregationMessage> },
    /// A multicast to the whole subtree.
    Down { message: AggregationMessage, copies: u8 },
}

/// The ports of all nodes.
pub(super) type AggregationUnitPorts = UnitPorts<IngressPacket, EgressMessage>;

impl EgressMessage {
    /// The message, if the packet carries one.
    pub(super) fn message(&self) -> Option<&AggregationMessage> {
        match self {
            Self::Over { outgoing: OutgoingFrame { frame: Frame::Data { message, .. }, .. }, .. } => Some(message),
            Self::Over { .. } => None,
            Self::Down { message, .. } => Some(message),
        }
    }
}
