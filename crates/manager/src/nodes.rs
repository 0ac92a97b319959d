//! Node handling of the manager: registration, heartbeats, loss (P-76, P-82, P-83, P-85).

use std::collections::{BTreeMap, BTreeSet};

use units::Time;

use super::action::ManagerEvent;
use super::control_error::ControlError;
use super::job_history::JobEvent;
use super::limits::*;
use super::machine::Manager;
use super::message::{
    Capacity, FromManager, GroupKey, HeldSeat, NodeCommand, NodeDescriptor, NodeReport, RemovalScope, RequestId,
    SeatHeartbeat,
};
use super::records::{GroupRecord, GroupState, JobNumberSource, JobRecord, NodeLiveness, NodeRecord, Reservation};
use super::topology_plan::find_cycle;
use super::validate;
use super::{AggregationNodeId, JobTicket, PeerId};

/// Why a node is lost whose connection ended and did not come back: its process ended, or its host restarted.
pub const CONNECTION_BROKE: &str = "its connection broke";
/// Longer than any version string.
const MAX_VERSION_CHARS: usize = 32;
/// With the default interval a node reports once a second, as often as anybody looks. A report takes most of the manager's time for a
/// heartbeat, and the answer most of the rest.
const HEARTBEATS_PER_REPORT: u32 = 2;

impl Manager {
    pub(super) fn register(
        &mut self,
        now: Time,
        from: PeerId,
        request: RequestId,
        node: NodeDescriptor,
        version: &str,
    ) -> Result<(), ControlError> {
        validate::node_descriptor(&node)?;
        let node = self.settings.topology.place(node);
        let patterns = validate::host_patterns(&node.serves)?;
        self.check_registration(from, &node, patterns.len())?;
        let known = self.nodes.get(&node.name).map(|record| record.number);
        let number = known.unwrap_or_else(|| {
            self.next_node = (self.next_node + 1) & 0x7fff_ffff;
            AggregationNodeId::from_count(self.next_node)
        });
        let name = node.name.clone();
        let liveness = NodeLiveness::Registering { peer: from, last_received_at: now };
        let record = self.nodes.entry(name.clone()).or_insert_with(|| NodeRecord {
            number,
            descriptor: node.clone(),
            patterns: Vec::new(),
            liveness,
            reservations: BTreeMap::new(),
            reserved: Capacity { seats: 0, operations: 0, bytes: 0 },
            report: NodeReport::default(),
            version: String::new(),
        });
        (record.descriptor, record.patterns, record.liveness) = (node, patterns, liveness);
        record.version = validate::sanitize_text(version).chars().take(MAX_VERSION_CHARS).collect();
        self.node_of_peer.insert(from, name.clone());
        self.wake_by(now + self.settings.node_timeout);
        self.count("nodes registered");
        self.log(ManagerEvent::NodeRegistered { name, node: number });
        let heartbeat_ms = (self.settings.heartbeat_interval.as_nanos() / 1_000_000).clamp(10, 60_000) as u32;
        let heartbeats_per_report = HEARTBEATS_PER_REPORT;
        self.send(from, FromManager::Registered { request, node: number, heartbeat_ms, heartbeats_per_report });
        Ok(())
    }

    fn check_registration(
        &mut self,
        from: PeerId,
        node: &NodeDescriptor,
        patterns: usize,
    ) -> Result<(), ControlError> {
        if self.node_of_peer.contains_key(&from) {
            return Err(ControlError::malformed("another node is registered over this connection"));
        }
        if self.nodes.get(&node.name).is_some_and(|record| record.liveness.peer().is_some()) {
            return Err(ControlError::NameTaken { name: node.name.clone() });
        }
        let others = || {
            self.nodes.iter().filter(|(name, record)| **name != node.name && record.liveness != NodeLiveness::Lost)
        };
        if let Some((other, _)) = others().find(|(_, record)| record.descriptor.control == node.control) {
            return Err(ControlError::malformed(&format!(
                "node {other} has the same control address {}",
                node.control
            )));
        }
        if others().map(|(_, record)| record.patterns.len()).sum::<usize>() + patterns > MAX_PATTERNS {
            return Err(ControlError::too_many("served hosts of all nodes", MAX_PATTERNS));
        }
        let mut parents: BTreeMap<&str, &[String]> =
            others().map(|(name, record)| (name.as_str(), record.descriptor.parents.as_slice())).collect();
        parents.insert(&node.name, &node.parents);
        if let Some(name) = find_cycle(&parents) {
            return Err(ControlError::malformed(&format!(
                "with these parents node {name} would be its own ancestor"
            )));
        }
        if self.nodes.len() >= MAX_NODES && !self.nodes.contains_key(&node.name) {
            let lost = self.nodes.iter().find(|(_, record)| record.liveness == NodeLiveness::Lost);
            let Some(name) = lost.map(|(name, _)| name.clone()) else {
                return Err(ControlError::too_many("nodes", MAX_NODES));
            };
            self.nodes.remove(&name);
        }
        Ok(())
    }

    pub(super) fn node_at(&self, peer: PeerId) -> Result<String, ControlError> {
        self.node_of_peer
            .get(&peer)
            .cloned()
            .ok_or_else(|| ControlError::malformed("the connection has not registered a node"))
    }

