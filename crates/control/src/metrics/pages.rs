//! The metrics pages of manager and node. docs/operations.md lists the names.

use std::collections::BTreeMap;
use std::time::Duration;

use manager::limits::MAX_COUNTERS;
use manager::message::{Capacity, NodeReport};
use manager::status::{GroupPhase, ManagerStatus};

use super::exposition::Exposition;
use super::exposition::MetricKind::{Counter, Gauge};

/// The page of a manager.
pub(crate) fn manager_page(status: &ManagerStatus, uptime: Duration, connections: usize) -> String {
    let mut page = Exposition::default();
    page.family("pleach_manager_info", Gauge, "Version of the manager; always 1.")
        .sample(&[("version", &status.version)], 1);
    page.single("pleach_manager_uptime_seconds", Gauge, "Time since the start of the process.", uptime.as_secs_f64());
    page.single("pleach_manager_connections", Gauge, "Connections of nodes, jobs and operators.", connections);
    counts(&mut page, status);
    nodes(&mut page, status);
    jobs(&mut page, status);
    let mut events = page.family("pleach_manager_events_total", Counter, "Events, by name.");
    for (name, count) in &status.counters {
        events.sample(&[("event", name)], count);
    }
    let mut refused = page.family("pleach_manager_groups_refused_total", Counter, "Groups refused, by cause.");
    for (cause, count) in &status.refused {
        refused.sample(&[("cause", cause)], count);
    }
    page.single("pleach_manager_operations_total", Counter, "Operations folded in the network.", status.operations);
    let help = "Nodes, jobs, groups and trees omitted from this page because of its size limit.";
    page.single("pleach_manager_left_out", Gauge, help, status.omitted);
    page.finish()
}

fn counts(page: &mut Exposition, status: &ManagerStatus) {
    let mut nodes = page.family("pleach_manager_nodes", Gauge, "Nodes, by state.");
    let alive = status.nodes.iter().filter(|node| node.alive).count();
    nodes.sample(&[("state", "alive")], alive);
    nodes.sample(&[("state", "lost")], status.nodes.len() - alive);
    let mut jobs = page.family("pleach_manager_jobs", Gauge, "Jobs, by state.");
    let attached = status.jobs.iter().filter(|job| job.attached).count();
    jobs.sample(&[("state", "attached")], attached);
    jobs.sample(&[("state", "away")], status.jobs.len() - attached);
    let mut groups = page.family("pleach_manager_groups", Gauge, "Groups, by state.");
    let phases = [("opening", GroupPhase::Opening), ("open", GroupPhase::Open), ("closing", GroupPhase::Closing)];
    for (name, phase) in phases {
        groups.sample(&[("phase", name)], status.groups.iter().filter(|group| group.phase == phase).count());
    }
    page.single("pleach_manager_trees", Gauge, "Trees over which groups are distributed.", status.trees.len());
}

fn nodes(page: &mut Exposition, status: &ManagerStatus) {
    let mut up = page.family("pleach_manager_node_up", Gauge, "1 if the node is usable.");
    for node in &status.nodes {
        up.sample(&[("node", &node.name), ("version", &node.version)], u8::from(node.alive));
    }
    let mut share = |name, help, of: fn(&manager::status::NodeStatus) -> Capacity| {
        let mut family = page.family(name, Gauge, help);
        for node in &status.nodes {
            let Capacity { seats, operations, bytes } = of(node);
            let amounts = [("seats", u64::from(seats)), ("operations", operations.into()), ("bytes", bytes)];
            for (resource, amount) in amounts {
                family.sample(&[("node", &node.name), ("resource", resource)], amount);
            }
        }
    };
    share("pleach_manager_node_capacity", "Capacity of a node.", |node| node.capacity);
    share("pleach_manager_node_reserved", "Reserved capacity of a node.", |node| node.reserved);
}

fn jobs(page: &mut Exposition, status: &ManagerStatus) {
    let names: Vec<String> = status.jobs.iter().map(|job| format!("{:016x}", job.job.0)).collect();
    let mut operations = page.family("pleach_job_operations_total", Counter, "Operations folded for a job.");
    for (job, number) in status.jobs.iter().zip(&names) {
        operations.sample(&[("job", number), ("name", &job.name)], job.totals.operations);
    }
    let mut groups = page.family("pleach_job_groups", Gauge, "Groups that a job has.");
    for (job, number) in status.jobs.iter().zip(&names) {
        groups.sample(&[("job", number), ("name", &job.name)], job.groups);
    }
}

/// What a node's control side adds to the report of its data plane.
pub(crate) struct NodeControlMetrics<'a> {
    pub name: &'a str,
    pub capacity: Capacity,
    pub seats: usize,
    pub has_manager: bool,
    pub closed_connections: &'a BTreeMap<&'static str, u64>,
}

/// The page of a node.
pub(crate) fn node_page(side: &NodeControlMetrics<'_>, report: &NodeReport) -> String {
    let mut page = Exposition::default();
    let version = env!("CARGO_PKG_VERSION");
    page.family("pleach_node_info", Gauge, "Name and version of the node; always 1.")
        .sample(&[("node", side.name), ("version", version)], 1);
    let uptime = report.uptime_ms as f64 / 1e3;
    page.single("pleach_node_uptime_seconds", Gauge, "Time since the start of the process.", uptime);
    let connected = u8::from(side.has_manager);
    page.single("pleach_node_manager_connected", Gauge, "1 if the node is registered with its manager.", connected);
    page.single("pleach_node_seats", Gauge, "Groups that the node serves.", side.seats);
    page.single("pleach_node_seats_most", Gauge, "Limit of groups.", side.capacity.seats);
    page.single("pleach_node_operations_total", Counter, "Operations folded.", report.operations);
    page.single("pleach_node_in_flight", Gauge, "Operations in flight.", report.in_flight);
    page.single("pleach_node_payload_bytes", Gauge, "Payload held for operations in flight.", report.bytes);
    page.single("pleach_node_packets_sent_total", Counter, "Packets sent.", report.sent);
    page.single("pleach_node_packets_repeated_total", Counter, "Retransmitted packets.", report.repeated);
    page.single("pleach_node_packets_received_total", Counter, "Valid packets received.", report.received);
    page.single("pleach_node_migrations_total", Counter, "Migrations to another path.", report.migrations);
    let mut dropped = page.family("pleach_node_packets_dropped_total", Counter, "Packets dropped, by cause.");
    for (cause, count) in report.dropped.iter().take(MAX_COUNTERS) {
        dropped.sample(&[("cause", cause)], count);
    }
    let help = "Control connections that ended, by cause.";
    let mut control = page.family("pleach_node_control_connections_total", Counter, help);
    for (cause, count) in side.closed_connections {
        control.sample(&[("cause", cause)], count);
    }
    if let Some(bytes) = resident_bytes() {
        page.single("pleach_node_resident_bytes", Gauge, "Memory of the process.", bytes);
    }
    page.finish()
}

/// The resident memory of this process, if the kernel reports it.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok()??;
    pages.checked_mul(u64::try_from(size).ok()?)
}
