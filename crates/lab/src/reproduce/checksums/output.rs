//! The findings as text and as an HTML page.

use std::fmt::Write;

use super::simulated::{ChecksumLossPoint, ChecksumScheme};
use super::{ChecksumsFindings, MEGABYTE};
use crate::bench::pingpong::PingpongTransport;
use crate::report::{Axis, Figure, LineChart, PageSection, ReportPage, TableRows, format_table, with_header};
use crate::reproduce::comparison::{Comparison, Gate, explain_differences, gated_sentence};
use crate::reproduce::figure_charts::figure_charts;
use crate::reproduce::summary::gate_section;

fn comparison_rows(rows: &[Comparison]) -> TableRows {
    with_header(
        ["where", "claim", "statement", "published", "ours", "verdict", "label", "null model"],
        rows.iter().map(|row| {
            let [statement, published, ours, verdict, label, null] = row.cells();
            [row.figure.clone(), row.claim.clone(), statement, published, ours, verdict, label, null]
        }),
    )
}

fn nas_rows(findings: &ChecksumsFindings) -> TableRows {
    with_header(
        ["kernel", "MB a rank sends", "Open MPI, %", "in the pipeline, %"],
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
    let more = ["super-pipeline against copies", "Open MPI's checksums"];
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
fn loss_chart(findings: &ChecksumsFindings) -> Figure {
    let points = &findings.computed.simulated;
    let printed =
        [("small-4k-simulated", 4_096.0), ("pipelined-64k-simulated", 65_536.0), ("long-jack", 16.0 * MEGABYTE)];
    let published = printed.into_iter().filter_map(|(id, bytes)| {
        let row = findings.comparisons.iter().find(|row| row.id == id)?;
        Some((bytes, row.published_value))
    });
    let of = |lost: fn(&ChecksumLossPoint) -> f64| -> Vec<(f64, f64)> {
        points.iter().map(|point| (point.bytes as f64, lost(point).max(0.1))).collect()
    };
    let series = [
        ("super-pipeline", of(|point| point.lost(ChecksumScheme::SuperPipelined))),
        ("naive", of(|point| point.lost(ChecksumScheme::Naive))),
        ("against copies", of(|point| point.lost_over_copies_percent)),
        ("published", published.collect()),
    ];
    let axes = (Axis::new("size of a message").bytes(), Axis::new("bandwidth lost, %").logarithmic());
    let chart = LineChart::new("Bandwidth lost by the size of a message", axes.0, axes.1);
    series.into_iter().fold(chart, |chart, (name, points)| chart.curve(name, points)).figure()
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
const MACHINE: &str = "This machine beside the paper's processors (CK-2, CK-3, CK-5)";
const PIPELINES: &str = "Super-pipeline at 1 MB, by the speed of the copy";

/// All tables below the comparison.
fn tables(findings: &ChecksumsFindings) -> Vec<(&'static str, Vec<Vec<String>>)> {
    let mut tables = vec![
        (PIPELINES, pipeline_rows(findings)),
        (SIMULATED, simulated_rows(&findings.computed.simulated)),
        (GRAPHENE, simulated_rows(&findings.computed.graphene)),
        (NAS, nas_rows(findings)),
    ];
    if !findings.machine.is_empty() {
        tables.push((MACHINE, comparison_rows(&findings.machine)));
    }
    if !findings.measured.is_empty() {
        tables.push((MEASURED, measured_rows(findings)));
        tables.push((SPEEDS, speed_rows(findings)));
    }
    tables
}

/// As text.
pub(super) fn table(findings: &ChecksumsFindings) -> String {
    let mut text = format!("{TITLE}\n\n{}\n", findings.summary.head_text());
    let _ = writeln!(text, "{}", format_table(&comparison_rows(&findings.comparisons)));
    text += &explain_differences(&findings.comparisons);
    for (title, rows) in tables(findings) {
        let _ = writeln!(text, "\n{title}\n{}", format_table(&rows));
    }
    text += &findings.summary.tail_text();
    text + &sentences(findings).join("\n") + "\n"
}

/// As an HTML page.
pub(super) fn html(findings: &ChecksumsFindings) -> ReportPage {
    let summary = &findings.summary;
    let mut page = summary
        .page(TITLE, &findings.gates, findings.holds)
        .section(PageSection::new("Loss by message size on jack, simulated").charts([loss_chart(findings)]));
    for rows in findings.comparisons.chunk_by(|a, b| a.figure == b.figure) {
        let section = PageSection::new(&rows[0].figure)
            .charts(figure_charts(rows, &summary.robustness.seeds))
            .table(&comparison_rows(rows))
            .paragraphs(explain_differences(rows).lines());
        page = page.section(section);
    }
    page.section(gate_section(&findings.gates))
        .sections(tables(findings).into_iter().map(|(title, rows)| PageSection::new(title).table(&rows)))
        .sections(summary.tail_sections())
}
