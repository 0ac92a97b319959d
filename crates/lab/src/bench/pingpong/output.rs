//! The report as text and as an HTML page with charts.

use super::link::PingpongPlacement;
use super::{PingpongBenchReport, PingpongRow, PingpongTransport};
use crate::bench::TrialSummary;
use crate::bench::target_verdict::TargetVerdict;
use crate::report::{Axis, ChartPoint, LineChart, PageSection, PageVerdict, ReportPage, format_table};

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
        "best MPI",
        "us, best MPI",
        "checked/best MPI",
        "target",
        "",
        "us, limit",
        "checked/limit",
    ];
    let optional = |summary: Option<TrialSummary>| summary.map_or_else(String::new, |summary| summary.to_string());
    let row = |row: &PingpongRow| {
        let mpi = row.mpi.as_ref();
        vec![
            row.bytes.to_string(),
            row.checked_us.to_string(),
            format!("{:.3}", row.gigabytes_per_second),
            optional(row.unchecked_us),
            optional(row.cost),
            optional(row.plain_udp_us),
            optional(row.of_plain_udp),
            mpi.map_or_else(String::new, |mpi| mpi.best.clone()),
            optional(mpi.map(|mpi| mpi.us)),
            optional(mpi.map(|mpi| mpi.ratio)),
            mpi.and_then(|mpi| mpi.target).map_or_else(String::new, |bound| format!("{bound:.2}")),
            mpi.and_then(|mpi| mpi.verdict).map_or_else(String::new, |verdict| verdict.to_string()),
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
    let against = match report.mpis.as_slice() {
        [] => "no comparison".to_owned(),
        mpis => mpis.join(", "),
    };
    format!(
        "Messages between two processes {transport}, checksum {}, {} path(s); {against}; one-way, medians over {} rounds (min..max)",
        report.checksum, report.paths, report.rounds
    )
}

pub(super) fn table(report: &PingpongBenchReport) -> String {
    let notes: String = report.notes.iter().map(|note| format!("\n{note}\n")).collect();
    let targets: String = targets(report).iter().map(|line| format!("\n{line}\n")).collect();
    format!("{}\n\n{}{notes}{targets}", heading(report), format_table(&rows(report)))
}

/// A line about the targets, if there are any.
fn targets(report: &PingpongBenchReport) -> Option<String> {
    report.verdicts().next()?;
    Some(format!("Targets, to the best MPI over TCP: {}", TargetVerdict::count(report.verdicts())))
}

/// As the exit status says it.
fn verdict(report: &PingpongBenchReport) -> PageVerdict {
    let measured = format!("{} sizes of messages measured; every message came back unaltered.", report.rows.len());
    match targets(report) {
        None => PageVerdict::measured(measured),
        Some(targets) if report.verdicts().all(TargetVerdict::is_met) => {
            PageVerdict::held(format!("{measured} {targets}."))
        }
        Some(targets) => PageVerdict::failed(format!("{measured} {targets}.")),
    }
}

/// Picks a result from a row, if it was measured.
type Pick = fn(&PingpongRow) -> Option<&TrialSummary>;

pub(super) fn html(report: &PingpongBenchReport) -> ReportPage {
    let unchecked = match report.transport {
        PingpongTransport::Udp => "ICRC only",
        PingpongTransport::Shm => "unchecked",
    };
    let picks: [(&str, Pick); 5] = [
        ("checked", |row| Some(&row.checked_us)),
        (unchecked, |row| row.unchecked_us.as_ref()),
        ("plain UDP", |row| row.plain_udp_us.as_ref()),
        ("best MPI", |row| row.mpi.as_ref().map(|mpi| &mpi.us)),
        ("limit", |row| row.limit_us.as_ref()),
    ];
    let rate = |row: &PingpongRow, us: f64| row.bytes as f64 / us / 1e3;
    let latency = |row: &PingpongRow, times: &TrialSummary| times.chart_point(row.bytes as f64);
    let bandwidth = |row: &PingpongRow, times: &TrialSummary| {
        ChartPoint::new(row.bytes as f64, rate(row, times.median)).spread(rate(row, times.max), rate(row, times.min))
    };
    let draw = |title: &str, unit: &str, point: &dyn Fn(&PingpongRow, &TrialSummary) -> ChartPoint| {
        let chart = LineChart::new(title, Axis::new("size of a message").bytes(), Axis::new(unit).logarithmic());
        let points = |pick: Pick| report.rows.iter().filter_map(move |row| Some(point(row, pick(row)?)));
        picks.iter().fold(chart, |chart, (name, pick)| chart.curve(name, points(*pick))).figure()
    };
    let charts = [
        draw("One-way latency: median and range of the rounds", "latency, us", &latency),
        draw("Bandwidth: median and range of the rounds", "bandwidth, GB/s", &bandwidth),
    ];
    ReportPage::new("Messages between two processes", verdict(report))
        .about(heading(report))
        .section(PageSection::new("Latency and bandwidth").charts(charts))
        .section(PageSection::new("Numbers").table(&rows(report)).paragraphs(&report.notes))
}
