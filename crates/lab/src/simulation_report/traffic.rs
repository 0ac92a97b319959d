//! Traffic and workloads in the report: completion times, throughput, repairs, and what failed.

use std::fmt::Write;

use serde::Serialize;
use simulator::flows::ClassRecord;
use simulator::scenario::Scenario;
use topology::NodeId;

use crate::latency_distribution::LatencyDistribution;
use crate::number_format::{group_digits, pluralize};
use crate::report::{escape, format_table};
use crate::simulated_run::SimulatedRun;

/// One class of traffic.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TrafficLine {
    pub(crate) name: String,
    pub(crate) started: u64,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    /// Flows with an end that were still under way when the run ended.
    pub(crate) open: u64,
    pub(crate) bytes: u64,
    pub(crate) gbit_per_s: f64,
    pub(crate) repairs: u64,
    /// From the start of a flow until its receiver has it all.
    pub(crate) completion: Option<LatencyDistribution>,
    /// How evenly flows without an end share the fabric: 1 if all have the same, 1/n if one has all.
    pub(crate) fairness: Option<f64>,
}

/// A workload.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WorkloadLine {
    pub(crate) name: String,
    pub(crate) ranks: usize,
    pub(crate) operations: u64,
    pub(crate) completed: u64,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// When the last rank was done; none if one never was.
    pub(crate) time_us: Option<f64>,
    /// The rank that was done last, and its share of the time in computations.
    pub(crate) slowest_rank: usize,
    pub(crate) computing_share: f64,
    /// Operations that wait in vain.
    pub(crate) stalled: Vec<String>,
}

/// Flows that gave up, by their ends.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FlowFailureLine {
    pub(crate) cause: String,
    pub(crate) at_us: f64,
}

/// All of it.
#[derive(Clone, Default, Debug, Serialize)]
pub(crate) struct FlowReport {
    pub(crate) traffic: Vec<TrafficLine>,
    pub(crate) workload: Option<WorkloadLine>,
    pub(crate) failed: u64,
    pub(crate) listed_failures: Vec<FlowFailureLine>,
}

impl TrafficLine {
    /// Flows without an end, such as a flood, never fail: that nothing arrived is the only sign.
    fn delivered_nothing(&self) -> bool {
        self.started > 0 && self.bytes == 0 && self.open == 0
    }
}

impl FlowReport {
    pub(crate) fn new(scenario: &Scenario, run: &SimulatedRun) -> Self {
        let (listed, failed) = run.flow_failures();
        let name = |node: NodeId| scenario.fabric.name(node);
        let line = |failure: &simulator::flows::FlowFailure| FlowFailureLine {
            cause: format!("{} gets no answer from {} over any route", name(failure.from), name(failure.to)),
            at_us: failure.at.since(units::SimTime::ZERO).as_nanos_f64() / 1e3,
        };
        Self {
            traffic: run.traffic().iter().map(traffic_line).collect(),
            workload: workload_line(scenario, run),
            failed,
            listed_failures: listed.iter().map(line).collect(),
        }
    }

    /// Whether a flow failed, a class delivered nothing, or a workload did not end.
    pub(crate) fn has_failures(&self) -> bool {
        self.failed > 0
            || self.traffic.iter().any(TrafficLine::delivered_nothing)
            || self.workload.as_ref().is_some_and(|workload| workload.completed < workload.operations)
    }

    /// The result in a few words.
    pub(crate) fn summary(&self) -> String {
        let flows: u64 = self.traffic.iter().map(|class| class.completed).sum();
        let mut text = match self.failed {
            0 => format!("{} completed, none failed", pluralize(flows, "flow")),
            failed => format!("{} completed, {} FAILED", pluralize(flows, "flow"), group_digits(failed)),
        };
        let open: u64 = self.traffic.iter().map(|class| class.open).sum();
        if open > 0 {
            let _ = write!(text, ", {} STILL OPEN at the end", group_digits(open));
        }
        for class in self.traffic.iter().filter(|class| class.delivered_nothing()) {
            let _ = write!(text, "; NOTHING of {} arrived", class.name);
        }
        if let Some(workload) = &self.workload {
            let _ = write!(
                text,
                "; {} of {} of the workload completed",
                group_digits(workload.completed),
                pluralize(workload.operations, "operation")
            );
        }
        text
    }
}

