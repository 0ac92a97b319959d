//! What the manager does about groups: opening, closing, revoking (P-51 to P-56).

use units::{GroupId, Time};

use super::action::{ManagerEvent, PeerId};
use super::control_error::{ControlError, NodeResource};
use super::group_spec::{GroupDescriptor, GroupRequest, reserved_bytes};
use super::job_history::JobEvent;
use super::limits::*;
use super::machine::{Manager, Reservation};
use super::message::{FromManager, GroupKey, NodeCommand, NodeReply, RemovalScope, RequestId};
use super::validate;
use super::{AuthKey, JobId, JobTicket};

#[derive(Debug)]
pub(super) struct GroupRecord {
    pub job: JobId,
    /// The nodes with a seat, the root first.
    pub seats: Vec<String>,
    /// Zero if the group was learnt from nodes.
    pub leaders: u32,
    pub window: u32,
    /// Operations that its nodes have reported.
    pub operations: u64,
    pub opened_at: Time,
    pub phase: GroupState,
}

#[derive(Debug)]
pub(super) enum GroupState {
    /// The root was told to take its seat and to have the others taken.
    Opening {
        from: Option<PeerId>,
        request: RequestId,
        reply: Box<GroupDescriptor>,
        deadline: Time,
    },
    Open,
    /// Seats are being given up; those who asked for it are answered when all are.
    Closing {
        way: RemovalStrategy,
        closers: Vec<(PeerId, RequestId)>,
        retry_at: Time,
    },
}

/// How a removal reaches the seats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RemovalStrategy {
    /// From the root down, as they were taken.
    Tree,
    /// Each is told by us: the tree may be broken.
    Direct,
}

impl GroupRecord {
    pub(super) fn forget_peer(&mut self, peer: PeerId) {
        match &mut self.phase {
            GroupState::Opening { from, .. } if *from == Some(peer) => *from = None,
            GroupState::Closing { closers, .. } => closers.retain(|(closer, _)| *closer != peer),
            _ => {}
        }
    }
}

impl Manager {
    pub(super) fn open_group(
        &mut self,
        now: Time,
        from: PeerId,
        request: RequestId,
        ticket: JobTicket,
        asked: GroupRequest,
        fresh: AuthKey,
    ) -> Result<(), ControlError> {
        self.join(from, ticket)?;
        let leaders = asked.leaders.len() as u32;
        if let Err(refusal) = self.try_open(now, from, request, ticket, asked, fresh) {
            self.refuse_group(now, ticket.job, leaders, Some((from, request)), refusal);
        }
        Ok(())
    }

    /// On record, so that `pleach doctor` can say why a job does not use the network.
    fn refuse_group(
        &mut self,
        now: Time,
        job: JobId,
        leaders: u32,
        to: Option<(PeerId, RequestId)>,
        refusal: ControlError,
    ) {
        self.count("groups refused");
        *self.refused.entry(refusal.cause()).or_default() += 1;
        self.note(now, job, JobEvent::GroupRefused { leaders, why: validate::sanitize_text(&refusal.to_string()) });
        self.log(ManagerEvent::GroupRefused { job, refusal: refusal.clone() });
        if let Some((peer, request)) = to {
            self.send(peer, FromManager::Refused { request, refusal });
        }
    }

    fn try_open(
        &mut self,
        now: Time,
        from: PeerId,
        request: RequestId,
        ticket: JobTicket,
        asked: GroupRequest,
        fresh: AuthKey,
    ) -> Result<(), ControlError> {
        validate::group_request(&asked)?;
        if self.groups.len() >= MAX_GROUPS {
            return Err(ControlError::too_many("groups", MAX_GROUPS));
        }
        let job = self.known(ticket)?;
        if job.groups.len() >= job.quota.groups as usize {
            let (wanted, free) = (1, 0);
            return Err(ControlError::QuotaFull {
                node: String::new(),
                resource: NodeResource::Groups,
                wanted,
                free,
            });
        }
        let asked = GroupRequest { window: asked.window.next_power_of_two(), ..asked };
        let (tree, names) = self.choose_tree(ticket.job, &asked)?;
        let key = self.next_key();
        let (spec, reply) = self.lay_out(ticket, key, fresh, &asked, &tree, &names)?;
        for seat in tree.seats() {
            let bytes = reserved_bytes(asked.window, seat.parts.len(), asked.segment_bytes);
            let hold = Reservation { job: ticket.job, operations: asked.window, bytes };
            if let Some(record) = self.nodes.get_mut(&names[seat.site]) {
                record.hold(key, hold);
            }
        }
        if let Some(job) = self.jobs.get_mut(&ticket.job) {
            job.groups.insert(key);
        }
        let seats: Vec<String> = tree.seats().iter().map(|seat| names[seat.site].clone()).collect();
        let deadline = now + self.settings.patience;
        self.wake_by(deadline);
        let order = NodeCommand::Install { spec, budget_ms: self.budget_ms() };
        if let Some(peer) = self.nodes.get(&seats[0]).and_then(|record| record.presence.peer()) {
            self.send(peer, FromManager::Order(order));
        }
        let phase = GroupState::Opening { from: Some(from), request, reply: Box::new(reply), deadline };
        let (job, leaders, window) = (ticket.job, asked.leaders.len() as u32, asked.window);
        let record = GroupRecord { job, seats, leaders, window, operations: 0, opened_at: now, phase };
        self.groups.insert(key, record);
        Ok(())
    }

