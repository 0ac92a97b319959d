//! What the manager does about nodes: registration, beats, loss (P-50, P-56, P-57, P-59).

use std::collections::{BTreeMap, BTreeSet};

use units::Time;

use super::account::What;
use super::check;
use super::duty::{Event, PeerId};
use super::groups::{GroupRecord, Phase};
use super::limits::*;
use super::machine::{Hold, JobRecord, Manager, NodeRecord, Presence};
use super::message::{
    Capacity, FromManager, GroupKey, HeldSeat, NodeCard, NodeReport, Order, RequestId, SeatBeat, Spread,
};
use super::plan::circle;
use super::refusal::Refusal;
use super::{JobTicket, NodeNumber};

/// More than any version has.
const MAX_VERSION_LETTERS: usize = 32;

impl Manager {
    pub(super) fn register(
        &mut self,
        now: Time,
        from: PeerId,
        request: RequestId,
        card: NodeCard,
        version: &str,
    ) -> Result<(), Refusal> {
        check::card(&card)?;
        let card = self.settings.topology.place(card);
        let patterns = check::card(&card)?;
        self.is_welcome(from, &card, patterns.len())?;
        let known = self.nodes.get(&card.name).map(|record| record.number);
        let number = known.unwrap_or_else(|| {
            self.next_node = (self.next_node + 1) & 0x7fff_ffff;
            NodeNumber::from_count(self.next_node)
        });
        let name = card.name.clone();
        let presence = Presence::Arriving { peer: from, heard_at: now };
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
        record.version = check::words(version).chars().take(MAX_VERSION_LETTERS).collect();
        self.node_of_peer.insert(from, name.clone());
        self.wake_by(now + self.settings.node_silence);
        self.count("nodes registered");
        self.log(Event::NodeRegistered { name, node: number });
        let beat_ms = (self.settings.beat.as_picos() / 1_000_000_000).clamp(10, 60_000) as u32;
        self.send(from, FromManager::Registered { request, node: number, beat_ms });
        Ok(())
    }

    fn is_welcome(&mut self, from: PeerId, card: &NodeCard, patterns: usize) -> Result<(), Refusal> {
        if self.node_of_peer.contains_key(&from) {
            return Err(Refusal::malformed("this connection belongs to a node already"));
        }
        if self.nodes.get(&card.name).is_some_and(|record| record.presence.peer().is_some()) {
            return Err(Refusal::NameTaken { name: card.name.clone() });
        }
        let others =
            || self.nodes.iter().filter(|(name, record)| **name != card.name && record.presence != Presence::Lost);
        if let Some((other, _)) = others().find(|(_, record)| record.card.control == card.control) {
            return Err(Refusal::malformed(&format!(
                "node {other} takes orders at the same address {}",
                card.control
            )));
        }
        if others().map(|(_, record)| record.patterns.len()).sum::<usize>() + patterns > MAX_PATTERNS {
            return Err(Refusal::too_many("served hosts of all nodes", MAX_PATTERNS));
        }
        let mut parents: BTreeMap<&str, &[String]> =
            others().map(|(name, record)| (name.as_str(), record.card.parents.as_slice())).collect();
        parents.insert(&card.name, &card.parents);
        if let Some(name) = circle(&parents) {
            return Err(Refusal::malformed(&format!("with these parents node {name} would be above itself")));
        }
        if self.nodes.len() >= MAX_NODES && !self.nodes.contains_key(&card.name) {
            let lost = self.nodes.iter().find(|(_, record)| record.presence == Presence::Lost);
            let Some(name) = lost.map(|(name, _)| name.clone()) else {
                return Err(Refusal::too_many("nodes", MAX_NODES));
            };
            self.nodes.remove(&name);
        }
        Ok(())
    }

    pub(super) fn node_at(&self, peer: PeerId) -> Result<String, Refusal> {
        self.node_of_peer.get(&peer).cloned().ok_or_else(|| Refusal::malformed("only a registered node says this"))
    }