    /// Processes the seats that a node held before it registered (P-83): consistent ones are adopted, others removed.
    pub(super) fn held_seats(&mut self, now: Time, from: PeerId, seats: Vec<HeldSeat>) -> Result<(), ControlError> {
        let name = self.node_at(from)?;
        if seats.len() > MAX_GROUPS {
            return Err(ControlError::too_many("seats", MAX_GROUPS));
        }
        for seat in seats {
            let group = GroupKey { group: seat.group, epoch: seat.epoch };
            let reservation = Reservation { job: seat.ticket.job, operations: seat.operations, bytes: seat.bytes };
            let is_adopted = self.recover_seat(now, &name, group, &seat);
            if let Some(record) = self.nodes.get_mut(&name) {
                record.reserve(group, reservation); // Even if the seat is to be removed: until then it takes room.
            }
            if !is_adopted {
                self.remove_seat(&name, group);
            }
        }
        Ok(())
    }

    /// True if the seat belongs to an open group.
    fn recover_seat(&mut self, now: Time, name: &str, group: GroupKey, seat: &HeldSeat) -> bool {
        if let Some(record) = self.groups.get_mut(&group) {
            let is_own = self.jobs.get(&record.job).is_some_and(|job| job.key.constant_time_eq(&seat.ticket.key));
            if !is_own || record.job != seat.ticket.job || !matches!(record.state, GroupState::Open) {
                return false;
            }
            if record.seats.iter().any(|known| known == name) {
                return true;
            }
            // Only a group that was recovered from nodes can have seats that the manager does not know.
            let is_new = record.leaders == 0 && self.numbers.claim(&seat.edges, group);
            if is_new {
                record.seats.push(name.to_owned());
            }
            return is_new;
        }
        if self.groups.len() >= MAX_GROUPS || !self.recover_job(now, seat.ticket) {
            return false;
        }
        if !self.numbers.claim(&seat.edges, group) {
            return false;
        }
        if let Some(job) = self.jobs.get_mut(&seat.ticket.job) {
            job.groups.insert(group);
        }
        self.groups.insert(
            group,
            GroupRecord {
                job: seat.ticket.job,
                seats: vec![name.to_owned()],
                parents: Vec::new(),
                leaders: 0,
                window: seat.operations,
                operations: 0,
                opened_at: now,
                state: GroupState::Open,
            },
        );
        self.log(ManagerEvent::GroupRecovered { group, job: seat.ticket.job });
        true
    }

    fn recover_job(&mut self, now: Time, ticket: JobTicket) -> bool {
        if let Some(job) = self.jobs.get(&ticket.job) {
            if job.key.constant_time_eq(&ticket.key) {
                return true;
            }
            // A node knows the cluster's secret. Whoever claimed the number before the nodes reported may have invented its ticket.
            if job.number_source == JobNumberSource::Manager {
                return false;
            }
            self.remove_job(now, ticket.job, "a node reported another job under its number");
        }
        if self.jobs.len() >= MAX_JOBS {
            return false;
        }
        let attached = JobRecord::new(ticket, "recovered", self.settings.default_quota);
        let mut record = JobRecord { detached_at: Some(now), ..attached };
        record.history.note(now, JobEvent::Recovered);
        self.jobs.insert(ticket.job, record);
        self.wake_by(now + self.settings.job_grace);
        true
    }

    pub(super) fn heartbeat(
        &mut self,
        now: Time,
        from: PeerId,
        seats: Vec<SeatHeartbeat>,
        report: Option<NodeReport>,
    ) -> Result<(), ControlError> {
        let name = self.node_at(from)?;
        if seats.len() > MAX_GROUPS {
            return Err(ControlError::too_many("seats", MAX_GROUPS));
        }
        let Some(record) = self.nodes.get_mut(&name) else { return Ok(()) };
        let has_report = report.is_some();
        if let Some(report) = report {
            record.report = sanitize_report(report);
        }
        let since = match record.liveness {
            NodeLiveness::Alive { since, .. } => since,
            _ => now,
        };
        record.liveness = NodeLiveness::Alive { peer: from, last_received_at: now, since };
        let held: BTreeSet<GroupKey> = seats.iter().map(|seat| seat.group).collect();
        let missing: Vec<GroupKey> =
            record.reservations.keys().filter(|group| !held.contains(group)).copied().collect();
        if has_report {
            self.send(from, FromManager::HeartbeatAck);
        }
        for group in missing {
            self.missing_seat(now, &name, group, since);
        }
        for SeatHeartbeat { group, operations } in seats {
            match self.groups.get_mut(&group).filter(|record| record.seats.contains(&name)) {
                Some(record) => {
                    // Every seat of a group folds the same operations, so the highest count is the right one.
                    let more = operations.saturating_sub(record.operations);
                    record.operations += more;
                    self.operations += more;
                    if let Some(job) = self.jobs.get_mut(&record.job) {
                        job.history.totals.operations += more;
                    }
                }
                None => self.remove_seat(&name, group),
            }
        }
        Ok(())
    }

