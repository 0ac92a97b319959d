//! Collectives among hosts without aggregation nodes: for comparison, and where there are none.
//!
//! In: one rank's contribution and the messages of its peers. Out: actions in a list that the driver passes. A
//! [`CollectiveSchedule`] says what a rank sends and receives in each round; it is computed on demand and never
//! stored. A [`ScheduleExecutor`] runs it for one operation. A [`FoldOrder`] prescribes the order of operands, to
//! reproduce the bits of a broken aggregation tree. [`choose_method`] picks an algorithm and says why. [`quadrics`]
//! has barriers and broadcasts that use a multicast. Rules: docs/protocol.md P-55 to P-58, P-102; claims SH-3 and SH-4.
//!
//! Reading order: `step` defines a round, `block_layout` how a vector is divided among ranks; `recursive_exchange`, `rabenseifner`,
//! `ring`, `chain`, `knomial`, `dissemination`, `ordered`, `block_exchange`, `direct` and `prefix` are patterns of rounds; `algorithm`
//! combines them; `schedule` gives one rank's view; `schedule_executor` runs it, `streamed_schedule` runs it for long vectors.

mod algorithm;
mod block_exchange;
mod block_layout;
mod chain;
mod collective_operation;
mod compiled_rounds;
mod direct;
mod dissemination;
mod fold_order;
mod knomial;
mod ordered;
mod prefix;
pub mod quadrics;
mod rabenseifner;
mod recursive_exchange;
mod ring;
mod rounds;
mod schedule;
mod schedule_executor;
mod select;
mod step;
mod streamed_schedule;
#[cfg(test)]
mod tests;
mod work_vector;

pub use algorithm::CollectiveAlgorithm;
pub use block_layout::{BlockLayout, BlockLayoutError};
pub use collective_operation::{CollectiveOperation, ScanExtent, ScheduledCollective};
pub use fold_order::{FoldOrder, FoldOrderError, FoldTreeNode};
pub use schedule::{CollectiveSchedule, MAX_RADIX, ScheduleError};
pub use schedule_executor::{ScheduleAction, ScheduleExecutor, ScheduleExecutorCounters, ScheduleFailure};
pub use select::{
    AggregationAvailability, AggregationOffer, AggregationUnavailable, ChoiceReason, CollectiveParticipants,
    InterHostMethod, LONG_PROBE, MEASURED_BYTES, MEASURED_KIND, MeasuredTimes, MethodChoice, MethodPreferences,
    MethodPreferencesError, MethodTimes, MulticastSupport, NetworkProbe, OperandOrder, PreferredMethod, SHORT_PROBE,
    SelectionInput, TransportClass, TransportCosts, choose_method,
};
pub use step::{CombineMode, MAX_RANKS, ReceiveStep, SendStep, VectorRange};
pub use streamed_schedule::{RangeSource, StreamedReceive, StreamedSchedule, StreamedSend};
