//! Errors of the control plane. Every variant names the node, host or limit that is the reason; the text says what to do.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A resource that can run out.
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

/// Why a request failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlError {
    /// A node has too little capacity left.
    NodeFull {
        /// The node.
        node: String,
        /// The exhausted resource.
        resource: NodeResource,
        /// The amount that the request needs.
        wanted: u64,
        /// The amount that is left.
        free: u64,
    },
    /// The job has used up its quota.
    QuotaFull {
        /// The node; empty if the limit holds for all nodes together.
        node: String,
        /// The exhausted resource.
        resource: NodeResource,
        /// The amount that the request needs.
        wanted: u64,
        /// The amount that is left.
        free: u64,
    },
    /// No usable node is registered.
    NoNode,
    /// No node serves this host.
    NotServed {
        /// The host.
        host: String,
    },
    /// A group needs at least two leaders.
    TooFewLeaders,
    /// A node failed to install its seat, or is lost.
    NodeFailed {
        /// The node.
        node: String,
        /// The failure.
        why: String,
    },
    /// The manager does not know the job, or the ticket's key is wrong.
    WrongTicket,
    /// The peer has a job's credential, which does not give this right.
    NotPermitted,
    /// The job has no such group.
    UnknownGroup,
    /// The manager has no such job.
    UnknownJob,
    /// Another live node has the name.
    NameTaken {
        /// The name.
        name: String,
    },
    /// A limit of the control plane is exceeded.
    TooMany {
        /// What is limited.
        what: String,
        /// The limit.
        most: u64,
    },
    /// An invalid request.
    Malformed {
        /// What is invalid.
        what: String,
    },
    /// The job ended, or closed the group, before the reply.
    Withdrawn,
}

impl ControlError {
    pub(super) fn malformed(what: &str) -> Self {
        Self::Malformed { what: what.to_owned() }
    }

    /// A constant label of the cause, for counters.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::NodeFull { .. } => "node full",
            Self::QuotaFull { .. } => "quota full",
            Self::NoNode => "no node",
            Self::NotServed { .. } => "host not served",
            Self::TooFewLeaders => "too few hosts",
            Self::NodeFailed { .. } => "node failed",
            Self::WrongTicket => "wrong ticket",
            Self::NotPermitted => "not permitted",
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
                "node {node} has {free} {resource} left and {wanted} are needed; close groups, request a smaller \
                 window, or start the node with more capacity"
            ),
            Self::QuotaFull { node, resource, wanted, free } => {
                write!(f, "the job's quota leaves {free} {resource}")?;
                if !node.is_empty() {
                    write!(f, " at node {node}")?;
                }
                write!(f, " and {wanted} are needed; close groups or open the job with a larger quota")
            }
            Self::NoNode => f.write_str("no usable aggregation node is registered; start `pleach node`"),
            Self::NotServed { host } => {
                write!(f, "no aggregation node serves host {host}; add it with `pleach node --serves`")
            }
            Self::TooFewLeaders => f.write_str("a group needs at least two hosts to use the network"),
            Self::NodeFailed { node, why } => write!(f, "node {node} failed: {why}"),
            Self::NotPermitted => f.write_str(
                "a job's credential does not give this right: set --secret-file or PLEACH_SECRET to the cluster's secret",
            ),
            Self::WrongTicket => f.write_str("the manager does not know this job, or the ticket's key is wrong"),
            Self::UnknownGroup => f.write_str("the job has no such group"),
            Self::UnknownJob => f.write_str("the manager has no such job"),
            Self::NameTaken { name } => write!(f, "another live node has the name {name}; choose another --name"),
            Self::TooMany { what, most } => write!(f, "too many {what}: {most} at most"),
            Self::Malformed { what } => write!(f, "invalid request: {what}"),
            Self::Withdrawn => f.write_str("the job ended or closed the group before it was open"),
        }
    }
}

impl std::error::Error for ControlError {}
