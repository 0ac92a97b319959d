//! The report as text and as an HTML page with charts.

use std::fmt::Write;

use super::measure::{AlternateCost, DisturbedLatency};
use super::{MigrationBenchReport, TransitionTimes};
use crate::bench::TrialSummary;
use crate::report::{Axis, ChartPoint, LineChart, PageSection, PageVerdict, ReportPage, format_table};

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

pub(super) fn html(report: &MigrationBenchReport) -> ReportPage {
    let points = |pick: fn(&TransitionTimes) -> &TrialSummary| {
        report.transitions.iter().map(move |row| pick(row).chart_point(row.connections as f64))
    };
    let transitions = LineChart::new(
        "Transitions: median and range of the trials",
        Axis::new("connections").logarithmic(),
        Axis::new("time, us").logarithmic(),
    )
    .curve("MIGRATED to ARMED", points(|row| &row.arming_us))
    .curve("ARMED to MIGRATED", points(|row| &row.migrating_us));
    fn added(rows: &[DisturbedLatency]) -> impl Iterator<Item = ChartPoint> {
        rows.iter().map(|row| row.per_connection_us.chart_point(row.bytes as f64))
    }
    let costs = LineChart::new(
        "Added for a connection: median and range of the trials",
        Axis::new("size of a message").bytes(),
        Axis::new("added, us").logarithmic(),
    )
    .curve("by hand", added(&report.while_migrating))
    .curve("cut, noticed", added(&report.noticed_cut))
    .curve("cut, silent", added(&report.silent_cut));
    let most = report.transitions.iter().map(|row| row.connections).max().unwrap_or(0);
    let verdict = format!("transitions of up to {most} connections measured; every connection stayed up.");
    let memory = format!("Memory of an idle connection at one end: {:.0} B", report.bytes_per_idle_connection);
    let charts = transitions.figure_if_any().into_iter().chain(costs.figure_if_any());
    ReportPage::new("Path migration over loopback", PageVerdict::measured(verdict))
        .about(format!("Both ends in one thread; medians of {} trials.", report.tries))
        .section(PageSection::new("Transitions and their cost").charts(charts))
        .sections(tables(report).into_iter().map(|(title, rows)| PageSection::new(title).table(&rows)))
        .section(PageSection::new("Memory").paragraph(&memory))
}
