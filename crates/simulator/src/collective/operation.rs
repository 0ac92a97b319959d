//! What members do together: an allreduce, a broadcast or a barrier, through the nodes or by one who speaks to all (P-94 to
//! P-97).
//!
//! In: a rank, and what it has to say. Out: what it contributes, and in which manner.

use protocol::Payload;
use protocol::aggregation::{Contribution, ContributionRole, OperationMode, PollRole, ResultDisposition};
use reduce::{ElementType, Operator};
use units::{OpId, Rank, SegmentIndex};
use wire::aggregation::{ElementCode, OperatorCode};

use super::parameters::ContributionContents;

/// What members do together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SimulatedOperation {
    /// Everyone has the fold of what all brought.
    AllReduce,
    /// Everyone has what one brought; each member in turn, see [`SimulatedOperation::teller`].
    Broadcast(CollectiveMethod),
    /// Nobody goes on before all have come.
    Barrier(CollectiveMethod),
}

/// By which means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CollectiveMethod {
    /// The nodes fold what comes up and hand the result down.
    Aggregation,
    /// One speaks to all by multicast: a broadcast is cast (*hbcast*, P-94), a barrier tested (*hgsync*, P-97).
    Multicast,
}

impl SimulatedOperation {
    /// Who has something to say in a broadcast.
    pub const fn teller(op: OpId, ranks: u32) -> Rank {
        Rank(op.0 % ranks)
    }

    /// Whether members speak to all themselves.
    pub(super) const fn is_by_multicast(self) -> bool {
        matches!(self, Self::Broadcast(CollectiveMethod::Multicast) | Self::Barrier(CollectiveMethod::Multicast))
    }

    /// Whether operations are cast, so that a census is due now and then (P-95).
    pub(super) const fn is_cast(self) -> bool {
        matches!(self, Self::Broadcast(CollectiveMethod::Multicast))
    }

    /// Whether a rank's own bytes matter in an operation.
    pub(super) fn is_heard(self, rank: Rank, op: OpId, ranks: u32) -> bool {
        match self {
            Self::AllReduce => true,
            Self::Broadcast(_) => rank == Self::teller(op, ranks),
            Self::Barrier(_) => false,
        }
    }

    /// A rank's part; `own` is none if it has nothing to say.
    pub(super) fn part(
        self,
        rank: Rank,
        own: Option<Payload>,
        contents: &ContributionContents,
    ) -> (Contribution, OperationMode) {
        let manner = match self {
            Self::Broadcast(CollectiveMethod::Multicast) => OperationMode::Cast,
            Self::Barrier(CollectiveMethod::Multicast) => {
                OperationMode::Tested(if rank.0 == 0 { PollRole::Asks } else { PollRole::Answers })
            }
            _ => OperationMode::Folded,
        };
        let (kind, count) = match (self, contents) {
            (Self::AllReduce, ContributionContents::Real { kind, count }) => {
                ((kind.element().code(), kind.operator().code()), *count)
            }
            (Self::AllReduce, ContributionContents::SizeOnly { .. }) => ((0, 0), 0),
            // Bytes as they are; the others are silent, so nothing is ever folded.
            _ => {
                let bytes = own.as_ref().and_then(Payload::bytes).map_or(0, |bytes| bytes.len() as u16);
                ((ElementType::U8.code(), Operator::Or.code()), bytes)
            }
        };
        let voice = match (self, &own) {
            (Self::Broadcast(_), Some(_)) => ContributionRole::Sole,
            (Self::Broadcast(_), None) => ContributionRole::Silent,
            _ => ContributionRole::Plain,
        };
        let contribution = Contribution {
            element: ElementCode(kind.0),
            operator: OperatorCode(kind.1),
            element_count: count,
            voice,
            wish: ResultDisposition::Result,
            segment: SegmentIndex(0),
            payload: own.unwrap_or(Payload::EMPTY),
        };
        (contribution, manner)
    }
}

/// What everyone brings to a census (P-95).
pub(super) fn ack_barrier_contribution() -> Contribution {
    Contribution {
        element: ElementCode(ElementType::U8.code()),
        operator: OperatorCode(Operator::Or.code()),
        element_count: 0,
        voice: ContributionRole::Plain,
        wish: ResultDisposition::Result,
        segment: SegmentIndex(u32::MAX),
        payload: Payload::EMPTY,
    }
}
