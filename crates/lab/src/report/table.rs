//! The report as text for the terminal.

use std::fmt::Write;

use units::Span;

use super::{LinkLine, SimulationReport, parameters};
use crate::latency_distribution::LatencyDistribution;
use crate::number_format::{group_digits, pluralize, si_number, time_unit};

/// Columns of the bar chart's longest bar.
const BAR: usize = 40;
/// Rows of the bar chart.
const ROWS: usize = 12;

/// The report as text.
pub fn table(report: &SimulationReport) -> String {
    let mut text = String::new();
    head(&mut text, report);
    latencies(&mut text, report);
    errors(&mut text, report);
    links(&mut text, "links with most damage", &report.damaged_links);
    failures(&mut text, report);
    writeln!(text, "\noracle      {}", report.oracle.sentence()).expect(IN_MEMORY);
    text
}

const IN_MEMORY: &str = "writing to a String does not fail";

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
    line("tree", format!("{members}, {nodes}, {}", pluralize(fabric.roots as u64, "root")));
    line("links", parameters::links(&report.parameters));
    line("operation", parameters::operation(&report.parameters));
    for (number, fault) in report.faults.iter().enumerate() {
        line(if number == 0 { "faults" } else { "" }, fault.clone());
    }
    let run = pluralize(report.operations.run.into(), "operation");
    line("run", format!("{run}, seed {}, trace {}", report.scenario.seed, report.trace));
    line(
        "cost",
        format!(
            "{:.2} s, {} packet hops ({}/s), {}B of state",
            machine.seconds,
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
    let (unit, size) = time_unit(Span::from_picos((complete.median_ns * 1e3) as u64));
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

/// A bar per bin; empty stretches are one line.
fn bars(text: &mut String, distribution: &LatencyDistribution, unit: &str, size: f64) {
    let bins = distribution.coarser(ROWS);
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
        let length = (bin.count * BAR).div_ceil(most);
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
    if error_counts(report).iter().all(|(_, _, number)| *number == 0) {
        writeln!(text, "\nno packet was hurt").expect(IN_MEMORY);
        return;
    }
    text.push('\n');
    let head = vec!["errors".to_owned(), "packets".to_owned()];
    text.push_str(&format_table(&[vec![head], rows].concat()));
}

/// The counters of errors: a short name, a longer one, the number. The first four are the classes of SE-4.
pub(super) fn error_counts(report: &SimulationReport) -> [(&'static str, &'static str, u64); 9] {
    let counters = &report.counters;
    [
        ("physical", "physical: a check code did not fit", counters.physical),
        ("malformed", "malformed: contents contradict themselves", counters.malformed),
        ("routing", "routing: for nobody", counters.routing),
        ("overrun", "overrun: sent into a full buffer", counters.overrun),
        ("marked", "marked bad while passing through", counters.marked),
        ("end to end", "found only end to end (ICRC)", counters.end_to_end),
        ("lost", "lost by a rule", counters.lost_by_plan),
        ("doubled", "doubled by a rule", counters.doubled_by_plan),
        ("down", "lost on cables that were down", counters.lost_on_down_links),
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
        writeln!(text, "\nOBJECTION   {violation}").expect(IN_MEMORY);
    }
    if oracle.listed_failures.is_empty() {
        return;
    }
    let failed = pluralize(report.operations.failed.into(), "operation");
    writeln!(text, "\n{failed} failed somewhere; every member is told the cause").expect(IN_MEMORY);
    let row = |line: &super::FailureLine| vec![line.operation.to_string(), line.rank.to_string(), line.cause.clone()];
    let head = ["operation", "rank", "cause"].map(str::to_owned).to_vec();
    text.push_str(&format_table(
        &std::iter::once(head).chain(oracle.listed_failures.iter().map(row)).collect::<Vec<_>>(),
    ));
    let unlisted = oracle.failures.saturating_sub(oracle.listed_failures.len() as u64);
    if unlisted > 0 {
        writeln!(text, "and {} more", group_digits(unlisted)).expect(IN_MEMORY);
    }
}

/// Rows of cells, the first of them the head.
pub type TableRows = Vec<Vec<String>>;

/// Puts a head on rows that are as wide.
pub fn with_header<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> TableRows {
    std::iter::once(head.map(String::from).to_vec()).chain(rows.map(Vec::from)).collect()
}

/// Rows with their columns lined up: the first to the left, numbers to the right, words to the left.
pub fn format_table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &'_ Vec<String>, column: usize| row.get(column).map_or(0, |text| text.chars().count());
    let widths: Vec<usize> =
        (0..columns).map(|column| rows.iter().map(|row| cell(row, column)).max().unwrap_or(0)).collect();
    let is_number = |column: usize| {
        let starts_with_digit =
            |row: &Vec<String>| row.get(column).is_none_or(|text| text.starts_with(|c: char| c.is_ascii_digit()));
        column > 0 && rows.iter().skip(1).all(starts_with_digit)
    };
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, value) in row.iter().enumerate() {
            let width = widths[column];
            let gap = if column == 0 { "" } else { "  " };
            if is_number(column) {
                line.push_str(&format!("{gap}{value:>width$}"));
            } else {
                line.push_str(&format!("{gap}{value:<width$}"));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["a", "number", "word"], ["long name", "7", "x"], ["b", "1,000", "yz"]];
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect();
        assert_eq!(format_table(&rows), "a          number  word\nlong name       7  x\nb           1,000  yz\n");
    }
}
