//! The checksum paper: its three models, computed (claims CK-4, CK-6 and CK-7), and its cluster jack simulated with our own machines
//! (CK-9).
//!
//! In: the parameters of the cluster jack and the published numbers. Out: each number beside ours.

mod models;
mod simulated;

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;

use self::models::{JACK, Pipelined};
use self::simulated::{Manner, Point};
use super::published;
use super::verdict::{Comparison, Gate, Remark, Verdict};
use crate::Outcome;
use crate::report::{aligned, deliver, page};
use crate::simulate::Format;

const PUBLISHED: &str = include_str!("../../../../experiments/checksums/published.csv");

/// The models and the simulated cluster beside the published numbers.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach reproduce checksums
  pleach reproduce checksums --format json

What checksums cost on this machine: pleach bench checksum. Exit status: 0 if the gated numbers hold, 1 if one does not.")]
pub(crate) struct Arguments {
    /// How to write the report.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Where to write it; standard output if not said.
    #[arg(long)]
    output: Option<PathBuf>,
}

/// Everything that the command found.
#[derive(Serialize)]
struct Findings {
    comparisons: Vec<Comparison>,
    gates: Vec<Gate>,
    /// The super-pipeline by the speed of the copy, which the paper does not print.
    pipelines: Vec<Pipelined>,
    /// The cluster jack with our machines.
    simulated: Vec<Point>,
    holds: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let findings = find()?;
    let text = match arguments.format {
        Format::Table => table(&findings),
        Format::Json => serde_json::to_string_pretty(&findings)? + "\n",
        Format::Html => html(&findings),
    };
    deliver(&text, arguments.output.as_deref())?;
    Ok(if findings.holds { Outcome::Right } else { Outcome::Wrong })
}

const CHUNKS: &str = "presumably since our receiver checks chunk by chunk, the paper's sub-block by sub-block: at 64 KB more of it is left at the end";

const MEGABYTE: f64 = 1_048_576.0;

fn find() -> Result<Findings> {
    let pipelines: Vec<Pipelined> =
        (6..=24).map(|gigabytes| JACK.pipelined(MEGABYTE, f64::from(gigabytes))).collect();
    let simulated = simulated::points()?;
    let lost = |bytes: usize, manner: Manner| {
        simulated.iter().find(|point| point.bytes == bytes).map(|point| point.lost(manner))
    };
    let ours = |id: &str| match id {
        "naive" => Some(100.0 * JACK.naive_share()),
        "eager-4k" => Some(100.0 * JACK.eager_loss(4096.0)),
        "naive-16m-simulated" => lost(16 << 20, Manner::Naive).map(|lost| 100.0 - lost),
        "small-4k-simulated" => lost(4 << 10, Manner::SuperPipelined),
        "pipelined-64k-simulated" => lost(64 << 10, Manner::SuperPipelined),
        _ => None,
    };
    let mut comparisons = Vec::new();
    for published in published::read(PUBLISHED).context("experiments/checksums/published.csv")? {
        let ours = ours(&published.id).with_context(|| format!("no such number: {}", published.id))?;
        let remark = (published.id == "pipelined-64k-simulated").then_some(Remark::Why(CHUNKS));
        comparisons.push(Comparison::new(&published, ours, "jack", remark));
    }
    // The paper prints a bound and no number.
    let printed = 100.0 * JACK.printed_overhead(MEGABYTE);
    let long = lost(16 << 20, Manner::SuperPipelined).unwrap_or(100.0);
    let gates = vec![
        Gate {
            statement: format!("CK-9: {long:.2} % lost at 16 MB, simulated, below the printed 0.5 %"),
            holds: long < 0.5,
        },
        Gate {
            statement: format!(
                "CK-7: half a microsecond and one gap are {printed:.2} % of 1 MB, below the printed 1 %"
            ),
            holds: (0.0..1.0).contains(&printed),
        },
        Gate {
            statement: "CK-7: below 1 % at 1 MB for any copy from 6 to 24 GB/s".into(),
            holds: pipelines.iter().all(|pipeline| (0.0..1.0).contains(&pipeline.overhead_percent)),
        },
    ];
    let right = |row: &Comparison| !row.gated || row.verdict == Verdict::Match;
    let holds = comparisons.iter().all(right) && gates.iter().all(|gate| gate.holds);
    Ok(Findings { comparisons, gates, pipelines, simulated, holds })
}

