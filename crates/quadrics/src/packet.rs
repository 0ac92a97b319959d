//! Packets: size, priority, closing of their circuits, and acknowledgements (QN-4 to QN-6).

use units::SimSpan;

use simulator::link_rate::ByteTime;

/// The most data of a transaction.
const TRANSACTION_BYTES: u32 = 64;
/// The most transactions of a packet.
const TRANSACTIONS: u32 = 5;
/// The most data of a packet.
pub const PACKET_BYTES: u32 = TRANSACTION_BYTES * TRANSACTIONS;
/// Routing, headers, CRCs and end token of a full packet.
const FULL_PACKET_OVERHEAD: u32 = 58;
/// The part of it that every packet has; the rest belongs to the transactions, eight bytes each.
const PACKET_OVERHEAD: u32 = FULL_PACKET_OVERHEAD - TRANSACTIONS * TRANSACTION_OVERHEAD;
const TRANSACTION_OVERHEAD: u32 = 8;

/// The priority of a packet; after [`QsnetParameters::ageing`] all waiting packets are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CircuitPriority {
    /// Bulk data.
    Low,
    /// Served first.
    High,
}

/// What releases the links of a circuit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CircuitClosing {
    /// The acknowledgement, as it passes: the end token follows the data directly.
    Acknowledgement,
    /// The end token, which the source sends after the acknowledgement: it carries the combined status to the destinations.
    EndToken,
}

/// The status that a destination, or all of them together, return. The worst wins (QN-6), hence the order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AckStatus {
    /// Complete.
    Success,
    /// Received, but a test failed.
    Failed,
    /// A CRC was wrong; the packet had no effect.
    NetworkError,
    /// The packet, or a part of a multicast, did not arrive; the source only knows that no status comes.
    Unanswered,
}

/// How the statuses of several destinations combine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckCombining {
    /// The worst wins: all must succeed (QN-6).
    Worst,
    /// The best wins: one success is enough, as for a flood (QN-10).
    Best,
}

impl AckCombining {
    /// Combines two statuses. A network error or a missing status always wins: what became of the packet is unknown.
    pub(crate) fn combine(self, a: AckStatus, b: AckStatus) -> AckStatus {
        match (self, a.max(b)) {
            (Self::Worst, worst) | (Self::Best, worst @ (AckStatus::NetworkError | AckStatus::Unanswered)) => worst,
            (Self::Best, _) => a.min(b),
        }
    }
}

/// The destination of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CircuitDestination {
    Node(u32),
    /// All nodes from the first to the last, by way of one of the roots.
    Range {
        first: u32,
        last: u32,
        root: u32,
    },
    /// The far end of one link, for packets that switches send.
    Link(super::quaternary_tree::TreeLink),
}

/// A packet that needs a circuit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CircuitPacket {
    pub(crate) from: u32,
    pub(crate) to: CircuitDestination,
    /// Bytes on the wire, including all overhead.
    pub(crate) bytes: u32,
    pub(crate) priority: CircuitPriority,
    pub(crate) closing: CircuitClosing,
    pub(crate) combining: AckCombining,
    /// The byte time of the memories at both ends, if it exceeds that of the link.
    pub(crate) slowest: Option<ByteTime>,
    /// How often it was sent before: among equally loaded ports, every attempt takes another one.
    pub(crate) attempt: u32,
    /// The sender's tag, returned in all callbacks.
    pub(crate) tag: u32,
}

/// Bytes on the wire for this much data, up to [`PACKET_BYTES`]; no data is one empty transaction.
pub const fn wire_bytes(data: u32) -> u32 {
    let transactions = if data == 0 { 1 } else { data.div_ceil(TRANSACTION_BYTES) };
    PACKET_OVERHEAD + transactions * TRANSACTION_OVERHEAD + data
}

/// The parameters of switches and cables.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct QsnetParameters {
    /// Dimensions of the tree.
    pub dimension: u32,
    /// The time of a byte on a link.
    pub byte_time: ByteTime,
    /// The delay from a switch's input to its output.
    pub switch_delay: SimSpan,
    /// The delay of a cable.
    pub wire: SimSpan,
    /// Virtual channels of a link, 1 to 4.
    pub channels: u32,
    /// A packet that has waited this long has high priority.
    pub ageing: SimSpan,
    /// How multicasts avoid deadlock.
    pub rule: MulticastRule,
    /// The probability that a link damages a packet; the CRC detects it, and the source retransmits the packet.
    pub damage: f64,
}

/// How multicasts avoid deadlock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MulticastRule {
    /// One multicast at a time at each root, and below the roots each root has its own virtual channel; so there may be as
    /// many roots as virtual channels. With one root this is the paper's rule.
    Serialised {
        /// The number of roots.
        roots: u32,
    },
    /// No rule: any number of multicasts at any root on any channel. They deadlock.
    Unrestricted {
        /// The number of roots.
        roots: u32,
    },
}

impl MulticastRule {
    /// The number of roots.
    pub const fn roots(self) -> u32 {
        match self {
            Self::Serialised { roots } | Self::Unrestricted { roots } => roots,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_packet_has_the_overhead_of_the_paper() {
        assert_eq!(wire_bytes(PACKET_BYTES), 378);
        assert_eq!((wire_bytes(0), wire_bytes(64), wire_bytes(65)), (26, 90, 99));
    }

    #[test]
    fn the_worst_status_wins() {
        let all = [AckStatus::Failed, AckStatus::NetworkError, AckStatus::Success];
        assert_eq!(all.into_iter().reduce(|a, b| AckCombining::Worst.combine(a, b)), Some(AckStatus::NetworkError));
        assert_eq!(AckCombining::Worst.combine(AckStatus::Success, AckStatus::Failed), AckStatus::Failed);
        assert_eq!(AckCombining::Best.combine(AckStatus::Success, AckStatus::Failed), AckStatus::Success);
        assert_eq!(AckCombining::Best.combine(AckStatus::Success, AckStatus::NetworkError), AckStatus::NetworkError);
    }
}
