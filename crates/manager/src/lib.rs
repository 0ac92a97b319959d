//! The control plane: who serves which group, and with what.
//!
//! In: messages of nodes, jobs and operators, the loss of their connections, time and entropy. Out: messages and events.
//! [`Manager`] is the manager's machine, [`Steward`] that of a node's control side; [`message`] is what they say.
//! Rules: docs/protocol.md P-50 to P-59; claims SH-2, SH-5, SH-6, SH-16.

pub mod account;
mod check;
mod choice;
mod duty;
mod groups;
mod jobs;
mod layout;
pub mod limits;
mod machine;
pub mod message;
mod name;
mod nodes;
mod numbers;
mod pattern;
mod placement;
mod plain;
mod plan;
mod refusal;
mod report;
mod spec;
pub mod status;
mod steward;
#[cfg(test)]
mod tests;

pub use duty::{Duty, Event, PeerId};
pub use machine::{Manager, Settings};
pub use name::{JobId, JobTicket, Key, NodeNumber};
pub use pattern::HostPattern;
pub use plan::{PlannedNode, TopologyPlan};
pub use refusal::{Refusal, Resource};
pub use spec::{
    Child, ChildSpec, Distribution, FoldTree, GroupOpened, GroupRequest, Leader, LeaderPlace, ParentSpec, SeatPlace,
    SeatSpec, reserved_bytes,
};
pub use steward::{Source, Steward, StewardDuty};
