//! The report as text, and as a page.

use std::fmt::Write;

use super::{CollectivesBenchReport, CollectivesCaseReport};
use crate::bench::migration::TrialSummary;
use crate::report::{format_table, page};

pub(crate) fn spread(figure: &TrialSummary) -> String {
    let digits = if figure.median < 10.0 { 2 } else { 1 };
    format!("{:.digits$} ({:.digits$}..{:.digits$})", figure.median, figure.least, figure.most)
}

fn rows(scene: &CollectivesCaseReport) -> Vec<Vec<String>> {
    let head = ["measure", "contender", "us", "processor, us", "of Open MPI's time"].map(String::from).to_vec();
    let rows = scene.rows.iter().map(|row| {
        let ratio = row.ratio.as_ref().map_or_else(String::new, spread);
        vec![row.measure.clone(), row.contender.to_string(), spread(&row.micros), spread(&row.cpu_micros), ratio]
    });
    std::iter::once(head).chain(rows).collect()
}

fn heading(report: &CollectivesBenchReport) -> String {
    let against = report.open_mpi.as_deref().unwrap_or("without another contender");
    format!(
        "Collectives on {} processors, {against}; medians over {} rounds (least..most)",
        report.processors, report.rounds
    )
}

/// What there is to say beside the scenes.
fn remarks(report: &CollectivesBenchReport) -> Vec<String> {
    let memory = report.node_memory.as_ref().map(|memory| {
        format!(
            "A node with {} groups and {} operations in flight ({} contributions of {} bytes held): {:.1} MiB, {:.1} MiB \
             before",
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
    for scene in &report.scenes {
        let _ = write!(text, "\n{}\n{}", scene.title, format_table(&rows(scene)));
        for way in &scene.ways {
            let _ = writeln!(text, "{way}");
        }
    }
    for remark in remarks(report) {
        let _ = write!(text, "\n{remark}\n");
    }
    text
}

pub(super) fn html(report: &CollectivesBenchReport) -> String {
    let mut sections = vec![("How".to_owned(), format!("<p>{}</p>", crate::report::escape(&heading(report))))];
    for scene in &report.scenes {
        let ways: String = scene.ways.iter().map(|way| format!("<p>{}</p>", crate::report::escape(way))).collect();
        sections.push((scene.title.clone(), page::html_table(&rows(scene)) + &ways));
    }
    for remark in remarks(report) {
        sections.push(("Note".to_owned(), format!("<p>{}</p>", crate::report::escape(&remark))));
    }
    page::html_page("Collectives", &sections)
}
