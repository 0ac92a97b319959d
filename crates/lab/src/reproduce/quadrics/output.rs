//! The findings as text and as an HTML page.

use std::fmt::Write;

use super::congestion::CongestionPoint;
use super::points::{BackgroundLoad, ElanBarrier, ElanBroadcast, QuadricsPoint, QuadricsPointTiming};
use super::scale::{MulticastRootsPoint, QuadricsScalePoint};
use super::{NODES, QUARTER_MEGABYTE, QuadricsFindings, SIZES};
use crate::number_format::group_digits;
use crate::report::{
    Axis, ChartPoint, Figure, LineChart, PageSection, ReportPage, TableRows, format_table, histogram, with_header,
};
use crate::reproduce::comparison::{Comparison, explain_differences, gated_sentence};
use crate::reproduce::figure_charts::figure_charts;
use crate::reproduce::summary::gate_section;

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
pub(super) fn html(findings: &QuadricsFindings) -> ReportPage {
    let summary = &findings.summary;
    let mut page = summary
        .page("Quadrics: hardware and software collectives", &findings.gates, findings.holds)
        .seed(findings.seed)
        .section(gate_section(&findings.gates));
    if !findings.scale.is_empty() {
        let sizes = PageSection::new("Beyond the paper: barriers by nodes, in us");
        page = page
            .section(sizes.charts([scale_plot(&findings.scale)]).table(&scale(&findings.scale)))
            .section(PageSection::new("Beyond the paper: several roots").table(&roots(&findings.roots)));
    }
    let loads = BackgroundLoad::ALL;
    let section =
        |title: &str, plots: Vec<Figure>, rows: &TableRows| PageSection::new(title).charts(plots).table(rows);
    let plots = loads.into_iter().filter_map(|load| barrier_plot(findings, load)).collect();
    page = page.section(section("Barriers by nodes, mean in us", plots, &barriers(findings)));
    page = page.section(section(CONGESTION, vec![congestion_plot(findings)], &congestion(&findings.congestion)));
    let plots = loads.into_iter().filter_map(|load| rate_plot(findings, load)).collect();
    page = page.section(section("Broadcasts of 256 KB by nodes, in MB/s", plots, &rates(findings)));
    let plots = loads.into_iter().filter_map(|load| broadcast_plot(findings, load)).collect();
    page = page.section(section("Broadcasts to 64 nodes by bytes, mean in us", plots, &sizes(findings)));
    page = page.section(PageSection::new("Distributions").charts(distributions(findings)));
    for rows in findings.comparisons.chunk_by(|a, b| a.figure == b.figure) {
        let charts = figure_charts(rows, &summary.robustness.seeds);
        page = page.section(section(&format!("Figure {}", rows[0].figure), charts, &with_remarks(rows)));
    }
    page.sections(summary.tail_sections())
}

