//! The state machines of the control plane: which nodes serve which group, and with what resources.
//!
//! In: messages of nodes, jobs and operators, lost connections, time and entropy. Out: messages and events.
//! [`Manager`] is the machine of the manager, [`NodeAgent`] that of a node; [`message`] defines their messages.
//! Rules: docs/protocol.md P-76 to P-85; claims SH-2, SH-5, SH-6, SH-16.

#![forbid(unsafe_code)]

mod action;
mod capacity;
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
mod records;
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

pub use action::{ManagerAction, ManagerEvent};
pub use control_error::{ControlError, NodeResource};
pub use group_spec::{
    ChildSpec, DistributionSpec, FoldTree, GroupDescriptor, GroupLeader, GroupRequest, LeaderAttachment, ParentSpec,
    SeatAddress, SeatChild, SeatSpec, reserved_bytes,
};
pub use host_pattern::HostPattern;
pub use ids::{AggregationNodeId, AuthKey, ControlPeer, CredentialId, JobId, JobTicket, PeerId};
pub use machine::{Manager, ManagerSettings};
pub use node_agent::{CommandSource, NodeAgent, NodeAgentAction};
pub use nodes::CONNECTION_BROKE;
pub use topology_plan::{PlannedNode, TopologyPlan};
