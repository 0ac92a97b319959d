//! The findings as text and as an HTML page.

use std::fmt::Write;

use super::scale::SharpScalePoint;
use super::{ScoreCount, SharpFindings, TableScore, deviation};
use crate::number_format::group_digits;
use crate::report::{Axis, Figure, LineChart, PageSection, ReportPage, TableRows, format_table, with_header};
use crate::reproduce::calibration::RowLabel;
use crate::reproduce::comparison::{Comparison, explain_differences, gated_sentence};
use crate::reproduce::figure_charts::figure_charts;
use crate::reproduce::summary::gate_section;

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
pub(super) fn html(findings: &SharpFindings) -> ReportPage {
    let summary = &findings.summary;
    let mut page = summary
        .page("SHArP: aggregation in the network", &findings.gates, findings.holds)
        .about("8 leaf switches with up to 128 hosts.")
        .seed(findings.seed)
        .section(PageSection::new("Numbers within their tolerance").table(&scores(&findings.scores)))
        .section(gate_section(&findings.gates));
    if !findings.scale.is_empty() {
        let section = PageSection::new("Beyond the paper: allreduce of 8 bytes on fat trees")
            .charts([plot(&findings.scale)])
            .table(&scale(&findings.scale));
        page = page.section(section);
    }
    for rows in findings.comparisons.chunk_by(|a, b| a.figure == b.figure) {
        let section = PageSection::new(format!("Table {}", rows[0].figure))
            .charts(figure_charts(rows, &summary.robustness.seeds))
            .table(&with_remarks(rows));
        page = page.section(section);
    }
    page.sections(summary.tail_sections())
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

/// Latency by hosts: aggregation and hosts alone, for each number of ports of a switch.
fn plot(sizes: &[SharpScalePoint]) -> Figure {
    let mut radices: Vec<u32> = sizes.iter().map(|size| size.radix).collect();
    radices.sort_unstable();
    radices.dedup();
    let of = |radix: u32, us: Micros| {
        let alike = sizes.iter().filter(move |size| size.radix == radix);
        alike.filter_map(move |size| Some((f64::from(size.hosts), us(size)?)))
    };
    let series_of: [(&str, Micros); 2] =
        [("aggregation", |size| Some(size.connections_us)), ("hosts alone", |size| size.hosts_us)];
    let title = "Time of an allreduce of 8 bytes, by ports of a switch";
    let mut chart = LineChart::new(title, Axis::new("hosts").logarithmic(), Axis::new("time, us"));
    for (name, us) in series_of {
        for radix in &radices {
            chart = chart.curve(&format!("{name}, {radix}"), of(*radix, us));
        }
    }
    chart.figure()
}
