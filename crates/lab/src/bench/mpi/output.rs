//! The report as text and as an HTML page.

use std::fmt::Write;

use super::target_verdict::TargetVerdict;
use super::{MpiBenchReport, MpiCaseReport, MpiRow, PerformanceTarget, hosts, kernels, messages};
use crate::report::{TableRows, format_table, page, with_header};

fn rows(case: &MpiCaseReport) -> TableRows {
    let row = |row: &MpiRow| {
        let ratio = match row.target {
            Some(PerformanceTarget::AddedNanos(_)) => format!("{} ns more", row.measured.added_nanos),
            _ => row.measured.ratio.to_string(),
        };
        let target = match row.target {
            None => String::new(),
            Some(PerformanceTarget::Ratio(bound)) => format!("{bound:.2}"),
            Some(PerformanceTarget::AddedNanos(bound)) => format!("{bound:.0} ns"),
        };
        let verdict = row.verdict.map_or_else(String::new, |verdict| verdict.to_string());
        let [plain, with] = [row.measured.plain, row.measured.with].map(|time| time.to_string());
        [row.mpi.clone(), row.measure.clone(), plain, with, ratio, target, verdict]
    };
    let header = ["MPI", "measure", "without, us", "with, us", "ratio", "target", ""];
    with_header(header, case.rows.iter().map(row))
}

/// Title and rows of every table.
fn sections(report: &MpiBenchReport) -> Vec<(String, TableRows)> {
    let cases = report.scenes.iter().map(|case| (case.title.to_owned(), rows(case)));
    let messages = report.messages.iter().flat_map(messages::sections);
    let kernels = report.kernels.iter().map(kernels::section);
    cases.chain(report.hosts.iter().flat_map(hosts::sections)).chain(messages).chain(kernels).collect()
}

fn heading(report: &MpiBenchReport) -> String {
    format!(
        "MPI programs with and without Pleach on {} processors; medians over {} rounds (min..max), in turn",
        report.processors, report.rounds
    )
}

/// The verdicts of all scenes, line by line.
fn closing(report: &MpiBenchReport) -> Vec<String> {
    let mut lines: Vec<String> = report.hosts.iter().flat_map(hosts::closing).collect();
    if !report.scenes.is_empty() {
        let verdicts = || report.scenes.iter().flat_map(|case| &case.rows).filter_map(|row| row.verdict);
        let count = |wanted: TargetVerdict| verdicts().filter(|verdict| *verdict == wanted).count();
        let [met, near, missed] = [TargetVerdict::Met, TargetVerdict::WithinSpread, TargetVerdict::Missed].map(count);
        lines.push(format!("Targets: {met} met, {near} within the spread, {missed} missed"));
    }
    lines
}

pub(super) fn table(report: &MpiBenchReport) -> String {
    let mut text = heading(report) + "\n";
    for (title, rows) in sections(report) {
        let _ = write!(text, "\n{title}\n{}", format_table(&rows));
    }
    for note in &report.notes {
        let _ = write!(text, "\n{note}\n");
    }
    text + "\n" + &closing(report).join("\n") + "\n"
}

pub(super) fn html(report: &MpiBenchReport) -> String {
    let paragraphs: String = closing(report).iter().map(|line| page::paragraph(line)).collect();
    let mut all = vec![("Setup".to_owned(), page::paragraph(&heading(report)) + &paragraphs)];
    all.extend(sections(report).into_iter().map(|(title, rows)| (title, page::html_table(&rows))));
    all.extend(report.notes.iter().map(|note| ("Note".to_owned(), page::paragraph(note))));
    page::html_page("MPI programs with and without Pleach", &all)
}
