//! Group handling of the manager: opening, closing, revoking (P-77 to P-82).

use units::{GroupId, Time};

use super::action::ManagerEvent;
use super::control_error::{ControlError, NodeResource};
use super::group_spec::{GroupRequest, reserved_bytes};
use super::job_history::JobEvent;
use super::limits::*;
use super::machine::Manager;
use super::message::{FromManager, GroupKey, NodeCommand, NodeReply, RemovalScope, RequestId};
use super::records::{GroupRecord, GroupState, RemovalStrategy, Reservation};
use super::validate;
use super::{AuthKey, JobId, JobTicket, PeerId};

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
        self.attach_connection(from, ticket)?;
        let leaders = asked.leaders.len() as u32;
        if let Err(error) = self.try_open(now, from, request, ticket, asked, fresh) {
            self.refuse_group(now, ticket.job, leaders, Some((from, request)), error);
        }
        Ok(())
    }

    /// Records the refusal, so that `pleach doctor` can say why a job does not use the network.
    fn refuse_group(
        &mut self,
        now: Time,
        job: JobId,
        leaders: u32,
        to: Option<(PeerId, RequestId)>,
        error: ControlError,
    ) {
        self.count("groups refused");
        *self.refused.entry(error.cause()).or_default() += 1;
        self.note(now, job, JobEvent::GroupRefused { leaders, why: validate::sanitize_text(&error.to_string()) });
        self.log(ManagerEvent::GroupRefused { job, error: error.clone() });
        if let Some((peer, request)) = to {
            self.send(peer, FromManager::Rejected { request, error });
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
        let job = self.authenticate(ticket)?;
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
            let reservation = Reservation { job: ticket.job, operations: asked.window, bytes };
            if let Some(record) = self.nodes.get_mut(&names[seat.node]) {
                record.reserve(key, reservation);
            }
        }
        if let Some(job) = self.jobs.get_mut(&ticket.job) {
            job.groups.insert(key);
        }
        let seats: Vec<String> = tree.seats().iter().map(|seat| names[seat.node].clone()).collect();
        let deadline = now + self.settings.setup_timeout;
        self.wake_by(deadline);
        let order = NodeCommand::Install { spec, budget_ms: self.budget_ms() };
        if let Some(peer) = self.nodes.get(&seats[0]).and_then(|record| record.liveness.peer()) {
            self.send(peer, FromManager::Command(order));
        }
        let state = GroupState::Opening { from: Some(from), request, reply: Box::new(reply), deadline };
        let (job, leaders, window) = (ticket.job, asked.leaders.len() as u32, asked.window);
        let parents = tree.parents();
        let record = GroupRecord { job, seats, parents, leaders, window, operations: 0, opened_at: now, state };
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

    /// Time that nodes get. It is a little shorter than the manager's own timeout, so that their reason arrives before it.
    pub(super) fn budget_ms(&self) -> u32 {
        let millis = self.settings.setup_timeout.as_nanos() / 1_000_000;
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
        self.attach_connection(from, ticket)?;
        let record = self.groups.get_mut(&group).filter(|record| record.job == ticket.job);
        match &mut record.ok_or(ControlError::UnknownGroup)?.state {
            GroupState::Closing { closers, .. } => closers.push((from, request)),
            GroupState::Open => self.begin_removal(now, group, RemovalStrategy::Tree, vec![(from, request)]),
            GroupState::Opening { .. } => {
                self.fail_opening(now, group, ControlError::Withdrawn);
                self.send(from, FromManager::Closed { request });
            }
        }
        Ok(())
    }

    /// Starts the removal of all seats. Each reservation is free when its node confirms.
    pub(super) fn begin_removal(
        &mut self,
        now: Time,
        group: GroupKey,
        strategy: RemovalStrategy,
        closers: Vec<(PeerId, RequestId)>,
    ) {
        let retry_at = now + self.settings.setup_timeout;
        let budget_ms = self.budget_ms();
        let Some(record) = self.groups.get_mut(&group) else { return };
        if let Some(job) = self.jobs.get_mut(&record.job) {
            job.groups.remove(&group);
        }
        let root = self.nodes.get(&record.seats[0]).and_then(|node| node.liveness.peer());
        // For a group that was recovered from nodes the manager knows the seats, but not the tree.
        let tree = root.filter(|_| strategy == RemovalStrategy::Tree && record.leaders > 0);
        let strategy = if tree.is_some() { RemovalStrategy::Tree } else { RemovalStrategy::Direct };
        record.state = GroupState::Closing { strategy, closers, retry_at };
        self.wake_by(retry_at);
        match tree {
            Some(root) => {
                self.send(
                    root,
                    FromManager::Command(NodeCommand::Remove { group, scope: RemovalScope::Subtree, budget_ms }),
                );
            }
            None => self.remove_each_seat(group),
        }
        self.finish_if_released(now, group);
    }

    fn holders(&self, group: GroupKey) -> Vec<String> {
        let Some(record) = self.groups.get(&group) else { return Vec::new() };
        let holds = |name: &&String| self.nodes.get(*name).is_some_and(|node| node.reservations.contains_key(&group));
        record.seats.iter().filter(holds).cloned().collect()
    }

    fn remove_each_seat(&mut self, group: GroupKey) {
        for name in self.holders(group) {
            self.remove_seat(&name, group);
        }
    }

    /// Forgets a closing group once no node holds a seat of it.
    pub(super) fn finish_if_released(&mut self, now: Time, group: GroupKey) {
        if !self.holders(group).is_empty() {
            return;
        }
        let Some(GroupRecord { state: GroupState::Closing { closers, .. }, job, operations, .. }) =
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

    /// Fails the opening of a group: replies to the job and removes the seats that are installed.
    pub(super) fn fail_opening(&mut self, now: Time, group: GroupKey, error: ControlError) {
        let Some(GroupRecord { state: GroupState::Opening { from, request, .. }, job, leaders, .. }) =
            self.groups.get(&group)
        else {
            return;
        };
        let (job, leaders, to) = (*job, *leaders, from.map(|from| (from, *request)));
        self.refuse_group(now, job, leaders, to, error);
        self.begin_removal(now, group, RemovalStrategy::Direct, Vec::new());
    }

    /// Revokes an open group (P-82): notifies the job and removes the seats.
    pub(super) fn revoke_group(&mut self, now: Time, group: GroupKey, node: Option<&str>, why: &str) {
        let Some(record) = self.groups.get(&group) else { return };
        let job = record.job;
        let why = why.to_owned();
        self.count("groups revoked");
        self.log(ManagerEvent::GroupRevoked { group, why: why.clone() });
        let reason = node.map_or_else(|| why.clone(), |node| format!("node {node}: {why}"));
        self.note(now, job, JobEvent::GroupRevoked { group, why: validate::sanitize_text(&reason) });
        self.notify_job(job, FromManager::Revoked { group, node: node.map(str::to_owned), why });
        self.begin_removal(now, group, RemovalStrategy::Direct, Vec::new());
    }

    pub(super) fn node_reply(&mut self, now: Time, from: PeerId, reply: NodeReply) -> Result<(), ControlError> {
        let name = self.node_at(from)?;
        let group = reply.group();
        let Some(record) = self.groups.get(&group) else {
            // The group is gone. A seat that was installed all the same must be removed.
            match reply {
                NodeReply::Installed { .. } => self.remove_seat(&name, group),
                NodeReply::Rejected { .. } | NodeReply::Removed { .. } => self.release(&name, group),
            }
            return Ok(());
        };
        let is_root = record.seats[0] == name;
        match (reply, &record.state) {
            (NodeReply::Installed { .. }, GroupState::Opening { .. }) if is_root => self.opened(now, group),
            (NodeReply::Rejected { error, leftover, .. }, GroupState::Opening { .. }) if is_root => {
                self.release_except(group, &leftover);
                self.fail_opening(now, group, error);
            }
            (NodeReply::Removed { leftover, .. }, GroupState::Closing { strategy: RemovalStrategy::Tree, .. })
                if is_root =>
            {
                self.release_except(group, &leftover);
                if let Some(GroupRecord { state: GroupState::Closing { strategy, .. }, .. }) =
                    self.groups.get_mut(&group)
                {
                    *strategy = RemovalStrategy::Direct;
                }
                self.remove_each_seat(group);
                self.finish_if_released(now, group);
            }
            (NodeReply::Removed { .. }, GroupState::Closing { .. }) => {
                self.release(&name, group);
                self.finish_if_released(now, group);
            }
            _ => {} // It crossed with a later command of the manager, whose reply will come.
        }
        Ok(())
    }

    fn release(&mut self, name: &str, group: GroupKey) {
        if let Some(record) = self.nodes.get_mut(name) {
            record.release(group);
        }
    }

    fn release_except(&mut self, group: GroupKey, leftover: &[String]) {
        for name in self.holders(group) {
            if !leftover.contains(&name) {
                self.release(&name, group);
            }
        }
    }

    fn opened(&mut self, now: Time, group: GroupKey) {
        let Some(record) = self.groups.get_mut(&group) else { return };
        let GroupState::Opening { from, request, reply, .. } = std::mem::replace(&mut record.state, GroupState::Open)
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
            // The requester has disconnected, and no other connection knows the group.
            None => self.begin_removal(now, group, RemovalStrategy::Tree, Vec::new()),
        }
    }

    pub(super) fn expire_groups(&mut self, now: Time) {
        let mut overdue = Vec::new();
        for (group, record) in &self.groups {
            let due = match record.state {
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
                Some(GroupRecord { state: GroupState::Opening { .. }, seats, .. }) => {
                    let (node, why) = (seats[0].clone(), "it did not install its subtree in time".to_owned());
                    self.fail_opening(now, group, ControlError::NodeFailed { node, why });
                }
                Some(GroupRecord { state: GroupState::Closing { closers, .. }, .. }) => {
                    // The closers get their reply now; the reservations stay until the nodes have confirmed.
                    let closers = std::mem::take(closers);
                    closers.into_iter().for_each(|(peer, request)| self.send(peer, FromManager::Closed { request }));
                    self.begin_removal(now, group, RemovalStrategy::Direct, Vec::new());
                }
                _ => {}
            }
        }
    }
}
