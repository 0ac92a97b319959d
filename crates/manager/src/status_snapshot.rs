//! Makes the status of the manager: whole, or cut to what fits into one message.

use super::capacity::NodeReport;
use super::limits::MAX_MESSAGE_BYTES;
use super::machine::Manager;
use super::records::{GroupState, NodeLiveness, NodeRecord};
use super::status::{GroupPhase, GroupStatus, JobStatus, ManagerStatus, NodeStatus, TreeStatus};
use super::tree_placement::{PlacementNode, TreePlacement};

/// Bytes of a status that is not sent: with long lists of nodes in thousands of groups it would grow beyond all bounds.
const MAX_WHOLE_STATUS_BYTES: usize = 8 << 20;

/// Bytes left for the lists. Estimates of entries are upper bounds.
struct ByteBudget(usize);

impl ByteBudget {
    fn takes(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.0;
        self.0 -= if fits { bytes } else { 0 };
        fits
    }
}

impl Manager {
    /// The status as it fits into one message.
    pub fn status(&self) -> ManagerStatus {
        self.status_within(ByteBudget(MAX_MESSAGE_BYTES - MAX_MESSAGE_BYTES / 8))
    }

    /// The status of all nodes and jobs, and of as many groups as a reader in this process may want.
    pub fn whole_status(&self) -> ManagerStatus {
        self.status_within(ByteBudget(MAX_WHOLE_STATUS_BYTES))
    }

    fn status_within(&self, mut budget: ByteBudget) -> ManagerStatus {
        let counters = self.counters.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let refused = self.refused.iter().map(|(cause, count)| ((*cause).to_owned(), *count)).collect();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let operations = self.operations;
        let mut status = ManagerStatus { version, operations, counters, refused, ..ManagerStatus::default() };
        self.node_entries(&mut status, &mut budget);
        self.job_entries(&mut status, &mut budget);
        self.trees(&mut status, &mut budget);
        self.group_entries(&mut status, &mut budget);
        self.add_paces(&mut status, &mut budget);
        status
    }

    /// Adds who is late and how long operations take, last: all nodes and jobs matter more.
    fn add_paces(&self, status: &mut ManagerStatus, budget: &mut ByteBudget) {
        for entry in &mut status.nodes {
            let Some(record) = self.nodes.get(&entry.name) else { continue };
            if budget.takes(max_encoded_pace_bytes(&record.report)) {
                entry.report.times.clone_from(&record.report.times);
                entry.report.late.clone_from(&record.report.late);
            }
        }
    }

    fn node_entries(&self, status: &mut ManagerStatus, budget: &mut ByteBudget) {
        for (name, record) in &self.nodes {
            if !budget.takes(max_encoded_node_bytes(name, record)) {
                status.omitted += 1;
                continue;
            }
            status.nodes.push(NodeStatus {
                name: name.clone(),
                node: record.number,
                version: record.version.clone(),
                alive: matches!(record.liveness, NodeLiveness::Alive { .. }),
                capacity: record.descriptor.capacity,
                reserved: record.reserved,
                report: record.report.without_paces(),
                parents: record.descriptor.parents.clone(),
            });
        }
    }

    fn job_entries(&self, status: &mut ManagerStatus, budget: &mut ByteBudget) {
        for (job, record) in &self.jobs {
            let error = record.history.last_refusal().map(str::to_owned);
            if !budget.takes(640 + error.as_ref().map_or(0, |reason| 2 * reason.len())) {
                status.omitted += 1;
                continue;
            }
            status.jobs.push(JobStatus {
                job: *job,
                name: record.history.name.clone(),
                attached: !record.peers.is_empty(),
                quota: record.quota,
                groups: record.groups.len() as u32,
                totals: record.history.totals,
                last_refusal: error,
            });
        }
    }

    fn group_entries(&self, status: &mut ManagerStatus, budget: &mut ByteBudget) {
        for (group, record) in &self.groups {
            // The position of a parent has up to five digits.
            if !budget.takes(340 + record.seats.iter().map(|name| name.len() + 14).sum::<usize>()) {
                status.omitted += 1;
                continue;
            }
            let phase = match record.state {
                GroupState::Opening { .. } => GroupPhase::Opening,
                GroupState::Open => GroupPhase::Open,
                GroupState::Closing { .. } => GroupPhase::Closing,
            };
            status.groups.push(GroupStatus {
                group: *group,
                job: record.job,
                phase,
                leaders: record.leaders,
                window: record.window,
                operations: record.operations,
                nodes: record.seats.clone(),
                parents: record.parents.clone(),
            });
        }
    }

    fn trees(&self, status: &mut ManagerStatus, budget: &mut ByteBudget) {
        let alive = self.nodes.iter().filter(|(_, record)| matches!(record.liveness, NodeLiveness::Alive { .. }));
        let site = |(name, record)| -> PlacementNode<'_> {
            let (name, record): (&String, &NodeRecord) = (name, record);
            PlacementNode { name, parents: &record.descriptor.parents, serves: &record.patterns, load: 0 }
        };
        let placement_nodes: Vec<PlacementNode> = alive.map(site).collect();
        for (root, nodes) in TreePlacement::new(&placement_nodes, &[]).roots() {
            let name = placement_nodes[root].name;
            let groups =
                self.groups.values().filter(|record| record.seats.first().is_some_and(|first| first == name));
            if budget.takes(256) {
                status.trees.push(TreeStatus {
                    root: name.to_owned(),
                    nodes: nodes as u32,
                    groups: groups.count() as u32,
                });
            } else {
                status.omitted += 1;
            }
        }
    }
}

/// Field names and punctuation of a node's entry, its two capacities, number and version.
const ENCODED_NODE_BYTES: usize = 440;
/// The same of a late child.
const ENCODED_LATE_BYTES: usize = 80;

/// An upper bound that counts the digits of what is reported: with that of the largest numbers, fewer nodes would fit.
fn max_encoded_node_bytes(name: &str, record: &NodeRecord) -> usize {
    let NodeReport { uptime_ms, operations, in_flight, bytes, sent, repeated, received, migrations, .. } =
        record.report;
    let numbers = [uptime_ms, operations, in_flight.into(), bytes, sent, repeated, received, migrations];
    let numbers: usize = numbers.into_iter().map(digits).sum();
    let report = &record.report;
    // A cause or a name may consist of characters that are escaped.
    let causes: usize = report.dropped.iter().map(|(cause, count)| 2 * cause.len() + 4 + digits(*count)).sum();
    let parents: usize = record.descriptor.parents.iter().map(|parent| parent.len() + 3).sum();
    let version = 2 * record.version.len();
    ENCODED_NODE_BYTES + name.len() + version + numbers + causes + parents
}

fn max_encoded_pace_bytes(report: &NodeReport) -> usize {
    let times: usize = report.times.iter().map(|count| digits(*count) + 1).sum();
    let late = report.late.iter().map(|late| {
        let counts = [late.times_last, late.operations, late.waited_us, late.longest_us];
        ENCODED_LATE_BYTES + 2 * late.name.len() + counts.into_iter().map(digits).sum::<usize>()
    });
    times + late.sum::<usize>()
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}
