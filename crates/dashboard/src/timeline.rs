//! Failures, migrations and other events of the last time, for the page.
//!
//! In: events of the manager, and rising counters of nodes. Out: entries in the order of their numbers. Failures have a ring of
//! their own: a flood of jobs or refusals cannot push them out. An event that repeats the last one of its ring is counted there.

use std::collections::{BTreeMap, VecDeque};

use manager::ManagerEvent;
use manager::status::ManagerStatus;
use serde::Serialize;

/// Entries that are kept of failures, and of all others.
const MAX_ENTRIES: usize = 200;

/// How much an entry matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Severity {
    /// Something failed.
    Failure,
    /// Somebody did not get what was asked for, or got it by a detour.
    Warning,
    /// As it should be.
    Info,
}

/// One line of the timeline.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct TimelineEntry {
    /// Names the entry.
    pub id: u64,
    /// Its number; an entry that was counted again gets a new one.
    pub number: u64,
    /// Milliseconds since 1970 of its last occurrence.
    pub at_ms: u64,
    pub severity: Severity,
    /// What it is about, such as `node rack3`.
    pub object: String,
    /// A sentence.
    pub text: String,
    /// How often it happened in a row.
    pub count: u64,
}

/// The rings.
#[derive(Default)]
pub(super) struct Timeline {
    next: u64,
    failures: VecDeque<TimelineEntry>,
    others: VecDeque<TimelineEntry>,
    migrations: BTreeMap<String, u64>,
}

impl Timeline {
    /// Records an event of the manager.
    pub(super) fn note(&mut self, at_ms: u64, event: &ManagerEvent) {
        let (severity, object) = match event {
            ManagerEvent::NodeRegistered { name, .. } => (Severity::Info, format!("node {name}")),
            ManagerEvent::NodeLost { name, .. } => (Severity::Failure, format!("node {name}")),
            ManagerEvent::JobOpened { name, .. } => (Severity::Info, format!("job {name}")),
            ManagerEvent::JobAttached { job } | ManagerEvent::JobClosed { job, .. } => {
                (Severity::Info, job.to_string())
            }
            ManagerEvent::GroupOpened { group, .. }
            | ManagerEvent::GroupRecovered { group, .. }
            | ManagerEvent::GroupClosed { group } => (Severity::Info, group.to_string()),
            ManagerEvent::GroupRefused { job, .. } => (Severity::Warning, job.to_string()),
            ManagerEvent::GroupRevoked { group, .. } | ManagerEvent::Failure { group, .. } => {
                (Severity::Failure, group.to_string())
            }
            ManagerEvent::RequestRejected { .. } => return, // Any client can cause many; they are counted among the errors.
        };
        self.push(at_ms, severity, object, event.to_string());
    }

    /// Records that nodes migrated connections since the last status.
    pub(super) fn note_migrations(&mut self, at_ms: u64, status: &ManagerStatus) {
        let mut migrations = BTreeMap::new();
        for node in &status.nodes {
            let (name, now) = (&node.name, node.report.migrations);
            // A node that restarted counts from zero again.
            let more = self.migrations.get(name).map_or(0, |before| now.saturating_sub(*before));
            migrations.insert(name.clone(), now);
            if more > 0 {
                let what = if more == 1 { "a connection".to_owned() } else { format!("{more} connections") };
                let text = format!("node {name} moved {what} to another path");
                self.push(at_ms, Severity::Warning, format!("node {name}"), text);
            }
        }
        self.migrations = migrations;
    }

    /// Records that events are missing.
    pub(super) fn note_missing(&mut self, at_ms: u64, events: u64) {
        let text =
            format!("{events} events are missing here: they came faster than this page reads them; see the log");
        self.push(at_ms, Severity::Warning, "page".to_owned(), text);
    }

    fn push(&mut self, at_ms: u64, severity: Severity, object: String, text: String) {
        let number = self.next;
        self.next += 1;
        let ring = if severity == Severity::Failure { &mut self.failures } else { &mut self.others };
        if let Some(last) = ring.back_mut()
            && last.text == text
        {
            (last.number, last.at_ms, last.count) = (number, at_ms, last.count + 1);
            return;
        }
        if ring.len() == MAX_ENTRIES {
            ring.pop_front();
        }
        ring.push_back(TimelineEntry { id: number, number, at_ms, severity, object, text, count: 1 });
    }

    /// The number that the next entry will have.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// The entries from a number on, the oldest first.
    pub(super) fn since(&self, number: u64) -> Vec<&TimelineEntry> {
        let mut found: Vec<&TimelineEntry> =
            self.failures.iter().chain(&self.others).filter(|entry| entry.number >= number).collect();
        found.sort_by_key(|entry| entry.number);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manager::JobId;
    use manager::status::NodeStatus;

    fn lost(name: &str) -> ManagerEvent {
        ManagerEvent::NodeLost { name: name.to_owned(), why: "its connection broke".to_owned() }
    }

    #[test]
    fn a_flood_of_other_events_does_not_push_out_failures() {
        let mut timeline = Timeline::default();
        timeline.note(1, &lost("rack3"));
        for job in 0..10_000 {
            timeline.note(2, &ManagerEvent::JobAttached { job: JobId(job) });
        }
        let entries = timeline.since(0);
        assert_eq!(entries.len(), 1 + MAX_ENTRIES);
        assert_eq!((entries[0].object.as_str(), entries[0].severity), ("node rack3", Severity::Failure));
    }

    #[test]
    fn a_repeated_event_is_counted_and_passed_on_again() {
        let mut timeline = Timeline::default();
        (0..3).for_each(|at| timeline.note(at, &lost("rack3")));
        let [entry] = timeline.since(2)[..] else { panic!("one entry") };
        assert_eq!((entry.count, entry.at_ms, entry.number), (3, 2, 2));
        assert!(timeline.since(timeline.next()).is_empty());
    }

    #[test]
    fn rising_migrations_are_named_once() {
        let mut timeline = Timeline::default();
        let status = |migrations: u64| {
            let report = manager::message::NodeReport { migrations, ..Default::default() };
            let none = manager::message::Capacity { seats: 0, operations: 0, bytes: 0 };
            let node = NodeStatus {
                name: "rack3".to_owned(),
                node: manager::AggregationNodeId(1),
                version: String::new(),
                alive: true,
                capacity: none,
                reserved: none,
                report,
                parents: Vec::new(),
            };
            ManagerStatus { nodes: vec![node], ..ManagerStatus::default() }
        };
        for (at, migrations) in [(1, 5), (2, 5), (3, 7), (4, 0), (5, 1)] {
            timeline.note_migrations(at, &status(migrations));
        }
        let texts: Vec<(&str, u64)> = timeline.since(0).iter().map(|it| (it.text.as_str(), it.at_ms)).collect();
        let moved = "node rack3 moved 2 connections to another path";
        assert_eq!(texts, [(moved, 3), ("node rack3 moved a connection to another path", 5)]);
    }
}
