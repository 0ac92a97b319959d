//! Which errors each checksum misses, counted.

use std::fmt::Write;

use anyhow::Result;
use checksum::Algorithm;
use checksum::detection::{DetectionRow, ErrorPattern, classify_strength, measure};
use serde::Serialize;

use super::{BenchChecksumArgs, progress};
use crate::CommandOutcome;
use crate::number_format::group_digits;
use crate::report::ReportFormat;
use crate::report::{format_table, page, write_report};

#[derive(Serialize)]
struct DetectionReport {
    /// Of these field names.
    version: u32,
    seed: u64,
    trials: u64,
    algorithms: Vec<AlgorithmRow>,
}

#[derive(Serialize)]
struct AlgorithmRow {
    name: &'static str,
    bits: u32,
    /// As these trials say.
    strength: &'static str,
    /// As the algorithm is labelled: what may be chosen depends on it.
    label: &'static str,
    errors: Vec<ErrorRow>,
    #[serde(skip)]
    rows: Vec<DetectionRow>,
}

#[derive(Serialize)]
struct ErrorRow {
    kind: &'static str,
    tried: u64,
    missed: u64,
}

/// Wrong if the trials find an algorithm weaker than its label.
pub(super) fn run(arguments: &BenchChecksumArgs, algorithms: &[Algorithm]) -> Result<CommandOutcome> {
    let bar = progress(algorithms.len() as u64)?;
    let mut outcome = CommandOutcome::Right;
    let rows = algorithms.iter().map(|algorithm| {
        bar.set_message(algorithm.name());
        let rows = measure(*algorithm, arguments.trials, arguments.seed);
        bar.inc(1);
        if classify_strength(*algorithm, &rows) < algorithm.strength() {
            outcome = CommandOutcome::Wrong;
        }
        AlgorithmRow::new(*algorithm, &rows)
    });
    let algorithms = rows.collect();
    bar.finish_and_clear();
    let report = DetectionReport { version: 1, seed: arguments.seed, trials: arguments.trials, algorithms };
    let text = match arguments.format {
        ReportFormat::Table => table(&report),
        ReportFormat::Json => serde_json::to_string_pretty(&report)? + "\n",
        ReportFormat::Html => {
            page::html_page("Errors that checksums miss", &[(heading(&report), page::html_table(&grid(&report)))])
        }
    };
    write_report(&text, arguments.output.as_deref())?;
    Ok(outcome)
}

impl AlgorithmRow {
    fn new(algorithm: Algorithm, rows: &[DetectionRow]) -> Self {
        let errors = rows.iter().map(|row| ErrorRow { kind: row.harm.name(), tried: row.tried, missed: row.missed });
        Self {
            name: algorithm.name(),
            bits: algorithm.bits(),
            strength: classify_strength(algorithm, rows).name(),
            label: algorithm.strength().name(),
            errors: errors.collect(),
            rows: rows.to_vec(),
        }
    }
}

fn heading(report: &DetectionReport) -> String {
    let DetectionReport { trials, seed, .. } = report;
    format!("Missed of about {} messages with each kind of error (seed {seed})", group_digits(*trials))
}

fn grid(report: &DetectionReport) -> Vec<Vec<String>> {
    let head = ["", "bits", "strength"]
        .into_iter()
        .chain(ErrorPattern::ALL.map(ErrorPattern::name))
        .map(str::to_owned)
        .collect();
    let rows = report.algorithms.iter().map(|row| {
        let missed = row.rows.iter().map(DetectionRow::to_string);
        [row.name.to_owned(), row.bits.to_string(), row.strength.to_owned()].into_iter().chain(missed).collect()
    });
    std::iter::once(head).chain(rows).collect()
}

fn table(report: &DetectionReport) -> String {
    let mut text = format!("{}\n\n{}", heading(report), format_table(&grid(report)));
    let pairs = report.algorithms.first().and_then(|row| row.errors.get(ErrorPattern::EveryPair as usize));
    if let Some(pairs) = pairs {
        let _ = writeln!(
            text,
            "\n'{}' are the {} of three messages of 64 bytes. A dash: none was missed.",
            pairs.kind,
            group_digits(pairs.tried)
        );
    }
    text
}
