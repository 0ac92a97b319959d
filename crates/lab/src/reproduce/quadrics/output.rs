//! The findings as a table for the terminal and as a page.

use std::fmt::Write;

use super::points::{Barrier, Cast, Load, Point, Taken};
use super::scale::{Roots, Size};
use super::{Findings, NODES, QUARTER, SIZES};
use crate::report::{Rows, aligned, histogram, lines, page, with_head};
use crate::reproduce::verdict::{Comparison, differences};
use crate::words::grouped;

/// For the terminal.
pub(super) fn table(findings: &Findings) -> String {
    let mut text = format!(
        "Quadrics: barriers and broadcasts on 4 to 64 nodes, {} idle barriers a point, seed {}\n",
        grouped(u64::from(findings.calls)),
        findings.seed
    );
    for rows in findings.comparisons.chunk_by(|a, b| a.figure == b.figure) {
        let _ = writeln!(text, "\nFigure {}\n{}", rows[0].figure, aligned(&comparisons(rows)));
        text += &differences(rows);
    }
    let _ = writeln!(text, "\nBarriers by nodes, mean in us\n{}", aligned(&barriers(findings)));
    let _ = writeln!(text, "Broadcasts of 256 KB by nodes, in MB/s\n{}", aligned(&rates(findings)));
    let _ = writeln!(text, "Broadcasts to 64 nodes by bytes, mean in us\n{}", aligned(&sizes(findings)));
    let _ = writeln!(text, "* gated: the exit status depends on it. So does each of these:");
    for gate in &findings.gates {
        let _ = writeln!(text, "  {gate}");
    }
    if !findings.scale.is_empty() {
        let _ =
            writeln!(text, "\nPast the paper: barriers on quiet hosts, in us\n{}", aligned(&scale(&findings.scale)));
        let _ = writeln!(
            text,
            "Past the paper: four groups of 16 multicast at once\n{}",
            aligned(&roots(&findings.roots))
        );
    }
    let _ = writeln!(text, "{}", verdict(findings));
    text
}

/// As a page.
pub(super) fn html(findings: &Findings) -> String {
    let mut sections = vec![("Verdict".to_owned(), format!("<p>{}</p>", verdict(findings)))];
    let gates = findings
        .gates
        .iter()
        .map(|gate| [if gate.holds { "holds" } else { "broken" }.to_owned(), gate.statement.clone()]);
    sections.push(("Statements that must hold".to_owned(), page::rows(&with_head(["", "statement"], gates))));
    if !findings.scale.is_empty() {
        let contents = format!("{}{}", scale_plot(&findings.scale), page::rows(&scale(&findings.scale)));
        sections.push(("Past the paper: barriers by nodes, in us".to_owned(), contents));
        sections.push(("Past the paper: several roots".to_owned(), page::rows(&roots(&findings.roots))));
    }
    let with_rows = |plots: [String; 3], rows: &Rows| charts(plots) + &page::rows(rows);
    let plots = Load::ALL.map(|load| barrier_plot(findings, load));
    sections.push(("Barriers by nodes, mean in us".to_owned(), with_rows(plots, &barriers(findings))));
    let plots = Load::ALL.map(|load| rate_plot(findings, load));
    sections.push(("Broadcasts of 256 KB by nodes, in MB/s".to_owned(), with_rows(plots, &rates(findings))));
    let plots = Load::ALL.map(|load| cast_plot(findings, load));
    sections.push(("Broadcasts to 64 nodes by bytes, mean in us".to_owned(), with_rows(plots, &sizes(findings))));
    let drawn = [
        (Barrier::Hgsync, Load::Idle, "Hardware barrier on 64 nodes, idle"),
        (Barrier::Hgsync, Load::Uniform, "Hardware barrier on 64 nodes, uniform load"),
        (Barrier::Gsync, Load::Idle, "Software barrier on 64 nodes, idle"),
        (Barrier::Gsync, Load::Uniform, "Software barrier on 64 nodes, uniform load"),
    ];
    let distributions = drawn.map(|(barrier, load, title)| {
        let point = Point::Barrier { barrier, nodes: 64, load };
        let taken = findings.points.iter().find(|taken| taken.point == point);
        taken.map_or_else(String::new, |taken| {
            format!(
                "<figure>{}<figcaption>{title}, {} calls</figcaption></figure>",
                histogram(&taken.latency, title),
                taken.calls
            )
        })
    });
    sections.push(("Distributions".to_owned(), charts(distributions)));
    for rows in findings.comparisons.chunk_by(|a, b| a.figure == b.figure) {
        sections.push((format!("Figure {}", rows[0].figure), page::rows(&with_remarks(rows))));
    }
    page::page("Quadrics: hardware and software collectives", &sections)
}

