//! Which errors each checksum misses, counted.

use std::fmt::Write;

use anyhow::Result;
use checksum::Algorithm;
use checksum::detection::{Harm, Row, judge, measure};
use serde::Serialize;

use super::{Arguments, progress};
use crate::Outcome;
use crate::report::{aligned, deliver, page};
use crate::report::Format;
use crate::words::grouped;

#[derive(Serialize)]
struct Report {
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
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct ErrorRow {
    kind: &'static str,
    tried: u64,
    missed: u64,
}

/// Wrong if the trials find an algorithm weaker than its label.
pub(super) fn run(arguments: &Arguments, algorithms: &[Algorithm]) -> Result<Outcome> {
    let bar = progress(algorithms.len() as u64)?;
    let mut outcome = Outcome::Right;
    let rows = algorithms.iter().map(|algorithm| {
        bar.set_message(algorithm.name());
        let rows = measure(*algorithm, arguments.trials, arguments.seed);
        bar.inc(1);
        if judge(*algorithm, &rows) < algorithm.strength() {
            outcome = Outcome::Wrong;
        }
        AlgorithmRow::new(*algorithm, &rows)
    });
    let algorithms = rows.collect();
    bar.finish_and_clear();
    let report = Report { version: 1, seed: arguments.seed, trials: arguments.trials, algorithms };
    let text = match arguments.format {
        Format::Table => table(&report),
        Format::Json => serde_json::to_string_pretty(&report)? + "\n",
        Format::Html => page::page("Errors that checksums miss", &[(heading(&report), page::rows(&grid(&report)))]),
    };
    deliver(&text, arguments.output.as_deref())?;
    Ok(outcome)
}

impl AlgorithmRow {
    fn new(algorithm: Algorithm, rows: &[Row]) -> Self {
        let errors = rows.iter().map(|row| ErrorRow { kind: row.harm.name(), tried: row.tried, missed: row.missed });
        Self {
            name: algorithm.name(),
            bits: algorithm.bits(),
            strength: judge(algorithm, rows).name(),
            label: algorithm.strength().name(),
            errors: errors.collect(),
            rows: rows.to_vec(),
        }
    }
}

fn heading(report: &Report) -> String {
    let Report { trials, seed, .. } = report;
    format!("Missed of about {} messages with each kind of error (seed {seed})", grouped(*trials))
}

fn grid(report: &Report) -> Vec<Vec<String>> {
    let head = ["", "bits", "strength"].into_iter().chain(Harm::ALL.map(Harm::name)).map(str::to_owned).collect();
    let rows = report.algorithms.iter().map(|row| {
        let missed = row.rows.iter().map(Row::to_string);
        [row.name.to_owned(), row.bits.to_string(), row.strength.to_owned()].into_iter().chain(missed).collect()
    });
    std::iter::once(head).chain(rows).collect()
}

fn table(report: &Report) -> String {
    let mut text = format!("{}\n\n{}", heading(report), aligned(&grid(report)));
    let pairs = report.algorithms.first().and_then(|row| row.errors.get(Harm::EveryPair as usize));
    if let Some(pairs) = pairs {
        let _ = writeln!(
            text,
            "\n'{}' are the {} of three messages of 64 bytes. A dash: none was missed.",
            pairs.kind,
            grouped(pairs.tried)
        );
    }
    text
}
