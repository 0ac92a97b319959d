//! The checksum paper: its three models (claims CK-4, CK-6 and CK-7), its clusters simulated with our protocol machines (CK-9), and
//! measurements on this machine.
//!
//! In: the parameters of the clusters and the published numbers. Out: each number compared with ours.

mod measured;
mod models;
mod nas;
mod parameters;
mod simulated;

use std::fmt::Write;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;

use self::measured::{MeasuredChecksumLoss, MeasuredSpeed};
use self::models::PipelineOverhead;
use self::nas::NasOverhead;
use self::parameters::ChecksumParameters;
use self::simulated::{ChecksumLossPoint, ChecksumScheme};
use super::calibration::Calibration;
use super::comparison::{Comparison, Gate, Remark, all_hold, explain_differences, gated_sentence};
use super::figure_charts::figure_charts;
use super::published::{self, PublishedNumber};
use super::robustness::{RobustnessArgs, Trial};
use super::summary::Summary;
use crate::CommandOutcome;
use crate::bench::pingpong::PingpongTransport;
use crate::report::{ReportArgs, TableRows, format_table, line_chart, page, with_header};

const PUBLISHED: &str = include_str!("../../experiments/checksums/published.csv");
const CALIBRATION: &str = include_str!("../../experiments/checksums/calibration.toml");

/// Compares the models, the simulated clusters and this machine with the published numbers.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach reproduce checksums --quick                    the models and the simulated clusters
  pleach reproduce checksums                            and this machine
  pleach reproduce checksums --quick --sensitivity      which verdicts depend on which assumption

Run nothing else on the machine during the measurement, or omit it. For the cost of single checksums: pleach bench checksum.
Nothing here is random: all seeds give the same numbers, so there is no --seeds.

Exit status: 0 if the gated numbers hold, 1 if one does not; measurements are reported, not judged.")]
pub(crate) struct ReproduceChecksumsArgs {
    /// Compute and simulate only, without measuring this machine.
    #[arg(long, alias = "computed-only")]
    quick: bool,
    /// Also vary every assumed parameter by 20 % up and down, and report which verdicts change.
    #[arg(long)]
    sensitivity: bool,
    #[command(flatten)]
    report: ReportArgs,
}

/// All results of the command.
#[derive(Serialize)]
struct ChecksumsFindings {
    summary: Summary,
    comparisons: Vec<Comparison>,
    gates: Vec<Gate>,
    #[serde(flatten)]
    computed: ComputedChecksums,
    /// This machine, if it was measured.
    measured: Vec<MeasuredChecksumLoss>,
    speeds: Vec<MeasuredSpeed>,
    holds: bool,
}

/// Everything that follows from the parameters.
#[derive(Serialize)]
struct ComputedChecksums {
    parameters: ChecksumParameters,
    /// The super-pipeline by the speed of the copy, which the paper does not give.
    pipelines: Vec<PipelineOverhead>,
    /// The cluster jack with our protocol machines, and graphene with assumed speeds.
    simulated: Vec<ChecksumLossPoint>,
    graphene: Vec<ChecksumLossPoint>,
    nas: Vec<NasOverhead>,
}

pub(crate) fn run(arguments: &ReproduceChecksumsArgs) -> Result<CommandOutcome> {
    let mut findings = find(arguments.sensitivity)?;
    if !arguments.quick {
        findings.measured = measured::measure()?;
        findings.speeds = measured::measure_speeds();
    }
    arguments.report.write(&findings, table, html)?;
    Ok(if findings.holds { CommandOutcome::Passed } else { CommandOutcome::Failed })
}

const MEGABYTE: f64 = 1_048_576.0;

fn find(sensitivity: bool) -> Result<ChecksumsFindings> {
    let paper = ChecksumPaper::read()?;
    let trial = |text: &str, _: u64| {
        let computed = ComputedChecksums::new(ChecksumParameters::parse(text)?)?;
        paper.compare(&computed)
    };
    let computed = ComputedChecksums::new(ChecksumParameters::parse(parameters::TEXT)?)?;
    let Trial { rows: comparisons, gates } = paper.compare(&computed)?;
    let robustness =
        RobustnessArgs::of_one_seed(sensitivity).measure(true, parameters::TEXT, &paper.calibration, 1, trial)?;
    Ok(ChecksumsFindings {
        holds: all_hold(&comparisons, &gates),
        summary: Summary::new(&comparisons, &paper.calibration, robustness),
        comparisons,
        gates,
        computed,
        measured: Vec::new(),
        speeds: Vec::new(),
    })
}