fn charts(plots: impl IntoIterator<Item = String>) -> String {
    format!("<div class=\"charts\">{}</div>", plots.into_iter().collect::<String>())
}

fn verdict(findings: &Findings) -> &'static str {
    if findings.holds { "All gated numbers hold." } else { "A gated number does not hold." }
}

fn cells(row: &Comparison) -> [String; 5] {
    [
        format!("{}{}", row.statement, if row.gated { " *" } else { "" }),
        row.published.clone(),
        row.ours.clone(),
        row.verdict.words().to_owned(),
        row.preset.clone(),
    ]
}

fn comparisons(rows: &[Comparison]) -> Rows {
    with_head(["", "published", "ours", "verdict", "parameters"], rows.iter().map(cells))
}

fn with_remarks(rows: &[Comparison]) -> Rows {
    with_head(
        ["", "published", "ours", "verdict", "parameters", "remark"],
        rows.iter().map(|row| {
            let [a, b, c, d, e] = cells(row);
            [a, b, c, d, e, row.remark.clone()]
        }),
    )
}

fn scale(sizes: &[Size]) -> Rows {
    let maybe = |us: Option<f64>| us.map_or("-".to_owned(), |us| format!("{us:.2}"));
    with_head(
        ["nodes", "tested", "folded", "tree", "tested, uniform load", "folded, uniform load"],
        sizes.iter().map(|size| {
            [
                grouped(u64::from(size.nodes)),
                format!("{:.2}", size.tested_us),
                format!("{:.2}", size.folded_us),
                format!("{:.2}", size.tree_us),
                maybe(size.tested_loaded_us),
                maybe(size.folded_loaded_us),
            ]
        }),
    )
}

fn roots(roots: &[Roots]) -> Rows {
    with_head(
        ["roots", "virtual channels", "MB/s of each group"],
        roots
            .iter()
            .map(|row| [row.roots.to_string(), row.channels.to_string(), format!("{:.1}", row.megabytes_per_second)]),
    )
}

/// How a time is picked from a size.
type Micros = fn(&Size) -> Option<f64>;

fn scale_plot(sizes: &[Size]) -> String {
    let ways: [(&str, Micros); 5] = [
        ("tested", |size| Some(size.tested_us)),
        ("folded", |size| Some(size.folded_us)),
        ("tree", |size| Some(size.tree_us)),
        ("tested, loaded", |size| size.tested_loaded_us),
        ("folded, loaded", |size| size.folded_loaded_us),
    ];
    let series: Vec<(&str, Vec<(f64, f64)>)> = ways
        .iter()
        .map(|(name, us)| (*name, sizes.iter().filter_map(|size| Some((f64::from(size.nodes), us(size)?))).collect()))
        .filter(|(_, points): &(_, Vec<_>)| !points.is_empty())
        .collect();
    lines(&series, "nodes", "us")
}

fn micros(points: &[Taken], point: Point) -> Option<f64> {
    points.iter().find(|taken| taken.point == point).map(|taken| taken.latency.mean_ns / 1e3)
}

