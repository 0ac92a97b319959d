//! The simulation report as text for the terminal.

use std::fmt::Write;

use units::SimSpan;

use super::{CauseLine, LinkLine, SimulationReport, parameters};
use crate::latency_distribution::LatencyDistribution;
use crate::number_format::{group_digits, pluralize, si_number, time_unit};
use crate::report::format_table;

/// Columns of the longest bar of the histogram.
const MAX_BAR_COLUMNS: usize = 40;
/// Rows of the histogram.
const HISTOGRAM_ROWS: usize = 12;

/// The report as text.
pub fn table(report: &SimulationReport) -> String {
    let mut text = String::new();
    head(&mut text, report);
    if report.jobs.is_empty() {
        latencies(&mut text, report);
    } else {
        text.push_str(&super::jobs::text(&report.jobs));
    }
    text.push_str(&super::traffic::text(&report.flows));
    errors(&mut text, report);
    links(&mut text, "links with the most damage", &report.damaged_links);
    failures(&mut text, report);
    if report.tree_rebuilds > 0 {
        writeln!(text, "\n{}", rebuilds(report)).expect(IN_MEMORY);
    }
    writeln!(text, "\noracle      {}", report.oracle.summary()).expect(IN_MEMORY);
    if !report.flows.traffic.is_empty() || report.flows.workload.is_some() {
        writeln!(text, "flows       {}", report.flows.summary()).expect(IN_MEMORY);
    }
    text
}

const IN_MEMORY: &str = "writing to a String does not fail";

/// What became of trees that failed.
fn rebuilds(report: &SimulationReport) -> String {
    if report.jobs.is_empty() {
        let times = pluralize(report.tree_rebuilds.into(), "time");
        return format!("the aggregation tree was rebuilt {times} on what was left");
    }
    let trees = pluralize(report.tree_rebuilds.into(), "aggregation tree");
    format!("{trees} failed; the hosts finished the operation, and later ones had a new tree on what was left")
}

fn head(text: &mut String, report: &SimulationReport) {
    let fabric = &report.fabric;
    let machine = &report.machine;
    let mut line = |name: &str, value: String| writeln!(text, "{name:<12}{value}").expect(IN_MEMORY);
    line("scenario", report.scenario.name.clone());
    for part in report.scenario.about.lines() {
        line("", part.trim().to_owned());
    }
    let (hosts, switches) = (pluralize(fabric.hosts.into(), "host"), pluralize(fabric.switches.into(), "switch"));
    line("fabric", format!("{}: {hosts}, {switches}, {}", fabric.shape, pluralize(fabric.cables, "cable")));
    let members = pluralize(fabric.members.into(), "member");
    let nodes = pluralize(fabric.tree_nodes as u64, "aggregation node");
    match fabric.tree_nodes {
        _ if !report.jobs.is_empty() => line("jobs", format!("{}, {members}", super::jobs::summary(&report.jobs))),
        0 => line("hosts", format!("{members}, without aggregation nodes")),
        _ => line("tree", format!("{members}, {nodes}, {}", pluralize(fabric.roots as u64, "root"))),
    }
    line("links", parameters::links(&report.parameters));
    line("operation", parameters::operation(&report.parameters));
    if let Some(choice) = &report.scenario.choice {
        line("chosen", choice.clone());
    }
    for (number, fault) in report.faults.iter().enumerate() {
        line(if number == 0 { "faults" } else { "" }, fault.clone());
    }
    let run = pluralize(report.operations.run.into(), "operation");
    line("run", format!("{run}, seed {}, trace {}", report.scenario.seed, report.trace));
    line(
        "cost",
        format!(
            "{:.2} s after {:.2} s of set-up, {} packet hops ({}/s), {}B of state",
            machine.seconds,
            machine.set_up_seconds,
            group_digits(report.counters.hops),
            si_number(machine.hops_per_second),
            si_number(machine.state_bytes as f64),
        ),
    );
}

fn latencies(text: &mut String, report: &SimulationReport) {
    let Some(complete) = &report.latency.complete else {
        writeln!(text, "\nno operation completed").expect(IN_MEMORY);
        return;
    };
    let (unit, size) = time_unit(SimSpan::from_picos((complete.median_ns * 1e3) as u64));
    let mut rows = vec![["latency", "min", "median", "mean", "p90", "p99", "max"].map(str::to_owned).to_vec()];
    for (name, distribution) in [("complete", Some(complete)), ("reduce phase", report.latency.reduce.as_ref())] {
        let Some(d) = distribution else { continue };
        let values = [d.min_ns, d.median_ns, d.mean_ns, d.p90_ns, d.p99_ns, d.max_ns];
        let row = values.map(|value| format!("{:.3} {unit}", value * 1e3 / size));
        rows.push(std::iter::once(name.to_owned()).chain(row).collect());
    }
    text.push('\n');
    text.push_str(&format_table(&rows));
    writeln!(text, "\n{} completed", pluralize(complete.count as u64, "operation")).expect(IN_MEMORY);
    bars(text, complete, unit, size);
}

