//! How things are, for people: `pleach top` and `pleach doctor` show it. No keys.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::job_history::JobTotals;
use super::message::{Capacity, GroupKey, NodeReport, Quota};
use super::{AggregationNodeId, JobId};

/// Everything at once. Lists are cut to what a message can carry; the totals are not.
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
    /// Trees among which groups can be spread, by the name of the root.
    pub trees: Vec<TreeStatus>,
    /// Operations folded in the network so far, as nodes reported them.
    pub operations: u64,
    /// What happened so far, by name.
    pub counters: BTreeMap<String, u64>,
    /// Groups that were refused so far, by cause.
    pub refused: BTreeMap<String, u64>,
    /// Entries that did not fit.
    pub left_out: u64,
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
    /// Whether it is there.
    pub alive: bool,
    /// What it can hold.
    pub capacity: Capacity,
    /// What is reserved of it.
    pub reserved: Capacity,
    /// How it fares.
    pub report: NodeReport,
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
    /// What it had so far.
    pub totals: JobTotals,
    /// Why its last group was refused, if one was and it is remembered.
    pub last_refusal: Option<String>,
}

/// A group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Which.
    pub group: GroupKey,
    /// Whose.
    pub job: JobId,
    /// How far it is.
    pub phase: GroupPhase,
    /// Its leaders; zero if only its seats are known.
    pub leaders: u32,
    /// Operations in flight at once.
    pub window: u32,
    /// Operations folded so far, as its nodes reported them.
    pub operations: u64,
    /// The nodes that serve it, root first.
    pub nodes: Vec<String>,
}

/// How far a group is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupPhase {
    /// Seats are being taken.
    Opening,
    /// In use.
    Open,
    /// Seats are being given up.
    Closing,
}

/// A tree.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TreeStatus {
    /// The node at the top.
    pub root: String,
    /// Nodes in it.
    pub nodes: u32,
    /// Groups whose seats are in it.
    pub groups: u32,
}
