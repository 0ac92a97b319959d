//! What the manager does about nodes: registration, beats, loss (P-50, P-56, P-57, P-59).

use std::collections::{BTreeMap, BTreeSet};

use units::Time;

use super::action::{ManagerEvent, PeerId};
use super::control_error::ControlError;
use super::groups::{GroupRecord, GroupState};
use super::job_history::JobEvent;
use super::limits::*;
use super::machine::{JobRecord, Manager, NodeLiveness, NodeRecord, Reservation};
use super::message::{
    Capacity, FromManager, GroupKey, HeldSeat, NodeCommand, NodeDescriptor, NodeReport, RemovalScope, RequestId,
    SeatHeartbeat,
};
use super::topology_plan::find_cycle;
use super::validate;
use super::{AggregationNodeId, JobTicket};

/// More than any version has.
const MAX_VERSION_CHARS: usize = 32;

impl Manager {
    pub(super) fn register(
        &mut self,
        now: Time,
        from: PeerId,
        request: RequestId,
        card: NodeDescriptor,
        version: &str,
    ) -> Result<(), ControlError> {
        validate::node_descriptor(&card)?;
        let card = self.settings.topology.place(card);
        let patterns = validate::node_descriptor(&card)?;
        self.is_welcome(from, &card, patterns.len())?;
        let known = self.nodes.get(&card.name).map(|record| record.number);
        let number = known.unwrap_or_else(|| {
            self.next_node = (self.next_node + 1) & 0x7fff_ffff;
            AggregationNodeId::from_count(self.next_node)
        });
        let name = card.name.clone();
        let presence = NodeLiveness::Arriving { peer: from, heard_at: now };
        let record = self.nodes.entry(name.clone()).or_insert_with(|| NodeRecord {
            number,
            card: card.clone(),
            patterns: Vec::new(),
            presence,
            holds: BTreeMap::new(),
            reserved: Capacity { seats: 0, operations: 0, bytes: 0 },
            report: NodeReport::default(),
            version: String::new(),
        });
        (record.card, record.patterns, record.presence) = (card, patterns, presence);
        record.version = validate::sanitize_text(version).chars().take(MAX_VERSION_CHARS).collect();
        self.node_of_peer.insert(from, name.clone());
        self.wake_by(now + self.settings.node_silence);
        self.count("nodes registered");
        self.log(ManagerEvent::NodeRegistered { name, node: number });
        let beat_ms = (self.settings.beat.as_picos() / 1_000_000_000).clamp(10, 60_000) as u32;
        self.send(from, FromManager::Registered { request, node: number, beat_ms });
        Ok(())
    }

