//! The findings as text and as an HTML page.

use std::fmt::Write;

use super::scale::SharpScalePoint;
use super::{ScoreCount, SharpFindings, TableScore, deviation};
use crate::number_format::group_digits;
use crate::report::{TableRows, format_table, line_chart, page, with_header};
use crate::reproduce::calibration::RowLabel;
use crate::reproduce::comparison::{Comparison, explain_differences, gated_sentence};
use crate::reproduce::figure_charts::figure_charts;

/// As text.
pub(super) fn table(findings: &SharpFindings) -> String {
    let mut text = String::from("SHArP: aggregation in the network, 8 leaf switches with up to 128 hosts\n");
    let _ = writeln!(text, "\n{}", findings.summary.head_text());
    let _ = writeln!(text, "Numbers within their tolerance\n{}", format_table(&scores(&findings.scores)));
    for rows in findings.comparisons.chunk_by(|a, b| a.figure == b.figure) {
        let _ = writeln!(text, "\nTable {}\n{}", rows[0].figure, format_table(&comparisons(rows)));
        text += &explain_differences(rows);
    }
    let _ = writeln!(text, "\n* gated: the exit status depends on it. So does each of these:");
    for gate in &findings.gates {
        let _ = writeln!(text, "  {gate}");
    }
    text.push('\n');
    if !findings.scale.is_empty() {
        let _ = writeln!(
            text,
            "Beyond the paper: allreduce of 8 bytes, in us\n{}",
            format_table(&scale(&findings.scale))
        );
    }
    let _ = writeln!(text, "{}{}", findings.summary.tail_text(), verdict(findings));
    text
}

/// As an HTML page.
pub(super) fn html(findings: &SharpFindings) -> String {
    let mut sections = vec![("Verdict".to_owned(), format!("<p>{}</p>", verdict(findings)))];
    sections.push(findings.summary.head_section());
    sections.push(("Numbers within their tolerance".to_owned(), page::html_table(&scores(&findings.scores))));
    let gates =
        findings.gates.iter().map(|gate| [if gate.holds { "holds" } else { "broken" }.to_owned(), gate.sentence()]);
    sections.push(("Statements that must hold".to_owned(), page::html_table(&with_header(["", "statement"], gates))));
    if !findings.scale.is_empty() {
        let contents = format!("{}{}", plot(&findings.scale), page::html_table(&scale(&findings.scale)));
        sections.push(("Beyond the paper: allreduce of 8 bytes on fat trees".to_owned(), contents));
    }
    for rows in findings.comparisons.chunk_by(|a, b| a.figure == b.figure) {
        let contents = format!("{}{}", figure_charts(rows), page::html_table(&with_remarks(rows)));
        sections.push((format!("Table {}", rows[0].figure), contents));
    }
    sections.extend(findings.summary.tail_sections());
    page::html_page("SHArP: aggregation in the network", &sections)
}

fn verdict(findings: &SharpFindings) -> &'static str {
    gated_sentence(findings.holds)
}

fn cells(row: &Comparison) -> [String; 7] {
    let [statement, published, ours, verdict, label, null] = row.cells();
    [statement, published, ours, format!("{:+.1} %", deviation(row)), verdict, label, null]
}

fn comparisons(rows: &[Comparison]) -> TableRows {
    with_header(["", "published", "ours", "off by", "verdict", "label", "null model"], rows.iter().map(cells))
}

fn with_remarks(rows: &[Comparison]) -> TableRows {
    let head = ["", "published", "ours", "off by", "verdict", "label", "null model", "remark"];
    with_header(
        head,
        rows.iter().map(|row| {
            let [a, b, c, d, e, f, g] = cells(row);
            [a, b, c, d, e, f, g, row.remark.clone()]
        }),
    )
}

fn scores(scores: &[TableScore]) -> TableRows {
    let cell = |count: &ScoreCount| match count.total {
        0 => "-".to_owned(),
        of => format!("{} of {of}, worst {:.1} %", count.matched, count.worst_percent),
    };
    let [a, b, c, d] = RowLabel::ALL.map(RowLabel::name);
    with_header(
        ["table", a, b, c, d, "null model"],
        scores.iter().map(|score| {
            let [a, b, c, d] = score.labels.each_ref().map(cell);
            [score.table.clone(), a, b, c, d, score.null_matched.to_string()]
        }),
    )
}

fn scale(sizes: &[SharpScalePoint]) -> TableRows {
    with_header(
        ["hosts", "switch ports", "levels", "multicast", "connections", "hosts alone", "times"],
        sizes.iter().map(|size| {
            let alone = size.hosts_us;
            [
                group_digits(u64::from(size.hosts)),
                size.radix.to_string(),
                size.levels.to_string(),
                format!("{:.2}", size.multicast_us),
                format!("{:.2}", size.connections_us),
                alone.map_or("-".into(), |us| format!("{us:.2}")),
                alone.map_or("-".into(), |us| format!("{:.1}x", us / size.connections_us)),
            ]
        }),
    )
}

/// Picks a time from a size.
type Micros = fn(&SharpScalePoint) -> Option<f64>;

/// Latency by hosts: aggregation and hosts alone, for each switch radix.
fn plot(sizes: &[SharpScalePoint]) -> String {
    let mut radices: Vec<u32> = sizes.iter().map(|size| size.radix).collect();
    radices.sort_unstable();
    radices.dedup();
    let of = |radix: u32, us: Micros| -> Vec<(f64, f64)> {
        let alike = sizes.iter().filter(|size| size.radix == radix);
        alike.filter_map(|size| Some((f64::from(size.hosts), us(size)?))).collect()
    };
    let series_of: [(&str, Micros); 2] =
        [("aggregation", |size| Some(size.connections_us)), ("hosts alone", |size| size.hosts_us)];
    let mut series = Vec::new();
    for (name, us) in series_of {
        for radix in &radices {
            series.push((format!("{name}, {radix}"), of(*radix, us)));
        }
    }
    let series: Vec<(&str, Vec<(f64, f64)>)> = series
        .iter()
        .filter(|(_, points)| !points.is_empty())
        .map(|(name, points)| (name.as_str(), points.clone()))
        .collect();
    let ports: Vec<String> = radices.iter().map(u32::to_string).collect();
    line_chart(&series, &format!("hosts, by ports of a switch ({})", ports.join(", ")), "us")
}
