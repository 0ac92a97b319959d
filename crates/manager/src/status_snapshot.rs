//! How things are, as the manager tells an operator. Cut to what one message can carry.

use super::groups::GroupState;
use super::limits::MAX_MESSAGE_BYTES;
use super::machine::{Manager, NodeLiveness};
use super::status::{GroupPhase, GroupStatus, JobStatus, ManagerStatus, NodeStatus, TreeStatus};
use super::tree_placement::{PlacementNode, TreePlacement};

/// Bytes left to the lists; a guess of an entry's bytes is generous.
struct ByteBudget(usize);

impl ByteBudget {
    fn takes(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.0;
        self.0 -= if fits { bytes } else { 0 };
        fits
    }
}

impl Manager {
    /// Everything at once.
    pub fn status(&self) -> ManagerStatus {
        let mut room = ByteBudget(MAX_MESSAGE_BYTES - MAX_MESSAGE_BYTES / 8);
        let counters = self.counters.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let refused = self.refused.iter().map(|(cause, count)| ((*cause).to_owned(), *count)).collect();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let operations = self.operations;
        let mut status = ManagerStatus { version, operations, counters, refused, ..ManagerStatus::default() };
        for (name, record) in &self.nodes {
            let words: usize = record.report.dropped.keys().map(|cause| 2 * cause.len() + 32).sum();
            if !room.takes(1024 + words) {
                status.left_out += 1;
                continue;
            }
            status.nodes.push(NodeStatus {
                name: name.clone(),
                node: record.number,
                version: record.version.clone(),
                alive: matches!(record.presence, NodeLiveness::Here { .. }),
                capacity: record.card.capacity,
                reserved: record.reserved,
                report: record.report.clone(),
            });
        }
        for (job, record) in &self.jobs {
            let refusal = record.account.last_refusal().map(str::to_owned);
            if !room.takes(640 + refusal.as_ref().map_or(0, |words| 2 * words.len())) {
                status.left_out += 1;
                continue;
            }
            status.jobs.push(JobStatus {
                job: *job,
                name: record.account.name.clone(),
                attached: !record.peers.is_empty(),
                quota: record.quota,
                groups: record.groups.len() as u32,
                totals: record.account.totals,
                last_refusal: refusal,
            });
        }
        self.trees(&mut status, &mut room);
        for (group, record) in &self.groups {
            if !room.takes(320 + record.seats.iter().map(|name| name.len() + 8).sum::<usize>()) {
                status.left_out += 1;
                continue;
            }
            let phase = match record.phase {
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

    fn trees(&self, status: &mut ManagerStatus, room: &mut ByteBudget) {
        let here = self.nodes.iter().filter(|(_, record)| matches!(record.presence, NodeLiveness::Here { .. }));
        let site = |(name, record)| -> PlacementNode<'_> {
            let (name, record): (&String, &super::machine::NodeRecord) = (name, record);
            PlacementNode { name, parents: &record.card.parents, serves: &record.patterns, load: 0 }
        };
        let sites: Vec<PlacementNode> = here.map(site).collect();
        for (root, nodes) in TreePlacement::new(&sites, &[]).roots() {
            let name = sites[root].name;
            let groups =
                self.groups.values().filter(|record| record.seats.first().is_some_and(|first| first == name));
            if room.takes(256) {
                status.trees.push(TreeStatus {
                    root: name.to_owned(),
                    nodes: nodes as u32,
                    groups: groups.count() as u32,
                });
            } else {
                status.left_out += 1;
            }
        }
    }
}
