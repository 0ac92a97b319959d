//! Why something is not done. Every variant names who or what stands in the way, and its words say what to do.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What can run out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeResource {
    /// Groups at a node, or of a job.
    Groups,
    /// Operations in flight.
    Operations,
    /// Bytes of buffers.
    Bytes,
}

impl fmt::Display for NodeResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Groups => "groups",
            Self::Operations => "operations in flight",
            Self::Bytes => "bytes of buffers",
        })
    }
}

/// Why something is not done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlError {
    /// A node has too little left.
    NodeFull {
        /// The node.
        node: String,
        /// What it lacks.
        resource: NodeResource,
        /// So much would be needed.
        wanted: u64,
        /// So much is left.
        free: u64,
    },
    /// The job has used up its quota.
    QuotaFull {
        /// At this node; empty if it does not matter where.
        node: String,
        /// What it lacks.
        resource: NodeResource,
        /// So much would be needed.
        wanted: u64,
        /// So much is left.
        free: u64,
    },
    /// No node is there that may be used.
    NoNode,
    /// No node serves this host.
    NotServed {
        /// The host.
        host: String,
    },
    /// With fewer than two leaders there is nothing to fold.
    TooFewLeaders,
    /// A node failed to take its seat, or is lost.
    NodeFailed {
        /// The node.
        node: String,
        /// What happened.
        why: String,
    },
    /// The ticket is not the job's, or the job is not known.
    WrongTicket,
    /// No such group of this job.
    UnknownGroup,
    /// No such job.
    UnknownJob,
    /// A name that is in use by somebody who lives.
    NameTaken {
        /// The name.
        name: String,
    },
    /// More than the manager takes.
    TooMany {
        /// Of what.
        what: String,
        /// The limit.
        most: u64,
    },
    /// A request that makes no sense.
    Malformed {
        /// What is wrong.
        what: String,
    },
    /// The job was ended, or its group closed, before the answer.
    Withdrawn,
}

impl ControlError {
    pub(super) fn malformed(what: &str) -> Self {
        Self::Malformed { what: what.to_owned() }
    }

    /// The cause in a few words that are always the same, for counting.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::NodeFull { .. } => "node full",
            Self::QuotaFull { .. } => "quota full",
            Self::NoNode => "no node",
            Self::NotServed { .. } => "host not served",
            Self::TooFewLeaders => "too few hosts",
            Self::NodeFailed { .. } => "node failed",
            Self::WrongTicket => "wrong ticket",
            Self::UnknownGroup => "unknown group",
            Self::UnknownJob => "unknown job",
            Self::NameTaken { .. } => "name taken",
            Self::TooMany { .. } => "too many",
            Self::Malformed { .. } => "malformed",
            Self::Withdrawn => "withdrawn",
        }
    }

    pub(super) fn too_many(what: &str, most: usize) -> Self {
        Self::TooMany { what: what.to_owned(), most: most as u64 }
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeFull { node, resource, wanted, free } => write!(
                f,
                "node {node} has {free} {resource} left and {wanted} are needed; close groups, ask for a smaller \
                 window, or start the node with more"
            ),
            Self::QuotaFull { node, resource, wanted, free } => {
                write!(f, "the job's quota leaves {free} {resource}")?;
                if !node.is_empty() {
                    write!(f, " at node {node}")?;
                }
                write!(f, " and {wanted} are needed; close groups or open the job with a larger quota")
            }
            Self::NoNode => f.write_str("no aggregation node is registered that may be used; start `pleach node`"),
            Self::NotServed { host } => {
                write!(f, "no aggregation node serves host {host}; say so with `pleach node --serves`")
            }
            Self::TooFewLeaders => f.write_str("a group of fewer than two hosts has nothing to fold in the network"),
            Self::NodeFailed { node, why } => write!(f, "node {node} failed: {why}"),
            Self::WrongTicket => f.write_str("the ticket is not that of a job which is known here"),
            Self::UnknownGroup => f.write_str("the job has no such group"),
            Self::UnknownJob => f.write_str("there is no such job"),
            Self::NameTaken { name } => write!(f, "a living node is called {name} already; choose another --name"),
            Self::TooMany { what, most } => write!(f, "too many {what}: {most} at most"),
            Self::Malformed { what } => write!(f, "the request makes no sense: {what}"),
            Self::Withdrawn => f.write_str("it was withdrawn before it was done"),
        }
    }
}

impl std::error::Error for ControlError {}
