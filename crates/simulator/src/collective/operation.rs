//! The operations of a run: allreduce, broadcast or barrier, by aggregation or by multicast from a member (P-50 to P-53).
//!
//! In: a rank and its payload. Out: its contribution and the operation mode.

use protocol::Payload;
use protocol::aggregation::{Contribution, ContributionRole, OperationMode, PollRole, ResultDisposition};
use reduce::{ElementType, Operator};
use units::{OpId, Rank, SegmentIndex};
use wire::aggregation::{ElementCode, OperatorCode};

use super::parameters::ContributionContents;

/// An operation of all members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SimulatedOperation {
    /// Every member gets the reduction of all contributions.
    AllReduce,
    /// One member gets it, the others only its completion (P-49); the root changes as that of a broadcast does.
    Reduce,
    /// Every member gets the payload of one; the root changes with every operation, see [`SimulatedOperation::broadcast_root`].
    Broadcast(CollectiveMethod),
    /// No member continues before all have entered.
    Barrier(CollectiveMethod),
}

/// How an operation is carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CollectiveMethod {
    /// The nodes reduce contributions on the way up and send the result down.
    Aggregation,
    /// A member multicasts to all: for a broadcast the payload (*hbcast*, P-50), for a barrier a poll (*hgsync*, P-53).
    Multicast,
}

impl SimulatedOperation {
    /// The member whose payload a broadcast distributes.
    pub const fn broadcast_root(op: OpId, ranks: u32) -> Rank {
        Rank(op.0 % ranks)
    }

    /// Whether members send multicasts themselves.
    pub(super) const fn is_by_multicast(self) -> bool {
        matches!(self, Self::Broadcast(CollectiveMethod::Multicast) | Self::Barrier(CollectiveMethod::Multicast))
    }

    /// Whether broadcasts are multicast, so that an acknowledgement barrier is due now and then (P-51).
    pub(super) const fn is_multicast_broadcast(self) -> bool {
        matches!(self, Self::Broadcast(CollectiveMethod::Multicast))
    }

    /// Whether a rank's payload matters in an operation.
    pub(super) fn uses_payload_of(self, rank: Rank, op: OpId, ranks: u32) -> bool {
        match self {
            Self::AllReduce | Self::Reduce => true,
            Self::Broadcast(_) => rank == Self::broadcast_root(op, ranks),
            Self::Barrier(_) => false,
        }
    }

    /// The contribution of a rank and the operation mode; `own` is the rank's payload, if it has one.
    pub(super) fn contribution(
        self,
        rank: Rank,
        root: Rank,
        own: Option<Payload>,
        contents: &ContributionContents,
    ) -> (Contribution, OperationMode) {
        let manner = match self {
            Self::Broadcast(CollectiveMethod::Multicast) => OperationMode::Multicast,
            Self::Barrier(CollectiveMethod::Multicast) => {
                OperationMode::Polled(if rank.0 == 0 { PollRole::Poller } else { PollRole::Responder })
            }
            _ => OperationMode::Aggregated,
        };
        let (kind, count) = match (self, contents) {
            (Self::AllReduce | Self::Reduce, ContributionContents::Real { kind, .. }) => {
                let bytes = own.as_ref().map_or(0, Payload::len);
                ((kind.element().code(), kind.operator().code()), (bytes as usize / kind.element_size()) as u16)
            }
            (Self::AllReduce | Self::Reduce, ContributionContents::SizeOnly { .. }) => ((0, 0), 0),
            // Raw bytes; the other members contribute nothing, so nothing is ever reduced.
            _ => {
                let bytes = own.as_ref().and_then(Payload::bytes).map_or(0, |bytes| bytes.len() as u16);
                ((ElementType::U8.code(), Operator::Or.code()), bytes)
            }
        };
        let role = match (self, &own) {
            (Self::Broadcast(_), Some(_)) => ContributionRole::Sole,
            (Self::Broadcast(_), None) => ContributionRole::ReceiveOnly,
            _ => ContributionRole::Operand,
        };
        let disposition = if self == Self::Reduce && rank != root {
            ResultDisposition::CompletionOnly
        } else {
            ResultDisposition::Deliver
        };
        let contribution = Contribution {
            element: ElementCode(kind.0),
            operator: OperatorCode(kind.1),
            element_count: count,
            role,
            disposition,
            segment: SegmentIndex(0),
            payload: own.unwrap_or(Payload::EMPTY),
        };
        (contribution, manner)
    }
}

/// Every member's contribution to an acknowledgement barrier (P-51).
pub(super) fn ack_barrier_contribution() -> Contribution {
    Contribution {
        element: ElementCode(ElementType::U8.code()),
        operator: OperatorCode(Operator::Or.code()),
        element_count: 0,
        role: ContributionRole::Operand,
        disposition: ResultDisposition::Deliver,
        segment: SegmentIndex(u32::MAX),
        payload: Payload::EMPTY,
    }
}
