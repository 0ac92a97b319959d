//! What the manager's driver must do, and what it should log.

use std::fmt;

use super::control_error::ControlError;
use super::message::{FromManager, GroupKey};
use super::{AggregationNodeId, JobId};

/// A connection to the manager, by a number that its driver never uses twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PeerId(pub u64);

/// Something that the driver must do.
#[derive(Clone, PartialEq, Debug)]
pub enum ManagerAction {
    /// Send this.
    Send {
        /// To whom.
        to: PeerId,
        /// What.
        message: Box<FromManager>,
    },
    /// Close the connection; its loss need not be told.
    Close(PeerId),
    /// Write this down.
    Log(ManagerEvent),
}

/// Something that an operator may want to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ManagerEvent {
    /// A node is there.
    NodeRegistered {
        /// Its name.
        name: String,
        /// Its number.
        node: AggregationNodeId,
    },
    /// A node is gone.
    NodeLost {
        /// Its name.
        name: String,
        /// How it was noticed.
        why: &'static str,
    },
    /// A job was admitted.
    JobOpened {
        /// Which.
        job: JobId,
        /// Its name.
        name: String,
    },
    /// A job is known again after it or the manager was away.
    JobAttached {
        /// Which.
        job: JobId,
    },
    /// A job has gone, with all its groups.
    JobClosed {
        /// Which.
        job: JobId,
        /// Why.
        why: String,
    },
    /// A group can be used.
    GroupOpened {
        /// Which.
        group: GroupKey,
        /// Whose.
        job: JobId,
        /// Its nodes, the root first.
        nodes: Vec<String>,
    },
    /// A group was learnt from a node that held it before this manager began.
    GroupRelearnt {
        /// Which.
        group: GroupKey,
        /// Whose.
        job: JobId,
    },
    /// A group was not opened.
    GroupRefused {
        /// Who asked.
        job: JobId,
        /// Why.
        refusal: ControlError,
    },
    /// A group is of no use any more.
    GroupRevoked {
        /// Which.
        group: GroupKey,
        /// Why.
        why: String,
    },
    /// A group's seats are all given up.
    GroupClosed {
        /// Which.
        group: GroupKey,
    },
    /// Somebody saw an error.
    Trouble {
        /// In which group.
        group: GroupKey,
        /// Who says so.
        from: String,
        /// What.
        what: String,
    },
    /// A message was refused.
    Refused {
        /// Why.
        refusal: ControlError,
    },
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.group, self.epoch)
    }
}

impl fmt::Display for ManagerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeRegistered { name, .. } => write!(f, "node {name} is there"),
            Self::NodeLost { name, why } => write!(f, "node {name} is lost: {why}"),
            Self::JobOpened { job, name } => write!(f, "{job} ({name}) is admitted"),
            Self::JobAttached { job } => write!(f, "{job} is back"),
            Self::JobClosed { job, why } => write!(f, "{job} is gone: {why}"),
            Self::GroupOpened { group, job, nodes } => write!(f, "{group} of {job} is open at {}", nodes.join(", ")),
            Self::GroupRelearnt { group, job } => write!(f, "{group} of {job} is known again"),
            Self::GroupRefused { job, refusal } => write!(f, "a group of {job} is refused: {refusal}"),
            Self::GroupRevoked { group, why } => write!(f, "{group} is revoked: {why}"),
            Self::GroupClosed { group } => write!(f, "{group} is closed"),
            Self::Trouble { group, from, what } => write!(f, "{from} has trouble in {group}: {what}"),
            Self::Refused { refusal } => write!(f, "refused: {refusal}"),
        }
    }
}