/// One bar for each bin. A run of empty bins is one line.
fn bars(text: &mut String, distribution: &LatencyDistribution, unit: &str, size: f64) {
    let bins = distribution.merged_bins(HISTOGRAM_ROWS);
    let most = bins.iter().map(|bin| bin.count).max().unwrap_or(1).max(1);
    let width = group_digits(most as u64).len();
    let label = |nanos: f64| format!("{:.3}", nanos * 1e3 / size);
    let last = bins.last().map_or(0, |bin| label(bin.to_ns).len());
    let mut skipped = false;
    for bin in &bins {
        if bin.count == 0 {
            skipped = true;
            continue;
        }
        if std::mem::take(&mut skipped) {
            writeln!(text, "  {:>last$}", "...").expect(IN_MEMORY);
        }
        let length = (bin.count * MAX_BAR_COLUMNS).div_ceil(most);
        let (from, to) = (label(bin.from_ns), label(bin.to_ns));
        let bar = "#".repeat(length);
        writeln!(text, "  {from:>last$} to {to:>last$} {unit} {:>width$}  {bar}", group_digits(bin.count as u64))
            .expect(IN_MEMORY);
    }
}

fn errors(text: &mut String, report: &SimulationReport) {
    let rows: Vec<Vec<String>> = error_counts(report)
        .into_iter()
        .map(|(_, name, number)| vec![name.to_owned(), group_digits(number)])
        .collect();
    let counters = &report.counters;
    if counters.ecn_marks + counters.pauses > 0 {
        let (marks, pauses) = (group_digits(counters.ecn_marks), group_digits(counters.pauses));
        writeln!(text, "\nECN marks {marks}, pause frames {pauses}").expect(IN_MEMORY);
    }
    if error_counts(report).iter().all(|(_, _, number)| *number == 0) {
        writeln!(text, "\nno packet was damaged or lost").expect(IN_MEMORY);
        return;
    }
    text.push('\n');
    let head = vec!["errors".to_owned(), "packets".to_owned()];
    text.push_str(&format_table(&[vec![head], rows].concat()));
}

/// The error counters: a short name, a long name, the count. The first four are the classes of SE-4.
pub(super) fn error_counts(report: &SimulationReport) -> [(&'static str, &'static str, u64); 10] {
    let counters = &report.counters;
    [
        ("physical", "physical: CRC mismatch on a link", counters.physical),
        ("malformed", "malformed: contradictory contents", counters.malformed),
        ("routing", "routing: no such destination", counters.routing),
        ("overrun", "overrun: receive buffer full", counters.overrun),
        ("marked", "marked bad by a switch on the way", counters.marked),
        ("end to end", "found only end to end (ICRC)", counters.end_to_end),
        ("lost", "lost by a fault rule", counters.lost_by_plan),
        ("doubled", "duplicated by a fault rule", counters.doubled_by_plan),
        ("down", "lost on links that were down", counters.lost_on_down_links),
        ("dropped", "dropped by full queues (Ethernet)", counters.queue_drops),
    ]
}

fn links(text: &mut String, title: &str, links: &[LinkLine]) {
    if links.is_empty() {
        return;
    }
    let head = [title, "lane", "packets", "damaged", "lost"].map(str::to_owned).to_vec();
    let row = |link: &LinkLine| {
        let name = format!("{} > {}", link.from, link.to);
        let numbers = [u64::from(link.lane), u64::from(link.packets), link.damaged, link.lost].map(group_digits);
        std::iter::once(name).chain(numbers).collect()
    };
    text.push('\n');
    text.push_str(&format_table(&std::iter::once(head).chain(links.iter().map(row)).collect::<Vec<_>>()));
}

fn failures(text: &mut String, report: &SimulationReport) {
    let oracle = &report.oracle;
    for violation in &oracle.listed_violations {
        writeln!(text, "\nVIOLATION   {violation}").expect(IN_MEMORY);
    }
    if oracle.causes.is_empty() {
        return;
    }
    let failed = pluralize(report.operations.failed.into(), "operation");
    writeln!(text, "\n{failed} FAILED at some member; every member received the cause").expect(IN_MEMORY);
    let row = |line: &CauseLine| {
        let operations = match (line.first_operation, line.last_operation) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first} to {last}"),
        };
        vec![line.cause.clone(), operations, group_digits(line.results)]
    };
    let head = ["cause", "operations", "results missing"].map(str::to_owned).to_vec();
    text.push_str(&format_table(&std::iter::once(head).chain(oracle.causes.iter().map(row)).collect::<Vec<_>>()));
}
