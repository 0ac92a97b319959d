//! Job handling of the manager: admission, re-attachment, end, history (P-81, P-83).

use units::Time;

use super::action::ManagerEvent;
use super::control_error::ControlError;
use super::job_history::{JobEvent, JobHistoryLog};
use super::limits::*;
use super::machine::Manager;
use super::message::{FromManager, GroupKey, Quota, RequestId};
use super::records::{GroupRecord, GroupState, JobNumberSource, JobOwner, JobRecord, RemovalStrategy};
use super::validate;
use super::{AuthKey, ControlPeer, JobId, JobTicket, PeerId};

impl Manager {
    pub(super) fn open_job(
        &mut self,
        now: Time,
        from: ControlPeer,
        request: RequestId,
        name: &str,
        quota: Option<Quota>,
        fresh: AuthKey,
    ) -> Result<(), ControlError> {
        self.check_job_limits(from)?;
        while self.jobs.contains_key(&JobId(self.next_job)) {
            self.next_job = self.next_job.wrapping_add(1);
        }
        let ticket = JobTicket { job: JobId(self.next_job), key: fresh };
        self.next_job = self.next_job.wrapping_add(1);
        let record = JobRecord::new(ticket, name, self.granted(quota));
        self.admit(now, from, request, ticket, record);
        Ok(())
    }

    /// A holder of one credential cannot keep all others out.
    fn check_job_limits(&self, from: ControlPeer) -> Result<(), ControlError> {
        if self.jobs.len() >= MAX_JOBS {
            return Err(ControlError::too_many("jobs", MAX_JOBS));
        }
        let of_credential = self.jobs.values().filter(|record| record.owner == JobOwner::of(from)).count();
        if from.credential.is_some() && of_credential >= MAX_JOBS_PER_CREDENTIAL {
            return Err(ControlError::too_many("jobs of one credential", MAX_JOBS_PER_CREDENTIAL));
        }
        Ok(())
    }

    fn admit(&mut self, now: Time, from: ControlPeer, request: RequestId, ticket: JobTicket, mut record: JobRecord) {
        let quota = record.quota;
        record.peers.insert(from.id);
        record.owner = JobOwner::of(from);
        record.history.note(now, JobEvent::Admitted);
        self.count("jobs admitted");
        self.log(ManagerEvent::JobOpened { job: ticket.job, name: record.history.name.clone() });
        self.jobs.insert(ticket.job, record);
        self.send(from.id, FromManager::JobOpened { request, ticket, quota });
    }

    fn granted(&self, requested: Option<Quota>) -> Quota {
        let (requested, max) = (requested.unwrap_or(self.settings.default_quota), self.settings.max_quota);
        Quota {
            groups: requested.groups.min(max.groups),
            operations: requested.operations.min(max.operations),
            bytes: requested.bytes.min(max.bytes),
        }
    }

    /// Re-attaches a job. If the manager does not know the job, because it restarted and no node holds a seat of it, the job is
    /// admitted under its old number.
    pub(super) fn attach_job(
        &mut self,
        now: Time,
        from: ControlPeer,
        request: RequestId,
        ticket: JobTicket,
        name: &str,
        quota: Quota,
    ) -> Result<(), ControlError> {
        if !self.jobs.contains_key(&ticket.job) {
            self.check_job_limits(from)?;
            let record = JobRecord::new(ticket, name, self.granted(Some(quota)));
            let record = JobRecord { number_source: JobNumberSource::Job, ..record };
            self.admit(now, from, request, ticket, record);
            return Ok(());
        }
        let granted = self.granted(Some(quota));
        let record = self.authenticate(ticket)?;
        record.quota = granted;
        if record.owner == JobOwner::Unknown {
            record.owner = JobOwner::of(from);
        }
        record.rename(name);
        if record.detached_at.is_some() {
            record.history.note(now, JobEvent::Reattached);
        }
        let pending = std::mem::take(&mut record.pending_notifications);
        self.attach_connection(from.id, ticket)?;
        self.log(ManagerEvent::JobAttached { job: ticket.job });
        self.send(from.id, FromManager::JobOpened { request, ticket, quota: granted });
        pending.into_iter().for_each(|message| self.send(from.id, message));
        Ok(())
    }