    fn is_welcome(&mut self, from: PeerId, card: &NodeDescriptor, patterns: usize) -> Result<(), ControlError> {
        if self.node_of_peer.contains_key(&from) {
            return Err(ControlError::malformed("this connection belongs to a node already"));
        }
        if self.nodes.get(&card.name).is_some_and(|record| record.presence.peer().is_some()) {
            return Err(ControlError::NameTaken { name: card.name.clone() });
        }
        let others = || {
            self.nodes.iter().filter(|(name, record)| **name != card.name && record.presence != NodeLiveness::Lost)
        };
        if let Some((other, _)) = others().find(|(_, record)| record.card.control == card.control) {
            return Err(ControlError::malformed(&format!(
                "node {other} takes orders at the same address {}",
                card.control
            )));
        }
        if others().map(|(_, record)| record.patterns.len()).sum::<usize>() + patterns > MAX_PATTERNS {
            return Err(ControlError::too_many("served hosts of all nodes", MAX_PATTERNS));
        }
        let mut parents: BTreeMap<&str, &[String]> =
            others().map(|(name, record)| (name.as_str(), record.card.parents.as_slice())).collect();
        parents.insert(&card.name, &card.parents);
        if let Some(name) = find_cycle(&parents) {
            return Err(ControlError::malformed(&format!("with these parents node {name} would be above itself")));
        }
        if self.nodes.len() >= MAX_NODES && !self.nodes.contains_key(&card.name) {
            let lost = self.nodes.iter().find(|(_, record)| record.presence == NodeLiveness::Lost);
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
            .ok_or_else(|| ControlError::malformed("only a registered node says this"))
    }

    /// A node tells what it holds from before (P-57). What fits is taken over, what does not is removed.
    pub(super) fn holding(&mut self, now: Time, from: PeerId, seats: Vec<HeldSeat>) -> Result<(), ControlError> {
        let name = self.node_at(from)?;
        if seats.len() > MAX_GROUPS {
            return Err(ControlError::too_many("seats", MAX_GROUPS));
        }
        for seat in seats {
            let group = GroupKey { group: seat.group, epoch: seat.epoch };
            let hold = Reservation { job: seat.ticket.job, operations: seat.operations, bytes: seat.bytes };
            let belongs = self.relearn(now, &name, group, &seat);
            if let Some(record) = self.nodes.get_mut(&name) {
                record.hold(group, hold); // Also if it must go: until then it takes room.
            }
            if !belongs {
                self.remove_alone(&name, group);
            }
        }
        Ok(())
    }

    /// True if the seat is part of a group that is open.
    fn relearn(&mut self, now: Time, name: &str, group: GroupKey, seat: &HeldSeat) -> bool {
        if let Some(record) = self.groups.get_mut(&group) {
            let mine = self.jobs.get(&record.job).is_some_and(|job| job.key.is(&seat.ticket.key));
            if !mine || record.job != seat.ticket.job || !matches!(record.phase, GroupState::Open) {
                return false;
            }
            if record.seats.iter().any(|known| known == name) {
                return true;
            }
            // Only a group that was itself learnt from nodes can have seats that we do not know.
            let fits = record.leaders == 0 && self.numbers.claim(&seat.edges, group);
            if fits {
                record.seats.push(name.to_owned());
            }
            return fits;
        }
        if self.groups.len() >= MAX_GROUPS || !self.relearn_job(now, seat.ticket) {
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
                leaders: 0,
                window: seat.operations,
                operations: 0,
                opened_at: now,
                phase: GroupState::Open,
            },
        );
        self.log(ManagerEvent::GroupRelearnt { group, job: seat.ticket.job });
        true
    }

    fn relearn_job(&mut self, now: Time, ticket: JobTicket) -> bool {
        if let Some(job) = self.jobs.get(&ticket.job) {
            return job.key.is(&ticket.key);
        }
        if self.jobs.len() >= MAX_JOBS {
            return false;
        }
        let fresh = JobRecord::new(ticket, "relearnt", self.settings.default_quota);
        let mut record = JobRecord { detached_at: Some(now), ..fresh };
        record.account.note(now, JobEvent::Relearnt);
        self.jobs.insert(ticket.job, record);
        self.wake_by(now + self.settings.job_grace);
        true
    }

    pub(super) fn beat(
        &mut self,
        now: Time,
        from: PeerId,
        seats: Vec<SeatHeartbeat>,
        report: NodeReport,
    ) -> Result<(), ControlError> {
        let name = self.node_at(from)?;
        if seats.len() > MAX_GROUPS {
            return Err(ControlError::too_many("seats", MAX_GROUPS));
        }
        let Some(record) = self.nodes.get_mut(&name) else { return Ok(()) };
        let dropped = report
            .dropped
            .into_iter()
            .take(MAX_COUNTERS)
            .map(|(cause, count)| (validate::sanitize_text(&cause), count));
        record.report = NodeReport { dropped: dropped.collect(), ..report };
        let since = match record.presence {
            NodeLiveness::Here { since, .. } => since,
            _ => now,
        };
        record.presence = NodeLiveness::Here { peer: from, heard_at: now, since };
        let held: BTreeSet<GroupKey> = seats.iter().map(|seat| seat.group).collect();
        let absent: Vec<GroupKey> = record.holds.keys().filter(|group| !held.contains(group)).copied().collect();
        self.send(from, FromManager::Heard);
        for group in absent {
            self.missing_seat(now, &name, group, since);
        }
        for SeatHeartbeat { group, operations } in seats {
            match self.groups.get_mut(&group).filter(|record| record.seats.contains(&name)) {
                Some(record) => {
                    // Every seat of a group folds the same operations: the count of whoever is ahead holds.
                    let more = operations.saturating_sub(record.operations);
                    record.operations += more;
                    self.operations += more;
                    if let Some(job) = self.jobs.get_mut(&record.job) {
                        job.account.totals.operations += more;
                    }
                }
                None => self.remove_alone(&name, group),
            }
        }
        Ok(())
    }