fn barrier_plot(findings: &Findings, load: Load) -> String {
    let series: Vec<(&str, Vec<(f64, f64)>)> = Barrier::ALL
        .iter()
        .map(|barrier| {
            let at = |nodes: u32| {
                let point = Point::Barrier { barrier: *barrier, nodes, load };
                Some((f64::from(nodes), micros(&findings.points, point)?))
            };
            (barrier.words(), NODES.into_iter().filter_map(at).collect())
        })
        .collect();
    lines(&series, &format!("nodes, {}", load.words()), "us")
}

fn cast_plot(findings: &Findings, load: Load) -> String {
    let series = Cast::WAYS.map(|(cast, place)| {
        let at = |bytes: u32| {
            let point = Point::Broadcast { cast, bytes, place, nodes: 64, load };
            Some((f64::from(bytes), micros(&findings.points, point)?))
        };
        (cast.words(place), SIZES.into_iter().filter_map(at).collect::<Vec<_>>())
    });
    lines(&measured(series), &format!("bytes, {}", load.words()), "us")
}

fn rate_plot(findings: &Findings, load: Load) -> String {
    let series = Cast::WAYS.map(|(cast, place)| {
        let at = |nodes: u32| {
            let point = Point::Broadcast { cast, bytes: QUARTER, place, nodes, load };
            Some((f64::from(nodes), f64::from(QUARTER) / micros(&findings.points, point)?))
        };
        (cast.words(place), NODES.into_iter().filter_map(at).collect::<Vec<_>>())
    });
    lines(&measured(series), &format!("nodes, {}", load.words()), "MB/s")
}

/// Those of which there is something to draw.
fn measured<const N: usize>(series: [(&str, Vec<(f64, f64)>); N]) -> Vec<(&str, Vec<(f64, f64)>)> {
    series.into_iter().filter(|(_, points)| !points.is_empty()).collect()
}

/// A row of numbers behind what they are of; none if one was not measured.
fn row<const N: usize>(name: String, points: [Option<f64>; N]) -> Option<Vec<String>> {
    let numbers = points.into_iter().map(|value| value.map(|value| format!("{value:.1}")));
    std::iter::once(Some(name)).chain(numbers).collect()
}

fn barriers(findings: &Findings) -> Rows {
    let mut rows = vec![head("", NODES)];
    for (load, barrier) in Load::ALL.into_iter().flat_map(|load| Barrier::ALL.map(|barrier| (load, barrier))) {
        let at = |nodes| micros(&findings.points, Point::Barrier { barrier, nodes, load });
        rows.extend(row(format!("{}, {}", barrier.words(), load.words()), NODES.map(at)));
    }
    rows
}

fn rates(findings: &Findings) -> Rows {
    let mut rows = vec![head("", NODES)];
    for (load, (cast, place)) in Load::ALL.into_iter().flat_map(|load| Cast::WAYS.map(|way| (load, way))) {
        let of = |nodes| micros(&findings.points, Point::Broadcast { cast, bytes: QUARTER, place, nodes, load });
        let rate = |nodes| of(nodes).map(|us| f64::from(QUARTER) / us);
        rows.extend(row(format!("{}, {}", cast.words(place), load.words()), NODES.map(rate)));
    }
    rows
}

fn sizes(findings: &Findings) -> Rows {
    let mut rows = vec![head("", SIZES)];
    for (load, (cast, place)) in Load::ALL.into_iter().flat_map(|load| Cast::WAYS.map(|way| (load, way))) {
        let at = |bytes| micros(&findings.points, Point::Broadcast { cast, bytes, place, nodes: 64, load });
        rows.extend(row(format!("{}, {}", cast.words(place), load.words()), SIZES.map(at)));
    }
    rows
}

fn head<const N: usize>(first: &str, numbers: [u32; N]) -> Vec<String> {
    std::iter::once(first.to_owned()).chain(numbers.map(|number| grouped(u64::from(number)))).collect()
}
