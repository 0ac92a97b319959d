//! The report as text and as an HTML page with charts.

use std::fmt::Write;

use super::measure::{AlternateCost, DisturbedLatency};
use super::{MigrationBenchReport, TransitionTimes};
use crate::report::format_table;

fn transition_rows(transitions: &[TransitionTimes]) -> Vec<Vec<String>> {
    let header = ["connections", "to ARMED, us", "to MIGRATED, us", "per connection, us", "ratio"];
    let rows = transitions.iter().map(|row| {
        let count = row.connections as f64;
        vec![
            row.connections.to_string(),
            row.arming_us.format(1),
            row.migrating_us.format(1),
            format!("{:.1} / {:.1}", row.arming_us.median / count, row.migrating_us.median / count),
            format!("{:.2}", row.migrating_us.median / row.arming_us.median),
        ]
    });
    std::iter::once(header.map(String::from).to_vec()).chain(rows).collect()
}

fn latency_rows(latencies: &[DisturbedLatency]) -> Vec<Vec<String>> {
    let header = ["bytes", "connections", "plain, us", "disturbed, us", "added per connection, us", "longest, us"];
    let rows = latencies.iter().map(|row| {
        vec![
            row.bytes.to_string(),
            row.connections.to_string(),
            row.plain_us.format(1),
            row.disturbed_us.format(1),
            row.per_connection_us.format(1),
            row.longest_us.format(1),
        ]
    });
    std::iter::once(header.map(String::from).to_vec()).chain(rows).collect()
}

fn cost_rows(costs: &[AlternateCost], unit: &str) -> Vec<Vec<String>> {
    let header =
        vec!["bytes".to_owned(), format!("one path, {unit}"), format!("armed, {unit}"), "armed / one path".into()];
    let rows = costs
        .iter()
        .map(|cost| vec![cost.bytes.to_string(), cost.plain.format(1), cost.armed.format(1), cost.ratio.format(3)]);
    std::iter::once(header).chain(rows).collect()
}

/// Every table with its title.
fn tables(report: &MigrationBenchReport) -> Vec<(String, Vec<Vec<String>>)> {
    vec![
        ("Transitions of all connections at both ends".into(), transition_rows(&report.transitions)),
        (
            "Round trips over all connections in turn, while all migrate by hand".into(),
            latency_rows(&report.while_migrating),
        ),
        ("The same, while the first path is cut and the kernel reports it".into(), latency_rows(&report.noticed_cut)),
        ("The same, while the first path is cut silently".into(), latency_rows(&report.silent_cut)),
        ("Cost of an armed alternate: latency".into(), cost_rows(&report.latency_us, "us")),
        ("Cost of an armed alternate: bandwidth".into(), cost_rows(&report.bandwidth_mb_per_s, "MB/s")),
    ]
}

pub(super) fn table(report: &MigrationBenchReport) -> String {
    let mut text = format!(
        "Path migration over loopback, both ends in one thread; medians of {} trials (min..max)\n",
        report.tries
    );
    for (title, rows) in tables(report) {
        let _ = write!(text, "\n{title}\n{}", format_table(&rows));
    }
    let _ = writeln!(text, "\nMemory of an idle connection at one end: {:.0} B", report.bytes_per_idle_connection);
    text
}

pub(super) fn html(report: &MigrationBenchReport) -> String {
    let line = |pick: fn(&TransitionTimes) -> f64| -> Vec<(f64, f64)> {
        report.transitions.iter().map(|row| (row.connections as f64, pick(row))).collect()
    };
    let lines = [
        ("MIGRATED to ARMED", line(|row| row.arming_us.median)),
        ("ARMED to MIGRATED", line(|row| row.migrating_us.median)),
    ];
    let plot = crate::report::line_chart(&lines, "connections", "us");
    let added = |rows: &[DisturbedLatency]| -> Vec<(f64, f64)> {
        rows.iter().map(|row| (row.bytes as f64, row.per_connection_us.median.max(0.1))).collect()
    };
    let costs = [
        ("by hand", added(&report.while_migrating)),
        ("cut, noticed", added(&report.noticed_cut)),
        ("cut, silent", added(&report.silent_cut)),
    ];
    let second = crate::report::line_chart(&costs, "bytes of a message", "us added per connection");
    let mut sections = vec![("Transitions".to_owned(), plot), ("Added per connection".to_owned(), second)];
    for (title, rows) in tables(report) {
        sections.push((title, crate::report::page::html_table(&rows)));
    }
    let memory = format!("<p>Memory of an idle connection at one end: {:.0} B</p>", report.bytes_per_idle_connection);
    sections.push(("Memory".to_owned(), memory));
    crate::report::page::html_page("Path migration over loopback", &sections)
}
