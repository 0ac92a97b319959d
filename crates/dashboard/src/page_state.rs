//! What the page shows, as events for browsers: the whole state for a new viewer, then what changed.
//!
//! In: snapshots and events of the manager. Out: bytes that all viewers share, made once for each snapshot. Rows of nodes, jobs and groups
//! are compared as they are encoded, so that a change contains only rows that differ. Rules of the encoding: a line
//! `event: state` or `event: change`, a line `data:` with one JSON object, an empty line.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use control::ManagerSnapshot;
use manager::ManagerEvent;
use serde::Serialize;
use serde_json::value::RawValue;

use super::history::{History, HistorySample};
use super::timeline::{Timeline, TimelineEntry};
use super::view::{ClusterView, LatencyQuantiles, ViewMeter};

/// The numbers at the top of the page.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct PageSummary {
    manager: SocketAddr,
    version: String,
    uptime_s: u64,
    connections: usize,
    nodes: usize,
    nodes_alive: usize,
    jobs: usize,
    groups: usize,
    operations: u64,
    operations_per_second: Option<f64>,
    latency: Option<LatencyQuantiles>,
    left_out: u64,
}

/// Rows by key, encoded.
type EncodedRows = BTreeMap<String, Box<RawValue>>;

/// The lists of a view, encoded.
struct EncodedView {
    nodes: EncodedRows,
    jobs: EncodedRows,
    groups: EncodedRows,
    late: Box<RawValue>,
    trees: Box<RawValue>,
    errors: Box<RawValue>,
}

#[derive(Serialize)]
struct WholeState<'a> {
    at_ms: u64,
    summary: &'a PageSummary,
    nodes: Vec<&'a RawValue>,
    jobs: Vec<&'a RawValue>,
    groups: Vec<&'a RawValue>,
    late: &'a RawValue,
    trees: &'a RawValue,
    errors: &'a RawValue,
    history: Vec<&'a HistorySample>,
    timeline: Vec<&'a TimelineEntry>,
}

#[derive(Serialize)]
struct StateChange<'a> {
    at_ms: u64,
    summary: &'a PageSummary,
    nodes: RowChange<'a>,
    jobs: RowChange<'a>,
    groups: RowChange<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    late: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trees: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<&'a RawValue>,
    sample: Option<&'a HistorySample>,
    timeline: Vec<&'a TimelineEntry>,
}

/// Rows that are new or differ, and the keys of rows that are gone.
#[derive(Serialize)]
struct RowChange<'a> {
    set: Vec<&'a RawValue>,
    gone: Vec<&'a str>,
}

/// The state behind the page.
pub(super) struct PageState {
    manager: SocketAddr,
    meter: ViewMeter,
    timeline: Timeline,
    history: History,
    current: Option<(u64, ClusterView, PageSummary)>,
    /// What the viewers have; none if they would have nothing to compare a change with.
    encoded: Option<EncodedView>,
    /// The first timeline entry that the viewers do not have.
    timeline_sent: u64,
    /// The whole state, if a viewer needed it since the last snapshot.
    whole: Option<Bytes>,
}

impl PageState {
    pub(super) fn new(manager: SocketAddr) -> Self {
        Self {
            manager,
            meter: ViewMeter::default(),
            timeline: Timeline::default(),
            history: History::default(),
            current: None,
            encoded: None,
            timeline_sent: 0,
            whole: None,
        }
    }

    /// Records an event; viewers get it with the next snapshot.
    pub(super) fn handle_event(&mut self, at_ms: u64, event: &ManagerEvent) {
        self.timeline.note(at_ms, event);
    }

    /// Records that events were dropped.
    pub(super) fn handle_missing_events(&mut self, at_ms: u64, events: u64) {
        self.timeline.note_missing(at_ms, events);
    }

