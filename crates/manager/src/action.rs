//! What the manager asks of its driver, and the events that the driver logs.

use std::fmt;

use super::control_error::ControlError;
use super::message::{FromManager, GroupKey};
use super::{AggregationNodeId, JobId, PeerId};

/// What the driver must do next.
#[derive(Clone, PartialEq, Debug)]
pub enum ManagerAction {
    /// Send a message.
    Send {
        /// The connection.
        to: PeerId,
        /// The message.
        message: Box<FromManager>,
    },
    /// Close the connection. The driver need not report its loss.
    Close(PeerId),
    /// Log an event.
    Log(ManagerEvent),
}

/// An event for the operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ManagerEvent {
    /// A node registered.
    NodeRegistered {
        /// Its name.
        name: String,
        /// Its number.
        node: AggregationNodeId,
    },
    /// A node is lost.
    NodeLost {
        /// Its name.
        name: String,
        /// How the manager found out.
        why: String,
    },
    /// A job was admitted.
    JobOpened {
        /// The job.
        job: JobId,
        /// Its name.
        name: String,
    },
    /// A job re-attached after it or the manager was disconnected.
    JobAttached {
        /// The job.
        job: JobId,
    },
    /// A job ended, with all its groups.
    JobClosed {
        /// The job.
        job: JobId,
        /// The reason.
        why: String,
    },
    /// A group can be used.
    GroupOpened {
        /// The group.
        group: GroupKey,
        /// Its job.
        job: JobId,
        /// Its nodes, the root first.
        nodes: Vec<String>,
    },
    /// A node reported a group that it held before this manager started.
    GroupRecovered {
        /// The group.
        group: GroupKey,
        /// Its job.
        job: JobId,
    },
    /// A group was not opened.
    GroupRefused {
        /// The job that asked for it.
        job: JobId,
        /// The reason.
        error: ControlError,
    },
    /// A group is no longer usable.
    GroupRevoked {
        /// The group.
        group: GroupKey,
        /// The reason.
        why: String,
    },
    /// All seats of a group are removed.
    GroupClosed {
        /// The group.
        group: GroupKey,
    },
    /// A node or a job reported an error in a group.
    Failure {
        /// The group.
        group: GroupKey,
        /// The reporter.
        from: String,
        /// The error.
        what: String,
    },
    /// A request was rejected.
    RequestRejected {
        /// The reason.
        error: ControlError,
    },
}

impl fmt::Display for ManagerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeRegistered { name, .. } => write!(f, "node {name} registered"),
            Self::NodeLost { name, why } => write!(f, "node {name} is lost: {why}"),
            Self::JobOpened { job, name } => write!(f, "{job} ({name}) admitted"),
            Self::JobAttached { job } => write!(f, "{job} re-attached"),
            Self::JobClosed { job, why } => write!(f, "{job} ended: {why}"),
            Self::GroupOpened { group, job, nodes } => write!(f, "{group} of {job} opened at {}", nodes.join(", ")),
            Self::GroupRecovered { group, job } => write!(f, "{group} of {job} recovered from its nodes"),
            Self::GroupRefused { job, error } => write!(f, "{job}: group refused: {error}"),
            Self::GroupRevoked { group, why } => write!(f, "{group} revoked: {why}"),
            Self::GroupClosed { group } => write!(f, "{group} closed"),
            Self::Failure { group, from, what } => write!(f, "{group}: {from} reports a failure: {what}"),
            Self::RequestRejected { error } => write!(f, "request rejected: {error}"),
        }
    }
}
