//! The report as text and as an HTML page.

use std::fmt::Write;

use super::{MpiBenchReport, MpiCaseReport, MpiRow, PerformanceTarget, TargetVerdict};
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
        let verdict = match row.verdict {
            None => "",
            Some(TargetVerdict::Met) => "met",
            Some(TargetVerdict::WithinSpread) => "within the spread",
            Some(TargetVerdict::Missed) => "MISSED",
        };
        let [plain, with] = [row.measured.plain, row.measured.with].map(|time| time.to_string());
        [row.mpi.clone(), row.measure.clone(), plain, with, ratio, target, verdict.to_owned()]
    };
    let header = ["MPI", "measure", "without, us", "with, us", "ratio", "target", ""];
    with_header(header, case.rows.iter().map(row))
}

fn heading(report: &MpiBenchReport) -> String {
    format!(
        "MPI programs with and without Pleach on {} processors; medians over {} rounds (min..max), in turn",
        report.processors, report.rounds
    )
}

fn closing(report: &MpiBenchReport) -> String {
    let verdicts = || report.scenes.iter().flat_map(|case| &case.rows).filter_map(|row| row.verdict);
    let count = |wanted: TargetVerdict| verdicts().filter(|verdict| *verdict == wanted).count();
    let [met, near, missed] = [TargetVerdict::Met, TargetVerdict::WithinSpread, TargetVerdict::Missed].map(count);
    format!("Targets: {met} met, {near} within the spread, {missed} missed")
}

pub(super) fn table(report: &MpiBenchReport) -> String {
    let mut text = heading(report) + "\n";
    for case in &report.scenes {
        let _ = write!(text, "\n{}\n{}", case.title, format_table(&rows(case)));
    }
    for note in &report.notes {
        let _ = write!(text, "\n{note}\n");
    }
    text + "\n" + &closing(report) + "\n"
}

pub(super) fn html(report: &MpiBenchReport) -> String {
    let mut sections =
        vec![("Setup".to_owned(), page::paragraph(&heading(report)) + &page::paragraph(&closing(report)))];
    sections.extend(report.scenes.iter().map(|case| (case.title.to_owned(), page::html_table(&rows(case)))));
    sections.extend(report.notes.iter().map(|note| ("Note".to_owned(), page::paragraph(note))));
    page::html_page("MPI programs with and without Pleach", &sections)
}