    fn next_key(&mut self) -> GroupKey {
        loop {
            let key = GroupKey { group: GroupId(self.next_group), epoch: self.epoch };
            self.next_group = self.next_group.wrapping_add(1);
            if !self.groups.contains_key(&key) {
                return key;
            }
        }
    }

    /// Nodes give up a little before we do, so that their reason reaches us.
    pub(super) fn budget_ms(&self) -> u32 {
        let millis = self.settings.patience.as_picos() / 1_000_000_000;
        (millis * 9 / 10).clamp(1, 600_000) as u32
    }

    pub(super) fn close_group(
        &mut self,
        now: Time,
        from: PeerId,
        request: RequestId,
        ticket: JobTicket,
        group: GroupKey,
    ) -> Result<(), ControlError> {
        self.join(from, ticket)?;
        let record = self.groups.get_mut(&group).filter(|record| record.job == ticket.job);
        match &mut record.ok_or(ControlError::UnknownGroup)?.phase {
            GroupState::Closing { closers, .. } => closers.push((from, request)),
            GroupState::Open => self.begin_removal(now, group, RemovalStrategy::Tree, vec![(from, request)]),
            GroupState::Opening { .. } => {
                self.fail_opening(now, group, ControlError::Withdrawn);
                self.send(from, FromManager::Closed { request });
            }
        }
        Ok(())
    }

    /// Has all seats given up. What they reserved is free when they are.
    pub(super) fn begin_removal(
        &mut self,
        now: Time,
        group: GroupKey,
        way: RemovalStrategy,
        closers: Vec<(PeerId, RequestId)>,
    ) {
        let retry_at = now + self.settings.patience;
        let budget_ms = self.budget_ms();
        let Some(record) = self.groups.get_mut(&group) else { return };
        if let Some(job) = self.jobs.get_mut(&record.job) {
            job.groups.remove(&group);
        }
        let root = self.nodes.get(&record.seats[0]).and_then(|node| node.presence.peer());
        // A group that was learnt from nodes has a list of seats, but not the tree.
        let tree = root.filter(|_| way == RemovalStrategy::Tree && record.leaders > 0);
        let way = if tree.is_some() { RemovalStrategy::Tree } else { RemovalStrategy::Direct };
        record.phase = GroupState::Closing { way, closers, retry_at };
        self.wake_by(retry_at);
        match tree {
            Some(root) => {
                self.send(
                    root,
                    FromManager::Order(NodeCommand::Remove { group, spread: RemovalScope::Below, budget_ms }),
                );
            }
            None => self.remove_directly(group),
        }
        self.finish_if_free(now, group);
    }

    fn holders(&self, group: GroupKey) -> Vec<String> {
        let Some(record) = self.groups.get(&group) else { return Vec::new() };
        let holds = |name: &&String| self.nodes.get(*name).is_some_and(|node| node.holds.contains_key(&group));
        record.seats.iter().filter(holds).cloned().collect()
    }

    fn remove_directly(&mut self, group: GroupKey) {
        for name in self.holders(group) {
            self.remove_alone(&name, group);
        }
    }

    /// Forgets a group that no node holds any more.
    pub(super) fn finish_if_free(&mut self, now: Time, group: GroupKey) {
        if !self.holders(group).is_empty() {
            return;
        }
        let Some(GroupRecord { phase: GroupState::Closing { closers, .. }, job, operations, .. }) =
            self.groups.remove(&group)
        else {
            return;
        };
        self.numbers.free(group);
        self.count("groups closed");
        self.note(now, job, JobEvent::GroupClosed { group, operations });
        self.log(ManagerEvent::GroupClosed { group });
        for (peer, request) in closers {
            self.send(peer, FromManager::Closed { request });
        }
    }

    /// A group that was being opened cannot be: whoever asked is told, and what was taken is given up.
    pub(super) fn fail_opening(&mut self, now: Time, group: GroupKey, refusal: ControlError) {
        let Some(GroupRecord { phase: GroupState::Opening { from, request, .. }, job, leaders, .. }) =
            self.groups.get(&group)
        else {
            return;
        };
        let (job, leaders, to) = (*job, *leaders, from.map(|from| (from, *request)));
        self.refuse_group(now, job, leaders, to, refusal);
        self.begin_removal(now, group, RemovalStrategy::Direct, Vec::new());
    }

