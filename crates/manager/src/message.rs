//! What manager, nodes and jobs say to each other. Plain values; how they travel is the driver's affair.
//!
//! A job asks with a number of its own choice and gets one answer under that number. A node registers, then takes
//! [`NodeCommand`]s from the manager and from the nodes above it, and answers each with one [`NodeReply`]. Rules: P-50 to P-59.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use units::{Epoch, GroupId};

use super::control_error::ControlError;
use super::group_spec::{GroupDescriptor, GroupRequest, SeatSpec};
use super::job_history::JobHistory;
use super::serde_ids;
use super::status::ManagerStatus;
use super::{AggregationNodeId, JobTicket};

/// Names a request among those of one connection; the answer carries it again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub u32);

/// What a job may use: at most so many groups, and at every single node at most so many operations and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Groups at a time.
    pub groups: u32,
    /// Operations in flight, of all its groups, at any one node.
    pub operations: u32,
    /// Bytes of buffers at any one node.
    pub bytes: u64,
}

/// What a node can hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// Groups at a time.
    pub seats: u32,
    /// Operations in flight, of all groups.
    pub operations: u32,
    /// Bytes of buffers.
    pub bytes: u64,
}

/// A node introduces itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeDescriptor {
    /// Its name; another node of the same name replaces it only after it is lost.
    pub name: String,
    /// Where packets of groups may be sent, one address per path.
    pub addresses: Vec<SocketAddr>,
    /// Where other nodes reach its control side.
    pub control: SocketAddr,
    /// The nodes above it, any of which may be its parent in a tree; none if the manager is to arrange it.
    pub parents: Vec<String>,
    /// The hosts that it serves: names, patterns with `*`, addresses or CIDR; none if the manager is to share them out.
    pub serves: Vec<String>,
    /// What it can hold.
    pub capacity: Capacity,
}

/// A seat that a node holds, as it tells a manager that may not know it (P-57).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeldSeat {
    /// The group.
    #[serde(with = "serde_ids::group")]
    pub group: GroupId,
    /// Its incarnation.
    #[serde(with = "serde_ids::epoch")]
    pub epoch: Epoch,
    /// The job, so that its re-attachment can be judged.
    pub ticket: JobTicket,
    /// What is reserved: operations.
    pub operations: u32,
    /// What is reserved: bytes.
    pub bytes: u64,
    /// The edges' numbers as runs: first number and length.
    pub edges: Vec<(u32, u32)>,
}

/// Names one incarnation of a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct GroupKey {
    /// The group.
    #[serde(with = "serde_ids::group")]
    pub group: GroupId,
    /// Its incarnation.
    #[serde(with = "serde_ids::epoch")]
    pub epoch: Epoch,
}

/// A seat that a node holds, and what it has done there. Travels as three numbers: a node may hold many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "(u32, u32, u64)", into = "(u32, u32, u64)")]
pub struct SeatHeartbeat {
    /// Of this group.
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

/// How a node fares, for people. Counts are since it began.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct NodeReport {
    /// How long it has been there: the difference of two reports is over the difference of these.
    pub uptime_ms: u64,
    /// Operations folded.
    pub operations: u64,
    /// Operations in flight now: some children have contributed, or all have and the result has not come down.
    pub in_flight: u32,
    /// Bytes of payload that are kept for them now.
    pub bytes: u64,
    /// Packets sent.
    pub sent: u64,
    /// Of them, packets sent again.
    pub repeated: u64,
    /// Sound packets received.
    pub received: u64,
    /// Connections that moved to another path.
    pub migrations: u64,
    /// Packets dropped, by cause.
    pub dropped: BTreeMap<String, u64>,
}

