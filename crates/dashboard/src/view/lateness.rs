//! Who is late, by what nodes report of their children: the worst of all nodes, with rates since the report before.

use std::collections::BTreeMap;

use manager::message::LateChild;
use manager::status::{ManagerStatus, NodeStatus};
use serde::Serialize;

/// A child of a node that was late.
#[derive(Clone, Debug, Serialize)]
pub struct LateRow {
    /// The host, or the node, as `node rack3`.
    pub name: String,
    /// The node that waited.
    pub at: String,
    /// Operations in which it was the last.
    pub times_last: u64,
    /// Their share of all operations in which it takes part, from 0 to 1: of late if there were any, else in all.
    pub share: f64,
    /// The mean time from the first contribution to its own when it is the last: of late if it was, else in all.
    pub mean_us: f64,
    /// The longest.
    pub longest_us: u64,
    /// The part of each second that operations wait for it; above 1 if several wait at once.
    pub waiting: Option<f64>,
}

/// Late children in a view.
const MAX_LATE_ROWS: usize = 64;

/// The last reports of late children, by node: a status has thousands of them, and most nodes have reported nothing new.
#[derive(Default)]
pub(super) struct LatenessMeter {
    nodes: BTreeMap<String, NodeLateness>,
}

#[derive(Default)]
struct NodeLateness {
    at_ms: u64,
    children: Vec<ChildReading>,
    is_new: bool,
}

struct ChildReading {
    late: LateChild,
    /// Of the counters, per second; none at first, and after the counters or the clock of the node were reset.
    rates: Option<LatenessRates>,
}

#[derive(Clone, Copy)]
struct LatenessRates {
    times_last: f64,
    operations: f64,
    waited_us: f64,
}

impl LatenessMeter {
    /// The worst of all nodes that are alive, the worst first. Forgets nodes that are not in the status.
    pub(super) fn rows(&mut self, status: &ManagerStatus) -> Vec<LateRow> {
        for node in &status.nodes {
            self.handle_report(node);
        }
        self.nodes.retain(|_, node| std::mem::replace(&mut node.is_new, false));
        let alive = status.nodes.iter().filter(|node| node.alive);
        let of_node = |node: &NodeStatus| self.nodes.get_key_value(&node.name);
        let mut found: Vec<(&String, &ChildReading)> = alive
            .filter_map(of_node)
            .flat_map(|(name, node)| node.children.iter().map(move |child| (name, child)))
            .collect();
        let worst_first = |(_, a): &(&String, &ChildReading), (_, b): &(&String, &ChildReading)| {
            let (a, b) = (a.severity(), b.severity());
            b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
        };
        if found.len() > MAX_LATE_ROWS {
            found.select_nth_unstable_by(MAX_LATE_ROWS, worst_first);
            found.truncate(MAX_LATE_ROWS);
        }
        found.sort_by(worst_first);
        found.iter().map(|(at, child)| child.row(at)).collect()
    }

    fn handle_report(&mut self, node: &NodeStatus) {
        if !self.nodes.contains_key(&node.name) {
            self.nodes.insert(node.name.clone(), NodeLateness::default());
        }
        let Some(known) = self.nodes.get_mut(&node.name) else { return };
        known.is_new = true;
        let at_ms = node.report.uptime_ms;
        if at_ms == known.at_ms && known.children.len() == node.report.late.len() {
            return;
        }
        let time_ms = at_ms.checked_sub(known.at_ms).filter(|time| *time > 0);
        let before = std::mem::take(&mut known.children);
        let reading = |late: &LateChild| {
            let old = before.iter().find(|old| old.late.name == late.name);
            let rates = old.zip(time_ms).and_then(|(old, time_ms)| LatenessRates::between(&old.late, late, time_ms));
            ChildReading { late: late.clone(), rates }
        };
        known.children = node.report.late.iter().map(reading).collect();
        known.at_ms = at_ms;
    }
}

impl LatenessRates {
    fn between(before: &LateChild, now: &LateChild, time_ms: u64) -> Option<Self> {
        let rate = |before: u64, now: u64| Some(now.checked_sub(before)? as f64 * 1e3 / time_ms as f64);
        Some(Self {
            times_last: rate(before.times_last, now.times_last)?,
            operations: rate(before.operations, now.operations)?,
            waited_us: rate(before.waited_us, now.waited_us)?,
        })
    }
}

