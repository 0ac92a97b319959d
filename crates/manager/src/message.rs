//! Messages between manager, nodes and jobs. Plain values; the driver chooses the encoding.
//!
//! A job numbers its requests and gets one reply under each number. A node registers, then takes [`NodeCommand`]s from the
//! manager and from its parent nodes, and sends one [`NodeReply`] to each. Rules: P-76 to P-85. The names that travel are
//! fixed by protocol version 1; where a Rust name differs, serde renames it.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use units::{Epoch, GroupId};

use super::control_error::ControlError;
use super::group_spec::{GroupDescriptor, GroupRequest, SeatSpec};
use super::job_history::JobHistory;
use super::status::ManagerStatus;
use super::{AggregationNodeId, JobId, JobTicket, serde_ids};

pub use super::capacity::{Capacity, LateChild, NodeReport, Quota};
pub use super::ids::GroupKey;

/// Numbers a request among those of one connection; the reply carries the same number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub u32);

/// A node's registration data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeDescriptor {
    /// Its name. Another node may take the name only after this one is lost.
    pub name: String,
    /// Addresses for packets of groups, one per path.
    pub addresses: Vec<SocketAddr>,
    /// Address of its control listener, for other nodes.
    pub control: SocketAddr,
    /// Nodes that may be its parent in a tree; empty if the manager arranges the tree.
    pub parents: Vec<String>,
    /// Hosts that it serves: names, patterns with `*`, addresses or CIDR; empty if the manager assigns hosts.
    pub serves: Vec<String>,
    /// What it can hold.
    pub capacity: Capacity,
}

/// A seat that a node holds, as it reports it to a manager that may not know it (P-83).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeldSeat {
    /// The group.
    #[serde(with = "serde_ids::group")]
    pub group: GroupId,
    /// Its incarnation.
    #[serde(with = "serde_ids::epoch")]
    pub epoch: Epoch,
    /// The job's ticket, so that the manager can verify the job when it re-attaches.
    pub ticket: JobTicket,
    /// Reserved operations.
    pub operations: u32,
    /// Reserved bytes.
    pub bytes: u64,
    /// The edges' numbers as runs: first number and length.
    pub edges: Vec<(u32, u32)>,
}

/// A seat that a node holds, and the operations folded there. Encoded as three numbers, since a node may hold many seats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "(u32, u32, u64)", into = "(u32, u32, u64)")]
pub struct SeatHeartbeat {
    /// The seat's group.
    pub group: GroupKey,
    /// Operations folded so far.
    pub operations: u64,
}

impl From<(u32, u32, u64)> for SeatHeartbeat {
    fn from((group, epoch, operations): (u32, u32, u64)) -> Self {
        Self { group: GroupKey { group: GroupId(group), epoch: Epoch(epoch) }, operations }
    }
}

impl From<SeatHeartbeat> for (u32, u32, u64) {
    fn from(seat: SeatHeartbeat) -> Self {
        (seat.group.group.0, seat.group.epoch.0, seat.operations)
    }
}

