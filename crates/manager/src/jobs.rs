//! What the manager does about jobs: admission, coming back, going (P-55, P-57).

use std::collections::{BTreeSet, VecDeque};

use units::Time;

use super::account::{Account, What};
use super::check;
use super::duty::{Event, PeerId};
use super::groups::{GroupRecord, Phase, Way};
use super::limits::*;
use super::machine::{JobRecord, Manager};
use super::message::{FromManager, GroupKey, Quota, RequestId};
use super::refusal::Refusal;
use super::{JobId, JobTicket, Key};

impl JobRecord {
    pub(super) fn new(ticket: JobTicket, name: &str, quota: Quota) -> Self {
        Self {
            account: Account::new(ticket.job, &short(name)),
            key: ticket.key,
            quota,
            peers: BTreeSet::new(),
            groups: BTreeSet::new(),
            detached_at: None,
            missed: VecDeque::new(),
        }
    }
}

fn short(name: &str) -> String {
    let mut name = check::words(name);
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
        fresh: Key,
    ) -> Result<(), Refusal> {
        if self.jobs.len() >= MAX_JOBS {
            return Err(Refusal::too_many("jobs", MAX_JOBS));
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
        record.account.note(now, What::Admitted);
        self.count("jobs admitted");
        self.log(Event::JobOpened { job: ticket.job, name: record.account.name.clone() });
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
    ) -> Result<(), Refusal> {
        if !self.jobs.contains_key(&ticket.job) {
            if self.jobs.len() >= MAX_JOBS {
                return Err(Refusal::too_many("jobs", MAX_JOBS));
            }
            self.admit(now, from, request, ticket, name, Some(quota));
            return Ok(());
        }
        let granted = self.granted(Some(quota));
        let record = self.known(ticket)?;
        record.quota = granted;
        record.account.name = short(name);
        if record.detached_at.is_some() {
            record.account.note(now, What::Back);
        }
        let missed = std::mem::take(&mut record.missed);
        self.join(from, ticket)?;
        self.log(Event::JobAttached { job: ticket.job });
        self.send(from, FromManager::JobOpened { request, ticket, quota: granted });
        missed.into_iter().for_each(|message| self.send(from, message));
        Ok(())
    }

    /// The connection speaks for the job from now on.
    pub(super) fn join(&mut self, from: PeerId, ticket: JobTicket) -> Result<(), Refusal> {
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
    ) -> Result<(), Refusal> {
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
    ) -> Result<(), Refusal> {
        if !self.jobs.contains_key(&job) {
            return Err(Refusal::UnknownJob);
        }
        let why = check::words(why);
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
                Some(Phase::Opening { .. }) => self.fail_opening(now, group, Refusal::Withdrawn),
                Some(Phase::Open) => self.begin_removal(now, group, Way::Tree, Vec::new()),
                Some(Phase::Closing { .. }) | None => {}
            }
        }
        if let Some(mut record) = self.jobs.remove(&job) {
            record.account.note(now, What::Ended { why: why.to_owned() });
            self.bury(record.account);
        }
        self.log(Event::JobClosed { job, why: why.to_owned() });
    }

    pub(super) fn job_peer_lost(&mut self, now: Time, peer: PeerId) {
        let mut detached = false;
        for record in self.jobs.values_mut() {
            if record.peers.remove(&peer) && record.peers.is_empty() {
                record.detached_at = Some(now);
                record.account.note(now, What::Away);
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
    ) -> Result<(), Refusal> {
        let record = self.known(ticket)?;
        if !record.groups.contains(&group) {
            return Err(Refusal::UnknownGroup);
        }
        let what = check::words(what);
        let from = format!("{} ({})", ticket.job, record.account.name);
        self.count("troubles told by jobs");
        self.log(Event::Trouble { group, from, what: what.clone() });
        if matches!(self.groups.get(&group), Some(GroupRecord { phase: Phase::Open, .. })) {
            self.revoke_group(now, group, None, &format!("its job says: {what}"));
        }
        Ok(())
    }
}
