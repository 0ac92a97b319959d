//! The defect that a run has on purpose, if any. Without the feature `sabotage` there is none, and everything passes unchanged.

use std::sync::Arc;

use protocol::collective::FoldOrder;
use units::Rank;

use crate::collective::{CollectiveParameters, OperationFailure};
use crate::network::DeliveredPacket;
use crate::segmented::SegmentedParameters;

/// What the machines of a run do wrong.
#[derive(Clone, Copy, Default)]
pub(super) struct RunDefect {
    #[cfg(feature = "sabotage")]
    pub(super) sabotage: Option<crate::sabotage::FabricSabotage>,
}

#[cfg(feature = "sabotage")]
impl RunDefect {
    pub(super) fn in_tree(self, parameters: CollectiveParameters) -> CollectiveParameters {
        match self.sabotage {
            Some(sabotage) => sabotage.of_tree(parameters),
            None => parameters,
        }
    }

    pub(super) fn in_hosts(self, parameters: SegmentedParameters) -> SegmentedParameters {
        match self.sabotage {
            Some(sabotage) => sabotage.of_hosts(parameters),
            None => parameters,
        }
    }

    pub(super) fn in_order(self, order: Option<Arc<FoldOrder>>) -> Option<Arc<FoldOrder>> {
        match self.sabotage {
            Some(sabotage) => sabotage.of_order(order),
            None => order,
        }
    }

    pub(super) fn in_failure(self, rank: Rank, cause: OperationFailure) -> OperationFailure {
        self.sabotage.map_or(cause, |sabotage| sabotage.of_failure(rank, cause))
    }

    pub(super) fn in_arrival(self, arrival: DeliveredPacket) -> DeliveredPacket {
        match self.sabotage {
            Some(sabotage) => sabotage.of_arrival(arrival),
            None => arrival,
        }
    }
}

#[cfg(not(feature = "sabotage"))]
impl RunDefect {
    pub(super) fn in_tree(self, parameters: CollectiveParameters) -> CollectiveParameters {
        parameters
    }

    pub(super) fn in_hosts(self, parameters: SegmentedParameters) -> SegmentedParameters {
        parameters
    }

    pub(super) fn in_order(self, order: Option<Arc<FoldOrder>>) -> Option<Arc<FoldOrder>> {
        order
    }

    pub(super) fn in_failure(self, _: Rank, cause: OperationFailure) -> OperationFailure {
        cause
    }

    pub(super) fn in_arrival(self, arrival: DeliveredPacket) -> DeliveredPacket {
        arrival
    }
}
