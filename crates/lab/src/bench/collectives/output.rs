//! The report as text and as an HTML page.

use std::fmt::Write;

use super::{CollectivesBenchReport, CollectivesCaseReport};
use crate::report::{TableRows, format_table, page, with_header};

fn rows(case: &CollectivesCaseReport) -> TableRows {
    let rows = case.rows.iter().map(|row| {
        let ratio = row.ratio.map_or_else(String::new, |ratio| ratio.to_string());
        let times = [row.micros, row.cpu_micros].map(|time| time.to_string());
        let [wall, processor] = times;
        [row.measure.clone(), row.contender.to_string(), wall, processor, ratio]
    });
    with_header(["measure", "contender", "us", "processor, us", "ratio to Open MPI"], rows)
}

fn heading(report: &CollectivesBenchReport) -> String {
    let against = report.open_mpi.as_deref().unwrap_or("no comparison");
    format!(
        "Collectives on {} processors, {against}; medians over {} rounds (min..max)",
        report.processors, report.rounds
    )
}

/// The memory of a node, and notes.
fn remarks(report: &CollectivesBenchReport) -> Vec<String> {
    let memory = report.node_memory.as_ref().map(|memory| {
        format!(
            "Memory of a node with {} groups and {} operations in flight ({} contributions of {} bytes): {:.1} MiB \
             ({:.1} MiB without groups)",
            memory.groups,
            memory.operations,
            memory.contributions,
            memory.bytes,
            memory.resident_mib,
            memory.resident_before_mib
        )
    });
    memory.into_iter().chain(report.notes.iter().cloned()).collect()
}

pub(super) fn table(report: &CollectivesBenchReport) -> String {
    let mut text = heading(report) + "\n";
    for case in &report.scenes {
        let _ = write!(text, "\n{}\n{}", case.title, format_table(&rows(case)));
        for way in &case.ways {
            let _ = writeln!(text, "{way}");
        }
    }
    for remark in remarks(report) {
        let _ = write!(text, "\n{remark}\n");
    }
    text
}

pub(super) fn html(report: &CollectivesBenchReport) -> String {
    let mut sections = vec![("Setup".to_owned(), page::paragraph(&heading(report)))];
    for case in &report.scenes {
        let ways: String = case.ways.iter().map(|way| page::paragraph(way)).collect();
        sections.push((case.title.clone(), page::html_table(&rows(case)) + &ways));
    }
    for remark in remarks(report) {
        sections.push(("Note".to_owned(), page::paragraph(&remark)));
    }
    page::html_page("Collectives", &sections)
}