    /// Binds the connection to the job.
    pub(super) fn attach_connection(&mut self, from: PeerId, ticket: JobTicket) -> Result<(), ControlError> {
        let record = self.authenticate(ticket)?;
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
        self.authenticate(ticket)?;
        self.remove_job(now, ticket.job, "closed by the job");
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
        self.notify_job(job, FromManager::JobRevoked { job, why: why.clone() });
        self.count("jobs revoked");
        self.remove_job(now, job, &format!("revoked by the operator: {why}"));
        self.send(from, FromManager::Closed { request });
        Ok(())
    }

    pub(super) fn remove_job(&mut self, now: Time, job: JobId, why: &str) {
        let Some(record) = self.jobs.get(&job) else { return };
        for group in record.groups.clone() {
            match self.groups.get(&group).map(|record| &record.state) {
                Some(GroupState::Opening { .. }) => self.fail_opening(now, group, ControlError::Withdrawn),
                Some(GroupState::Open) => self.begin_removal(now, group, RemovalStrategy::Tree, Vec::new()),
                Some(GroupState::Closing { .. }) | None => {}
            }
        }
        if let Some(mut record) = self.jobs.remove(&job) {
            record.history.note(now, JobEvent::Ended { why: why.to_owned() });
            self.archive(record.history);
        }
        self.log(ManagerEvent::JobClosed { job, why: why.to_owned() });
    }

    pub(super) fn job_disconnected(&mut self, now: Time, peer: PeerId) {
        let mut detached = false;
        for record in self.jobs.values_mut() {
            if record.peers.remove(&peer) && record.peers.is_empty() {
                record.detached_at = Some(now);
                record.history.note(now, JobEvent::Detached);
                detached = true;
            }
        }
        if detached {
            self.wake_by(now + self.settings.job_grace);
        }
    }

    pub(super) fn expire_jobs(&mut self, now: Time) {
        let mut expired = Vec::new();
        for (job, record) in &self.jobs {
            let Some(since) = record.detached_at else { continue };
            let due = since + self.settings.job_grace;
            if due <= now {
                expired.push(*job);
            } else {
                self.wake_at = self.wake_at.min(due);
            }
        }
        for job in expired {
            self.count("jobs lost");
            self.remove_job(now, job, "it did not reconnect in time");
        }
    }

    /// A job reports that its own group is unusable (P-82). The ticket proves ownership, so no further evidence is needed.
    pub(super) fn job_failure(
        &mut self,
        now: Time,
        ticket: JobTicket,
        group: GroupKey,
        what: &str,
    ) -> Result<(), ControlError> {
        let record = self.authenticate(ticket)?;
        if !record.groups.contains(&group) {
            return Err(ControlError::UnknownGroup);
        }
        let what = validate::sanitize_text(what);
        let from = format!("{} ({})", ticket.job, record.history.name);
        self.count("failures reported by jobs");
        self.log(ManagerEvent::Failure { group, from, what: what.clone() });
        if matches!(self.groups.get(&group), Some(GroupRecord { state: GroupState::Open, .. })) {
            self.revoke_group(now, group, None, &format!("reported by its job: {what}"));
        }
        Ok(())
    }

    /// Replies with the histories of all jobs of a name.
    pub(super) fn job_history(
        &mut self,
        now: Time,
        from: PeerId,
        request: RequestId,
        job: &str,
    ) -> Result<(), ControlError> {
        let query = validate::sanitize_text(job);
        let alive = self.jobs.values().rev().map(|record| (&record.history, true));
        let finished = self.finished_jobs.iter().rev().map(|history| (history, false));
        let matching = alive.chain(finished).filter(|(history, _)| history.matches(&query)).take(MAX_JOB_HISTORIES);
        let histories = matching.map(|(history, alive)| history.snapshot(now, alive)).collect();
        self.send(from, FromManager::JobHistories { request, histories });
        Ok(())
    }

    /// Adds an event to the history of a job, if the job still runs.
    pub(super) fn note(&mut self, now: Time, job: JobId, event: JobEvent) {
        if let Some(record) = self.jobs.get_mut(&job) {
            record.history.note(now, event);
        }
    }

    /// Keeps the history of an ended job, in place of the oldest.
    fn archive(&mut self, history: JobHistoryLog) {
        if self.finished_jobs.len() == MAX_FINISHED_JOBS {
            self.finished_jobs.pop_front();
        }
        self.finished_jobs.push_back(history);
    }
}
