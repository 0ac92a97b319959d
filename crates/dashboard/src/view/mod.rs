//! The manager's status with rates, latencies and lateness. Field names are part of the JSON format of `pleach top`.

mod latency;
mod lateness;
mod rate_meter;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use manager::status::{GroupPhase, GroupStatus, JobStatus, ManagerStatus, NodeStatus, TreeStatus};
use serde::Serialize;

use latency::LatencyMeter;
pub use latency::LatencyQuantiles;
pub use lateness::LateRow;
use lateness::LatenessMeter;
pub use rate_meter::RateMeter;

/// The view of a cluster.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterView {
    /// The manager's address.
    pub manager: SocketAddr,
    /// The version of Pleach that it runs.
    pub version: String,
    /// Operations of all groups.
    pub operations: u64,
    /// The same per second; unknown until nodes have reported twice.
    pub operations_per_second: Option<f64>,
    /// How long operations took at the nodes since their last reports.
    pub latency: Option<LatencyQuantiles>,
    /// The jobs.
    pub jobs: Vec<JobRow>,
    /// The groups.
    pub groups: Vec<GroupRow>,
    /// The trees over which groups are distributed.
    pub trees: Vec<TreeStatus>,
    /// The nodes.
    pub nodes: Vec<NodeRow>,
    /// Hosts and nodes for which operations waited longest, the worst first.
    pub late: Vec<LateRow>,
    /// Errors so far, by cause.
    pub errors: BTreeMap<String, u64>,
    /// Nodes, jobs, groups and trees that the manager omitted from its answer.
    pub left_out: u64,
}

/// A job.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct JobRow {
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

/// A group.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct GroupRow {
    pub group: u32,
    pub epoch: u32,
    pub job: String,
    pub phase: GroupPhase,
    pub leaders: u32,
    pub window: u32,
    /// The root first.
    pub nodes: Vec<String>,
    /// For each of `nodes`, the position of the one above it; empty if it is not known.
    pub parents: Vec<Option<u32>>,
    pub operations: u64,
    pub operations_per_second: Option<f64>,
}

/// A node.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct NodeRow {
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
    /// How long operations took since the last report.
    pub latency: Option<LatencyQuantiles>,
    pub sent: u64,
    pub received: u64,
    pub repeated: u64,
    pub migrations: u64,
    pub dropped: BTreeMap<String, u64>,
    /// Nodes that may be above it.
    pub parents: Vec<String>,
}

