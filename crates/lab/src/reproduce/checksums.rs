//! The checksum paper: its three models (claims CK-4, CK-6 and CK-7), its clusters simulated with our protocol machines (CK-9), and
//! measurements on this machine.
//!
//! In: the parameters of the clusters and the published numbers. Out: each number compared with ours.

mod measured;
mod models;
mod simulated;

use std::fmt::Write;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;

use self::measured::MeasuredChecksumLoss;
use self::models::{JACK, PipelineOverhead};
use self::simulated::{ChecksumLossPoint, ChecksumScheme};
use super::comparison::{Comparison, Gate, Remark, ReproductionVerdict, gated_sentence};
use super::published;
use crate::CommandOutcome;
use crate::bench::pingpong::PingpongTransport;
use crate::report::ReportArgs;
use crate::report::{format_table, page};

const PUBLISHED: &str = include_str!("../../experiments/checksums/published.csv");

/// Compares the models, the simulated clusters and this machine with the published numbers.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach reproduce checksums
  pleach reproduce checksums --computed-only --format json

Run nothing else on the machine during the measurement, or omit it. For the cost of single checksums: pleach bench checksum.

Exit status: 0 if the gated numbers hold, 1 if one does not; measurements are reported, not judged.")]
pub(crate) struct ReproduceChecksumsArgs {
    /// Compute and simulate only, without measuring this machine.
    #[arg(long)]
    computed_only: bool,
    #[command(flatten)]
    report: ReportArgs,
}

/// All results of the command.
#[derive(Serialize)]
struct ChecksumsFindings {
    comparisons: Vec<Comparison>,
    gates: Vec<Gate>,
    /// The super-pipeline by the speed of the copy, which the paper does not give.
    pipelines: Vec<PipelineOverhead>,
    /// The cluster jack with our protocol machines, and graphene with assumed speeds.
    simulated: Vec<ChecksumLossPoint>,
    graphene: Vec<ChecksumLossPoint>,
    /// This machine, if it was measured.
    measured: Vec<MeasuredChecksumLoss>,
    holds: bool,
}

pub(crate) fn run(arguments: &ReproduceChecksumsArgs) -> Result<CommandOutcome> {
    let mut findings = find()?;
    if !arguments.computed_only {
        findings.measured = measured::measure()?;
    }
    arguments.report.write(&findings, table, html)?;
    Ok(if findings.holds { CommandOutcome::Passed } else { CommandOutcome::Failed })
}

const LAST_CHUNK: &str = "half of the loss is the check of the last sub-block; see experiments/checksums/README.md";

const MEGABYTE: f64 = 1_048_576.0;

fn find() -> Result<ChecksumsFindings> {
    let pipelines: Vec<PipelineOverhead> =
        (6..=24).map(|gigabytes| JACK.pipelined(MEGABYTE, f64::from(gigabytes))).collect();
    let (simulated, graphene) = (simulated::points(&simulated::JACK)?, simulated::points(&simulated::GRAPHENE)?);
    let lost = |bytes: usize, scheme: ChecksumScheme| {
        simulated.iter().find(|point| point.bytes == bytes).map(|point| point.lost(scheme))
    };
    let ours = |id: &str| match id {
        "naive" => Some(100.0 * JACK.naive_share()),
        "eager-4k" => Some(100.0 * JACK.eager_loss(4096.0)),
        "naive-16m-simulated" => lost(16 << 20, ChecksumScheme::Naive).map(|lost| 100.0 - lost),
        "small-4k-simulated" => lost(4 << 10, ChecksumScheme::SuperPipelined),
        "pipelined-64k-simulated" => lost(64 << 10, ChecksumScheme::SuperPipelined),
        _ => None,
    };
    let mut comparisons = Vec::new();
    for published in published::read_published(PUBLISHED).context("experiments/checksums/published.csv")? {
        let ours = ours(&published.id).with_context(|| format!("unknown id in published.csv: {}", published.id))?;
        let remark = (published.id == "pipelined-64k-simulated").then_some(Remark::Why(LAST_CHUNK));
        comparisons.push(Comparison::new(&published, ours, "jack", remark));
    }
    // The paper gives a bound, not a number.
    let printed = 100.0 * JACK.printed_overhead(MEGABYTE);
    let long = lost(16 << 20, ChecksumScheme::SuperPipelined).unwrap_or(100.0);
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
    let is_match = |row: &Comparison| !row.gated || row.verdict == ReproductionVerdict::Match;
    let holds = comparisons.iter().all(is_match) && gates.iter().all(|gate| gate.holds);
    Ok(ChecksumsFindings { comparisons, gates, pipelines, simulated, graphene, measured: Vec::new(), holds })
}

