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
    /// Operations by the time from the first contribution to the result: entry `n` counts those below 2^n microseconds that no earlier
    /// entry has. Without zeros at the end. Nodes of version 0.2.0 and before report none.
    #[serde(default)]
    pub times: Vec<u64>,
    /// The children that kept operations waiting longest, the worst first.
    #[serde(default)]
    pub late: Vec<LateChild>,
}

impl NodeReport {
    /// A copy of the counters, without how long operations took and who was late.
    pub(super) fn without_paces(&self) -> Self {
        let Self { uptime_ms, operations, in_flight, bytes, sent, repeated, received, migrations, .. } = *self;
        let (dropped, times, late) = (self.dropped.clone(), Vec::new(), Vec::new());
        Self { uptime_ms, operations, in_flight, bytes, sent, repeated, received, migrations, dropped, times, late }
    }
}

/// A child of a node that contributed last to operations.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct LateChild {
    /// The host, or the node, as `node rack3`.
    pub name: String,
    /// Operations in which it was the last.
    pub times_last: u64,
    /// Of this many operations to which it contributed.
    pub operations: u64,
    /// The time from the first contribution to its own in these operations, in microseconds.
    pub waited_us: u64,
    /// The longest of these times.
    pub longest_us: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upgrades go host by host, so a manager reads reports of nodes that do not know its newer fields yet.
    #[test]
    fn a_report_without_the_newer_fields_is_read() {
        let text = r#"{ "uptime_ms": 5, "operations": 7, "in_flight": 1, "bytes": 64, "sent": 9, "repeated": 2, "received": 8,
            "migrations": 0, "dropped": { "damaged": 3 } }"#;
        let report: NodeReport = serde_json::from_str(text).expect("an older node's report");
        assert_eq!((report.operations, report.dropped["damaged"]), (7, 3));
        assert_eq!((report.times, report.late), (vec![], vec![]));
    }
}