/// What earlier reports said, for rates.
#[derive(Default)]
pub struct ViewMeter {
    rates: RateMeter,
    latencies: LatencyMeter,
    lateness: LatenessMeter,
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

impl ClusterView {
    /// The view of a status.
    pub fn new(manager: SocketAddr, status: ManagerStatus, meter: &mut ViewMeter) -> Self {
        let uptimes: BTreeMap<&str, u64> =
            status.nodes.iter().map(|node| (node.name.as_str(), node.report.uptime_ms)).collect();
        let groups = group_rows(&status, &uptimes, &mut meter.rates);
        let jobs = job_rows(&status, &groups);
        let nodes = status.nodes.iter().map(|node| node_row(node, meter)).collect();
        let late = meter.lateness.rows(&status);
        meter.rates.sweep();
        let latency = meter.latencies.sweep();
        Self {
            manager,
            latency,
            late,
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
    pub fn has_rates(&self) -> bool {
        self.nodes.iter().all(|node| !node.alive || node.operations_per_second.is_some())
    }
}

fn id(job: u64) -> String {
    format!("{job:016x}")
}

/// The sum of two rates; unknown if both are.
fn plus(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(((a + b) * 10.0).round() / 10.0),
        (a, b) => a.or(b),
    }
}

fn group_rows(status: &ManagerStatus, uptimes: &BTreeMap<&str, u64>, meter: &mut RateMeter) -> Vec<GroupRow> {
    let mut row = |group: &GroupStatus| {
        let (number, epoch) = (group.group.group.0, group.group.epoch.0);
        // The root counts the group's operations by its own clock.
        let at = group.nodes.first().and_then(|root| uptimes.get(root.as_str()).copied());
        let name = format!("group {number} {epoch}");
        GroupRow {
            group: number,
            epoch,
            job: id(group.job.0),
            phase: group.phase,
            leaders: group.leaders,
            window: group.window,
            nodes: group.nodes.clone(),
            parents: group.parents.clone(),
            operations: group.operations,
            operations_per_second: at.and_then(|at| meter.rate(name, at, group.operations)),
        }
    };
    status.groups.iter().map(&mut row).collect()
}

fn job_rows(status: &ManagerStatus, groups: &[GroupRow]) -> Vec<JobRow> {
    let mut of_job: BTreeMap<&str, Option<f64>> = BTreeMap::new();
    for group in groups {
        let sum = of_job.entry(&group.job).or_default();
        *sum = plus(*sum, group.operations_per_second);
    }
    let row = |job: &JobStatus| JobRow {
        operations_per_second: of_job.get(id(job.job.0).as_str()).copied().unwrap_or(Some(0.0)),
        job: id(job.job.0),
        name: job.name.clone(),
        attached: job.attached,
        groups: job.groups,
        operations: job.totals.operations,
        refused: job.totals.refused,
        revoked: job.totals.revoked,
        last_refusal: job.last_refusal.clone(),
    };
    status.jobs.iter().map(row).collect()
}

fn node_row(node: &NodeStatus, meter: &mut ViewMeter) -> NodeRow {
    let report = &node.report;
    // What a lost node measured last is no news; when it is back, its next report is compared with the one after.
    let latency =
        node.alive.then(|| meter.latencies.quantiles(&node.name, report.uptime_ms, &report.times)).flatten();
    let mut rate = |what: &str, count| {
        let rate = meter.rates.rate(format!("{what} of {}", node.name), report.uptime_ms, count);
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
        packets_per_second: rate("packets", report.sent.saturating_add(report.received)),
        latency,
        sent: report.sent,
        received: report.received,
        repeated: report.repeated,
        migrations: report.migrations,
        dropped: report.dropped.clone(),
        parents: node.parents.clone(),
    }
}

fn errors(status: &ManagerStatus) -> BTreeMap<String, u64> {
    let mut errors: BTreeMap<String, u64> = BTreeMap::new();
    let mut add = |cause: String, count: u64| {
        if count > 0 {
            let sum = errors.entry(cause).or_default();
            *sum = sum.saturating_add(count);
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

#[cfg(test)]
mod tests {
    use super::*;
    use manager::AggregationNodeId;
    use manager::message::{Capacity, NodeReport};

    fn view(meter: &mut ViewMeter, alive: bool, uptime_ms: u64, times: u64) -> ClusterView {
        let none = Capacity { seats: 0, operations: 0, bytes: 0 };
        let node = NodeStatus {
            name: "rack".to_owned(),
            node: AggregationNodeId(1),
            version: String::new(),
            alive,
            capacity: none,
            reserved: none,
            report: NodeReport { uptime_ms, times: vec![times], ..NodeReport::default() },
            parents: Vec::new(),
        };
        let status = ManagerStatus { nodes: vec![node], ..ManagerStatus::default() };
        ClusterView::new(SocketAddr::from(([127, 0, 0, 1], 4797)), status, meter)
    }

    #[test]
    fn the_latency_has_no_part_from_lost_nodes() {
        let mut meter = ViewMeter::default();
        view(&mut meter, true, 1_000, 5);
        assert!(view(&mut meter, true, 2_000, 9).latency.is_some());
        for _ in 0..2 {
            assert_eq!(view(&mut meter, false, 2_000, 9).latency, None);
        }
        assert_eq!(view(&mut meter, true, 3_000, 12).latency, None, "nothing to compare with");
        assert!(view(&mut meter, true, 4_000, 14).latency.is_some());
    }
}