    /// A node does not hold a seat that it should. It restarted, unless the seat is so new that the two messages may have
    /// crossed.
    fn missing_seat(&mut self, now: Time, name: &str, group: GroupKey, since: Time) {
        match self.groups.get(&group) {
            None => {
                if let Some(record) = self.nodes.get_mut(name) {
                    record.release(group);
                }
            }
            Some(GroupRecord { state: GroupState::Open, opened_at, .. })
                if *opened_at < since || now.since(*opened_at) > self.settings.node_timeout =>
            {
                if let Some(record) = self.nodes.get_mut(name) {
                    record.release(group);
                }
                self.revoke_group(now, group, Some(name), "the node lost its seat");
            }
            Some(_) => {}
        }
    }

    pub(super) fn node_failure(
        &mut self,
        now: Time,
        from: PeerId,
        group: GroupKey,
        what: &str,
    ) -> Result<(), ControlError> {
        let name = self.node_at(from)?;
        let what = validate::sanitize_text(what);
        self.count("failures reported by nodes");
        self.log(ManagerEvent::Failure { group, from: format!("node {name}"), what: what.clone() });
        let record = self.groups.get(&group).filter(|record| record.seats.contains(&name));
        let Some(record) = record else { return Ok(()) };
        // A lost neighbour never returns to its connection (P-9), so the tree is unusable.
        match record.state {
            GroupState::Open => self.revoke_group(now, group, None, &format!("node {name}: {what}")),
            GroupState::Opening { .. } => {
                self.fail_opening(now, group, ControlError::NodeFailed { node: name, why: what })
            }
            GroupState::Closing { .. } => {}
        }
        Ok(())
    }

    pub(super) fn node_disconnected(&mut self, now: Time, name: &str) {
        if let Some(record) = self.nodes.get_mut(name) {
            record.liveness = NodeLiveness::Disconnected { since: now };
            self.wake_by(now + self.settings.node_grace);
        }
    }

    pub(super) fn expire_nodes(&mut self, now: Time) {
        let mut lost = Vec::new();
        for (name, record) in &self.nodes {
            let is_connected = record.liveness.peer().is_some();
            let due = match record.liveness {
                NodeLiveness::Registering { last_received_at, .. } | NodeLiveness::Alive { last_received_at, .. } => {
                    last_received_at + self.settings.node_timeout
                }
                NodeLiveness::Disconnected { since } => since + self.settings.node_grace,
                NodeLiveness::Lost => continue,
            };
            if due <= now {
                lost.push((name.clone(), is_connected));
            } else {
                self.wake_at = self.wake_at.min(due);
            }
        }
        for (name, is_connected) in lost {
            let why = match is_connected {
                true => format!("no heartbeat for {}", self.settings.node_timeout),
                false => CONNECTION_BROKE.to_owned(),
            };
            self.lose_node(now, &name, &why);
        }
    }

    /// Marks a node as lost (P-82): revokes its groups and releases its reservations.
    fn lose_node(&mut self, now: Time, name: &str, why: &str) {
        let Some(record) = self.nodes.get_mut(name) else { return };
        if let Some(peer) = record.liveness.peer() {
            self.node_of_peer.remove(&peer);
            self.close(peer);
        }
        let Some(record) = self.nodes.get_mut(name) else { return };
        record.liveness = NodeLiveness::Lost;
        let groups: Vec<GroupKey> = record.reservations.keys().copied().collect();
        record.release_all();
        self.count("nodes lost");
        self.log(ManagerEvent::NodeLost { name: name.to_owned(), why: why.to_owned() });
        for group in groups {
            match self.groups.get(&group).map(|record| &record.state) {
                Some(GroupState::Open) => self.revoke_group(now, group, Some(name), why),
                Some(GroupState::Opening { .. }) => {
                    let error = ControlError::NodeFailed { node: name.to_owned(), why: why.to_owned() };
                    self.fail_opening(now, group, error);
                }
                Some(GroupState::Closing { .. }) => self.finish_if_released(now, group),
                None => {}
            }
        }
    }

    pub(super) fn remove_seat(&mut self, name: &str, group: GroupKey) {
        let budget_ms = self.budget_ms();
        if let Some(peer) = self.nodes.get(name).and_then(|record| record.liveness.peer()) {
            self.send(
                peer,
                FromManager::Command(NodeCommand::Remove { group, scope: RemovalScope::SeatOnly, budget_ms }),
            );
        }
    }
}

/// Cuts what is too long, and removes what a terminal would interpret (P-108).
fn sanitize_report(mut report: NodeReport) -> NodeReport {
    report.late.truncate(MAX_LATE_CHILDREN);
    report.late.iter_mut().for_each(|child| validate::sanitize(&mut child.name));
    report.times.truncate(MAX_TIME_CLASSES);
    if report.dropped.len() > MAX_COUNTERS || report.dropped.keys().any(|cause| !validate::is_sane(cause)) {
        let causes = std::mem::take(&mut report.dropped).into_iter().take(MAX_COUNTERS);
        report.dropped = causes.map(|(cause, count)| (validate::sanitize_text(&cause), count)).collect();
    }
    report
}
