//! Collectives among hosts alone: for comparison with aggregation, and for when there is none.
//!
//! In: one rank's contribution and the messages of its peers. Out: duties in a list that the driver lends. A [`Plan`]
//! says what a rank does in which round, computed when asked and never stored; a [`Player`] plays it for one
//! operation; a [`FoldOrder`] prescribes the order of operands where the bits of a broken aggregation tree are wanted;
//! [`choose`] says which algorithm suits, and why. [`quadrics`] has barriers and broadcasts that rest on a multicast.
//! Rules: docs/protocol.md P-46 to P-49; claims SH-3 and SH-4.
//!
//! Reading order: `step` says what a round is made of; `recursive`, `halving`, `ring`, `knomial`, `dissemination` and
//! `ordered` describe rounds; `algorithm` strings them together; `plan` gives a rank its part; `player` plays it.

mod algorithm;
mod dissemination;
mod fold_order;
mod halving;
mod knomial;
mod ordered;
mod plan;
mod player;
pub mod quadrics;
mod recursive;
mod ring;
mod select;
mod step;
#[cfg(test)]
mod tests;
mod vector;

pub use algorithm::{Algorithm, Collective};
pub use fold_order::{Branch, FoldOrder, FoldOrderError};
pub use plan::{MAX_RADIX, MAX_RANKS, Plan, PlanError};
pub use player::{Duty, Failure, Player, PlayerCounters};
pub use select::{
    Aggregation, Choice, Costs, Method, Multicast, NotOffered, Offer, Operands, Party, Preferences, PreferencesError,
    Preferred, Reason, Situation, Transport, choose,
};
pub use step::{Apply, Part, ReceiveStep, SendStep};
