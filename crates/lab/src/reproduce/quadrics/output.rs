//! The findings as text and as an HTML page.

use std::fmt::Write;

use super::congestion::CongestionPoint;
use super::points::{BackgroundLoad, ElanBarrier, ElanBroadcast, QuadricsPoint, QuadricsPointTiming};
use super::scale::{MulticastRootsPoint, QuadricsScalePoint};
use super::{NODES, QUARTER_MEGABYTE, QuadricsFindings, SIZES};
use crate::number_format::group_digits;
use crate::report::{TableRows, format_table, histogram, line_chart, page, with_header};
use crate::reproduce::comparison::{Comparison, explain_differences, gated_sentence};
use crate::reproduce::figure_charts::figure_charts;

/// As text.
pub(super) fn table(findings: &QuadricsFindings) -> String {
    let mut text = format!(
        "Quadrics: barriers and broadcasts on 4 to 64 nodes, {} idle barriers a point, seed {}\n",
        group_digits(u64::from(findings.calls)),
        findings.seed
    );
    let _ = writeln!(text, "\n{}", findings.summary.head_text());
    for rows in findings.comparisons.chunk_by(|a, b| a.figure == b.figure) {
        let _ = writeln!(text, "\nFigure {}\n{}", rows[0].figure, format_table(&comparisons(rows)));
        text += &explain_differences(rows);
    }
    let _ = writeln!(text, "\nBarriers by nodes, mean in us\n{}", format_table(&barriers(findings)));
    let _ = writeln!(text, "{CONGESTION}\n{}", format_table(&congestion(&findings.congestion)));
    let _ = writeln!(text, "Broadcasts of 256 KB by nodes, in MB/s\n{}", format_table(&rates(findings)));
    let _ = writeln!(text, "Broadcasts to 64 nodes by bytes, mean in us\n{}", format_table(&sizes(findings)));
    let _ = writeln!(text, "* gated: the exit status depends on it. So does each of these:");
    for gate in &findings.gates {
        let _ = writeln!(text, "  {gate}");
    }
    if !findings.scale.is_empty() {
        let _ = writeln!(
            text,
            "\nBeyond the paper: barriers on hosts without noise, in us\n{}",
            format_table(&scale(&findings.scale))
        );
        let _ = writeln!(
            text,
            "Beyond the paper: four groups of 16 multicast at once\n{}",
            format_table(&roots(&findings.roots))
        );
    }
    let _ = writeln!(text, "{}{}", findings.summary.tail_text(), verdict(findings));
    text
}

/// As an HTML page.
pub(super) fn html(findings: &QuadricsFindings) -> String {
    let mut sections = vec![("Verdict".to_owned(), format!("<p>{}</p>", verdict(findings)))];
    sections.push(findings.summary.head_section());
    let gates =
        findings.gates.iter().map(|gate| [if gate.holds { "holds" } else { "broken" }.to_owned(), gate.sentence()]);
    sections.push(("Statements that must hold".to_owned(), page::html_table(&with_header(["", "statement"], gates))));
    if !findings.scale.is_empty() {
        let contents = format!("{}{}", scale_plot(&findings.scale), page::html_table(&scale(&findings.scale)));
        sections.push(("Beyond the paper: barriers by nodes, in us".to_owned(), contents));
        sections.push(("Beyond the paper: several roots".to_owned(), page::html_table(&roots(&findings.roots))));
    }
    let with_rows = |plots: Vec<String>, rows: &TableRows| page::charts(plots) + &page::html_table(rows);
    let plots = BackgroundLoad::ALL.map(|load| barrier_plot(findings, load)).to_vec();
    sections.push(("Barriers by nodes, mean in us".to_owned(), with_rows(plots, &barriers(findings))));
    let contents = congestion_plot(findings) + &page::html_table(&congestion(&findings.congestion));
    sections.push((CONGESTION.to_owned(), contents));
    let plots = BackgroundLoad::ALL.into_iter().filter_map(|load| rate_plot(findings, load)).collect();
    sections.push(("Broadcasts of 256 KB by nodes, in MB/s".to_owned(), with_rows(plots, &rates(findings))));
    let plots = BackgroundLoad::ALL.map(|load| broadcast_plot(findings, load)).to_vec();
    sections.push(("Broadcasts to 64 nodes by bytes, mean in us".to_owned(), with_rows(plots, &sizes(findings))));
    let drawn = [
        (ElanBarrier::Hgsync, BackgroundLoad::Idle, "Hardware barrier on 64 nodes, idle"),
        (ElanBarrier::Hgsync, BackgroundLoad::Uniform, "Hardware barrier on 64 nodes, uniform load"),
        (ElanBarrier::Gsync, BackgroundLoad::Idle, "Software barrier on 64 nodes, idle"),
        (ElanBarrier::Gsync, BackgroundLoad::Uniform, "Software barrier on 64 nodes, uniform load"),
    ];
    let distributions = drawn.map(|(barrier, load, title)| {
        let point = QuadricsPoint::Barrier { barrier, nodes: 64, load };
        let timing = findings.points.iter().find(|timing| timing.point == point);
        timing.map_or_else(String::new, |timing| {
            format!(
                "<figure>{}<figcaption>{title}, {} calls</figcaption></figure>",
                histogram(&timing.latency, title),
                timing.calls
            )
        })
    });
    sections.push(("Distributions".to_owned(), page::charts(distributions)));
    for rows in findings.comparisons.chunk_by(|a, b| a.figure == b.figure) {
        let contents = figure_charts(rows) + &page::html_table(&with_remarks(rows));
        sections.push((format!("Figure {}", rows[0].figure), contents));
    }
    sections.extend(findings.summary.tail_sections());
    page::html_page("Quadrics: hardware and software collectives", &sections)
}

