//! Makes the status of the manager, cut to what fits into one message.

use super::limits::MAX_MESSAGE_BYTES;
use super::machine::Manager;
use super::records::{GroupState, NodeLiveness, NodeRecord};
use super::status::{GroupPhase, GroupStatus, JobStatus, ManagerStatus, NodeStatus, TreeStatus};
use super::tree_placement::{PlacementNode, TreePlacement};

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
    /// The whole status.
    pub fn status(&self) -> ManagerStatus {
        let mut budget = ByteBudget(MAX_MESSAGE_BYTES - MAX_MESSAGE_BYTES / 8);
        let counters = self.counters.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let refused = self.refused.iter().map(|(cause, count)| ((*cause).to_owned(), *count)).collect();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let operations = self.operations;
        let mut status = ManagerStatus { version, operations, counters, refused, ..ManagerStatus::default() };
        for (name, record) in &self.nodes {
            let causes: usize = record.report.dropped.keys().map(|cause| 2 * cause.len() + 32).sum();
            if !budget.takes(1024 + causes) {
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
                report: record.report.clone(),
            });
        }
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
        self.trees(&mut status, &mut budget);
        for (group, record) in &self.groups {
            if !budget.takes(320 + record.seats.iter().map(|name| name.len() + 8).sum::<usize>()) {
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
            });
        }
        status
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
