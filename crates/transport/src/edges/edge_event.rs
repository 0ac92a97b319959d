//! What tree edges report and count.

use protocol::aggregation::AggregationMessage;
use protocol::connection::{Frame, FramePath};
use units::{GroupId, PathId, QpNumber};

/// What arrived over an edge, or changed about it.
#[derive(Debug)]
pub enum TreeEdgeEvent {
    /// A valid frame.
    Frame {
        /// The local number of the edge.
        edge: QpNumber,
        /// The path and migration state of its packet.
        frame_path: FramePath,
        /// The frame.
        frame: Frame<AggregationMessage>,
    },
    /// A valid multicast message of a group.
    Multicast {
        /// The group.
        group: GroupId,
        /// The message.
        message: AggregationMessage,
    },
    /// A damaged packet, most likely for this edge.
    Damage {
        /// The edge.
        edge: QpNumber,
    },
    /// The kernel reports that a path lost its link or its address.
    PathDown {
        /// The edge.
        edge: QpNumber,
        /// The path.
        path: PathId,
    },
    /// The kernel reports that the link or address of a path is back.
    PathUp {
        /// The edge.
        edge: QpNumber,
        /// The path.
        path: PathId,
    },
}

/// Packets of all edges, by what became of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TreeEdgeCounters {
    /// Packets passed to the kernel.
    pub sent: u64,
    /// Retransmissions among them.
    pub repeated: u64,
    /// Valid packets for a known edge.
    pub received: u64,
    /// Packets with a wrong ICRC.
    pub damaged: u64,
    /// Packets or messages that do not parse.
    pub malformed: u64,
    /// Packets for an unknown edge, or from an address that is no peer of it.
    pub foreign: u64,
    /// Messages with a wrong MAC.
    pub forged: u64,
    /// Send calls that the kernel rejected.
    pub unsent: u64,
    /// Outgoing packets in which a fault plan flipped bits.
    pub hurt_by_plan: u64,
    /// Outgoing packets that a fault plan dropped.
    pub lost_by_plan: u64,
}

/// Why a packet was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PacketDrop {
    Damaged,
    Malformed,
    Foreign,
    Forged,
}

impl TreeEdgeCounters {
    pub(super) fn note(&mut self, reason: PacketDrop) {
        let count = match reason {
            PacketDrop::Damaged => &mut self.damaged,
            PacketDrop::Malformed => &mut self.malformed,
            PacketDrop::Foreign => &mut self.foreign,
            PacketDrop::Forged => &mut self.forged,
        };
        *count += 1;
    }
}
