//! Amounts that jobs may use, that nodes offer, and that nodes report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Limits of a job: groups in total, operations and bytes at every single node.
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

/// Limits of a node.
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

/// Statistics of a node. Counts start when its process starts.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct NodeReport {
    /// Age of the process: a rate is the difference of two counts over the difference of two uptimes.
    pub uptime_ms: u64,
    /// Operations folded.
    pub operations: u64,
    /// Operations in flight now: at least one child has contributed, and the result has not come down.
    pub in_flight: u32,
    /// Bytes of payload that the node holds for them now.
    pub bytes: u64,
    /// Packets sent.
    pub sent: u64,
    /// Of them, retransmissions.
    pub repeated: u64,
    /// Valid packets received.
    pub received: u64,
    /// Connections that migrated to another path.
    pub migrations: u64,
    /// Packets dropped, by cause.
    pub dropped: BTreeMap<String, u64>,
}
