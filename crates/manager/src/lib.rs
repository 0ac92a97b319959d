//! The control plane: who serves which group, and with what.
//!
//! In: messages of nodes, jobs and operators, the loss of their connections, time and entropy. Out: messages and events.
//! [`Manager`] is the manager's machine, [`NodeAgent`] that of a node's control side; [`message`] is what they say.
//! Rules: docs/protocol.md P-50 to P-59; claims SH-2, SH-5, SH-6, SH-16.

mod action;
mod control_error;
mod edge_number_allocator;
mod group_spec;
mod groups;
mod host_pattern;
mod ids;
pub mod job_history;
mod jobs;
pub mod limits;
mod machine;
pub mod message;
mod node_agent;
mod nodes;
mod serde_ids;
pub mod status;
mod status_snapshot;
#[cfg(test)]
mod tests;
mod topology_plan;
mod tree_layout;
mod tree_placement;
mod tree_selection;
mod validate;

pub use action::{ManagerAction, ManagerEvent, PeerId};
pub use control_error::{ControlError, NodeResource};
pub use group_spec::{
    ChildSpec, DistributionSpec, FoldTree, GroupDescriptor, GroupLeader, GroupRequest, LeaderAttachment, ParentSpec,
    SeatAddress, SeatChild, SeatSpec, reserved_bytes,
};
pub use host_pattern::HostPattern;
pub use ids::{AggregationNodeId, AuthKey, JobId, JobTicket};
pub use machine::{Manager, ManagerSettings};
pub use node_agent::{CommandSource, NodeAgent, NodeAgentAction};
pub use topology_plan::{PlannedNode, TopologyPlan};
