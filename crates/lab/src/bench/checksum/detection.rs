//! `pleach bench checksum --detection`: how many errors of each kind every checksum misses.

use std::fmt::Write;

use anyhow::Result;
use checksum::Algorithm;
use checksum::detection::{DetectionRow, ErrorPattern, classify_strength, measure};
use serde::Serialize;

use super::BenchChecksumArgs;
use crate::CommandOutcome;
use crate::number_format::group_digits;
use crate::progress::{MESSAGE_AND_ETA, progress_bar};
use crate::report::{PageSection, PageVerdict, ReportPage, format_table};

#[derive(Serialize)]
struct DetectionReport {
    /// Version of the field names.
    version: u32,
    seed: u64,
    trials: u64,
    algorithms: Vec<AlgorithmRow>,
}

#[derive(Serialize)]
struct AlgorithmRow {
    name: &'static str,
    bits: u32,
    /// By these trials.
    strength: &'static str,
    /// By the algorithm's own declaration, which decides whether it may be chosen.
    label: &'static str,
    errors: Vec<ErrorRow>,
    #[serde(skip)]
    is_weaker_than_labelled: bool,
    #[serde(skip)]
    rows: Vec<DetectionRow>,
}

#[derive(Serialize)]
struct ErrorRow {
    kind: &'static str,
    tried: u64,
    missed: u64,
}

/// Fails if an algorithm is weaker in these trials than it declares.
pub(super) fn run(arguments: &BenchChecksumArgs, algorithms: &[Algorithm]) -> Result<CommandOutcome> {
    let bar = progress_bar(algorithms.len() as u64, MESSAGE_AND_ETA);
    let mut outcome = CommandOutcome::Passed;
    let rows = algorithms.iter().map(|algorithm| {
        bar.set_message(algorithm.name());
        let rows = measure(*algorithm, arguments.trials, arguments.seed);
        bar.inc(1);
        if classify_strength(*algorithm, &rows) < algorithm.strength() {
            outcome = CommandOutcome::Failed;
        }
        AlgorithmRow::new(*algorithm, &rows)
    });
    let algorithms = rows.collect();
    bar.finish_and_clear();
    let report = DetectionReport { version: 1, seed: arguments.seed, trials: arguments.trials, algorithms };
    arguments.report.write(&report, table, html)?;
    Ok(outcome)
}

fn html(report: &DetectionReport) -> ReportPage {
    let weaker = report.algorithms.iter().filter(|row| row.is_weaker_than_labelled).map(|row| row.name);
    let weaker: Vec<&str> = weaker.collect();
    let verdict = match weaker.is_empty() {
        true => PageVerdict::held(format!(
            "all {} checksums are as strong as they are labelled.",
            report.algorithms.len()
        )),
        false => PageVerdict::failed(format!("weaker than labelled: {}.", weaker.join(", "))),
    };
    ReportPage::new("Errors that checksums miss", verdict)
        .seed(report.seed)
        .section(PageSection::new(heading(report)).table(&grid(report)))
}

impl AlgorithmRow {
    fn new(algorithm: Algorithm, rows: &[DetectionRow]) -> Self {
        let errors =
            rows.iter().map(|row| ErrorRow { kind: row.pattern.name(), tried: row.tried, missed: row.missed });
        Self {
            name: algorithm.name(),
            bits: algorithm.bits(),
            strength: classify_strength(algorithm, rows).name(),
            label: algorithm.strength().name(),
            errors: errors.collect(),
            is_weaker_than_labelled: classify_strength(algorithm, rows) < algorithm.strength(),
            rows: rows.to_vec(),
        }
    }
}

fn heading(report: &DetectionReport) -> String {
    let DetectionReport { trials, seed, .. } = report;
    format!("Missed errors of about {} messages for each kind (seed {seed})", group_digits(*trials))
}

fn grid(report: &DetectionReport) -> Vec<Vec<String>> {
    let header = ["", "bits", "strength"]
        .into_iter()
        .chain(ErrorPattern::ALL.map(ErrorPattern::name))
        .map(str::to_owned)
        .collect();
    let rows = report.algorithms.iter().map(|row| {
        let missed = row.rows.iter().map(DetectionRow::to_string);
        [row.name.to_owned(), row.bits.to_string(), row.strength.to_owned()].into_iter().chain(missed).collect()
    });
    std::iter::once(header).chain(rows).collect()
}

fn table(report: &DetectionReport) -> String {
    let mut text = format!("{}\n\n{}", heading(report), format_table(&grid(report)));
    let pairs = report.algorithms.first().and_then(|row| row.errors.get(ErrorPattern::EveryPair as usize));
    if let Some(pairs) = pairs {
        let _ = writeln!(
            text,
            "\n'{}' are the {} pairs of bits of three messages of 64 bytes. A dash: no error was missed.",
            pairs.kind,
            group_digits(pairs.tried)
        );
    }
    text
}