/// The published numbers, and what was calibrated on them.
struct ChecksumPaper {
    published: Vec<PublishedNumber>,
    calibration: Calibration,
}

impl ChecksumPaper {
    fn read() -> Result<Self> {
        let published = published::read_published(PUBLISHED).context("experiments/checksums/published.csv")?;
        let calibration =
            Calibration::parse(CALIBRATION, &published).context("experiments/checksums/calibration.toml")?;
        Ok(Self { published, calibration })
    }

    fn compare(&self, computed: &ComputedChecksums) -> Result<Trial> {
        let mut rows = Vec::new();
        for number in &self.published {
            let ours =
                computed.ours(&number.id).with_context(|| format!("unknown id in published.csv: {}", number.id))?;
            rows.push(Comparison::new(number, ours, &self.calibration, "", remark(&number.id)));
        }
        let most = computed.pipelines.iter().map(|pipeline| pipeline.overhead_percent).fold(0.0, f64::max);
        let gates = vec![Gate::new(
            "CK-7: below 1 % at 1 MB for any copy from 6 to 24 GB/s",
            format!("at most {most:.2} %"),
            computed.pipelines.iter().all(|pipeline| (0.0..1.0).contains(&pipeline.overhead_percent)),
        )];
        Ok(Trial { rows, gates })
    }
}

impl ComputedChecksums {
    fn new(parameters: ChecksumParameters) -> Result<Self> {
        let jack = parameters.jack;
        Ok(Self {
            pipelines: (6..=24).map(|gigabytes| jack.pipelined(MEGABYTE, f64::from(gigabytes))).collect(),
            simulated: simulated::points(&jack)?,
            graphene: simulated::points(&parameters.graphene)?,
            nas: nas::overheads(&parameters.graphene, &parameters.nas)?,
            parameters,
        })
    }

    /// Our number for the id of a published one.
    fn ours(&self, id: &str) -> Option<f64> {
        let jack = &self.parameters.jack;
        let at = |bytes: usize| self.simulated.iter().find(|point| point.bytes == bytes);
        let worst = |points: &[ChecksumLossPoint]| {
            let long = points.iter().filter(|point| point.bytes >= 64 << 10);
            long.map(|point| point.lost(ChecksumScheme::SuperPipelined)).fold(0.0, f64::max)
        };
        let nas = |kernel: &str| self.nas.iter().find(|overhead| overhead.kernel == kernel);
        match id {
            "naive" => Some(100.0 * jack.naive_share()),
            "eager-4k" => Some(100.0 * jack.eager_loss(4096.0)),
            "overhead-1m" => Some(100.0 * jack.printed_overhead(MEGABYTE)),
            "overhead-64k" => Some(100.0 * jack.printed_loss(65_536.0)),
            "naive-16m-simulated" => at(16 << 20).map(|point| 100.0 - point.lost(ChecksumScheme::Naive)),
            "small-4k-simulated" => at(4 << 10).map(|point| point.lost(ChecksumScheme::SuperPipelined)),
            "pipelined-64k-simulated" => at(64 << 10).map(|point| point.lost(ChecksumScheme::SuperPipelined)),
            "pipelined-64k-copied" => at(64 << 10).map(|point| point.lost_over_copies_percent),
            "long-jack" => at(16 << 20).map(|point| point.lost(ChecksumScheme::SuperPipelined)),
            "worst-jack" => Some(worst(&self.simulated)),
            "worst-graphene" => Some(worst(&self.graphene)),
            "outside-jack" => at(4 << 20).map(|point| point.outside_percent),
            "outside-graphene" => {
                self.graphene.iter().find(|point| point.bytes == 4 << 20).map(|point| point.outside_percent)
            }
            _ => match id.split_once('-')? {
                ("csum", kernel) => nas(kernel).map(|overhead| overhead.outside_percent),
                ("nmad", kernel) => nas(kernel).map(|overhead| overhead.pipelined_percent),
                _ => None,
            },
        }
    }
}