/// A message to the manager, from a job, a node or an operator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToManager {
    /// A job asks for admission.
    OpenJob {
        /// Number of the request.
        request: RequestId,
        /// Name of the job, for operators.
        name: String,
        /// Requested quota, capped by the manager; the manager's default if `None`.
        quota: Option<Quota>,
    },
    /// A job re-attaches after it or the manager was disconnected (P-83).
    AttachJob {
        /// Number of the request.
        request: RequestId,
        /// The job's ticket.
        ticket: JobTicket,
        /// Name of the job, for operators.
        name: String,
        /// The quota that the manager had granted.
        quota: Quota,
    },
    /// A job asks for a group.
    OpenGroup {
        /// Number of the request.
        request: RequestId,
        /// The job's ticket.
        ticket: JobTicket,
        /// The group's members and size.
        group: GroupRequest,
    },
    /// A job releases a group.
    CloseGroup {
        /// Number of the request.
        request: RequestId,
        /// The job's ticket.
        ticket: JobTicket,
        /// The group.
        group: GroupKey,
    },
    /// A job ends; the manager closes its groups.
    CloseJob {
        /// Number of the request.
        request: RequestId,
        /// The job's ticket.
        ticket: JobTicket,
    },
    /// A job found an error that makes a group unusable (P-82). No reply.
    #[serde(rename = "job_trouble")]
    JobFailure {
        /// The job's ticket.
        ticket: JobTicket,
        /// The group.
        group: GroupKey,
        /// The error, as text.
        what: String,
    },
    /// A node registers. The reply is [`FromManager::Registered`].
    Register {
        /// Number of the request.
        request: RequestId,
        /// The node.
        #[serde(rename = "card")]
        node: NodeDescriptor,
        /// The version of Pleach that it runs.
        version: String,
    },
    /// Seats that the node held when it registered, perhaps in several messages.
    #[serde(rename = "holding")]
    HeldSeats {
        /// Some of them.
        seats: Vec<HeldSeat>,
    },
    /// The node is alive and holds these seats. The reply to one with a report is [`FromManager::HeartbeatAck`].
    #[serde(rename = "beat")]
    Heartbeat {
        /// All its seats.
        seats: Vec<SeatHeartbeat>,
        /// Its statistics, in as many heartbeats as [`FromManager::Registered`] says.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        report: Option<NodeReport>,
    },
    /// A node found an error in a group, such as a neighbour that does not answer.
    #[serde(rename = "node_trouble")]
    NodeFailure {
        /// The group.
        group: GroupKey,
        /// The error, as text.
        what: String,
    },
    /// A node's reply to a command.
    #[serde(rename = "answer")]
    Reply(NodeReply),
    /// An operator asks for the status.
    Status {
        /// Number of the request.
        request: RequestId,
    },
    /// An operator asks for the history of a job.
    #[serde(rename = "explain")]
    JobHistory {
        /// Number of the request.
        request: RequestId,
        /// The job's name, or its beginning up to a dash, or the job's number as 16 hexadecimal digits.
        job: String,
    },
    /// An operator ends a job.
    RevokeJob {
        /// Number of the request.
        request: RequestId,
        /// The job.
        job: JobId,
        /// The reason, which the manager passes on to the job.
        why: String,
    },
}

impl ToManager {
    /// The number of the request; zero if none is expected to be answered.
    pub(super) fn request(&self) -> RequestId {
        match self {
            Self::OpenJob { request, .. }
            | Self::AttachJob { request, .. }
            | Self::OpenGroup { request, .. }
            | Self::CloseGroup { request, .. }
            | Self::CloseJob { request, .. }
            | Self::Register { request, .. }
            | Self::Status { request }
            | Self::JobHistory { request, .. }
            | Self::RevokeJob { request, .. } => *request,
            Self::JobFailure { .. }
            | Self::HeldSeats { .. }
            | Self::Heartbeat { .. }
            | Self::NodeFailure { .. }
            | Self::Reply(_) => RequestId(0),
        }
    }
}

/// A message from the manager.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromManager {
    /// The job is admitted or re-attached.
    JobOpened {
        /// Number of the request.
        request: RequestId,
        /// The ticket that every request of the job must carry.
        ticket: JobTicket,
        /// The granted quota.
        quota: Quota,
    },
    /// Every seat of the group is installed: the group can be used.
    GroupOpened {
        /// Number of the request.
        request: RequestId,
        /// What the group's leaders need to know.
        group: GroupDescriptor,
    },
    /// The group or job is closed.
    Closed {
        /// Number of the request.
        request: RequestId,
    },
    /// The request failed and changed nothing.
    #[serde(rename = "refused")]
    Rejected {
        /// Number of the request.
        request: RequestId,
        /// The reason.
        #[serde(rename = "refusal")]
        error: ControlError,
    },
    /// A group is no longer usable (P-82): the job must open another.
    Revoked {
        /// The group.
        group: GroupKey,
        /// The lost node, if a lost node is the reason.
        node: Option<String>,
        /// The reason, as text.
        why: String,
    },
    /// The operator ended the job.
    JobRevoked {
        /// The job.
        job: JobId,
        /// The reason, as text.
        why: String,
    },
    /// The node is registered.
    Registered {
        /// Number of the request.
        request: RequestId,
        /// The node's number, as its neighbours use it.
        node: AggregationNodeId,
        /// Interval between heartbeats.
        #[serde(rename = "beat_ms")]
        heartbeat_ms: u32,
        /// One of so many heartbeats has a report, the first included. Managers of version 0.2.0 and before want one in each.
        #[serde(default = "in_each_heartbeat")]
        heartbeats_per_report: u32,
    },
    /// The manager received a heartbeat with a report.
    #[serde(rename = "heard")]
    HeartbeatAck,
    /// A command for a node.
    #[serde(rename = "order")]
    Command(NodeCommand),
    /// The status.
    Status {
        /// Number of the request.
        request: RequestId,
        /// The status.
        status: ManagerStatus,
    },
    /// The histories of all jobs of a name; empty if the manager knows none.
    #[serde(rename = "explained")]
    JobHistories {
        /// Number of the request.
        request: RequestId,
        /// The newest job first.
        #[serde(rename = "accounts")]
        histories: Vec<JobHistory>,
    },
}