/// Flows that started and neither completed nor failed, without those that have no end.
fn open_flows(record: &ClassRecord) -> u64 {
    record.started.saturating_sub(record.completed + record.failed + record.endless.len() as u64)
}

fn traffic_line(record: &ClassRecord) -> TrafficLine {
    let nanos = record.span.map_or(0.0, |(start, end)| end.since(start).as_nanos_f64());
    let shares: Vec<f64> = record.endless.iter().map(|bytes| *bytes as f64).collect();
    let (sum, squares): (f64, f64) = (shares.iter().sum(), shares.iter().map(|share| share * share).sum());
    TrafficLine {
        name: record.name.clone(),
        started: record.started,
        completed: record.completed,
        failed: record.failed,
        open: open_flows(record),
        bytes: record.bytes,
        gbit_per_s: if nanos > 0.0 { record.bytes as f64 * 8.0 / nanos } else { 0.0 },
        repairs: record.repairs,
        completion: LatencyDistribution::of(record.records.iter().map(|flow| flow.time)),
        fairness: (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares)),
    }
}

fn workload_line(scenario: &Scenario, run: &SimulatedRun) -> Option<WorkloadLine> {
    let (summary, flows) = (run.workload()?, scenario.flows.as_ref()?);
    let nanos = |at: units::SimTime| at.since(units::SimTime::ZERO).as_nanos_f64();
    let slowest = (0..summary.ranks.len()).max_by_key(|rank| summary.ranks[*rank].at).unwrap_or(0);
    let last = summary.ranks.get(slowest);
    let end = last.map_or(0.0, |rank| nanos(rank.at));
    let computing = last.map_or(0.0, |rank| rank.computing.as_nanos_f64());
    Some(WorkloadLine {
        name: flows.workload_name.clone(),
        ranks: summary.ranks.len(),
        operations: summary.operations,
        completed: summary.completed,
        messages: summary.messages,
        bytes: summary.bytes,
        time_us: (summary.completed == summary.operations).then_some(end / 1e3),
        slowest_rank: slowest,
        computing_share: if end > 0.0 { computing / end } else { 0.0 },
        stalled: summary
            .stalled
            .iter()
            .map(|stalled| format!("rank {}, line {}: waits for {}", stalled.rank, stalled.line, stalled.waits_for))
            .collect(),
    })
}