fn comparison_rows(findings: &Findings) -> Vec<Vec<String>> {
    let head = ["where", "claim", "statement", "published", "ours", "verdict"].map(str::to_owned).to_vec();
    let rows = findings.comparisons.iter().map(|row| {
        let verdict = format!("{}{}", row.verdict.words(), if row.gated { " (gated)" } else { "" });
        [&row.figure, &row.claim, &row.statement, &row.published, &row.ours, &verdict].map(String::clone).to_vec()
    });
    std::iter::once(head).chain(rows).collect()
}

fn pipeline_rows(findings: &Findings) -> Vec<Vec<String>> {
    let head = ["copy, GB/s", "gaps without", "gaps with", "added, us", "added, %"].map(str::to_owned).to_vec();
    // Every other one is enough to see how it goes.
    let rows = findings.pipelines.iter().step_by(2).map(|row| {
        vec![
            format!("{:.0}", row.copy_gb_per_s),
            format!("{:.2}", row.gaps_without),
            format!("{:.2}", row.gaps_with),
            format!("{:.2}", row.added_us),
            format!("{:.2}", row.overhead_percent),
        ]
    });
    std::iter::once(head).chain(rows).collect()
}

fn simulated_rows(findings: &Findings) -> Vec<Vec<String>> {
    let head = ["bytes", "plain, us", "naive", "copy, then checksum", "fused, one chunk", "super-pipeline"];
    let rows = findings.simulated.iter().map(|point| {
        let lost = point.lost_percent.iter().map(|lost| format!("{lost:.1} %"));
        [point.bytes.to_string(), format!("{:.2}", point.plain_us)].into_iter().chain(lost).collect()
    });
    std::iter::once(head.map(str::to_owned).to_vec()).chain(rows).collect()
}

fn sentences(findings: &Findings) -> Vec<String> {
    let verdict = if findings.holds { "All gated numbers hold." } else { "A gated number does not hold." };
    findings.gates.iter().map(Gate::to_string).chain([verdict.to_owned()]).collect()
}

const TITLE: &str = "Checksums for fault-tolerant messaging: the paper's models, and its cluster jack simulated";
const SIMULATED: &str = "Bandwidth lost on the simulated cluster jack, with our own machines";
const PIPELINES: &str = "Super-pipeline at 1 MB, by the speed of the copy";

fn table(findings: &Findings) -> String {
    let mut text = format!("{TITLE}\n\n{}\n{PIPELINES}\n", aligned(&comparison_rows(findings)));
    let _ = write!(text, "{}\n{SIMULATED}\n", aligned(&pipeline_rows(findings)));
    let _ = write!(text, "{}\n{}\n", aligned(&simulated_rows(findings)), sentences(findings).join("\n"));
    text
}

fn html(findings: &Findings) -> String {
    let sentences: String =
        sentences(findings).iter().map(|sentence| format!("<p>{}</p>", crate::report::escape(sentence))).collect();
    let sections = [
        ("Numbers".to_owned(), page::rows(&comparison_rows(findings))),
        (PIPELINES.to_owned(), page::rows(&pipeline_rows(findings))),
        (SIMULATED.to_owned(), page::rows(&simulated_rows(findings))),
        ("Verdict".to_owned(), sentences),
    ];
    page::page(TITLE, &sections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_number_is_computed_and_holds() {
        let findings = find().expect("all numbers are known");
        assert_eq!(findings.comparisons.len(), 5);
        assert!(findings.holds, "{}", table(&findings));
    }

    #[test]
    fn the_table_and_the_page_say_so() {
        let findings = find().expect("all numbers are known");
        assert!(table(&findings).ends_with("All gated numbers hold.\n"));
        assert!(html(&findings).contains("All gated numbers hold."));
    }
}
