//! The report as text, and as a page.

use std::fmt::Write;

use super::{MpiBenchReport, MpiCaseReport, MpiRow, PerformanceTarget, TargetVerdict};
use crate::bench::collectives::output::spread;
use crate::report::{escape, format_table, page};

fn rows(scene: &MpiCaseReport) -> Vec<Vec<String>> {
    let head = ["MPI", "measure", "without, us", "with, us", "ratio", "target", ""].map(String::from).to_vec();
    let row = |row: &MpiRow| {
        let ratio = match row.target {
            Some(PerformanceTarget::AddedNanos(_)) => format!("{} ns more", spread(&row.measured.added_nanos)),
            _ => spread(&row.measured.ratio),
        };
        let target = match row.target {
            None => String::new(),
            Some(PerformanceTarget::Ratio(most)) => format!("{most:.2}"),
            Some(PerformanceTarget::AddedNanos(most)) => format!("{most:.0} ns"),
        };
        let verdict = match row.verdict {
            None => "",
            Some(TargetVerdict::Met) => "met",
            Some(TargetVerdict::WithinSpread) => "within the spread",
            Some(TargetVerdict::Missed) => "MISSED",
        };
        let times = [&row.measured.plain, &row.measured.with].map(spread);
        let [plain, with] = times;
        vec![row.mpi.clone(), row.measure.clone(), plain, with, ratio, target, verdict.to_owned()]
    };
    std::iter::once(head).chain(scene.rows.iter().map(row)).collect()
}

fn heading(report: &MpiBenchReport) -> String {
    format!(
        "MPI programs with and without Pleach on {} processors; medians over {} rounds (least..most), by turns",
        report.processors, report.rounds
    )
}

fn closing(report: &MpiBenchReport) -> String {
    let verdicts = || report.scenes.iter().flat_map(|scene| &scene.rows).filter_map(|row| row.verdict);
    let count = |wanted: TargetVerdict| verdicts().filter(|verdict| *verdict == wanted).count();
    let [met, near, missed] = [TargetVerdict::Met, TargetVerdict::WithinSpread, TargetVerdict::Missed].map(count);
    format!("Targets: {met} met, {near} within the spread, {missed} missed")
}

pub(super) fn table(report: &MpiBenchReport) -> String {
    let mut text = heading(report) + "\n";
    for scene in &report.scenes {
        let _ = write!(text, "\n{}\n{}", scene.title, format_table(&rows(scene)));
    }
    for note in &report.notes {
        let _ = write!(text, "\n{note}\n");
    }
    text + "\n" + &closing(report) + "\n"
}

pub(super) fn html(report: &MpiBenchReport) -> String {
    let paragraph = |text: &str| format!("<p>{}</p>", escape(text));
    let mut sections = vec![("How".to_owned(), paragraph(&heading(report)) + &paragraph(&closing(report)))];
    sections.extend(report.scenes.iter().map(|scene| (scene.title.to_owned(), page::html_table(&rows(scene)))));
    sections.extend(report.notes.iter().map(|note| ("Note".to_owned(), paragraph(note))));
    page::html_page("MPI programs with and without Pleach", &sections)
}