    /// A node tells what it holds from before (P-57). What fits is taken over, what does not is removed.
    pub(super) fn holding(&mut self, now: Time, from: PeerId, seats: Vec<HeldSeat>) -> Result<(), Refusal> {
        let name = self.node_at(from)?;
        if seats.len() > MAX_GROUPS {
            return Err(Refusal::too_many("seats", MAX_GROUPS));
        }
        for seat in seats {
            let group = GroupKey { group: seat.group, epoch: seat.epoch };
            let hold = Hold { job: seat.ticket.job, operations: seat.operations, bytes: seat.bytes };
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
            if !mine || record.job != seat.ticket.job || !matches!(record.phase, Phase::Open) {
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
                phase: Phase::Open,
            },
        );
        self.log(Event::GroupRelearnt { group, job: seat.ticket.job });
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
        record.account.note(now, What::Relearnt);
        self.jobs.insert(ticket.job, record);
        self.wake_by(now + self.settings.job_grace);
        true
    }

    pub(super) fn beat(
        &mut self,
        now: Time,
        from: PeerId,
        seats: Vec<SeatBeat>,
        report: NodeReport,
    ) -> Result<(), Refusal> {
        let name = self.node_at(from)?;
        if seats.len() > MAX_GROUPS {
            return Err(Refusal::too_many("seats", MAX_GROUPS));
        }
        let Some(record) = self.nodes.get_mut(&name) else { return Ok(()) };
        let dropped =
            report.dropped.into_iter().take(MAX_COUNTERS).map(|(cause, count)| (check::words(&cause), count));
        record.report = NodeReport { dropped: dropped.collect(), ..report };
        let since = match record.presence {
            Presence::Here { since, .. } => since,
            _ => now,
        };
        record.presence = Presence::Here { peer: from, heard_at: now, since };
        let held: BTreeSet<GroupKey> = seats.iter().map(|seat| seat.group).collect();
        let absent: Vec<GroupKey> = record.holds.keys().filter(|group| !held.contains(group)).copied().collect();
        self.send(from, FromManager::Heard);
        for group in absent {
            self.missing_seat(now, &name, group, since);
        }
        for SeatBeat { group, operations } in seats {
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
            Some(GroupRecord { phase: Phase::Open, opened_at, .. })
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
    ) -> Result<(), Refusal> {
        let name = self.node_at(from)?;
        let what = check::words(what);
        self.count("troubles told by nodes");
        self.log(Event::Trouble { group, from: format!("node {name}"), what: what.clone() });
        let record = self.groups.get(&group).filter(|record| record.seats.contains(&name));
        let Some(record) = record else { return Ok(()) };
        // A neighbour that is lost is lost for good (P-9): the tree cannot be used any more.
        match record.phase {
            Phase::Open => self.revoke_group(now, group, None, &format!("node {name}: {what}")),
            Phase::Opening { .. } => self.fail_opening(now, group, Refusal::NodeFailed { node: name, why: what }),
            Phase::Closing { .. } => {}
        }
        Ok(())
    }

    pub(super) fn node_away(&mut self, now: Time, name: &str) {
        if let Some(record) = self.nodes.get_mut(name) {
            record.presence = Presence::Away { since: now };
            self.wake_by(now + self.settings.node_grace);
        }
    }

    pub(super) fn overdue_nodes(&mut self, now: Time) {
        let mut lost = Vec::new();
        for (name, record) in &self.nodes {
            let (due, why) = match record.presence {
                Presence::Arriving { heard_at, .. } | Presence::Here { heard_at, .. } => {
                    (heard_at + self.settings.node_silence, "it does not answer")
                }
                Presence::Away { since } => (since + self.settings.node_grace, "its connection broke"),
                Presence::Lost => continue,
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
        record.presence = Presence::Lost;
        let groups: Vec<GroupKey> = record.holds.keys().copied().collect();
        record.release_all();
        self.count("nodes lost");
        self.log(Event::NodeLost { name: name.to_owned(), why });
        for group in groups {
            match self.groups.get(&group).map(|record| &record.phase) {
                Some(Phase::Open) => self.revoke_group(now, group, Some(name), why),
                Some(Phase::Opening { .. }) => {
                    let refusal = Refusal::NodeFailed { node: name.to_owned(), why: why.to_owned() };
                    self.fail_opening(now, group, refusal);
                }
                Some(Phase::Closing { .. }) => self.finish_if_free(now, group),
                None => {}
            }
        }
    }

    pub(super) fn remove_alone(&mut self, name: &str, group: GroupKey) {
        let budget_ms = self.budget_ms();
        if let Some(peer) = self.nodes.get(name).and_then(|record| record.presence.peer()) {
            self.send(peer, FromManager::Order(Order::Remove { group, spread: Spread::Alone, budget_ms }));
        }
    }
}