fn verdict(findings: &QuadricsFindings) -> &'static str {
    gated_sentence(findings.holds)
}

const CONGESTION: &str = "Barriers on 64 nodes under uniform load, by the size of the background's messages";

fn congestion(points: &[CongestionPoint]) -> TableRows {
    with_header(
        ["bytes", "software, us", "hardware, us", "software slower", "hardware slower", "ratio"],
        points.iter().map(|point| {
            [
                group_digits(u64::from(point.message_bytes)),
                format!("{:.1}", point.software_us),
                format!("{:.1}", point.hardware_us),
                format!("{:.1}x", point.software_slower),
                format!("{:.1}x", point.hardware_slower),
                format!("{:.1}x", point.software_slower / point.hardware_slower),
            ]
        }),
    )
}

fn congestion_plot(findings: &QuadricsFindings) -> String {
    let points = &findings.congestion;
    let published = |id: &str| -> Vec<(f64, f64)> {
        let row = findings.comparisons.iter().find(|row| row.id == id);
        let level = |row: &Comparison| {
            points.iter().map(|point| (f64::from(point.message_bytes), row.published_value)).collect()
        };
        row.map(level).unwrap_or_default()
    };
    let of = |times: fn(&CongestionPoint) -> f64| -> Vec<(f64, f64)> {
        points.iter().map(|point| (f64::from(point.message_bytes), times(point))).collect()
    };
    let series = [
        ("software", of(|point| point.software_slower)),
        ("hardware", of(|point| point.hardware_slower)),
        ("ratio", of(|point| point.software_slower / point.hardware_slower)),
        ("software, published", published("slower-gsync-uniform")),
        ("hardware, published", published("slower-hgsync-uniform")),
        ("ratio, published", published("slower-ratio-uniform")),
    ];
    line_chart(&series, "bytes of a background message", "times slower than idle")
}

fn comparisons(rows: &[Comparison]) -> TableRows {
    with_header(["", "published", "ours", "verdict", "label", "null model"], rows.iter().map(Comparison::cells))
}

fn with_remarks(rows: &[Comparison]) -> TableRows {
    with_header(
        ["", "published", "ours", "verdict", "label", "null model", "remark"],
        rows.iter().map(|row| {
            let [statement, published, ours, verdict, label, null] = row.cells();
            [statement, published, ours, verdict, label, null, row.remark.clone()]
        }),
    )
}

fn scale(sizes: &[QuadricsScalePoint]) -> TableRows {
    let optional = |us: Option<f64>| us.map_or("-".to_owned(), |us| format!("{us:.2}"));
    with_header(
        ["nodes", "polled", "folded", "tree", "polled, uniform load", "folded, uniform load"],
        sizes.iter().map(|size| {
            [
                group_digits(u64::from(size.nodes)),
                format!("{:.2}", size.polled_us),
                format!("{:.2}", size.folded_us),
                format!("{:.2}", size.tree_us),
                optional(size.polled_loaded_us),
                optional(size.folded_loaded_us),
            ]
        }),
    )
}

fn roots(roots: &[MulticastRootsPoint]) -> TableRows {
    with_header(
        ["roots", "virtual channels", "MB/s of each group"],
        roots
            .iter()
            .map(|row| [row.roots.to_string(), row.channels.to_string(), format!("{:.1}", row.megabytes_per_second)]),
    )
}

/// Picks a time from a size.
type Micros = fn(&QuadricsScalePoint) -> Option<f64>;

fn scale_plot(sizes: &[QuadricsScalePoint]) -> String {
    let columns: [(&str, Micros); 5] = [
        ("polled", |size| Some(size.polled_us)),
        ("folded", |size| Some(size.folded_us)),
        ("tree", |size| Some(size.tree_us)),
        ("polled, loaded", |size| size.polled_loaded_us),
        ("folded, loaded", |size| size.folded_loaded_us),
    ];
    let series: Vec<(&str, Vec<(f64, f64)>)> = columns
        .iter()
        .map(|(name, us)| (*name, sizes.iter().filter_map(|size| Some((f64::from(size.nodes), us(size)?))).collect()))
        .filter(|(_, points): &(_, Vec<_>)| !points.is_empty())
        .collect();
    line_chart(&series, "nodes", "us")
}