    /// A node does not hold a seat that it should: it began anew since, unless the seat is so young that the two
    /// messages may have crossed.
    fn missing_seat(&mut self, now: Time, name: &str, group: GroupKey, since: Time) {
        match self.groups.get(&group) {
            None => {
                if let Some(record) = self.nodes.get_mut(name) {
                    record.release(group);
                }
            }
            Some(GroupRecord { phase: GroupState::Open, opened_at, .. })
                if *opened_at < since || now.since(*opened_at) > self.settings.node_silence =>
            {
                if let Some(record) = self.nodes.get_mut(name) {
                    record.release(group);
                }
                self.revoke_group(now, group, Some(name), "the node has lost its seat");
            }
            Some(_) => {}
        }
    }

    pub(super) fn node_trouble(
        &mut self,
        now: Time,
        from: PeerId,
        group: GroupKey,
        what: &str,
    ) -> Result<(), ControlError> {
        let name = self.node_at(from)?;
        let what = validate::sanitize_text(what);
        self.count("troubles told by nodes");
        self.log(ManagerEvent::Trouble { group, from: format!("node {name}"), what: what.clone() });
        let record = self.groups.get(&group).filter(|record| record.seats.contains(&name));
        let Some(record) = record else { return Ok(()) };
        // A neighbour that is lost is lost for good (P-9): the tree cannot be used any more.
        match record.phase {
            GroupState::Open => self.revoke_group(now, group, None, &format!("node {name}: {what}")),
            GroupState::Opening { .. } => {
                self.fail_opening(now, group, ControlError::NodeFailed { node: name, why: what })
            }
            GroupState::Closing { .. } => {}
        }
        Ok(())
    }

    pub(super) fn node_away(&mut self, now: Time, name: &str) {
        if let Some(record) = self.nodes.get_mut(name) {
            record.presence = NodeLiveness::Away { since: now };
            self.wake_by(now + self.settings.node_grace);
        }
    }

    pub(super) fn overdue_nodes(&mut self, now: Time) {
        let mut lost = Vec::new();
        for (name, record) in &self.nodes {
            let (due, why) = match record.presence {
                NodeLiveness::Arriving { heard_at, .. } | NodeLiveness::Here { heard_at, .. } => {
                    (heard_at + self.settings.node_silence, "it does not answer")
                }
                NodeLiveness::Away { since } => (since + self.settings.node_grace, "its connection broke"),
                NodeLiveness::Lost => continue,
            };
            if due <= now {
                lost.push((name.clone(), why));
            } else {
                self.wake_at = self.wake_at.min(due);
            }
        }
        for (name, why) in lost {
            self.lose_node(now, &name, why);
        }
    }

    /// A node is lost (P-56): whatever it served is revoked, its reservations with it.
    fn lose_node(&mut self, now: Time, name: &str, why: &'static str) {
        let Some(record) = self.nodes.get_mut(name) else { return };
        if let Some(peer) = record.presence.peer() {
            self.node_of_peer.remove(&peer);
            self.close(peer);
        }
        let Some(record) = self.nodes.get_mut(name) else { return };
        record.presence = NodeLiveness::Lost;
        let groups: Vec<GroupKey> = record.holds.keys().copied().collect();
        record.release_all();
        self.count("nodes lost");
        self.log(ManagerEvent::NodeLost { name: name.to_owned(), why });
        for group in groups {
            match self.groups.get(&group).map(|record| &record.phase) {
                Some(GroupState::Open) => self.revoke_group(now, group, Some(name), why),
                Some(GroupState::Opening { .. }) => {
                    let refusal = ControlError::NodeFailed { node: name.to_owned(), why: why.to_owned() };
                    self.fail_opening(now, group, refusal);
                }
                Some(GroupState::Closing { .. }) => self.finish_if_free(now, group),
                None => {}
            }
        }
    }

    pub(super) fn remove_alone(&mut self, name: &str, group: GroupKey) {
        let budget_ms = self.budget_ms();
        if let Some(peer) = self.nodes.get(name).and_then(|record| record.presence.peer()) {
            self.send(
                peer,
                FromManager::Order(NodeCommand::Remove { group, spread: RemovalScope::Alone, budget_ms }),
            );
        }
    }
}
