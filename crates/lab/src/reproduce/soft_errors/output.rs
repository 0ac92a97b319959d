//! The findings as text and as an HTML page.

use super::SoftErrorsFindings;
use super::points::SoftErrorPoint;
use crate::report::{TableRows, format_table, page, with_header};
use crate::reproduce::comparison::{Comparison, explain_differences, gated_sentence};
use crate::reproduce::figure_charts::figure_charts;

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
pub(super) fn html(findings: &SoftErrorsFindings) -> String {
    let verdict = page::paragraph(&subject(findings)) + &page::paragraph(gated_sentence(findings.holds));
    let mut sections = vec![("Verdict".to_owned(), verdict), findings.summary.head_section()];
    for rows in findings.comparisons.chunk_by(|a, b| a.figure == b.figure) {
        let remarks: String = explain_differences(rows).lines().map(page::paragraph).collect();
        let contents = figure_charts(rows) + &page::html_table(&comparisons(rows)) + &remarks;
        sections.push((format!("Figure {}", rows[0].figure), contents));
    }
    let gates: String = findings.gates.iter().map(|gate| page::paragraph(&gate.to_string())).collect();
    sections.push(("Statements that must hold".to_owned(), gates));
    sections.push(("Points".to_owned(), page::html_table(&points(&findings.points))));
    sections.extend(findings.summary.tail_sections());
    page::html_page(TITLE, &sections)
}
