//! The report as text, and as a page with curves.

use super::{Report, Row, Transport};
use crate::bench::collectives::output::spread;
use crate::bench::migration::Figure;
use crate::report::{aligned, escape, lines, page};

fn rows(report: &Report) -> Vec<Vec<String>> {
    let head =
        ["bytes", "us, checked", "GB/s", "us, unchecked", "checked/unchecked", "us, Open MPI", "checked/Open MPI"];
    let maybe = |figure: &Option<Figure>| figure.as_ref().map_or_else(String::new, spread);
    let row = |row: &Row| {
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

fn heading(report: &Report) -> String {
    let how = match report.transport {
        Transport::Udp => "over UDP on loopback",
        Transport::Shm => "in shared memory",
    };
    let against = report.open_mpi.as_deref().unwrap_or("without another contender");
    format!(
        "Messages between two processes {how}, checksum {}, {} path(s); {against}; one way, medians over {} rounds (least..most)",
        report.checksum, report.paths, report.rounds
    )
}

pub(super) fn table(report: &Report) -> String {
    let notes: String = report.notes.iter().map(|note| format!("\n{note}\n")).collect();
    format!("{}\n\n{}{notes}", heading(report), aligned(&rows(report)))
}

/// A figure of a row, if that was measured.
type Pick = fn(&Row) -> Option<&Figure>;

pub(super) fn html(report: &Report) -> String {
    let picks: [(&str, Pick); 3] = [
        ("checked", |row| Some(&row.checked_us)),
        ("unchecked", |row| row.unchecked_us.as_ref()),
        ("Open MPI", |row| row.open_mpi_us.as_ref()),
    ];
    let curves = |value: fn(&Row, &Figure) -> f64| -> Vec<(&str, Vec<(f64, f64)>)> {
        let curve = |pick: Pick| {
            let points = report.rows.iter().filter_map(|row| Some((row.bytes as f64, value(row, pick(row)?))));
            points.collect::<Vec<_>>()
        };
        let all = picks.iter().map(|(name, pick)| (*name, curve(*pick)));
        all.filter(|(_, points)| !points.is_empty()).collect()
    };
    let latency = lines(&curves(|_, figure| figure.median), "bytes", "microseconds");
    let bandwidth = lines(&curves(|row, figure| row.bytes as f64 / figure.median / 1e3), "bytes", "GB/s");
    let notes: String = report.notes.iter().map(|note| format!("<p>{}</p>", escape(note))).collect();
    let sections = [
        ("How".to_owned(), format!("<p>{}</p>{notes}", escape(&heading(report)))),
        ("One way".to_owned(), latency),
        ("Bandwidth".to_owned(), bandwidth),
        ("Numbers".to_owned(), page::rows(&rows(report))),
    ];
    page::page("Messages between two processes", &sections)
}