fn in_each_heartbeat() -> u32 {
    1
}

/// What a node must do, from the manager or from its parent node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeCommand {
    /// Install this seat and have the seats below it installed.
    Install {
        /// The seat, with the whole subtree.
        spec: SeatSpec,
        /// How long the sender waits for the reply.
        budget_ms: u32,
    },
    /// Remove the seat.
    Remove {
        /// The seat's group.
        group: GroupKey,
        /// Whether the subtree goes too.
        #[serde(rename = "spread")]
        scope: RemovalScope,
        /// How long the sender waits for the reply.
        budget_ms: u32,
    },
}

/// How far a removal goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemovalScope {
    /// The seat and all seats below it.
    #[serde(rename = "below")]
    Subtree,
    /// Only this seat: the manager removes the others itself.
    #[serde(rename = "alone")]
    SeatOnly,
}

/// A node's reply to a command.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeReply {
    /// The seat and all seats below it are installed.
    Installed {
        /// The seat's group.
        group: GroupKey,
    },
    /// The installation failed. All seats of the subtree are removed again, except at the leftover nodes.
    #[serde(rename = "refused")]
    Rejected {
        /// The seat's group.
        group: GroupKey,
        /// The reason.
        #[serde(rename = "refusal")]
        error: ControlError,
        /// Nodes that did not answer and may still hold a seat.
        leftover: Vec<String>,
    },
    /// The seat is removed, with the subtree if the command includes it, except at the leftover nodes.
    Removed {
        /// The seat's group.
        group: GroupKey,
        /// Nodes that did not answer and may still hold a seat.
        leftover: Vec<String>,
    },
}

impl NodeReply {
    /// The group of the command.
    pub fn group(&self) -> GroupKey {
        match self {
            Self::Installed { group } | Self::Rejected { group, .. } | Self::Removed { group, .. } => *group,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upgrades go host by host: each side reads what the other said before reports were seldom.
    #[test]
    fn heartbeats_of_the_version_before_are_read() {
        let registered = r#"{"registered":{"request":1,"node":7,"beat_ms":500}}"#;
        let registered: FromManager = serde_json::from_str(registered).expect("an older manager's answer");
        assert!(matches!(registered, FromManager::Registered { heartbeats_per_report: 1, .. }), "{registered:?}");
        let report = serde_json::to_string(&NodeReport { operations: 3, ..NodeReport::default() }).expect("JSON");
        let beat = format!(r#"{{"beat":{{"seats":[[7,1,3]],"report":{report}}}}}"#);
        let beat: ToManager = serde_json::from_str(&beat).expect("an older node's heartbeat");
        let ToManager::Heartbeat { report: Some(report), .. } = beat else { panic!("{beat:?}") };
        assert_eq!(report.operations, 3);
        let short = serde_json::to_string(&ToManager::Heartbeat { seats: Vec::new(), report: None }).expect("JSON");
        assert_eq!(short, r#"{"beat":{"seats":[]}}"#);
    }
}