impl ChildReading {
    /// What operations wait for it now, and then what they waited in all.
    fn severity(&self) -> (f64, f64) {
        (self.rates.map_or(0.0, |rates| rates.waited_us), self.late.waited_us as f64)
    }

    fn row(&self, at: &str) -> LateRow {
        let late = &self.late;
        let recent = self.rates.filter(|rates| rates.times_last > 0.0);
        let mean_us = match recent {
            Some(rates) => rates.waited_us / rates.times_last,
            None => late.waited_us as f64 / late.times_last.max(1) as f64,
        };
        let share = match self.rates.filter(|rates| rates.operations > 0.0) {
            Some(rates) => rates.times_last / rates.operations,
            None => late.times_last as f64 / late.operations.max(1) as f64,
        };
        LateRow {
            name: late.name.clone(),
            at: at.to_owned(),
            times_last: late.times_last,
            share: rounded(share, 1e3).min(1.0),
            mean_us: rounded(mean_us, 10.0),
            longest_us: late.longest_us,
            waiting: self.rates.map(|rates| rounded(rates.waited_us / 1e6, 1e3)),
        }
    }
}

/// Exact enough to read, and short on the way to a page.
fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use manager::AggregationNodeId;
    use manager::message::{Capacity, NodeReport};

    fn node(name: &str, uptime_ms: u64, late: Vec<LateChild>) -> NodeStatus {
        let none = Capacity { seats: 0, operations: 0, bytes: 0 };
        NodeStatus {
            name: name.to_owned(),
            node: AggregationNodeId(1),
            version: String::new(),
            alive: true,
            capacity: none,
            reserved: none,
            report: NodeReport { uptime_ms, late, ..NodeReport::default() },
            parents: Vec::new(),
        }
    }

    fn late(name: &str, times_last: u64, operations: u64, waited_us: u64) -> LateChild {
        LateChild { name: name.to_owned(), times_last, operations, waited_us, longest_us: 9 }
    }

    fn rows(meter: &mut LatenessMeter, nodes: Vec<NodeStatus>) -> Vec<LateRow> {
        meter.rows(&ManagerStatus { nodes, ..ManagerStatus::default() })
    }

    #[test]
    fn shares_and_means_are_of_late() {
        let mut meter = LatenessMeter::default();
        let mut after = |uptime_ms, late| rows(&mut meter, vec![node("rack", uptime_ms, vec![late])]).remove(0);
        let first = after(1_000, late("host", 0, 1_000_000, 0));
        assert_eq!((first.share, first.waiting), (0.0, None));
        for _ in 0..2 {
            let second = after(2_000, late("host", 90, 1_000_100, 900_000));
            assert_eq!((second.share, second.mean_us, second.waiting), (0.9, 10_000.0, Some(0.9)));
        }
        let hung = after(3_000, late("host", 90, 1_000_100, 1_900_000));
        assert_eq!((hung.share, hung.waiting), (0.0, Some(1.0)), "no operation has ended");
        assert_eq!(after(10, late("host", 1, 2, 30)).waiting, None, "the node restarted");
        assert_eq!(after(1_010, late("other", 1, 2, 30)).waiting, None, "of this one nothing was known");
    }

    #[test]
    fn the_worst_come_first_whatever_they_waited_long_ago() {
        let mut meter = LatenessMeter::default();
        let of_rack = |uptime_ms, more| {
            let children = [late("past", 9, 9, 9_000_000), late("now", 1, 9, more), late("never", 0, 9, 0)];
            vec![node("rack", uptime_ms, children.to_vec()), node("quiet", uptime_ms, Vec::new())]
        };
        rows(&mut meter, of_rack(1_000, 0));
        let names: Vec<String> = rows(&mut meter, of_rack(2_000, 500)).into_iter().map(|row| row.name).collect();
        assert_eq!(names, ["now", "past", "never"]);
        let mut gone = of_rack(3_000, 900);
        gone[0].alive = false;
        assert!(rows(&mut meter, gone).is_empty(), "a lost node measures nothing");
        rows(&mut meter, Vec::new());
        assert!(meter.nodes.is_empty(), "swept");
    }
}