/// The explanation of a number that is not reproduced.
fn remark(id: &str) -> Option<Remark> {
    Some(Remark::Why(match id {
        "pipelined-64k-simulated" | "worst-jack" => {
            "our baseline copies nothing; the paper's model counts what a checksum adds to a copy, half a microsecond and a gap, which \
             is 3.3 % at 64 KB"
        }
        "pipelined-64k-copied" => {
            "with a baseline that copies, the simulated checksum adds only the difference of the two speeds; the paper's half microsecond \
             for a sub-block is more than that, and 4 KB at 6 GB/s take 0.7 us in all"
        }
        "outside-jack" => {
            "a checksum at 6 GB/s outside the pipeline halves the bandwidth; for 20 % it would need 24 GB/s, or an overlap that the paper \
             does not describe"
        }
        "csum-lu" | "csum-cg" | "csum-mg" => {
            "only the bytes of messages are counted: costs per message, waiting ranks and cache misses after a checksum are not"
        }
        _ => return None,
    }))
}

fn comparison_rows(rows: &[Comparison]) -> TableRows {
    with_header(
        ["where", "claim", "statement", "published", "ours", "verdict", "label", "null model"],
        rows.iter().map(|row| {
            [
                row.figure.clone(),
                row.claim.clone(),
                row.marked_statement(),
                row.published.clone(),
                row.ours.clone(),
                row.verdict.label().to_owned(),
                row.label.name().to_owned(),
                row.marked_null(),
            ]
        }),
    )
}

fn nas_rows(findings: &ChecksumsFindings) -> TableRows {
    with_header(
        ["kernel", "MB a rank sends", "outside, %", "in the pipeline, %"],
        findings.computed.nas.iter().map(|row| {
            [
                row.kernel.to_uppercase(),
                format!("{:.0}", row.megabytes),
                format!("{:.2}", row.outside_percent),
                format!("{:.2}", row.pipelined_percent),
            ]
        }),
    )
}

fn speed_rows(findings: &ChecksumsFindings) -> TableRows {
    with_header(
        ["algorithm", "alone, GB/s", "copied, then checksummed", "fused"],
        findings.speeds.iter().map(|row| {
            let [alone, then, fused] = row.gb_per_s.map(|rate| format!("{rate:.1}"));
            [row.algorithm.to_owned(), alone, then, fused]
        }),
    )
}

