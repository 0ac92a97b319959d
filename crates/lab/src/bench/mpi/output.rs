//! The report as text and as an HTML page.

use std::fmt::Write;

use super::{MpiBenchReport, MpiCaseReport, MpiRow, PerformanceTarget, gloo, hosts, messages};
use crate::bench::target_verdict::TargetVerdict;
use crate::report::{
    Axis, Figure, PageSection, PageVerdict, PlaceChart, PlaceValue, ReportPage, TableRows, format_table, with_header,
};

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
    let messages = report.messages.iter().map(messages::section);
    let gloo = report.gloo.iter().map(gloo::section);
    cases.chain(report.hosts.iter().flat_map(hosts::sections)).chain(messages).chain(gloo).collect()
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
    if let Some(messages) = &report.messages {
        lines.push(format!("Targets of messages: {}", TargetVerdict::count(messages.verdicts())));
    }
    if let Some(gloo) = &report.gloo {
        lines.push(format!("Targets, Pleach over gloo: {}", TargetVerdict::count(gloo.verdicts())));
    }
    if !report.scenes.is_empty() {
        lines.push(format!("Targets: {}", TargetVerdict::count(report.case_verdicts())));
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

pub(super) fn html(report: &MpiBenchReport) -> ReportPage {
    let mut page = ReportPage::new("MPI programs with and without Pleach", verdict(report))
        .about(heading(report))
        .section(PageSection::new("Targets").paragraphs(closing(report)));
    for case in &report.scenes {
        page = page.section(PageSection::new(case.title).charts([chart(case)]));
    }
    let tables = sections(report).into_iter().map(|(title, rows)| PageSection::new(title).table(&rows));
    let page = page.sections(tables);
    match report.notes.is_empty() {
        true => page,
        false => page.section(PageSection::new("Notes").paragraphs(&report.notes)),
    }
}

/// Whether the targets are met, as the exit status says it.
fn verdict(report: &MpiBenchReport) -> PageVerdict {
    let (verdicts, failures) = (report.verdicts(), report.failures());
    let is_empty = verdicts.is_empty();
    let sentence =
        format!("of {} targets {}; {failures} runs failed.", verdicts.len(), TargetVerdict::count(verdicts));
    match (report.passed(), is_empty) {
        (true, true) => PageVerdict::measured("no measurement has a target."),
        (true, false) => PageVerdict::held(sentence),
        (false, _) => PageVerdict::failed(sentence),
    }
}

/// The times without and with Pleach.
fn chart(case: &MpiCaseReport) -> Figure {
    let places = case.rows.iter().map(|row| format!("{}, {}", row.measure, row.mpi)).collect();
    let of = |pick: fn(&MpiRow) -> PlaceValue| case.rows.iter().map(|row| Some(pick(row))).collect();
    let title = format!("{}: median and range of the rounds", case.title);
    PlaceChart::new(title, Axis::new("time, us").logarithmic(), places)
        .series("without", of(|row| row.measured.plain.place_value()))
        .series("with", of(|row| row.measured.with.place_value()))
        .figure()
}