/// Histograms of barriers on 64 nodes.
fn distributions(findings: &QuadricsFindings) -> impl Iterator<Item = Figure> {
    let drawn = [
        (ElanBarrier::Hgsync, BackgroundLoad::Idle, "Hardware barrier on 64 nodes, idle"),
        (ElanBarrier::Hgsync, BackgroundLoad::Uniform, "Hardware barrier on 64 nodes, uniform load"),
        (ElanBarrier::Gsync, BackgroundLoad::Idle, "Software barrier on 64 nodes, idle"),
        (ElanBarrier::Gsync, BackgroundLoad::Uniform, "Software barrier on 64 nodes, uniform load"),
    ];
    drawn.into_iter().filter_map(|(barrier, load, title)| {
        let point = QuadricsPoint::Barrier { barrier, nodes: 64, load };
        let timing = findings.points.iter().find(|timing| timing.point == point)?;
        Some(histogram(&timing.latency, &format!("{title}, {} calls", timing.calls)))
    })
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

fn congestion_plot(findings: &QuadricsFindings) -> Figure {
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
    let axes = (Axis::new("message of the background").bytes(), Axis::new("times slower than idle").logarithmic());
    let chart = LineChart::new("Barriers under load", axes.0, axes.1);
    series.into_iter().fold(chart, |chart, (name, points)| chart.curve(name, points)).figure()
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

fn scale_plot(sizes: &[QuadricsScalePoint]) -> Figure {
    let columns: [(&str, Micros); 5] = [
        ("polled", |size| Some(size.polled_us)),
        ("folded", |size| Some(size.folded_us)),
        ("tree", |size| Some(size.tree_us)),
        ("polled, loaded", |size| size.polled_loaded_us),
        ("folded, loaded", |size| size.folded_loaded_us),
    ];
    let chart =
        LineChart::new("Barriers by nodes", Axis::new("nodes").logarithmic(), Axis::new("time, us").logarithmic());
    let of = |us: Micros| sizes.iter().filter_map(move |size| Some((f64::from(size.nodes), us(size)?)));
    columns.into_iter().fold(chart, |chart, (name, us)| chart.curve(name, of(us))).figure()
}

/// The mean of a point, with the range from the median to the 99th percentile of its calls.
fn chart_point(points: &[QuadricsPointTiming], x: u32, point: QuadricsPoint) -> Option<ChartPoint> {
    let timing = points.iter().find(|timing| timing.point == point)?;
    let [mean, median, p99] = [timing.latency.mean_ns, timing.latency.median_ns, timing.latency.p99_ns];
    let drawn = ChartPoint::new(f64::from(x), mean / 1e3);
    // One call, or calls that are all alike, have no range.
    Some(if p99 > median { drawn.spread(median.min(mean) / 1e3, p99.max(mean) / 1e3) } else { drawn })
}

/// The times under a load; none if they were not simulated.
fn barrier_plot(findings: &QuadricsFindings, load: BackgroundLoad) -> Option<Figure> {
    let title = format!("Barriers, {}: mean, and from the median to the 99th percentile", load.label());
    let chart = LineChart::new(title, Axis::new("nodes").logarithmic(), Axis::new("time, us"));
    let at = |barrier: ElanBarrier, nodes: u32| {
        chart_point(&findings.points, nodes, QuadricsPoint::Barrier { barrier, nodes, load })
    };
    let curve = |chart: LineChart, barrier: ElanBarrier| {
        chart.curve(barrier.label(), NODES.into_iter().filter_map(|nodes| at(barrier, nodes)))
    };
    ElanBarrier::ALL.into_iter().fold(chart, curve).figure_if_any()
}

fn broadcast_plot(findings: &QuadricsFindings, load: BackgroundLoad) -> Option<Figure> {
    let title = format!("Broadcasts, {}: mean, and from the median to the 99th percentile", load.label());
    let chart = LineChart::new(title, Axis::new("size of a message").bytes(), Axis::new("time, us").logarithmic());
    let curve = |chart: LineChart, (broadcast, memory): (ElanBroadcast, _)| {
        let at = |bytes: u32| {
            let point = QuadricsPoint::Broadcast { broadcast, bytes, memory, nodes: 64, load };
            chart_point(&findings.points, bytes, point)
        };
        chart.curve(broadcast.label(memory), SIZES.into_iter().filter_map(at))
    };
    ElanBroadcast::VARIANTS.into_iter().fold(chart, curve).figure_if_any()
}

/// The rates under a load; none if they were not simulated.
fn rate_plot(findings: &QuadricsFindings, load: BackgroundLoad) -> Option<Figure> {
    let title = format!("Broadcasts of 256 KB, {}", load.label());
    let chart = LineChart::new(title, Axis::new("nodes").logarithmic(), Axis::new("bandwidth, MB/s"));
    let curve = |chart: LineChart, (broadcast, memory): (ElanBroadcast, _)| {
        let at = |nodes: u32| {
            let point = QuadricsPoint::Broadcast { broadcast, bytes: QUARTER_MEGABYTE, memory, nodes, load };
            Some((f64::from(nodes), f64::from(QUARTER_MEGABYTE) / micros(&findings.points, point)?))
        };
        chart.curve(broadcast.label(memory), NODES.into_iter().filter_map(at))
    };
    ElanBroadcast::VARIANTS.into_iter().fold(chart, curve).figure_if_any()
}

fn micros(points: &[QuadricsPointTiming], point: QuadricsPoint) -> Option<f64> {
    points.iter().find(|timing| timing.point == point).map(|timing| timing.latency.mean_ns / 1e3)
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