fn pipeline_rows(findings: &ChecksumsFindings) -> Vec<Vec<String>> {
    let head = ["copy, GB/s", "gaps without", "gaps with", "added, us", "added, %"].map(str::to_owned).to_vec();
    // Every other row shows the trend.
    let rows = findings.computed.pipelines.iter().step_by(2).map(|row| {
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
    let more = ["super-pipeline against copies", "outside (Open MPI)"];
    let head: Vec<&str> = ["bytes", "plain, us", "copied, us"].into_iter().chain(ways).chain(more).collect();
    let rows = points.iter().map(|point| {
        let lost = point.lost_percent.iter().chain([&point.lost_over_copies_percent, &point.outside_percent]);
        let times = [point.plain_us, point.copied_us].map(|us| format!("{us:.2}"));
        let lost = lost.map(|lost| format!("{lost:.1} %"));
        [point.bytes.to_string()].into_iter().chain(times).chain(lost).collect()
    });
    std::iter::once(head.into_iter().map(str::to_owned).collect()).chain(rows).collect()
}

/// The loss by message size, and what the paper prints for three of them.
fn loss_chart(points: &[ChecksumLossPoint]) -> String {
    let of = |lost: fn(&ChecksumLossPoint) -> f64| -> Vec<(f64, f64)> {
        points.iter().map(|point| (point.bytes as f64, lost(point).max(0.1))).collect()
    };
    let series = [
        ("super-pipeline", of(|point| point.lost(ChecksumScheme::SuperPipelined))),
        ("naive", of(|point| point.lost(ChecksumScheme::Naive))),
        ("against copies", of(|point| point.lost_over_copies_percent)),
        ("published", vec![(4_096.0, 30.0), (65_536.0, 3.0), (16.0 * MEGABYTE, 0.5)]),
    ];
    line_chart(&series, "bytes", "% of the bandwidth lost")
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
const NAS: &str = "NAS class B on 16 nodes of graphene: run time added by checksums, message by message";
const MEASURED: &str = "Bandwidth lost on this machine, between two processes, and on the paper's clusters";
const SPEEDS: &str = "Checksums of 32 KB on this machine; the paper has about 6 GB/s for its good ones (CK-2)";
const PIPELINES: &str = "Super-pipeline at 1 MB, by the speed of the copy";

/// All tables below the comparison.
fn tables(findings: &ChecksumsFindings) -> Vec<(&'static str, Vec<Vec<String>>)> {
    let mut tables = vec![
        (PIPELINES, pipeline_rows(findings)),
        (SIMULATED, simulated_rows(&findings.computed.simulated)),
        (GRAPHENE, simulated_rows(&findings.computed.graphene)),
        (NAS, nas_rows(findings)),
    ];
    if !findings.measured.is_empty() {
        tables.push((MEASURED, measured_rows(findings)));
        tables.push((SPEEDS, speed_rows(findings)));
    }
    tables
}

fn table(findings: &ChecksumsFindings) -> String {
    let mut text = format!("{TITLE}\n\n{}\n", findings.summary.head_text());
    let _ = writeln!(text, "{}", format_table(&comparison_rows(&findings.comparisons)));
    text += &explain_differences(&findings.comparisons);
    for (title, rows) in tables(findings) {
        let _ = writeln!(text, "\n{title}\n{}", format_table(&rows));
    }
    text += &findings.summary.tail_text();
    text + &sentences(findings).join("\n") + "\n"
}

fn html(findings: &ChecksumsFindings) -> String {
    let verdict: String = sentences(findings).iter().map(|sentence| page::paragraph(sentence)).collect();
    let mut sections = vec![("Verdict".to_owned(), verdict), findings.summary.head_section()];
    sections.push(("Loss by message size on jack, simulated".to_owned(), loss_chart(&findings.computed.simulated)));
    for rows in findings.comparisons.chunk_by(|a, b| a.figure == b.figure) {
        let remarks: String = explain_differences(rows).lines().map(page::paragraph).collect();
        let contents = figure_charts(rows) + &page::html_table(&comparison_rows(rows)) + &remarks;
        sections.push((rows[0].figure.clone(), contents));
    }
    sections.extend(tables(findings).into_iter().map(|(title, rows)| (title.to_owned(), page::html_table(&rows))));
    sections.extend(findings.summary.tail_sections());
    page::html_page(TITLE, &sections)
}

#[cfg(test)]
mod tests {
    use super::super::robustness::scale_parameter;
    use super::parameters::TEXT;
    use super::*;

    #[test]
    fn gated_numbers_hold_and_the_report_says_so() {
        let findings = find(false).expect("all numbers are known");
        assert!(findings.holds, "{}", table(&findings));
        assert!(table(&findings).ends_with("All gated numbers hold.\n"));
        assert!(html(&findings).contains("All gated numbers hold."));
        for row in &findings.comparisons {
            assert_eq!(
                row.verdict.is_match(),
                row.remark.is_empty(),
                "{}: {} and {}",
                row.id,
                row.published,
                row.ours
            );
        }
    }

    #[test]
    fn no_row_is_its_own_prediction() {
        let paper = ChecksumPaper::read().expect("the shipped files are valid");
        let run = |text: &str| {
            let computed = ComputedChecksums::new(ChecksumParameters::parse(text).expect("in range"));
            paper.compare(&computed.expect("it runs")).expect("all numbers are known").rows
        };
        let names = paper.calibration.calibrated.iter().flatten();
        let changed: Vec<Vec<Comparison>> =
            names.map(|name| run(&scale_parameter(TEXT, name, 1.1).expect("a number"))).collect();
        assert_eq!(Calibration::own_predictions(&run(TEXT), &changed), []);
        assert_eq!(paper.calibration.origins_missing(TEXT), [""; 0]);
    }
}
