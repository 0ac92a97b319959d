//! The report as text, and as a page with curves.

use super::{PingpongBenchReport, PingpongRow, PingpongTransport};
use crate::bench::collectives::output::spread;
use crate::bench::migration::TrialSummary;
use crate::report::{escape, format_table, line_chart, page};

fn rows(report: &PingpongBenchReport) -> Vec<Vec<String>> {
    let head =
        ["bytes", "us, checked", "GB/s", "us, unchecked", "checked/unchecked", "us, Open MPI", "checked/Open MPI"];
    let maybe = |figure: &Option<TrialSummary>| figure.as_ref().map_or_else(String::new, spread);
    let row = |row: &PingpongRow| {
        vec![
            row.bytes.to_string(),
            spread(&row.checked_us),
            format!("{:.3}", row.gigabytes_per_second),
            maybe(&row.unchecked_us),
            maybe(&row.cost),
            maybe(&row.open_mpi_us),
            maybe(&row.of_open_mpi),
        ]
    };
    std::iter::once(head.map(String::from).to_vec()).chain(report.rows.iter().map(row)).collect()
}

fn heading(report: &PingpongBenchReport) -> String {
    let how = match report.transport {
        PingpongTransport::Udp => "over UDP on loopback",
        PingpongTransport::Shm => "in shared memory",
    };
    let against = report.open_mpi.as_deref().unwrap_or("without another contender");
    format!(
        "Messages between two processes {how}, checksum {}, {} path(s); {against}; one way, medians over {} rounds (least..most)",
        report.checksum, report.paths, report.rounds
    )
}

pub(super) fn table(report: &PingpongBenchReport) -> String {
    let notes: String = report.notes.iter().map(|note| format!("\n{note}\n")).collect();
    format!("{}\n\n{}{notes}", heading(report), format_table(&rows(report)))
}

/// A figure of a row, if that was measured.
type Pick = fn(&PingpongRow) -> Option<&TrialSummary>;

pub(super) fn html(report: &PingpongBenchReport) -> String {
    let picks: [(&str, Pick); 3] = [
        ("checked", |row| Some(&row.checked_us)),
        ("unchecked", |row| row.unchecked_us.as_ref()),
        ("Open MPI", |row| row.open_mpi_us.as_ref()),
    ];
    let curves = |value: fn(&PingpongRow, &TrialSummary) -> f64| -> Vec<(&str, Vec<(f64, f64)>)> {
        let curve = |pick: Pick| {
            let points = report.rows.iter().filter_map(|row| Some((row.bytes as f64, value(row, pick(row)?))));
            points.collect::<Vec<_>>()
        };
        let all = picks.iter().map(|(name, pick)| (*name, curve(*pick)));
        all.filter(|(_, points)| !points.is_empty()).collect()
    };
    let latency = line_chart(&curves(|_, figure| figure.median), "bytes", "microseconds");
    let bandwidth = line_chart(&curves(|row, figure| row.bytes as f64 / figure.median / 1e3), "bytes", "GB/s");
    let notes: String = report.notes.iter().map(|note| format!("<p>{}</p>", escape(note))).collect();
    let sections = [
        ("How".to_owned(), format!("<p>{}</p>{notes}", escape(&heading(report)))),
        ("One way".to_owned(), latency),
        ("Bandwidth".to_owned(), bandwidth),
        ("Numbers".to_owned(), page::html_table(&rows(report))),
    ];
    page::html_page("Messages between two processes", &sections)
}
