//! What the manager remembers of a job, also when it has gone: for whoever asks why aggregation was or was not used.
//!
//! In: what happens to jobs and their groups. Out: accounts, for `pleach doctor`. What is remembered is bounded: the newest
//! happenings of a job, and the newest of the jobs that are gone (P-59).

use std::collections::VecDeque;
use std::fmt;

use serde::{Deserialize, Serialize};
use units::Time;

use super::JobId;
use super::limits::{MAX_FINISHED_JOBS, MAX_JOB_EVENTS, MAX_JOB_HISTORIES};
use super::machine::Manager;
use super::message::{FromManager, GroupKey, RequestId};
use super::validate;
use super::{ControlError, PeerId};

/// A job, as the manager remembers it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobHistory {
    /// Its number.
    pub job: JobId,
    /// Its name.
    pub name: String,
    /// Whether it is still there.
    pub alive: bool,
    /// Sums over all that happened, also over what is forgotten.
    pub totals: JobTotals,
    /// What happened, oldest first.
    pub happenings: Vec<JobHistoryEntry>,
    /// Older happenings that are forgotten.
    pub forgotten: u64,
}

/// Sums over a job's life.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct JobTotals {
    /// Groups that were opened.
    pub opened: u64,
    /// Groups that were asked for and refused.
    pub refused: u64,
    /// Groups that were opened and then of no use any more.
    pub revoked: u64,
    /// Operations folded in the network, as nodes reported them.
    pub operations: u64,
}

/// Something that happened to a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobHistoryEntry {
    /// How long ago.
    pub ago_ms: u64,
    /// What.
    pub what: JobEvent,
}

/// What can happen to a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobEvent {
    /// It was admitted.
    Admitted,
    /// Nodes of an earlier manager told of it.
    Relearnt,
    /// Its last connection broke.
    Away,
    /// It was heard again.
    Back,
    /// It got a group.
    GroupOpened {
        /// Which.
        group: GroupKey,
        /// Hosts, or parts of hosts, in it.
        leaders: u32,
        /// Nodes that serve it.
        nodes: u32,
        /// The node at the top.
        root: String,
    },
    /// It did not get a group.
    GroupRefused {
        /// Hosts, or parts of hosts, that it asked for.
        leaders: u32,
        /// Why, in words.
        why: String,
    },
    /// A group was of no use any more.
    GroupRevoked {
        /// Which.
        group: GroupKey,
        /// Why, in words.
        why: String,
    },
    /// It gave a group back.
    GroupClosed {
        /// Which.
        group: GroupKey,
        /// Operations folded in it.
        operations: u64,
    },
    /// It is gone.
    Ended {
        /// Why, in words.
        why: String,
    },
}

impl fmt::Display for JobEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admitted => f.write_str("admitted"),
            Self::Relearnt => f.write_str("known again from its nodes, after the manager began anew"),
            Self::Away => f.write_str("its connection to the manager broke"),
            Self::Back => f.write_str("back"),
            Self::GroupOpened { group, leaders, nodes, root } => {
                write!(f, "{group} opened: {leaders} leaders below {nodes} nodes, the top one is {root}")
            }
            Self::GroupRefused { leaders, why } => write!(f, "a group of {leaders} leaders was refused: {why}"),
            Self::GroupRevoked { group, why } => write!(f, "{group} was revoked: {why}"),
            Self::GroupClosed { group, operations } => write!(f, "{group} closed after {operations} operations"),
            Self::Ended { why } => write!(f, "gone: {why}"),
        }
    }
}

/// The record behind an account.
#[derive(Debug)]
pub(super) struct JobHistoryLog {
    job: JobId,
    pub name: String,
    pub totals: JobTotals,
    happenings: VecDeque<(Time, JobEvent)>,
    forgotten: u64,
}

impl JobHistoryLog {
    pub(super) fn new(job: JobId, name: &str) -> Self {
        let (totals, happenings) = (JobTotals::default(), VecDeque::new());
        Self { job, name: name.to_owned(), totals, happenings, forgotten: 0 }
    }

    pub(super) fn note(&mut self, now: Time, what: JobEvent) {
        match &what {
            JobEvent::GroupOpened { .. } => self.totals.opened += 1,
            JobEvent::GroupRefused { .. } => self.totals.refused += 1,
            JobEvent::GroupRevoked { .. } => self.totals.revoked += 1,
            _ => {}
        }
        if self.happenings.len() == MAX_JOB_EVENTS {
            self.happenings.pop_front();
            self.forgotten += 1;
        }
        self.happenings.push_back((now, what));
    }

    /// Why the last group was refused.
    pub(super) fn last_refusal(&self) -> Option<&str> {
        self.happenings.iter().rev().find_map(|(_, what)| match what {
            JobEvent::GroupRefused { why, .. } => Some(why.as_str()),
            _ => None,
        })
    }

    fn is_called(&self, query: &str) -> bool {
        let number = query.strip_prefix("job ").unwrap_or(query);
        // Who starts a job adds what makes its name unique.
        let begins = self.name.strip_prefix(query).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
        begins || number.len() == 16 && u64::from_str_radix(number, 16) == Ok(self.job.0)
    }

    fn told(&self, now: Time, alive: bool) -> JobHistory {
        let told = |(at, what): &(Time, JobEvent)| JobHistoryEntry {
            ago_ms: now.since(*at).as_picos() / 1_000_000_000,
            what: what.clone(),
        };
        JobHistory {
            job: self.job,
            name: self.name.clone(),
            alive,
            totals: self.totals,
            happenings: self.happenings.iter().map(told).collect(),
            forgotten: self.forgotten,
        }
    }
}

impl Manager {
    /// Tells what became of the jobs of a name.
    pub(super) fn explain(
        &mut self,
        now: Time,
        from: PeerId,
        request: RequestId,
        job: &str,
    ) -> Result<(), ControlError> {
        let query = validate::sanitize_text(job);
        let alive = self.jobs.values().rev().map(|record| (&record.account, true));
        let past = self.past.iter().rev().map(|account| (account, false));
        let fitting = alive.chain(past).filter(|(account, _)| account.is_called(&query)).take(MAX_JOB_HISTORIES);
        let accounts = fitting.map(|(account, alive)| account.told(now, alive)).collect();
        self.send(from, FromManager::Explained { request, accounts });
        Ok(())
    }

    /// Remembers something about a job, if it is still there.
    pub(super) fn note(&mut self, now: Time, job: JobId, what: JobEvent) {
        if let Some(record) = self.jobs.get_mut(&job) {
            record.account.note(now, what);
        }
    }

    /// Keeps the account of a job that is gone, in place of the oldest.
    pub(super) fn bury(&mut self, account: JobHistoryLog) {
        if self.past.len() == MAX_FINISHED_JOBS {
            self.past.pop_front();
        }
        self.past.push_back(account);
    }
}
