//! The words that scenarios and reports use for choices, each with what it means.

use crate::collective::{Framing, LaneFeeds, Pace, ReplicaSharing, ResendWidth};
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
