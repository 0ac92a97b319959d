//! What the manager remembers of a job, also after the job has ended: it answers why aggregation was or was not used.
//!
//! In: events of jobs and their groups. Out: histories, for `pleach doctor`. Memory is bounded: the newest events of a job,
//! and the newest of the ended jobs (P-85).

use std::collections::VecDeque;
use std::fmt;

use serde::{Deserialize, Serialize};
use units::Time;

use super::ids::{GroupKey, JobId};
use super::limits::MAX_JOB_EVENTS;

/// The history of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobHistory {
    /// Its number.
    pub job: JobId,
    /// Its name.
    pub name: String,
    /// Whether it still runs.
    pub alive: bool,
    /// Sums over all events, including dropped ones.
    pub totals: JobTotals,
    /// The events, oldest first.
    #[serde(rename = "happenings")]
    pub entries: Vec<JobHistoryEntry>,
    /// Number of older events that were dropped.
    #[serde(rename = "forgotten")]
    pub dropped_entries: u64,
}

/// Sums over the life of a job.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct JobTotals {
    /// Groups opened.
    pub opened: u64,
    /// Groups refused.
    pub refused: u64,
    /// Groups revoked after they were opened.
    pub revoked: u64,
    /// Operations folded in the network, as nodes reported them.
    pub operations: u64,
}

/// An event in the life of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobHistoryEntry {
    /// Its age.
    pub ago_ms: u64,
    /// The event.
    #[serde(rename = "what")]
    pub event: JobEvent,
}

/// What can happen to a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobEvent {
    /// The manager admitted it.
    Admitted,
    /// Nodes reported it to a restarted manager.
    #[serde(rename = "relearnt")]
    Recovered,
    /// Its last connection broke.
    #[serde(rename = "away")]
    Detached,
    /// It reconnected.
    #[serde(rename = "back")]
    Reattached,
    /// It got a group.
    GroupOpened {
        /// The group.
        group: GroupKey,
        /// Number of leaders: hosts, or parts of hosts.
        leaders: u32,
        /// Number of nodes that serve it.
        nodes: u32,
        /// The root node.
        root: String,
    },
    /// Its request for a group failed.
    GroupRefused {
        /// Number of leaders in the request.
        leaders: u32,
        /// The reason, as text.
        why: String,
    },
    /// A group became unusable.
    GroupRevoked {
        /// The group.
        group: GroupKey,
        /// The reason, as text.
        why: String,
    },
    /// A group is closed.
    GroupClosed {
        /// The group.
        group: GroupKey,
        /// Operations folded in it.
        operations: u64,
    },
    /// The job ended.
    Ended {
        /// The reason, as text.
        why: String,
    },
}

impl fmt::Display for JobEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admitted => f.write_str("admitted"),
            Self::Recovered => f.write_str("recovered from its nodes after a restart of the manager"),
            Self::Detached => f.write_str("its connection to the manager broke"),
            Self::Reattached => f.write_str("reconnected"),
            Self::GroupOpened { group, leaders, nodes, root } => {
                write!(f, "{group} opened: {leaders} leaders below {nodes} nodes, root {root}")
            }
            Self::GroupRefused { leaders, why } => write!(f, "a group of {leaders} leaders was refused: {why}"),
            Self::GroupRevoked { group, why } => write!(f, "{group} was revoked: {why}"),
            Self::GroupClosed { group, operations } => write!(f, "{group} closed after {operations} operations"),
            Self::Ended { why } => write!(f, "ended: {why}"),
        }
    }
}

/// The bounded log from which a [`JobHistory`] is made.
#[derive(Debug)]
pub(super) struct JobHistoryLog {
    job: JobId,
    pub name: String,
    pub totals: JobTotals,
    events: VecDeque<(Time, JobEvent)>,
    dropped_events: u64,
}

impl JobHistoryLog {
    pub(super) fn new(job: JobId, name: &str) -> Self {
        let (totals, events) = (JobTotals::default(), VecDeque::new());
        Self { job, name: name.to_owned(), totals, events, dropped_events: 0 }
    }

    pub(super) fn note(&mut self, now: Time, event: JobEvent) {
        match &event {
            JobEvent::GroupOpened { .. } => self.totals.opened += 1,
            JobEvent::GroupRefused { .. } => self.totals.refused += 1,
            JobEvent::GroupRevoked { .. } => self.totals.revoked += 1,
            _ => {}
        }
        if self.events.len() == MAX_JOB_EVENTS {
            self.events.pop_front();
            self.dropped_events += 1;
        }
        self.events.push_back((now, event));
    }

    /// The reason of the last refused group.
    pub(super) fn last_refusal(&self) -> Option<&str> {
        self.events.iter().rev().find_map(|(_, event)| match event {
            JobEvent::GroupRefused { why, .. } => Some(why.as_str()),
            _ => None,
        })
    }

    /// True if the query is the job's name, its beginning up to a dash, or the job's number.
    pub(super) fn matches(&self, query: &str) -> bool {
        let number = query.strip_prefix("job ").unwrap_or(query);
        // Launchers append a dash and a unique suffix to the name.
        let is_name = self.name.strip_prefix(query).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
        is_name || number.len() == 16 && u64::from_str_radix(number, 16) == Ok(self.job.0)
    }

    pub(super) fn snapshot(&self, now: Time, alive: bool) -> JobHistory {
        let entry = |(at, event): &(Time, JobEvent)| JobHistoryEntry {
            ago_ms: now.since(*at).as_nanos() / 1_000_000,
            event: event.clone(),
        };
        JobHistory {
            job: self.job,
            name: self.name.clone(),
            alive,
            totals: self.totals,
            entries: self.events.iter().map(entry).collect(),
            dropped_entries: self.dropped_events,
        }
    }
}