/// To the manager, from a job, a node or an operator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToManager {
    /// A job wants to be admitted.
    OpenJob {
        /// Answered with this number.
        request: RequestId,
        /// For people.
        name: String,
        /// What it wishes; the manager's default if none. Never more than the manager allows.
        quota: Option<Quota>,
    },
    /// A job comes back, after it or the manager was away (P-57).
    AttachJob {
        /// Answered with this number.
        request: RequestId,
        /// Who it is.
        ticket: JobTicket,
        /// For people.
        name: String,
        /// The quota it had.
        quota: Quota,
    },
    /// A job wants a group.
    OpenGroup {
        /// Answered with this number.
        request: RequestId,
        /// Who asks.
        ticket: JobTicket,
        /// What it wants.
        group: GroupRequest,
    },
    /// A job does not need a group any more.
    CloseGroup {
        /// Answered with this number.
        request: RequestId,
        /// Who asks.
        ticket: JobTicket,
        /// Which.
        group: GroupKey,
    },
    /// A job is done; its groups go with it.
    CloseJob {
        /// Answered with this number.
        request: RequestId,
        /// Who asks.
        ticket: JobTicket,
    },
    /// A job saw an error in a group that makes it useless (P-56). Not answered.
    JobTrouble {
        /// Who tells.
        ticket: JobTicket,
        /// Where.
        group: GroupKey,
        /// What, in words.
        what: String,
    },
    /// A node introduces itself. Answered with [`FromManager::Registered`].
    Register {
        /// Answered with this number.
        request: RequestId,
        /// The node.
        card: NodeDescriptor,
        /// The version of Pleach that it runs.
        version: String,
    },
    /// Seats that the node held when it registered, perhaps in several messages.
    Holding {
        /// Some of them.
        seats: Vec<HeldSeat>,
    },
    /// The node lives, holds these seats and fares so. Answered with [`FromManager::Heard`].
    Beat {
        /// All seats.
        seats: Vec<SeatHeartbeat>,
        /// How it fares.
        report: NodeReport,
    },
    /// A node saw an error in a group, such as a neighbour that does not answer.
    NodeTrouble {
        /// Where.
        group: GroupKey,
        /// What, in words.
        what: String,
    },
    /// A node's answer to an order.
    Answer(NodeReply),
    /// An operator asks how things are.
    Status {
        /// Answered with this number.
        request: RequestId,
    },
    /// An operator asks what became of a job.
    Explain {
        /// Answered with this number.
        request: RequestId,
        /// Its name, or the beginning of it up to a dash, or its number as 16 hexadecimal digits.
        job: String,
    },
    /// An operator ends a job.
    RevokeJob {
        /// Answered with this number.
        request: RequestId,
        /// Which.
        job: super::JobId,
        /// Why, for the job to hear.
        why: String,
    },
}

/// From the manager.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromManager {
    /// The job is admitted, or known again.
    JobOpened {
        /// The request's number.
        request: RequestId,
        /// To be shown with every request of the job.
        ticket: JobTicket,
        /// What it may use.
        quota: Quota,
    },
    /// Every seat of the group is taken: it can be used.
    GroupOpened {
        /// The request's number.
        request: RequestId,
        /// All that its leaders must know.
        group: GroupDescriptor,
    },
    /// Done.
    Closed {
        /// The request's number.
        request: RequestId,
    },
    /// Not done, and nothing has changed.
    Refused {
        /// The request's number.
        request: RequestId,
        /// Why.
        refusal: ControlError,
    },
    /// A group is of no use any more (P-56): open another.
    Revoked {
        /// Which.
        group: GroupKey,
        /// The lost node, if it was that.
        node: Option<String>,
        /// Why, in words.
        why: String,
    },
    /// The job is ended by the operator.
    JobRevoked {
        /// Which.
        job: super::JobId,
        /// Why, in words.
        why: String,
    },
    /// A node is known.
    Registered {
        /// The request's number.
        request: RequestId,
        /// The node's number, as its neighbours call it.
        node: AggregationNodeId,
        /// How often it must show that it lives.
        beat_ms: u32,
    },
    /// A beat was heard.
    Heard,
    /// Something that a node must do.
    Order(NodeCommand),
    /// How things are.
    Status {
        /// The request's number.
        request: RequestId,
        /// The report.
        status: ManagerStatus,
    },
    /// What became of the jobs of that name; empty if none is remembered.
    Explained {
        /// The request's number.
        request: RequestId,
        /// The newest first.
        accounts: Vec<JobHistory>,
    },
}

/// What a node must do, told by the manager or by the node above it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeCommand {
    /// Take this seat and have the seats below it taken.
    Install {
        /// The seat, with everything below.
        spec: SeatSpec,
        /// Whoever ordered it waits so long.
        budget_ms: u32,
    },
    /// Give up the seat.
    Remove {
        /// Of this group.
        group: GroupKey,
        /// What of the seats below.
        spread: RemovalScope,
        /// Whoever ordered it waits so long.
        budget_ms: u32,
    },
}

/// How far a removal goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemovalScope {
    /// The seats below are removed too.
    Below,
    /// Only this seat: the manager tells the others itself.
    Alone,
}

/// A node's answer to an order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeReply {
    /// The seat and all below it are taken.
    Installed {
        /// Of this group.
        group: GroupKey,
    },
    /// It could not be; whatever was taken has been given up again, except at these nodes, which did not answer.
    Refused {
        /// Of this group.
        group: GroupKey,
        /// Why.
        refusal: ControlError,
        /// Nodes that may still hold a seat.
        leftover: Vec<String>,
    },
    /// The seat is gone, and those below if they had to, except at these nodes, which did not answer.
    Removed {
        /// Of this group.
        group: GroupKey,
        /// Nodes that may still hold a seat.
        leftover: Vec<String>,
    },
}

impl NodeReply {
    /// The group that it is about.
    pub fn group(&self) -> GroupKey {
        match self {
            Self::Installed { group } | Self::Refused { group, .. } | Self::Removed { group, .. } => *group,
        }
    }
}
