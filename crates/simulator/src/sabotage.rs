//! Deliberate defects of a run with several groups, for the tests that prove that the oracle catches them.

use std::rc::Rc;
use std::sync::Arc;

use protocol::Payload;
use protocol::aggregation::AggregationMessage;
use protocol::collective::FoldOrder;
use protocol::connection::Frame;
use protocol::sabotage::MachineSabotage;
use units::Rank;

use crate::collective::{CollectiveParameters, OperationFailure};
use crate::network::DeliveredPacket;
use crate::packet_body::PacketBody;
use crate::segmented::SegmentedParameters;

/// A defect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FabricSabotage {
    /// Every machine has it.
    Machine(MachineSabotage),
    /// Receivers check nothing: a damaged payload is used as it is.
    TrustDamagedPackets,
    /// Hosts that finish the operation of a failed tree do so in the order of ranks, not in that of the tree.
    ForgetTreeOrder,
    /// The first rank reports another cause of a failure than the others.
    DisagreeOnErrors,
}

impl FabricSabotage {
    fn of_machines(self) -> Option<MachineSabotage> {
        if let Self::Machine(sabotage) = self { Some(sabotage) } else { None }
    }

    pub(crate) fn of_tree(self, mut parameters: CollectiveParameters) -> CollectiveParameters {
        parameters.policy.sabotage = self.of_machines();
        parameters
    }

    pub(crate) fn of_hosts(self, mut parameters: SegmentedParameters) -> SegmentedParameters {
        parameters.policy.sabotage = self.of_machines();
        parameters
    }

    pub(crate) fn of_order(self, order: Option<Arc<FoldOrder>>) -> Option<Arc<FoldOrder>> {
        match order {
            Some(order) if self == Self::ForgetTreeOrder => FoldOrder::flat(order.size()).ok().map(Arc::new),
            order => order,
        }
    }

    pub(crate) fn of_failure(self, rank: Rank, cause: OperationFailure) -> OperationFailure {
        match cause {
            OperationFailure::Unreachable { from, to } if self == Self::DisagreeOnErrors && rank.0 == 0 => {
                OperationFailure::Unreachable { from: to, to: from }
            }
            cause => cause,
        }
    }

    /// What a receiver makes of a packet.
    pub(crate) fn of_arrival(self, arrival: DeliveredPacket) -> DeliveredPacket {
        if self != Self::TrustDamagedPackets || arrival.corruption.is_none() {
            return arrival;
        }
        let body = arrival.body.as_deref().map(trusted).map(Rc::new);
        DeliveredPacket { body, corruption: None, ..arrival }
    }
}

/// The body with a damaged payload and a checksum that matches it.
fn trusted(body: &PacketBody) -> PacketBody {
    match body.clone() {
        PacketBody::Edge { to, frame_path, frame: Frame::Data { psn, wants_ack, message } } => {
            PacketBody::Edge { to, frame_path, frame: Frame::Data { psn, wants_ack, message: damaged(&message) } }
        }
        PacketBody::Multicast { root, message } => PacketBody::Multicast { root, message: damaged(&message) },
        other => other,
    }
}

fn damaged(message: &AggregationMessage) -> AggregationMessage {
    let Some(bytes) = message.payload.bytes().filter(|bytes| !bytes.is_empty()) else { return message.clone() };
    let mut bytes = bytes.to_vec();
    bytes[0] ^= 1;
    AggregationMessage::new(message.header, Payload::Bytes(bytes.into()))
}
