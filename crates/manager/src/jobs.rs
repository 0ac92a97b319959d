//! What the manager does about jobs: admission, coming back, going (P-55, P-57).

use std::collections::{BTreeSet, VecDeque};

use units::Time;

use super::action::{ManagerEvent, PeerId};
use super::control_error::ControlError;
use super::groups::{GroupRecord, GroupState, RemovalStrategy};
use super::job_history::{JobEvent, JobHistoryLog};
use super::limits::*;
use super::machine::{JobRecord, Manager};
use super::message::{FromManager, GroupKey, Quota, RequestId};
use super::validate;
use super::{AuthKey, JobId, JobTicket};

impl JobRecord {
    pub(super) fn new(ticket: JobTicket, name: &str, quota: Quota) -> Self {
        Self {
            account: JobHistoryLog::new(ticket.job, &truncate_name(name)),
            key: ticket.key,
            quota,
            peers: BTreeSet::new(),
            groups: BTreeSet::new(),
            detached_at: None,
            missed: VecDeque::new(),
        }
    }
}

fn truncate_name(name: &str) -> String {
    let mut name = validate::sanitize_text(name);
    name.truncate((0..=MAX_NAME_BYTES).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0));
    name
}

impl Manager {
    pub(super) fn open_job(
        &mut self,
        now: Time,
        from: PeerId,
        request: RequestId,
        name: &str,
        quota: Option<Quota>,
        fresh: AuthKey,
    ) -> Result<(), ControlError> {
        if self.jobs.len() >= MAX_JOBS {
            return Err(ControlError::too_many("jobs", MAX_JOBS));
        }
        while self.jobs.contains_key(&JobId(self.next_job)) {
            self.next_job = self.next_job.wrapping_add(1);
        }
        let ticket = JobTicket { job: JobId(self.next_job), key: fresh };
        self.next_job = self.next_job.wrapping_add(1);
        self.admit(now, from, request, ticket, name, quota);
        Ok(())
    }

    fn admit(
        &mut self,
        now: Time,
        from: PeerId,
        request: RequestId,
        ticket: JobTicket,
        name: &str,
        quota: Option<Quota>,
    ) {
        let quota = self.granted(quota);
        let mut record = JobRecord::new(ticket, name, quota);
        record.peers.insert(from);
        record.account.note(now, JobEvent::Admitted);
        self.count("jobs admitted");
        self.log(ManagerEvent::JobOpened { job: ticket.job, name: record.account.name.clone() });
        self.jobs.insert(ticket.job, record);
        self.send(from, FromManager::JobOpened { request, ticket, quota });
    }

    fn granted(&self, wish: Option<Quota>) -> Quota {
        let (wish, most) = (wish.unwrap_or(self.settings.default_quota), self.settings.most_quota);
        Quota {
            groups: wish.groups.min(most.groups),
            operations: wish.operations.min(most.operations),
            bytes: wish.bytes.min(most.bytes),
        }
    }

    /// A job comes back. One that is not known, because the manager began anew and no node holds a seat of it, is
    /// admitted under the number that it had.
    pub(super) fn attach_job(
        &mut self,
        now: Time,
        from: PeerId,
        request: RequestId,
        ticket: JobTicket,
        name: &str,
        quota: Quota,
    ) -> Result<(), ControlError> {
        if !self.jobs.contains_key(&ticket.job) {
            if self.jobs.len() >= MAX_JOBS {
                return Err(ControlError::too_many("jobs", MAX_JOBS));
            }
            self.admit(now, from, request, ticket, name, Some(quota));
            return Ok(());
        }
        let granted = self.granted(Some(quota));
        let record = self.known(ticket)?;
        record.quota = granted;
        record.account.name = truncate_name(name);
        if record.detached_at.is_some() {
            record.account.note(now, JobEvent::Back);
        }
        let missed = std::mem::take(&mut record.missed);
        self.join(from, ticket)?;
        self.log(ManagerEvent::JobAttached { job: ticket.job });
        self.send(from, FromManager::JobOpened { request, ticket, quota: granted });
        missed.into_iter().for_each(|message| self.send(from, message));
        Ok(())
    }

