//! The findings as text and as an HTML page.

use super::SoftErrorsFindings;
use super::points::SoftErrorPoint;
use crate::report::{
    Axis, Figure, PageSection, PlaceChart, PlaceValue, ReportPage, TableRows, format_table, with_header,
};
use crate::reproduce::comparison::{Comparison, explain_differences, gated_sentence};
use crate::reproduce::figure_charts::figure_charts;
use crate::reproduce::summary::gate_section;

const TITLE: &str = "Soft errors on fabric-based collectives";

fn subject(findings: &SoftErrorsFindings) -> String {
    format!(
        "XGFT(3;24,12,6;1,12,6), 1,728 hosts; {} collectives per random point, seed {}.",
        findings.collectives, findings.seed
    )
}

fn comparisons(rows: &[Comparison]) -> TableRows {
    with_header(
        ["figure", "statement", "published", "ours", "verdict", "label", "null model", "timed"],
        rows.iter().map(|row| {
            let [statement, published, ours, verdict, label, null] = row.cells();
            [row.figure.clone(), statement, published, ours, verdict, label, null, row.preset.clone()]
        }),
    )
}

fn points(points: &[SoftErrorPoint]) -> TableRows {
    with_header(
        ["errors", "scheme", "copies", "mean, ns", "standard error, ns", "trace"],
        points.iter().map(|point| {
            [
                point.point.label(),
                format!("{:?}", point.scheme).to_lowercase(),
                point.copies.to_string(),
                format!("{:.1}", point.mean_ns),
                format!("{:.1}", point.standard_error_ns),
                point.trace.clone(),
            ]
        }),
    )
}

/// As text.
pub(super) fn table(findings: &SoftErrorsFindings) -> String {
    let mut text = format!("{TITLE}: {}\n\n{}\n", subject(findings), findings.summary.head_text());
    text += &format_table(&comparisons(&findings.comparisons));
    text += &explain_differences(&findings.comparisons);
    text += "\n* gated: the exit status depends on it. So does each of these:\n";
    for gate in &findings.gates {
        text += &format!("  {gate}\n");
    }
    text += &format!("\n{}\n{}", format_table(&points(&findings.points)), findings.summary.tail_text());
    text + gated_sentence(findings.holds) + "\n"
}

/// As an HTML page: each figure drawn again, and the tables.
pub(super) fn html(findings: &SoftErrorsFindings) -> ReportPage {
    let summary = &findings.summary;
    let mut page = summary.page(TITLE, &findings.gates, findings.holds).about(subject(findings)).seed(findings.seed);
    for rows in findings.comparisons.chunk_by(|a, b| a.figure == b.figure) {
        let section = PageSection::new(format!("Figure {}", rows[0].figure))
            .charts(figure_charts(rows, &summary.robustness.seeds))
            .table(&comparisons(rows))
            .paragraphs(explain_differences(rows).lines());
        page = page.section(section);
    }
    page.section(gate_section(&findings.gates))
        .section(PageSection::new("Points").charts([point_chart(&findings.points)]).table(&points(&findings.points)))
        .sections(summary.tail_sections())
}

/// The mean time of every point, with twice the standard error to both sides.
fn point_chart(points: &[SoftErrorPoint]) -> Figure {
    let name = |point: &SoftErrorPoint| {
        format!("{}, {:?}, {} copies", point.point.label(), point.scheme, point.copies).to_lowercase()
    };
    let value = |point: &SoftErrorPoint| {
        let twice = 2.0 * point.standard_error_ns;
        Some(PlaceValue::new(point.mean_ns).spread(point.mean_ns - twice, point.mean_ns + twice))
    };
    let title = "Mean time of a collective, with twice the standard error";
    PlaceChart::new(title, Axis::new("ns"), points.iter().map(name).collect())
        .series("mean", points.iter().map(value).collect())
        .figure()
}