    /// An open group is of no use any more (P-56).
    pub(super) fn revoke_group(&mut self, now: Time, group: GroupKey, node: Option<&str>, why: &str) {
        let Some(record) = self.groups.get(&group) else { return };
        let job = record.job;
        let why = why.to_owned();
        self.count("groups revoked");
        self.log(ManagerEvent::GroupRevoked { group, why: why.clone() });
        let words = node.map_or_else(|| why.clone(), |node| format!("node {node}: {why}"));
        self.note(now, job, JobEvent::GroupRevoked { group, why: validate::sanitize_text(&words) });
        self.tell_job(job, FromManager::Revoked { group, node: node.map(str::to_owned), why });
        self.begin_removal(now, group, RemovalStrategy::Direct, Vec::new());
    }

    pub(super) fn answer(&mut self, now: Time, from: PeerId, answer: NodeReply) -> Result<(), ControlError> {
        let name = self.node_at(from)?;
        let group = answer.group();
        let Some(record) = self.groups.get(&group) else {
            // Gone already. A seat that was taken all the same must go too.
            match answer {
                NodeReply::Installed { .. } => self.remove_alone(&name, group),
                NodeReply::Refused { .. } | NodeReply::Removed { .. } => self.release(&name, group),
            }
            return Ok(());
        };
        let is_root = record.seats[0] == name;
        match (answer, &record.phase) {
            (NodeReply::Installed { .. }, GroupState::Opening { .. }) if is_root => self.opened(now, group),
            (NodeReply::Refused { refusal, leftover, .. }, GroupState::Opening { .. }) if is_root => {
                self.release_but(group, &leftover);
                self.fail_opening(now, group, refusal);
            }
            (NodeReply::Removed { leftover, .. }, GroupState::Closing { way: RemovalStrategy::Tree, .. })
                if is_root =>
            {
                self.release_but(group, &leftover);
                if let Some(GroupRecord { phase: GroupState::Closing { way, .. }, .. }) = self.groups.get_mut(&group)
                {
                    *way = RemovalStrategy::Direct;
                }
                self.remove_directly(group);
                self.finish_if_free(now, group);
            }
            (NodeReply::Removed { .. }, GroupState::Closing { .. }) => {
                self.release(&name, group);
                self.finish_if_free(now, group);
            }
            _ => {} // Crossed with an order of ours, whose answer will come.
        }
        Ok(())
    }

    fn release(&mut self, name: &str, group: GroupKey) {
        if let Some(record) = self.nodes.get_mut(name) {
            record.release(group);
        }
    }

    fn release_but(&mut self, group: GroupKey, leftover: &[String]) {
        for name in self.holders(group) {
            if !leftover.contains(&name) {
                self.release(&name, group);
            }
        }
    }

    fn opened(&mut self, now: Time, group: GroupKey) {
        let Some(record) = self.groups.get_mut(&group) else { return };
        let GroupState::Opening { from, request, reply, .. } = std::mem::replace(&mut record.phase, GroupState::Open)
        else {
            return;
        };
        record.opened_at = now;
        let (job, leaders, nodes) = (record.job, record.leaders, record.seats.clone());
        match from {
            Some(peer) => {
                self.count("groups opened");
                let (root, count) = (nodes[0].clone(), nodes.len() as u32);
                self.note(now, job, JobEvent::GroupOpened { group, leaders, nodes: count, root });
                self.log(ManagerEvent::GroupOpened { group, job, nodes });
                self.send(peer, FromManager::GroupOpened { request, group: *reply });
            }
            // Whoever asked has gone, and nobody else knows of it.
            None => self.begin_removal(now, group, RemovalStrategy::Tree, Vec::new()),
        }
    }

    pub(super) fn overdue_groups(&mut self, now: Time) {
        let mut overdue = Vec::new();
        for (group, record) in &self.groups {
            let due = match record.phase {
                GroupState::Opening { deadline, .. } => deadline,
                GroupState::Closing { retry_at, .. } => retry_at,
                GroupState::Open => continue,
            };
            if due <= now {
                overdue.push(*group);
            } else {
                self.wake_at = self.wake_at.min(due);
            }
        }
        for group in overdue {
            match self.groups.get_mut(&group) {
                Some(GroupRecord { phase: GroupState::Opening { .. }, seats, .. }) => {
                    let (node, why) = (seats[0].clone(), "the seats were not taken in time".to_owned());
                    self.fail_opening(now, group, ControlError::NodeFailed { node, why });
                }
                Some(GroupRecord { phase: GroupState::Closing { closers, .. }, .. }) => {
                    // Whoever closes does not wait for ever; what is reserved stays so until the nodes have answered.
                    let closers = std::mem::take(closers);
                    closers.into_iter().for_each(|(peer, request)| self.send(peer, FromManager::Closed { request }));
                    self.begin_removal(now, group, RemovalStrategy::Direct, Vec::new());
                }
                _ => {}
            }
        }
    }
}