    /// The connection speaks for the job from now on.
    pub(super) fn join(&mut self, from: PeerId, ticket: JobTicket) -> Result<(), ControlError> {
        let record = self.known(ticket)?;
        record.peers.insert(from);
        record.detached_at = None;
        Ok(())
    }

    pub(super) fn close_job(
        &mut self,
        now: Time,
        from: PeerId,
        request: RequestId,
        ticket: JobTicket,
    ) -> Result<(), ControlError> {
        self.known(ticket)?;
        self.remove_job(now, ticket.job, "it is done");
        self.send(from, FromManager::Closed { request });
        Ok(())
    }

    pub(super) fn revoke_job(
        &mut self,
        now: Time,
        from: PeerId,
        request: RequestId,
        job: JobId,
        why: &str,
    ) -> Result<(), ControlError> {
        if !self.jobs.contains_key(&job) {
            return Err(ControlError::UnknownJob);
        }
        let why = validate::sanitize_text(why);
        self.tell_job(job, FromManager::JobRevoked { job, why: why.clone() });
        self.count("jobs revoked");
        self.remove_job(now, job, &format!("the operator ended it: {why}"));
        self.send(from, FromManager::Closed { request });
        Ok(())
    }

    fn remove_job(&mut self, now: Time, job: JobId, why: &str) {
        let Some(record) = self.jobs.get(&job) else { return };
        for group in record.groups.clone() {
            match self.groups.get(&group).map(|record| &record.phase) {
                Some(GroupState::Opening { .. }) => self.fail_opening(now, group, ControlError::Withdrawn),
                Some(GroupState::Open) => self.begin_removal(now, group, RemovalStrategy::Tree, Vec::new()),
                Some(GroupState::Closing { .. }) | None => {}
            }
        }
        if let Some(mut record) = self.jobs.remove(&job) {
            record.account.note(now, JobEvent::Ended { why: why.to_owned() });
            self.bury(record.account);
        }
        self.log(ManagerEvent::JobClosed { job, why: why.to_owned() });
    }

    pub(super) fn job_peer_lost(&mut self, now: Time, peer: PeerId) {
        let mut detached = false;
        for record in self.jobs.values_mut() {
            if record.peers.remove(&peer) && record.peers.is_empty() {
                record.detached_at = Some(now);
                record.account.note(now, JobEvent::Away);
                detached = true;
            }
        }
        if detached {
            self.wake_by(now + self.settings.job_grace);
        }
    }

    pub(super) fn overdue_jobs(&mut self, now: Time) {
        let mut gone = Vec::new();
        for (job, record) in &self.jobs {
            let Some(since) = record.detached_at else { continue };
            let due = since + self.settings.job_grace;
            if due <= now {
                gone.push(*job);
            } else {
                self.wake_at = self.wake_at.min(due);
            }
        }
        for job in gone {
            self.count("jobs lost");
            self.remove_job(now, job, "it did not come back");
        }
    }

    /// A job found a group of its own useless (P-56): it is its own, so it is believed.
    pub(super) fn job_trouble(
        &mut self,
        now: Time,
        ticket: JobTicket,
        group: GroupKey,
        what: &str,
    ) -> Result<(), ControlError> {
        let record = self.known(ticket)?;
        if !record.groups.contains(&group) {
            return Err(ControlError::UnknownGroup);
        }
        let what = validate::sanitize_text(what);
        let from = format!("{} ({})", ticket.job, record.account.name);
        self.count("troubles told by jobs");
        self.log(ManagerEvent::Trouble { group, from, what: what.clone() });
        if matches!(self.groups.get(&group), Some(GroupRecord { phase: GroupState::Open, .. })) {
            self.revoke_group(now, group, None, &format!("its job says: {what}"));
        }
        Ok(())
    }
}
