//! The report as text, and as a page with plots.

use std::fmt::Write;

use super::measure::{AlternateCost, DisturbedLatency, TrialSummary};
use super::{MigrationBenchReport, TransitionTimes};
use crate::report::format_table;

fn spread(figure: &TrialSummary) -> String {
    format!("{:.1} ({:.1}..{:.1})", figure.median, figure.least, figure.most)
}

fn transition_rows(transitions: &[TransitionTimes]) -> Vec<Vec<String>> {
    let head = ["connections", "to ARMED, us", "to MIGRATED, us", "per connection, us", "ratio"];
    let rows = transitions.iter().map(|row| {
        let count = row.connections as f64;
        vec![
            row.connections.to_string(),
            spread(&row.arming_us),
            spread(&row.migrating_us),
            format!("{:.1} / {:.1}", row.arming_us.median / count, row.migrating_us.median / count),
            format!("{:.2}", row.migrating_us.median / row.arming_us.median),
        ]
    });
    std::iter::once(head.map(String::from).to_vec()).chain(rows).collect()
}

fn bouncing_rows(bouncing: &[DisturbedLatency]) -> Vec<Vec<String>> {
    let head = ["bytes", "connections", "plain, us", "disturbed, us", "added per connection, us", "longest, us"];
    let rows = bouncing.iter().map(|row| {
        vec![
            row.bytes.to_string(),
            row.connections.to_string(),
            spread(&row.plain_us),
            spread(&row.disturbed_us),
            spread(&row.per_connection_us),
            spread(&row.longest_us),
        ]
    });
    std::iter::once(head.map(String::from).to_vec()).chain(rows).collect()
}

fn cost_rows(costs: &[AlternateCost], unit: &str) -> Vec<Vec<String>> {
    let head =
        vec!["bytes".to_owned(), format!("one path, {unit}"), format!("armed, {unit}"), "armed / one path".into()];
    let rows = costs.iter().map(|cost| {
        let ratio = format!("{:.3} ({:.3}..{:.3})", cost.ratio.median, cost.ratio.least, cost.ratio.most);
        vec![cost.bytes.to_string(), spread(&cost.plain), spread(&cost.armed), ratio]
    });
    std::iter::once(head).chain(rows).collect()
}

/// Every table with its title.
fn tables(report: &MigrationBenchReport) -> Vec<(String, Vec<Vec<String>>)> {
    vec![
        ("Transitions of all connections at both ends".into(), transition_rows(&report.transitions)),
        (
            "Messages there and back over all connections in turn, while all migrate by hand".into(),
            bouncing_rows(&report.while_migrating),
        ),
        ("The same, while the first path is cut and the kernel says so".into(), bouncing_rows(&report.noticed_cut)),
        ("The same, while the first path is cut silently".into(), bouncing_rows(&report.silent_cut)),
        ("What an armed alternate costs: latency".into(), cost_rows(&report.latency_us, "us")),
        ("What an armed alternate costs: bandwidth".into(), cost_rows(&report.bandwidth_mb_per_s, "MB/s")),
    ]
}

pub(super) fn table(report: &MigrationBenchReport) -> String {
    let mut text = format!(
        "Path migration over loopback, both ends in one thread; medians of {} tries (least..most)\n",
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