fn comparison_rows(findings: &ChecksumsFindings) -> Vec<Vec<String>> {
    let head = ["where", "claim", "statement", "published", "ours", "verdict"].map(str::to_owned).to_vec();
    let rows = findings.comparisons.iter().map(|row| {
        let verdict = format!("{}{}", row.verdict.label(), if row.gated { " (gated)" } else { "" });
        [&row.figure, &row.claim, &row.statement, &row.published, &row.ours, &verdict].map(String::clone).to_vec()
    });
    std::iter::once(head).chain(rows).collect()
}

fn pipeline_rows(findings: &ChecksumsFindings) -> Vec<Vec<String>> {
    let head = ["copy, GB/s", "gaps without", "gaps with", "added, us", "added, %"].map(str::to_owned).to_vec();
    // Every other row shows the trend.
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

fn simulated_rows(points: &[ChecksumLossPoint]) -> Vec<Vec<String>> {
    let ways = ["naive", "copy, then checksum", "fused, one chunk", "super-pipeline", "the same by sub-blocks"];
    let head: Vec<&str> = ["bytes", "plain, us"].into_iter().chain(ways).collect();
    let rows = points.iter().map(|point| {
        let lost = point.lost_percent.iter().map(|lost| format!("{lost:.1} %"));
        [point.bytes.to_string(), format!("{:.2}", point.plain_us)].into_iter().chain(lost).collect()
    });
    std::iter::once(head.into_iter().map(str::to_owned).collect()).chain(rows).collect()
}

fn measured_rows(findings: &ChecksumsFindings) -> Vec<Vec<String>> {
    let head = ["transport", "bytes", "lost, %", "published, %", "verdict"].map(str::to_owned).to_vec();
    let rows = findings.measured.iter().map(|row| {
        let transport = if row.transport == PingpongTransport::Udp { "udp" } else { "shm" };
        vec![
            transport.to_owned(),
            row.bytes.to_string(),
            row.lost_percent.format(1),
            format!("{:.1}", row.published_percent),
            row.verdict.to_owned(),
        ]
    });
    std::iter::once(head).chain(rows).collect()
}

fn sentences(findings: &ChecksumsFindings) -> Vec<String> {
    let verdict = gated_sentence(findings.holds);
    findings.gates.iter().map(Gate::to_string).chain([verdict.to_owned()]).collect()
}

const TITLE: &str =
    "Checksums for fault-tolerant messaging: the paper's models, its clusters simulated, and this machine";
const SIMULATED: &str = "Bandwidth lost on the simulated cluster jack, with our protocol machines";
const GRAPHENE: &str = "The same on graphene, with assumed speeds";
const MEASURED: &str = "Bandwidth lost on this machine, between two processes, and on the paper's clusters";
const PIPELINES: &str = "Super-pipeline at 1 MB, by the speed of the copy";

fn table(findings: &ChecksumsFindings) -> String {
    let mut text = format!("{TITLE}\n\n{}\n{PIPELINES}\n", format_table(&comparison_rows(findings)));
    let _ = write!(text, "{}\n{SIMULATED}\n", format_table(&pipeline_rows(findings)));
    let _ = write!(text, "{}\n{GRAPHENE}\n", format_table(&simulated_rows(&findings.simulated)));
    let _ = writeln!(text, "{}", format_table(&simulated_rows(&findings.graphene)));
    if !findings.measured.is_empty() {
        let _ = writeln!(text, "{MEASURED}\n{}", format_table(&measured_rows(findings)));
    }
    text + &sentences(findings).join("\n") + "\n"
}

fn html(findings: &ChecksumsFindings) -> String {
    let sentences: String = sentences(findings).iter().map(|sentence| page::paragraph(sentence)).collect();
    let mut sections = vec![
        ("Numbers".to_owned(), page::html_table(&comparison_rows(findings))),
        (PIPELINES.to_owned(), page::html_table(&pipeline_rows(findings))),
        (SIMULATED.to_owned(), page::html_table(&simulated_rows(&findings.simulated))),
        (GRAPHENE.to_owned(), page::html_table(&simulated_rows(&findings.graphene))),
    ];
    if !findings.measured.is_empty() {
        sections.push((MEASURED.to_owned(), page::html_table(&measured_rows(findings))));
    }
    sections.push(("Verdict".to_owned(), sentences));
    page::html_page(TITLE, &sections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_number_is_known_and_holds() {
        let findings = find().expect("all numbers are known");
        assert_eq!(findings.comparisons.len(), 5);
        assert!(findings.holds, "{}", table(&findings));
    }

    #[test]
    fn the_table_and_the_page_have_the_verdict() {
        let findings = find().expect("all numbers are known");
        assert!(table(&findings).ends_with("All gated numbers hold.\n"));
        assert!(html(&findings).contains("All gated numbers hold."));
    }
}
