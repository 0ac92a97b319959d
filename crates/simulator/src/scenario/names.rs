//! The names of choices in scenarios and reports.

use crate::collective::{
    CollectiveMethod, Framing, LaneFeeds, OperationPacing, ReplicaSharing, ResendWidth, SimulatedOperation,
};
use crate::network::Forwarding;
use crate::segmented::HostOperation;
use protocol::collective::CollectiveAlgorithm;

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

/// Algorithms that use the aggregation tree, by name.
type TreeAlgorithms = &'static [(&'static str, SimulatedOperation)];

/// The operations, each with the algorithms that use the aggregation tree; the first of them is the default.
pub const OPERATIONS: [(&str, HostOperation, TreeAlgorithms); 7] = [
    ("allreduce", HostOperation::AllReduce, &[("aggregation", SimulatedOperation::AllReduce)]),
    ("reduce", HostOperation::Reduce, &[]),
    (
        "broadcast",
        HostOperation::Broadcast,
        &[
            ("aggregation", SimulatedOperation::Broadcast(CollectiveMethod::Aggregation)),
            ("hbcast", SimulatedOperation::Broadcast(CollectiveMethod::Multicast)),
            ("multicast", SimulatedOperation::Broadcast(CollectiveMethod::Multicast)),
        ],
    ),
    (
        "barrier",
        HostOperation::Barrier,
        &[
            ("aggregation", SimulatedOperation::Barrier(CollectiveMethod::Aggregation)),
            ("hgsync", SimulatedOperation::Barrier(CollectiveMethod::Multicast)),
            ("multicast", SimulatedOperation::Barrier(CollectiveMethod::Multicast)),
        ],
    ),
    ("reduce-scatter", HostOperation::ReduceScatter, &[]),
    ("allgather", HostOperation::AllGather, &[]),
    ("alltoall", HostOperation::AllToAll, &[]),
];

/// A function from a radix to an algorithm; most have none and ignore it.
type AlgorithmOfRadix = fn(u16) -> CollectiveAlgorithm;

/// The algorithms among hosts.
pub const HOST_ALGORITHMS: [(&str, AlgorithmOfRadix); 10] = [
    ("ring", |_| CollectiveAlgorithm::Ring),
    ("rabenseifner", |_| CollectiveAlgorithm::Rabenseifner),
    ("recursive-doubling", |_| CollectiveAlgorithm::RecursiveDoubling),
    ("recursive-halving", |_| CollectiveAlgorithm::RecursiveHalving),
    ("recursive-k-ing", |radix| CollectiveAlgorithm::RecursiveKing { radix }),
    ("tree", |radix| CollectiveAlgorithm::Tree { radix }),
    ("chain", |_| CollectiveAlgorithm::Chain),
    ("scatter-allgather", |_| CollectiveAlgorithm::ScatterAllgather),
    ("dissemination", |radix| CollectiveAlgorithm::Dissemination { radix }),
    ("pairwise", |_| CollectiveAlgorithm::Direct),
];

/// The names of an operation and its algorithm.
///
/// # Panics
/// If the list lacks the operation: it is complete.
pub fn operation_names(task: SimulatedOperation) -> (&'static str, &'static str) {
    let words = OPERATIONS.iter().find_map(|(operation, _, algorithms)| {
        let algorithm = algorithms.iter().find(|(_, meaning)| *meaning == task)?;
        Some((*operation, algorithm.0))
    });
    words.expect("every operation has a name")
}

/// The names of an operation among hosts and its algorithm.
///
/// # Panics
/// If a list lacks one of them: they are complete.
pub fn host_operation_names(
    operation: HostOperation,
    algorithm: CollectiveAlgorithm,
) -> (&'static str, &'static str) {
    let name = OPERATIONS.iter().find(|(_, meaning, _)| *meaning == operation).expect("every operation has a name").0;
    let known = HOST_ALGORITHMS.iter().find(|(_, of_radix)| of_radix(algorithm.radix()) == algorithm);
    (name, known.expect("every algorithm without a prescribed order has a name").0)
}
