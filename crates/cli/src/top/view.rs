//! The view: the manager's status with rates. Field names are part of the JSON format.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use manager::status::{GroupPhase, ManagerStatus, NodeStatus, TreeStatus};
use serde::Serialize;

use super::rate_meter::RateMeter;

#[derive(Serialize)]
pub(super) struct TopView {
    pub manager: SocketAddr,
    pub version: String,
    /// Operations of all groups.
    pub operations: u64,
    pub operations_per_second: Option<f64>,
    pub jobs: Vec<JobRow>,
    pub groups: Vec<GroupRow>,
    pub trees: Vec<TreeStatus>,
    pub nodes: Vec<NodeRow>,
    /// Errors so far, by cause.
    pub errors: BTreeMap<String, u64>,
    /// Nodes, jobs, groups and trees that the manager omitted from its answer.
    pub left_out: u64,
}

#[derive(Serialize)]
pub(super) struct JobRow {
    pub job: String,
    pub name: String,
    pub attached: bool,
    pub groups: u32,
    pub operations: u64,
    pub operations_per_second: Option<f64>,
    pub refused: u64,
    pub revoked: u64,
    pub last_refusal: Option<String>,
}

#[derive(Serialize)]
pub(super) struct GroupRow {
    pub group: u32,
    pub epoch: u32,
    pub job: String,
    pub phase: GroupPhase,
    pub leaders: u32,
    pub window: u32,
    /// The root first.
    pub nodes: Vec<String>,
    pub operations: u64,
    pub operations_per_second: Option<f64>,
}

#[derive(Serialize)]
pub(super) struct NodeRow {
    pub name: String,
    pub alive: bool,
    pub version: String,
    pub seats: u32,
    pub most_seats: u32,
    pub in_flight: u32,
    pub payload_bytes: u64,
    pub operations: u64,
    pub operations_per_second: Option<f64>,
    pub packets_per_second: Option<f64>,
    pub sent: u64,
    pub received: u64,
    pub repeated: u64,
    pub migrations: u64,
    pub dropped: BTreeMap<String, u64>,
}

/// Counters of the manager that are not errors.
const NOT_ERRORS: [&str; 6] = [
    "connections closed by peers",
    "groups closed",
    "groups opened",
    "groups refused",
    "jobs admitted",
    "nodes registered",
];

impl TopView {
    pub(super) fn new(manager: SocketAddr, status: ManagerStatus, meter: &mut RateMeter) -> Self {
        let uptimes: BTreeMap<&str, u64> =
            status.nodes.iter().map(|node| (node.name.as_str(), node.report.uptime_ms)).collect();
        let mut groups: Vec<GroupRow> = Vec::with_capacity(status.groups.len());
        for group in &status.groups {
            let (number, epoch) = (group.group.group.0, group.group.epoch.0);
            // The root counts the group's operations by its own clock.
            let at = group.nodes.first().and_then(|root| uptimes.get(root.as_str()).copied());
            let name = format!("group {number} {epoch}");
            groups.push(GroupRow {
                group: number,
                epoch,
                job: id(group.job.0),
                phase: group.phase,
                leaders: group.leaders,
                window: group.window,
                nodes: group.nodes.clone(),
                operations: group.operations,
                operations_per_second: at.and_then(|at| meter.rate(name, at, group.operations)),
            });
        }
        let mut of_job: BTreeMap<&str, Option<f64>> = BTreeMap::new();
        for group in &groups {
            let sum = of_job.entry(&group.job).or_default();
            *sum = plus(*sum, group.operations_per_second);
        }
        let jobs = status.jobs.iter().map(|job| JobRow {
            operations_per_second: of_job.get(id(job.job.0).as_str()).copied().unwrap_or(Some(0.0)),
            job: id(job.job.0),
            name: job.name.clone(),
            attached: job.attached,
            groups: job.groups,
            operations: job.totals.operations,
            refused: job.totals.refused,
            revoked: job.totals.revoked,
            last_refusal: job.last_refusal.clone(),
        });
        let jobs = jobs.collect();
        let nodes = status.nodes.iter().map(|node| node_line(node, meter)).collect();
        meter.sweep();
        Self {
            manager,
            operations: status.operations,
            operations_per_second: groups
                .iter()
                .map(|group| group.operations_per_second)
                .reduce(plus)
                .unwrap_or(Some(0.0)),
            jobs,
            groups,
            nodes,
            errors: errors(&status),
            version: status.version,
            trees: status.trees,
            left_out: status.omitted,
        }
    }

    /// True if every live node has reported twice.
    pub(super) fn has_rates(&self) -> bool {
        self.nodes.iter().all(|node| !node.alive || node.operations_per_second.is_some())
    }
}

fn id(job: u64) -> String {
    format!("{job:016x}")
}

/// The sum of two rates; unknown if both are.
fn plus(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    }
}

fn node_line(node: &NodeStatus, meter: &mut RateMeter) -> NodeRow {
    let report = &node.report;
    let mut rate = |what: &str, count| {
        let rate = meter.rate(format!("{what} of {}", node.name), report.uptime_ms, count);
        if node.alive { rate } else { None }
    };
    NodeRow {
        name: node.name.clone(),
        alive: node.alive,
        version: node.version.clone(),
        seats: node.reserved.seats,
        most_seats: node.capacity.seats,
        in_flight: report.in_flight,
        payload_bytes: report.bytes,
        operations: report.operations,
        operations_per_second: rate("operations", report.operations),
        packets_per_second: rate("packets", report.sent + report.received),
        sent: report.sent,
        received: report.received,
        repeated: report.repeated,
        migrations: report.migrations,
        dropped: report.dropped.clone(),
    }
}

fn errors(status: &ManagerStatus) -> BTreeMap<String, u64> {
    let mut errors: BTreeMap<String, u64> = BTreeMap::new();
    let mut add = |cause: String, count: u64| {
        if count > 0 {
            *errors.entry(cause).or_default() += count;
        }
    };
    for node in &status.nodes {
        node.report.dropped.iter().for_each(|(cause, count)| add(format!("packets dropped: {cause}"), *count));
        add("packets sent again".to_owned(), node.report.repeated);
        add("moves to another path".to_owned(), node.report.migrations);
    }
    status.refused.iter().for_each(|(cause, count)| add(format!("groups refused: {cause}"), *count));
    let errors_of_manager = status.counters.iter().filter(|(name, _)| !NOT_ERRORS.contains(&name.as_str()));
    errors_of_manager.for_each(|(name, count)| add(name.clone(), *count));
    errors
}
