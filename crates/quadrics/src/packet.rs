//! Packets: what they weigh, how urgent they are, how their circuits close, and what comes back (QN-4 to QN-6).

use units::SimSpan;

use simulator::link_rate::ByteTime;

/// Data of a transaction at most.
const TRANSACTION_BYTES: u32 = 64;
/// Transactions of a packet at most.
const TRANSACTIONS: u32 = 5;
/// Data of a packet at most.
pub const PACKET_BYTES: u32 = TRANSACTION_BYTES * TRANSACTIONS;
/// Routing, headers, codes and end token of a full packet.
const FULL_OVERHEAD: u32 = 58;
/// Of these, what a packet has whatever it carries; the rest goes with the transactions, eight bytes each.
const PACKET_OVERHEAD: u32 = FULL_OVERHEAD - TRANSACTIONS * TRANSACTION_OVERHEAD;
const TRANSACTION_OVERHEAD: u32 = 8;

/// How urgent; the ageing of [`QsnetParameters::ageing`] ends every difference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CircuitPriority {
    /// Bulk data.
    Low,
    /// Goes first where both wait.
    High,
}

/// Who lets the links of a circuit go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CircuitClosing {
    /// The acknowledgement, as it passes: the end token waits right behind the data.
    Acknowledgement,
    /// The end token, which the source sends once it knows the answer: it tells the destinations what all said.
    EndToken,
}

/// What a destination, or all of them together, say. The worst wins (QN-6), hence the order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AckStatus {
    /// Done.
    Success,
    /// Received well, but a test failed.
    Failed,
    /// A code was wrong; nothing has been done.
    NetworkError,
}

/// What the answers of several destinations make together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckCombining {
    /// The worst wins: all must succeed (QN-6).
    Worst,
    /// The best wins: one that succeeds will do, as for a flood (QN-10).
    Best,
}

impl AckCombining {
    /// Two answers as one. Damage always wins: who knows what it would have been.
    pub(crate) fn of(self, a: AckStatus, b: AckStatus) -> AckStatus {
        match (self, a.max(b)) {
            (Self::Worst, worst) | (Self::Best, worst @ AckStatus::NetworkError) => worst,
            (Self::Best, _) => a.min(b),
        }
    }
}

/// Who receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CircuitDestination {
    Node(u32),
    /// All nodes from the first to the last, by way of one of the roots.
    Range {
        first: u32,
        last: u32,
        root: u32,
    },
    /// Whatever is at the end of one link, for what switches say themselves.
    Link(super::quaternary_tree::TreeLink),
}

/// A packet that wants a circuit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CircuitPacket {
    pub(crate) from: u32,
    pub(crate) to: CircuitDestination,
    /// On the wire, all included.
    pub(crate) bytes: u32,
    pub(crate) priority: CircuitPriority,
    pub(crate) closing: CircuitClosing,
    pub(crate) combining: AckCombining,
    /// What the memories at both ends need for a byte, if that is more than the link does.
    pub(crate) slowest: Option<ByteTime>,
    /// The sender's own number for it.
    pub(crate) tag: u32,
}

/// Bytes on the wire for so much data, up to [`PACKET_BYTES`]; none is one transaction without data.
pub const fn wire_bytes(data: u32) -> u32 {
    let transactions = if data == 0 { 1 } else { data.div_ceil(TRANSACTION_BYTES) };
    PACKET_OVERHEAD + transactions * TRANSACTION_OVERHEAD + data
}

/// The switches and cables.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct QsnetParameters {
    /// Dimensions of the tree.
    pub dimension: u32,
    /// What a byte takes on a link.
    pub byte_time: ByteTime,
    /// From a switch's input to its output.
    pub switch_delay: SimSpan,
    /// From one end of a cable to the other.
    pub wire: SimSpan,
    /// Virtual channels of a link, 1 to 4.
    pub channels: u32,
    /// A packet that has waited so long counts as urgent.
    pub ageing: SimSpan,
    /// How multicasts keep out of each other's way.
    pub rule: MulticastRule,
    /// The chance that a link damages a packet; the codes find it, and the packet is sent again.
    pub damage: f64,
}

/// How multicasts keep out of each other's way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MulticastRule {
    /// One at a time at each root, and below the roots each has a virtual channel to itself; so there may be as many
    /// roots as virtual channels. With one root this is the paper's rule.
    Serialised {
        /// How many roots there are.
        roots: u32,
    },
    /// None: any number at any root takes any channel. They deadlock.
    Unruled {
        /// How many roots there are.
        roots: u32,
    },
}

impl MulticastRule {
    /// How many roots there are.
    pub const fn roots(self) -> u32 {
        match self {
            Self::Serialised { roots } | Self::Unruled { roots } => roots,
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
    fn the_worst_answer_wins() {
        let all = [AckStatus::Failed, AckStatus::NetworkError, AckStatus::Success];
        assert_eq!(all.into_iter().reduce(|a, b| AckCombining::Worst.of(a, b)), Some(AckStatus::NetworkError));
        assert_eq!(AckCombining::Worst.of(AckStatus::Success, AckStatus::Failed), AckStatus::Failed);
        assert_eq!(AckCombining::Best.of(AckStatus::Success, AckStatus::Failed), AckStatus::Success);
        assert_eq!(AckCombining::Best.of(AckStatus::Success, AckStatus::NetworkError), AckStatus::NetworkError);
    }
}
