//! The report as text and as an HTML page with charts.

use super::link::PingpongPlacement;
use super::{PingpongBenchReport, PingpongRow, PingpongTransport};
use crate::bench::TrialSummary;
use crate::report::{format_table, line_chart, page};

fn rows(report: &PingpongBenchReport) -> Vec<Vec<String>> {
    let unchecked = match report.transport {
        PingpongTransport::Udp => ["us, ICRC only", "checked/ICRC only"],
        PingpongTransport::Shm => ["us, unchecked", "checked/unchecked"],
    };
    let head = [
        "bytes",
        "us, checked",
        "GB/s",
        unchecked[0],
        unchecked[1],
        "us, plain UDP",
        "checked/plain UDP",
        "us, Open MPI",
        "checked/Open MPI",
        "us, limit",
        "checked/limit",
    ];
    let optional = |summary: Option<TrialSummary>| summary.map_or_else(String::new, |summary| summary.to_string());
    let row = |row: &PingpongRow| {
        vec![
            row.bytes.to_string(),
            row.checked_us.to_string(),
            format!("{:.3}", row.gigabytes_per_second),
            optional(row.unchecked_us),
            optional(row.cost),
            optional(row.plain_udp_us),
            optional(row.of_plain_udp),
            optional(row.open_mpi_us),
            optional(row.of_open_mpi),
            optional(row.limit_us),
            optional(row.of_limit),
        ]
    };
    std::iter::once(head.map(String::from).to_vec()).chain(report.rows.iter().map(row)).collect()
}

fn heading(report: &PingpongBenchReport) -> String {
    let transport = match (report.transport, report.between) {
        (PingpongTransport::Udp, PingpongPlacement::Processes) => "over UDP on loopback".to_owned(),
        (PingpongTransport::Udp, PingpongPlacement::Namespaces) => {
            format!("over UDP between namespaces, MTU {}", report.mtu_bytes.unwrap_or_default())
        }
        (PingpongTransport::Shm, _) => "in shared memory".to_owned(),
    };
    let against = report.open_mpi.as_deref().unwrap_or("no comparison");
    format!(
        "Messages between two processes {transport}, checksum {}, {} path(s); {against}; one-way, medians over {} rounds (min..max)",
        report.checksum, report.paths, report.rounds
    )
}

pub(super) fn table(report: &PingpongBenchReport) -> String {
    let notes: String = report.notes.iter().map(|note| format!("\n{note}\n")).collect();
    format!("{}\n\n{}{notes}", heading(report), format_table(&rows(report)))
}

/// Picks a result from a row, if it was measured.
type Pick = fn(&PingpongRow) -> Option<&TrialSummary>;

pub(super) fn html(report: &PingpongBenchReport) -> String {
    let unchecked = match report.transport {
        PingpongTransport::Udp => "ICRC only",
        PingpongTransport::Shm => "unchecked",
    };
    let picks: [(&str, Pick); 5] = [
        ("checked", |row| Some(&row.checked_us)),
        (unchecked, |row| row.unchecked_us.as_ref()),
        ("plain UDP", |row| row.plain_udp_us.as_ref()),
        ("Open MPI", |row| row.open_mpi_us.as_ref()),
        ("limit", |row| row.limit_us.as_ref()),
    ];
    let curves = |value: fn(&PingpongRow, &TrialSummary) -> f64| -> Vec<(&str, Vec<(f64, f64)>)> {
        let curve = |pick: Pick| {
            let points = report.rows.iter().filter_map(|row| Some((row.bytes as f64, value(row, pick(row)?))));
            points.collect::<Vec<_>>()
        };
        let all = picks.iter().map(|(name, pick)| (*name, curve(*pick)));
        all.filter(|(_, points)| !points.is_empty()).collect()
    };
    let latency = line_chart(&curves(|_, summary| summary.median), "bytes", "microseconds");
    let bandwidth = line_chart(&curves(|row, summary| row.bytes as f64 / summary.median / 1e3), "bytes", "GB/s");
    let notes: String = report.notes.iter().map(|note| page::paragraph(note)).collect();
    let sections = [
        ("Setup".to_owned(), page::paragraph(&heading(report)) + &notes),
        ("One-way latency".to_owned(), latency),
        ("Bandwidth".to_owned(), bandwidth),
        ("Numbers".to_owned(), page::html_table(&rows(report))),
    ];
    page::html_page("Messages between two processes", &sections)
}
