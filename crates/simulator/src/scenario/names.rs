//! The words that scenarios and reports use for choices, each with what it means.

use crate::collective::{Framing, LaneFeeds, Means, Pace, ReplicaSharing, ResendWidth, Task};
use crate::network::Forwarding;

use super::Check;

/// The word for a value.
///
/// # Panics
/// If the list leaves the value out: the lists below are complete.
pub fn word<T: Copy + PartialEq>(names: &[(&'static str, T)], value: T) -> &'static str {
    names.iter().find(|(_, meaning)| *meaning == value).expect("every value has a word").0
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
/// See [`Pace`].
pub const PACES: [(&str, Pace); 2] = [("drained", Pace::Drained), ("back-to-back", Pace::BackToBack)];
/// See [`Check`].
pub const CHECKS: [(&str, Check); 3] =
    [("bits", Check::Bits), ("delivery", Check::Delivery), ("nothing", Check::Nothing)];

/// The operations, each with its algorithms; the first is the one if none is named.
pub const TASKS: [(&str, &[(&str, Task)]); 3] = [
    ("allreduce", &[("aggregation", Task::AllReduce)]),
    (
        "broadcast",
        &[
            ("aggregation", Task::Broadcast(Means::Aggregation)),
            ("hbcast", Task::Broadcast(Means::Multicast)),
            ("multicast", Task::Broadcast(Means::Multicast)),
        ],
    ),
    (
        "barrier",
        &[
            ("aggregation", Task::Barrier(Means::Aggregation)),
            ("hgsync", Task::Barrier(Means::Multicast)),
            ("multicast", Task::Barrier(Means::Multicast)),
        ],
    ),
];

/// The words for an operation and its algorithm.
///
/// # Panics
/// If the list leaves the task out: it is complete.
pub fn task_words(task: Task) -> (&'static str, &'static str) {
    let words = TASKS.iter().find_map(|(operation, algorithms)| {
        let algorithm = algorithms.iter().find(|(_, meaning)| *meaning == task)?;
        Some((*operation, algorithm.0))
    });
    words.expect("every task has a word")
}
