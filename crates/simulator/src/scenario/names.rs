//! The names of choices in scenarios and reports.

use crate::collective::{
    CollectiveMethod, Framing, LaneFeeds, OperationPacing, ReplicaSharing, ResendWidth, SimulatedOperation,
};
use crate::network::Forwarding;

use super::ResultCheck;

/// The name of a value.
///
/// # Panics
/// If the list lacks the value: the lists below are complete.
pub fn word<T: Copy + PartialEq>(names: &[(&'static str, T)], value: T) -> &'static str {
    names.iter().find(|(_, meaning)| *meaning == value).expect("every value has a name").0
}

/// See [`Forwarding`].
pub const FORWARDINGS: [(&str, Forwarding); 2] =
    [("cut-through", Forwarding::CutThrough), ("store-and-forward", Forwarding::StoreAndForward)];
/// See [`Framing`].
pub const FRAMINGS: [(&str, Framing); 2] = [("full", Framing::Full), ("payload-only", Framing::PayloadOnly)];
/// See [`LaneFeeds`].
pub const LANE_FEEDS: [(&str, LaneFeeds); 2] =
    [("own-plane", LaneFeeds::OwnPlane), ("any-plane", LaneFeeds::AnyPlane)];
/// See [`ReplicaSharing`].
pub const SHARINGS: [(&str, ReplicaSharing); 2] =
    [("own-plane", ReplicaSharing::OwnPlane), ("above-level-one", ReplicaSharing::AboveLevelOne)];
/// See [`ResendWidth`].
pub const RESEND_WIDTHS: [(&str, ResendWidth); 2] = [("lane", ResendWidth::Lane), ("port", ResendWidth::Port)];
/// See [`OperationPacing`].
pub const PACINGS: [(&str, OperationPacing); 2] =
    [("drained", OperationPacing::Drained), ("back-to-back", OperationPacing::BackToBack)];
/// See [`ResultCheck`].
pub const CHECKS: [(&str, ResultCheck); 3] =
    [("bits", ResultCheck::Bits), ("delivery", ResultCheck::Delivery), ("nothing", ResultCheck::Nothing)];

/// The operations, each with its algorithms; the first algorithm is the default.
pub const OPERATIONS: [(&str, &[(&str, SimulatedOperation)]); 3] = [
    ("allreduce", &[("aggregation", SimulatedOperation::AllReduce)]),
    (
        "broadcast",
        &[
            ("aggregation", SimulatedOperation::Broadcast(CollectiveMethod::Aggregation)),
            ("hbcast", SimulatedOperation::Broadcast(CollectiveMethod::Multicast)),
            ("multicast", SimulatedOperation::Broadcast(CollectiveMethod::Multicast)),
        ],
    ),
    (
        "barrier",
        &[
            ("aggregation", SimulatedOperation::Barrier(CollectiveMethod::Aggregation)),
            ("hgsync", SimulatedOperation::Barrier(CollectiveMethod::Multicast)),
            ("multicast", SimulatedOperation::Barrier(CollectiveMethod::Multicast)),
        ],
    ),
];

/// The names of an operation and its algorithm.
///
/// # Panics
/// If the list lacks the operation: it is complete.
pub fn operation_names(task: SimulatedOperation) -> (&'static str, &'static str) {
    let words = OPERATIONS.iter().find_map(|(operation, algorithms)| {
        let algorithm = algorithms.iter().find(|(_, meaning)| *meaning == task)?;
        Some((*operation, algorithm.0))
    });
    words.expect("every operation has a name")
}
