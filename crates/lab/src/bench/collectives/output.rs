//! The report as text and as an HTML page.

use std::fmt::Write;

use super::{CollectivesBenchReport, CollectivesCaseReport};
use crate::report::{
    Axis, Figure, PageSection, PageVerdict, PlaceChart, PlaceValue, ReportPage, TableRows, format_table, with_header,
};

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

pub(super) fn html(report: &CollectivesBenchReport) -> ReportPage {
    let measured = report.scenes.iter().map(|case| case.rows.len()).sum::<usize>();
    let verdict = match report.failed {
        0 => PageVerdict::measured(format!("{measured} times of collectives measured; every result was right.")),
        failed => PageVerdict::failed(format!("{failed} scenes could not be measured (see the notes).")),
    };
    let mut page = ReportPage::new("Collectives", verdict).about(heading(report));
    for case in &report.scenes {
        page = page
            .section(PageSection::new(&case.title).charts([chart(case)]).table(&rows(case)).paragraphs(&case.ways));
    }
    let remarks = remarks(report);
    if remarks.is_empty() { page } else { page.section(PageSection::new("Notes").paragraphs(remarks)) }
}

/// The times of all contenders, measure by measure.
fn chart(case: &CollectivesCaseReport) -> Figure {
    let mut measures: Vec<String> = Vec::new();
    let mut contenders: Vec<String> = Vec::new();
    for row in &case.rows {
        let contender = row.contender.to_string();
        if !measures.contains(&row.measure) {
            measures.push(row.measure.clone());
        }
        if !contenders.contains(&contender) {
            contenders.push(contender);
        }
    }
    let value = |measure: &String, contender: &str| {
        let mut rows = case.rows.iter();
        let row = rows.find(|row| row.measure == *measure && row.contender.to_string() == contender)?;
        Some(row.micros.place_value())
    };
    let title = "Time of an operation: median and range of the rounds";
    let chart = PlaceChart::new(title, Axis::new("time, us").logarithmic(), measures.clone());
    let series = |contender: &str| -> Vec<Option<PlaceValue>> {
        measures.iter().map(|measure| value(measure, contender)).collect()
    };
    contenders.iter().fold(chart, |chart, contender| chart.series(contender, series(contender))).figure()
}
