//! The manager's status, as `pleach top` and `pleach doctor` show it. It contains no keys.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::capacity::{Capacity, NodeReport, Quota};
use super::ids::{AggregationNodeId, GroupKey, JobId};
use super::job_history::JobTotals;

/// The whole status. Lists are cut to what fits into a message; totals cover everything.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct ManagerStatus {
    /// The version of Pleach that the manager runs.
    pub version: String,
    /// The nodes, by name.
    pub nodes: Vec<NodeStatus>,
    /// The jobs, by number.
    pub jobs: Vec<JobStatus>,
    /// The groups.
    pub groups: Vec<GroupStatus>,
    /// Trees over which the manager distributes groups, by the name of the root.
    pub trees: Vec<TreeStatus>,
    /// Operations folded in the network so far, as nodes reported them.
    pub operations: u64,
    /// Event counters, by name.
    pub counters: BTreeMap<String, u64>,
    /// Refused groups, by cause.
    pub refused: BTreeMap<String, u64>,
    /// Entries omitted because they did not fit.
    #[serde(rename = "left_out")]
    pub omitted: u64,
}

/// A node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Its number.
    pub node: AggregationNodeId,
    /// The version of Pleach that it runs.
    pub version: String,
    /// Whether it is usable.
    pub alive: bool,
    /// What it can hold.
    pub capacity: Capacity,
    /// What groups have reserved of it.
    pub reserved: Capacity,
    /// Its statistics.
    pub report: NodeReport,
    /// Nodes that may be its parent in a tree, as it or the operator's plan says.
    #[serde(default)]
    pub parents: Vec<String>,
}

/// A job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobStatus {
    /// Its number.
    pub job: JobId,
    /// Its name.
    pub name: String,
    /// Whether it is connected.
    pub attached: bool,
    /// What it may use.
    pub quota: Quota,
    /// Groups it has.
    pub groups: u32,
    /// Its totals so far.
    pub totals: JobTotals,
    /// The reason of its last refused group, if the history still has it.
    pub last_refusal: Option<String>,
}

/// A group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GroupStatus {
    /// The group.
    pub group: GroupKey,
    /// Its job.
    pub job: JobId,
    /// Its state.
    pub phase: GroupPhase,
    /// Number of leaders; zero if the group was recovered from its nodes.
    pub leaders: u32,
    /// Operations in flight at once.
    pub window: u32,
    /// Operations folded so far, as its nodes reported them.
    pub operations: u64,
    /// The nodes that serve it, root first.
    pub nodes: Vec<String>,
    /// For each of `nodes`, the position of the one above it; empty if the group was recovered from its nodes.
    #[serde(default)]
    pub parents: Vec<Option<u32>>,
}

/// The state of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupPhase {
    /// Nodes install their seats.
    Opening,
    /// Usable.
    Open,
    /// Nodes remove their seats.
    Closing,
}

/// A tree.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TreeStatus {
    /// The root node.
    pub root: String,
    /// Nodes in it.
    pub nodes: u32,
    /// Groups that have this root.
    pub groups: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pleach top` may be newer than the manager that it asks.
    #[test]
    fn a_status_without_the_newer_fields_is_read() {
        let text = r#"{ "version": "0.2.0", "trees": [], "operations": 0, "counters": {}, "refused": {}, "left_out": 0, "jobs": [],
            "nodes": [{ "name": "rack0", "node": 0, "version": "0.2.0", "alive": true,
                "capacity": { "seats": 1, "operations": 1, "bytes": 1 }, "reserved": { "seats": 0, "operations": 0, "bytes": 0 },
                "report": { "uptime_ms": 5, "operations": 7, "in_flight": 1, "bytes": 64, "sent": 9, "repeated": 2, "received": 8,
                    "migrations": 0, "dropped": {} } }],
            "groups": [{ "group": { "group": 3, "epoch": 1 }, "job": 1, "phase": "open", "leaders": 2, "window": 4, "operations": 7, "nodes": ["rack0"] }] }"#;
        let status: ManagerStatus = serde_json::from_str(text).expect("an older manager's status");
        assert!(status.nodes[0].parents.is_empty() && status.groups[0].parents.is_empty());
    }
}
