//! The checksum paper: its three models, computed (claims CK-4, CK-6 and CK-7), its clusters simulated with our own machines (CK-9), and
//! this machine measured.
//!
//! In: the parameters of the clusters and the published numbers. Out: each number beside ours.

mod measured;
mod models;
mod simulated;

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;

use self::measured::Measured;
use self::models::{JACK, Pipelined};
use self::simulated::{Manner, Point};
use super::published;
use super::verdict::{Comparison, Gate, Remark, Verdict};
use crate::Outcome;
use crate::bench::migration::Figure;
use crate::bench::pingpong::Transport;
use crate::report::{aligned, deliver, page};
use crate::report::Format;

const PUBLISHED: &str = include_str!("../../../../experiments/checksums/published.csv");

/// The models, the simulated clusters and this machine beside the published numbers.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach reproduce checksums
  pleach reproduce checksums --computed-only --format json

Hold still everything else on the machine while it is measured, or leave that out. What single checksums cost: pleach bench checksum.
Exit status: 0 if the gated numbers hold, 1 if one does not; what is measured is reported, not judged.")]
pub(crate) struct Arguments {
    /// Only what is computed and simulated, not this machine.
    #[arg(long)]
    computed_only: bool,
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
    /// The cluster jack with our machines, and graphene with assumed speeds.
    simulated: Vec<Point>,
    graphene: Vec<Point>,
    /// This machine, if it was asked about.
    measured: Vec<Measured>,
    holds: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let mut findings = find()?;
    if !arguments.computed_only {
        findings.measured = measured::measure()?;
    }
    let text = match arguments.format {
        Format::Table => table(&findings),
        Format::Json => serde_json::to_string_pretty(&findings)? + "\n",
        Format::Html => html(&findings),
    };
    deliver(&text, arguments.output.as_deref())?;
    Ok(if findings.holds { Outcome::Right } else { Outcome::Wrong })
}

const LAST_CHUNK: &str =
    "half of what is lost is the check of the last sub-block; see experiments/checksums/README.md";

const MEGABYTE: f64 = 1_048_576.0;

fn find() -> Result<Findings> {
    let pipelines: Vec<Pipelined> =
        (6..=24).map(|gigabytes| JACK.pipelined(MEGABYTE, f64::from(gigabytes))).collect();
    let (simulated, graphene) = (simulated::points(&simulated::JACK)?, simulated::points(&simulated::GRAPHENE)?);
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
        let remark = (published.id == "pipelined-64k-simulated").then_some(Remark::Why(LAST_CHUNK));
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
    Ok(Findings { comparisons, gates, pipelines, simulated, graphene, measured: Vec::new(), holds })
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

fn simulated_rows(points: &[Point]) -> Vec<Vec<String>> {
    let ways = ["naive", "copy, then checksum", "fused, one chunk", "super-pipeline", "the same by sub-blocks"];
    let head: Vec<&str> = ["bytes", "plain, us"].into_iter().chain(ways).collect();
    let rows = points.iter().map(|point| {
        let lost = point.lost_percent.iter().map(|lost| format!("{lost:.1} %"));
        [point.bytes.to_string(), format!("{:.2}", point.plain_us)].into_iter().chain(lost).collect()
    });
    std::iter::once(head.into_iter().map(str::to_owned).collect()).chain(rows).collect()
}

fn measured_rows(findings: &Findings) -> Vec<Vec<String>> {
    let head = ["transport", "bytes", "lost, %", "published, %", "verdict"].map(str::to_owned).to_vec();
    let rows = findings.measured.iter().map(|row| {
        let Figure { median, least, most } = row.lost_percent;
        let transport = if row.transport == Transport::Udp { "udp" } else { "shm" };
        vec![
            transport.to_owned(),
            row.bytes.to_string(),
            format!("{median:.1} ({least:.1}..{most:.1})"),
            format!("{:.1}", row.published_percent),
            row.verdict.to_owned(),
        ]
    });
    std::iter::once(head).chain(rows).collect()
}

fn sentences(findings: &Findings) -> Vec<String> {
    let verdict = if findings.holds { "All gated numbers hold." } else { "A gated number does not hold." };
    findings.gates.iter().map(Gate::to_string).chain([verdict.to_owned()]).collect()
}

const TITLE: &str =
    "Checksums for fault-tolerant messaging: the paper's models, its clusters simulated, and this machine";
const SIMULATED: &str = "Bandwidth lost on the simulated cluster jack, with our own machines";
const GRAPHENE: &str = "The same on graphene, whose speeds are assumed";
const MEASURED: &str =
    "Bandwidth lost on this machine, between two processes, beside what the paper measured on its clusters";
const PIPELINES: &str = "Super-pipeline at 1 MB, by the speed of the copy";

fn table(findings: &Findings) -> String {
    let mut text = format!("{TITLE}\n\n{}\n{PIPELINES}\n", aligned(&comparison_rows(findings)));
    let _ = write!(text, "{}\n{SIMULATED}\n", aligned(&pipeline_rows(findings)));
    let _ = write!(text, "{}\n{GRAPHENE}\n", aligned(&simulated_rows(&findings.simulated)));
    let _ = writeln!(text, "{}", aligned(&simulated_rows(&findings.graphene)));
    if !findings.measured.is_empty() {
        let _ = writeln!(text, "{MEASURED}\n{}", aligned(&measured_rows(findings)));
    }
    text + &sentences(findings).join("\n") + "\n"
}

fn html(findings: &Findings) -> String {
    let sentences: String =
        sentences(findings).iter().map(|sentence| format!("<p>{}</p>", crate::report::escape(sentence))).collect();
    let mut sections = vec![
        ("Numbers".to_owned(), page::rows(&comparison_rows(findings))),
        (PIPELINES.to_owned(), page::rows(&pipeline_rows(findings))),
        (SIMULATED.to_owned(), page::rows(&simulated_rows(&findings.simulated))),
        (GRAPHENE.to_owned(), page::rows(&simulated_rows(&findings.graphene))),
    ];
    if !findings.measured.is_empty() {
        sections.push((MEASURED.to_owned(), page::rows(&measured_rows(findings))));
    }
    sections.push(("Verdict".to_owned(), sentences));
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