fn micros(points: &[QuadricsPointTiming], point: QuadricsPoint) -> Option<f64> {
    points.iter().find(|timing| timing.point == point).map(|timing| timing.latency.mean_ns / 1e3)
}

fn barrier_plot(findings: &QuadricsFindings, load: BackgroundLoad) -> String {
    let series: Vec<(&str, Vec<(f64, f64)>)> = ElanBarrier::ALL
        .iter()
        .map(|barrier| {
            let at = |nodes: u32| {
                let point = QuadricsPoint::Barrier { barrier: *barrier, nodes, load };
                Some((f64::from(nodes), micros(&findings.points, point)?))
            };
            (barrier.label(), NODES.into_iter().filter_map(at).collect())
        })
        .collect();
    line_chart(&series, &format!("nodes, {}", load.label()), "us")
}

fn broadcast_plot(findings: &QuadricsFindings, load: BackgroundLoad) -> String {
    let series = ElanBroadcast::VARIANTS.map(|(broadcast, memory)| {
        let at = |bytes: u32| {
            let point = QuadricsPoint::Broadcast { broadcast, bytes, memory, nodes: 64, load };
            Some((f64::from(bytes), micros(&findings.points, point)?))
        };
        (broadcast.label(memory), SIZES.into_iter().filter_map(at).collect::<Vec<_>>())
    });
    line_chart(&non_empty(series), &format!("bytes, {}", load.label()), "us")
}

/// The rates under a load; none if they were not simulated.
fn rate_plot(findings: &QuadricsFindings, load: BackgroundLoad) -> Option<String> {
    let series = ElanBroadcast::VARIANTS.map(|(broadcast, memory)| {
        let at = |nodes: u32| {
            let point = QuadricsPoint::Broadcast { broadcast, bytes: QUARTER_MEGABYTE, memory, nodes, load };
            Some((f64::from(nodes), f64::from(QUARTER_MEGABYTE) / micros(&findings.points, point)?))
        };
        (broadcast.label(memory), NODES.into_iter().filter_map(at).collect::<Vec<_>>())
    });
    let series = non_empty(series);
    (!series.is_empty()).then(|| line_chart(&series, &format!("nodes, {}", load.label()), "MB/s"))
}

/// The series with at least one point.
fn non_empty<const N: usize>(series: [(&str, Vec<(f64, f64)>); N]) -> Vec<(&str, Vec<(f64, f64)>)> {
    series.into_iter().filter(|(_, points)| !points.is_empty()).collect()
}

/// A name and its numbers; none if one was not measured.
fn row<const N: usize>(name: String, points: [Option<f64>; N]) -> Option<Vec<String>> {
    let numbers = points.into_iter().map(|value| value.map(|value| format!("{value:.1}")));
    std::iter::once(Some(name)).chain(numbers).collect()
}

fn barriers(findings: &QuadricsFindings) -> TableRows {
    let mut rows = vec![head("", NODES)];
    for (load, barrier) in
        BackgroundLoad::ALL.into_iter().flat_map(|load| ElanBarrier::ALL.map(|barrier| (load, barrier)))
    {
        let at = |nodes| micros(&findings.points, QuadricsPoint::Barrier { barrier, nodes, load });
        rows.extend(row(format!("{}, {}", barrier.label(), load.label()), NODES.map(at)));
    }
    rows
}

fn rates(findings: &QuadricsFindings) -> TableRows {
    let mut rows = vec![head("", NODES)];
    for (load, (broadcast, memory)) in
        BackgroundLoad::ALL.into_iter().flat_map(|load| ElanBroadcast::VARIANTS.map(|variant| (load, variant)))
    {
        let of = |nodes| {
            micros(
                &findings.points,
                QuadricsPoint::Broadcast { broadcast, bytes: QUARTER_MEGABYTE, memory, nodes, load },
            )
        };
        let rate = |nodes| of(nodes).map(|us| f64::from(QUARTER_MEGABYTE) / us);
        rows.extend(row(format!("{}, {}", broadcast.label(memory), load.label()), NODES.map(rate)));
    }
    rows
}

fn sizes(findings: &QuadricsFindings) -> TableRows {
    let mut rows = vec![head("", SIZES)];
    for (load, (broadcast, memory)) in
        BackgroundLoad::ALL.into_iter().flat_map(|load| ElanBroadcast::VARIANTS.map(|variant| (load, variant)))
    {
        let at =
            |bytes| micros(&findings.points, QuadricsPoint::Broadcast { broadcast, bytes, memory, nodes: 64, load });
        rows.extend(row(format!("{}, {}", broadcast.label(memory), load.label()), SIZES.map(at)));
    }
    rows
}

fn head<const N: usize>(first: &str, numbers: [u32; N]) -> Vec<String> {
    std::iter::once(first.to_owned()).chain(numbers.map(|number| group_digits(u64::from(number)))).collect()
}