    /// Records a snapshot. With viewers, returns what changed for them.
    pub(super) fn handle_snapshot(&mut self, at_ms: u64, snapshot: ManagerSnapshot, viewers: usize) -> Option<Bytes> {
        self.timeline.note_migrations(at_ms, &snapshot.status);
        let view = ClusterView::new(self.manager, snapshot.status, &mut self.meter);
        self.history.note(at_ms, &view);
        let summary = PageSummary {
            manager: self.manager,
            version: view.version.clone(),
            uptime_s: snapshot.uptime.as_secs(),
            connections: snapshot.connections,
            nodes: view.nodes.len(),
            nodes_alive: view.nodes.iter().filter(|node| node.alive).count(),
            jobs: view.jobs.len(),
            groups: view.groups.len(),
            operations: view.operations,
            operations_per_second: view.operations_per_second,
            latency: view.latency,
            left_out: view.left_out,
        };
        self.whole = None;
        let encoded = (viewers > 0).then(|| EncodedView::of(&view));
        self.current = Some((at_ms, view, summary));
        let before = std::mem::replace(&mut self.encoded, encoded);
        let change = self.encoded.as_ref().zip(before).and_then(|(now, before)| self.change(now, &before));
        self.timeline_sent = self.timeline.next();
        change
    }

    fn change(&self, now: &EncodedView, before: &EncodedView) -> Option<Bytes> {
        let (at_ms, _, summary) = self.current.as_ref()?;
        event_bytes(
            "change",
            &StateChange {
                at_ms: *at_ms,
                summary,
                nodes: changed_rows(&now.nodes, &before.nodes),
                jobs: changed_rows(&now.jobs, &before.jobs),
                groups: changed_rows(&now.groups, &before.groups),
                late: differing(&now.late, &before.late),
                trees: differing(&now.trees, &before.trees),
                errors: differing(&now.errors, &before.errors),
                sample: self.history.samples().back(),
                timeline: self.timeline.since(self.timeline_sent),
            },
        )
    }

    /// The whole state as it was at the last snapshot; none before the first one.
    pub(super) fn whole(&mut self) -> Option<Bytes> {
        let (at_ms, view, summary) = self.current.as_ref()?;
        if self.whole.is_none() {
            let encoded = self.encoded.get_or_insert_with(|| EncodedView::of(view));
            let state = WholeState {
                at_ms: *at_ms,
                summary,
                nodes: encoded.nodes.values().map(|row| &**row).collect(),
                jobs: encoded.jobs.values().map(|row| &**row).collect(),
                groups: encoded.groups.values().map(|row| &**row).collect(),
                late: &encoded.late,
                trees: &encoded.trees,
                errors: &encoded.errors,
                history: self.history.samples().iter().collect(),
                // Later entries come with the next change.
                timeline: self.timeline.since(0).into_iter().filter(|it| it.number < self.timeline_sent).collect(),
            };
            self.whole = event_bytes("state", &state);
        }
        self.whole.clone()
    }
}

impl EncodedView {
    fn of(view: &ClusterView) -> Self {
        Self {
            nodes: encoded_rows(&view.nodes, |node| node.name.clone()),
            jobs: encoded_rows(&view.jobs, |job| job.job.clone()),
            groups: encoded_rows(&view.groups, |group| format!("{} {}", group.group, group.epoch)),
            late: encoded(&view.late),
            trees: encoded(&view.trees),
            errors: encoded(&view.errors),
        }
    }
}

fn encoded_rows<T: Serialize>(rows: &[T], key: impl Fn(&T) -> String) -> EncodedRows {
    rows.iter().map(|row| (key(row), encoded(row))).collect()
}

fn encoded(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn differing<'a>(now: &'a RawValue, before: &RawValue) -> Option<&'a RawValue> {
    (now.get() != before.get()).then_some(now)
}

fn changed_rows<'a>(now: &'a EncodedRows, before: &'a EncodedRows) -> RowChange<'a> {
    let is_new = |key: &str, row: &RawValue| before.get(key).is_none_or(|old| old.get() != row.get());
    let rows = now.iter().map(|(key, row)| (key.as_str(), &**row));
    RowChange {
        set: rows.filter(|(key, row)| is_new(key, row)).map(|(_, row)| row).collect(),
        gone: before.keys().filter(|key| !now.contains_key(*key)).map(String::as_str).collect(),
    }
}

