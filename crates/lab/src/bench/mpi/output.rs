//! The report as text, and as a page.

use std::fmt::Write;

use super::{Report, Row, SceneReport, Target, Verdict};
use crate::bench::collectives::output::spread;
use crate::report::{aligned, escape, page};

fn rows(scene: &SceneReport) -> Vec<Vec<String>> {
    let head = ["MPI", "measure", "without, us", "with, us", "ratio", "target", ""].map(String::from).to_vec();
    let row = |row: &Row| {
        let ratio = match row.target {
            Some(Target::AddedNanos(_)) => format!("{} ns more", spread(&row.measured.added_nanos)),
            _ => spread(&row.measured.ratio),
        };
        let target = match row.target {
            None => String::new(),
            Some(Target::Ratio(most)) => format!("{most:.2}"),
            Some(Target::AddedNanos(most)) => format!("{most:.0} ns"),
        };
        let verdict = match row.verdict {
            None => "",
            Some(Verdict::Met) => "met",
            Some(Verdict::WithinSpread) => "within the spread",
            Some(Verdict::Missed) => "MISSED",
        };
        let times = [&row.measured.plain, &row.measured.with].map(spread);
        let [plain, with] = times;
        vec![row.mpi.clone(), row.measure.clone(), plain, with, ratio, target, verdict.to_owned()]
    };
    std::iter::once(head).chain(scene.rows.iter().map(row)).collect()
}

fn heading(report: &Report) -> String {
    format!(
        "MPI programs with and without Pleach on {} processors; medians over {} rounds (least..most), by turns",
        report.processors, report.rounds
    )
}

fn closing(report: &Report) -> String {
    let verdicts = || report.scenes.iter().flat_map(|scene| &scene.rows).filter_map(|row| row.verdict);
    let count = |wanted: Verdict| verdicts().filter(|verdict| *verdict == wanted).count();
    let [met, near, missed] = [Verdict::Met, Verdict::WithinSpread, Verdict::Missed].map(count);
    format!("Targets: {met} met, {near} within the spread, {missed} missed")
}

pub(super) fn table(report: &Report) -> String {
    let mut text = heading(report) + "\n";
    for scene in &report.scenes {
        let _ = write!(text, "\n{}\n{}", scene.title, aligned(&rows(scene)));
    }
    for note in &report.notes {
        let _ = write!(text, "\n{note}\n");
    }
    text + "\n" + &closing(report) + "\n"
}

pub(super) fn html(report: &Report) -> String {
    let paragraph = |text: &str| format!("<p>{}</p>", escape(text));
    let mut sections = vec![("How".to_owned(), paragraph(&heading(report)) + &paragraph(&closing(report)))];
    sections.extend(report.scenes.iter().map(|scene| (scene.title.to_owned(), page::rows(&rows(scene)))));
    sections.extend(report.notes.iter().map(|note| ("Note".to_owned(), paragraph(note))));
    page::page("MPI programs with and without Pleach", &sections)
}
