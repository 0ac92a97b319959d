//! Collectives among hosts alone: for comparison with aggregation, and for when there is none.
//!
//! In: one rank's contribution and the messages of its peers. Out: duties in a list that the driver lends. A [`CollectiveSchedule`]
//! says what a rank does in which round, computed when asked and never stored; a [`ScheduleExecutor`] plays it for one
//! operation; a [`FoldOrder`] prescribes the order of operands where the bits of a broken aggregation tree are wanted;
//! [`choose_method`] says which algorithm suits, and why. [`quadrics`] has barriers and broadcasts that rest on a multicast.
//! Rules: docs/protocol.md P-46 to P-49; claims SH-3 and SH-4.
//!
//! Reading order: `step` says what a round is made of; `recursive_exchange`, `rabenseifner`, `ring`, `knomial`, `dissemination` and
//! `ordered` describe rounds; `algorithm` strings them together; `schedule` gives a rank its part; `schedule_executor` plays it.

mod algorithm;
mod dissemination;
mod fold_order;
mod knomial;
mod ordered;
pub mod quadrics;
mod rabenseifner;
mod recursive_exchange;
mod ring;
mod schedule;
mod schedule_executor;
mod select;
mod step;
#[cfg(test)]
mod tests;
mod work_vector;

pub use algorithm::{CollectiveAlgorithm, CollectiveOperation};
pub use fold_order::{FoldOrder, FoldOrderError, FoldTreeNode};
pub use schedule::{CollectiveSchedule, MAX_RADIX, MAX_RANKS, ScheduleError};
pub use schedule_executor::{ScheduleAction, ScheduleExecutor, ScheduleExecutorCounters, ScheduleFailure};
pub use select::{
    AggregationAvailability, AggregationOffer, AggregationUnavailable, ChoiceReason, CollectiveParticipants,
    InterHostMethod, MethodChoice, MethodPreferences, MethodPreferencesError, MulticastSupport, OperandOrder,
    PreferredMethod, SelectionInput, TransportClass, TransportCosts, choose_method,
};
pub use step::{CombineMode, ReceiveStep, SendStep, VectorRange};