fn event_bytes(name: &str, data: &impl Serialize) -> Option<Bytes> {
    let mut text = format!("event: {name}\ndata: ").into_bytes();
    serde_json::to_writer(&mut text, data).ok()?;
    text.extend_from_slice(b"\n\n");
    Some(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use manager::message::{Capacity, NodeReport};
    use manager::status::{ManagerStatus, NodeStatus};
    use manager::{AggregationNodeId, ManagerEvent};
    use serde_json::Value;
    use std::time::Duration;

    fn snapshot(nodes: &[(&str, u64)]) -> ManagerSnapshot {
        let none = Capacity { seats: 0, operations: 0, bytes: 0 };
        let node = |(name, operations): &(&str, u64)| NodeStatus {
            name: (*name).to_owned(),
            node: AggregationNodeId(1),
            version: String::new(),
            alive: true,
            capacity: none,
            reserved: none,
            report: NodeReport { operations: *operations, uptime_ms: 1_000, ..NodeReport::default() },
            parents: Vec::new(),
        };
        let status = ManagerStatus { nodes: nodes.iter().map(node).collect(), ..ManagerStatus::default() };
        ManagerSnapshot { status, uptime: Duration::from_secs(1), connections: 1 }
    }

    fn parsed(bytes: &Bytes) -> (String, Value) {
        let text = std::str::from_utf8(bytes).expect("text");
        let (name, data) = text.split_once('\n').expect("two lines");
        let data = data.strip_prefix("data: ").and_then(|data| data.strip_suffix("\n\n")).expect("one line of data");
        assert!(!data.contains('\n'), "{data}");
        (name.to_owned(), serde_json::from_str(data).expect("JSON"))
    }

    fn state() -> PageState {
        PageState::new(SocketAddr::from(([127, 0, 0, 1], 4797)))
    }

    #[test]
    fn a_change_contains_only_rows_that_differ_and_names_those_that_are_gone() {
        let mut state = state();
        assert!(state.whole().is_none(), "nothing is known yet");
        assert!(state.handle_snapshot(1, snapshot(&[("a", 1), ("b", 1), ("c", 1)]), 0).is_none());
        let (name, whole) = parsed(&state.whole().expect("known"));
        assert_eq!((name.as_str(), whole["nodes"].as_array().map(Vec::len)), ("event: state", Some(3)));
        let change = state.handle_snapshot(2, snapshot(&[("a", 1), ("b", 2), ("d", 1)]), 1).expect("a viewer waits");
        let (name, change) = parsed(&change);
        assert_eq!(name, "event: change");
        let names: Vec<&str> =
            change["nodes"]["set"].as_array().expect("rows").iter().filter_map(|row| row["name"].as_str()).collect();
        assert_eq!((names, &change["nodes"]["gone"]), (vec!["b", "d"], &serde_json::json!(["c"])));
        assert!(change.get("late").is_none() && change["sample"]["at_ms"] == 2, "{change}");
    }

    #[test]
    fn every_event_reaches_each_viewer_once() {
        let mut state = state();
        let lost = |name: &str| ManagerEvent::NodeLost { name: name.to_owned(), why: "no heartbeat".to_owned() };
        state.handle_event(1, &lost("early"));
        state.handle_snapshot(2, snapshot(&[]), 0);
        state.handle_event(3, &lost("late"));
        let (_, whole) = parsed(&state.whole().expect("known"));
        let (_, change) = parsed(&state.handle_snapshot(4, snapshot(&[]), 1).expect("a viewer waits"));
        let objects = |value: &Value| -> Vec<String> {
            let entries = value["timeline"].as_array().expect("a list");
            entries.iter().map(|entry| entry["object"].as_str().expect("text").to_owned()).collect()
        };
        assert_eq!((objects(&whole), objects(&change)), (vec!["node early".into()], vec!["node late".into()]));
        let (_, whole) = parsed(&state.whole().expect("known"));
        assert_eq!(objects(&whole), ["node early", "node late"]);
    }

    #[test]
    fn the_whole_state_is_encoded_once_per_snapshot() {
        let mut state = state();
        state.handle_snapshot(1, snapshot(&[("a", 1)]), 2);
        let (first, second) = (state.whole().expect("known"), state.whole().expect("known"));
        assert_eq!(first.as_ptr(), second.as_ptr(), "the viewers share it");
    }
}