/// The head and the rows of the table of classes.
fn rows(report: &FlowReport) -> Vec<Vec<String>> {
    let head = ["traffic", "flows", "completed", "failed", "Gb/s", "median", "p99", "max", "repairs", "fairness"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for line in &report.traffic {
        let time = |value: Option<f64>| {
            value.map_or("-".to_owned(), |nanos| units::SimSpan::from_picos((nanos * 1e3).round() as u64).to_string())
        };
        let of = |pick: fn(&LatencyDistribution) -> f64| time(line.completion.as_ref().map(pick));
        rows.push(vec![
            line.name.clone(),
            group_digits(line.started),
            group_digits(line.completed),
            group_digits(line.failed),
            format!("{:.2}", line.gbit_per_s),
            of(|d| d.median_ns),
            of(|d| d.p99_ns),
            of(|d| d.max_ns),
            group_digits(line.repairs),
            line.fairness.map_or("-".to_owned(), |fairness| format!("{fairness:.3}")),
        ]);
    }
    rows
}

fn workload_text(workload: &WorkloadLine) -> String {
    let time = workload.time_us.map_or("it did not end".to_owned(), |time| {
        format!(
            "{time:.3} us; rank {} was last, {:.1} % of its time computing",
            workload.slowest_rank,
            100.0 * workload.computing_share
        )
    });
    format!(
        "{}: {}, {} of {} completed, {} of {} bytes: {time}",
        workload.name,
        pluralize(workload.ranks as u64, "rank"),
        group_digits(workload.completed),
        pluralize(workload.operations, "operation"),
        pluralize(workload.messages, "message"),
        group_digits(workload.bytes),
    )
}

/// Text for the terminal.
pub(super) fn text(report: &FlowReport) -> String {
    let mut text = String::new();
    if !report.traffic.is_empty() {
        text.push('\n');
        text.push_str(&format_table(&rows(report)));
    }
    if let Some(workload) = &report.workload {
        let _ = writeln!(text, "\nworkload    {}", workload_text(workload));
        for stalled in &workload.stalled {
            let _ = writeln!(text, "STALLED     {stalled}");
        }
    }
    for failure in report.listed_failures.iter().take(8) {
        let _ = writeln!(text, "FAILED      {:.3} us: {}", failure.at_us, failure.cause);
    }
    text
}

/// A section of the page.
pub(super) fn html(report: &FlowReport) -> String {
    let mut page = String::new();
    if report.traffic.is_empty() && report.workload.is_none() {
        return page;
    }
    page.push_str("<h2>Traffic and workloads</h2>\n");
    if !report.traffic.is_empty() {
        page.push_str(&crate::report::page::html_table(&rows(report)));
    }
    if let Some(workload) = &report.workload {
        let _ = writeln!(page, "<p>{}</p>", escape(&workload_text(workload)));
    }
    let stalled = report.workload.iter().flat_map(|workload| &workload.stalled).cloned();
    let failed = report.listed_failures.iter().map(|line| format!("{:.3} us: {}", line.at_us, line.cause));
    let lines: Vec<String> = stalled.chain(failed).collect();
    if !lines.is_empty() {
        page.push_str("<ul class=\"wrong\">\n");
        for line in lines {
            let _ = writeln!(page, "<li>{}</li>", escape(&line));
        }
        page.push_str("</ul>\n");
    }
    page
}

/// Completion times of all classes as CSV.
pub(crate) fn csv(report: &FlowReport) -> String {
    let mut text =
        String::from("traffic,started,completed,failed,bytes,gbit_per_s,median_ns,p99_ns,max_ns,repairs\n");
    for line in &report.traffic {
        let of = |pick: fn(&LatencyDistribution) -> f64| {
            line.completion.as_ref().map_or(String::new(), |d| pick(d).to_string())
        };
        let _ = writeln!(
            text,
            "\"{}\",{},{},{},{},{:.4},{},{},{},{}",
            line.name.replace('"', "\"\""),
            line.started,
            line.completed,
            line.failed,
            line.bytes,
            line.gbit_per_s,
            of(|d| d.median_ns),
            of(|d| d.p99_ns),
            of(|d| d.max_ns),
            line.repairs
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floods_that_deliver_nothing_and_open_flows_are_flagged() {
        let report =
            |record: ClassRecord| FlowReport { traffic: vec![traffic_line(&record)], ..FlowReport::default() };
        let flood =
            ClassRecord { name: "flood 1".to_owned(), started: 2, endless: vec![0, 0], ..ClassRecord::default() };
        let silent = report(flood.clone());
        assert!(silent.has_failures() && silent.summary().contains("NOTHING of flood 1"), "{}", silent.summary());
        assert!(!report(ClassRecord { bytes: 1, endless: vec![1, 0], ..flood }).has_failures());
        let open = report(ClassRecord { started: 3, completed: 1, bytes: 9, ..ClassRecord::default() });
        assert!(open.summary().contains("2 STILL OPEN"), "{}", open.summary());
    }
}
