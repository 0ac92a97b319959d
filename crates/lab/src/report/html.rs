//! The report as one page: no scripts, nothing from outside, light or dark as the reader likes.

use std::fmt::Write;

use super::svg::{bar_chart, escape, histogram, latency_chart};
use super::table::error_counts;
use super::{LinkLine, SimulationReport, parameters};
use crate::number_format::{group_digits, pluralize, si_number};

/// The report as a page.
pub fn html(report: &SimulationReport) -> String {
    let mut page = String::new();
    let name = escape(&report.scenario.name);
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{name} – pleach</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    );
    head(&mut page, report);
    latency(&mut page, report);
    fabric(&mut page, report);
    links(&mut page, report);
    failures(&mut page, report);
    all_parameters(&mut page, report);
    let _ = write!(
        page,
        "<footer>pleach simulate {} --seed {} · trace {} · {:.2} s, {} packet hops a second</footer>\n</main>\n</body>\n</html>\n",
        escape(&report.scenario.file),
        report.scenario.seed,
        report.trace,
        report.machine.seconds,
        si_number(report.machine.hops_per_second),
    );
    page
}

fn head(page: &mut String, report: &SimulationReport) {
    let (class, sign) = if report.oracle.objects() { ("wrong", "✗") } else { ("right", "✓") };
    let about = report.scenario.about.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let _ = write!(
        page,
        "<h1>{}</h1>\n<p class=\"about\">{}</p>\n<p class=\"verdict {class}\"><b>{sign}</b> {}</p>\n",
        escape(&report.scenario.name),
        escape(&about),
        escape(&report.oracle.sentence()),
    );
    let fabric = &report.fabric;
    let facts = [
        ("Fabric", format!("{}: {}", fabric.shape, pluralize(fabric.hosts.into(), "host"))),
        ("Links", parameters::links(&report.parameters)),
        ("Operation", parameters::operation(&report.parameters)),
        ("Faults", if report.faults.is_empty() { "none".to_owned() } else { report.faults.join("; ") }),
    ];
    page.push_str("<dl>\n");
    for (name, value) in facts {
        let _ = writeln!(page, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
    }
    page.push_str("</dl>\n");
}

fn latency(page: &mut String, report: &SimulationReport) {
    page.push_str("<h2>Latency and errors</h2>\n");
    let rows = [("complete", &report.latency.complete), ("reduce phase", &report.latency.reduce)];
    page.push_str("<div class=\"wide\"><table>\n<tr><th></th><th>operations</th><th>min</th><th>median</th><th>mean</th><th>p90</th><th>p99</th><th>max</th></tr>\n");
    for (name, distribution) in rows {
        let Some(d) = distribution else { continue };
        let cells: String = [d.min_ns, d.median_ns, d.mean_ns, d.p90_ns, d.p99_ns, d.max_ns]
            .map(|nanos| format!("<td>{}</td>", units::Span::from_picos((nanos * 1e3).round() as u64)))
            .concat();
        let _ = writeln!(page, "<tr><th>{name}</th><td>{}</td>{cells}</tr>", group_digits(d.count as u64));
    }
    page.push_str("</table></div>\n<div class=\"charts\">\n");
    for (name, distribution) in rows {
        if let Some(distribution) = distribution {
            let title = format!("Operations by latency, {name}");
            let _ = writeln!(
                page,
                "<figure><figcaption>{title}</figcaption>\n{}</figure>",
                histogram(distribution, &title)
            );
        }
    }
    let stretch = report.course.get(1).map_or(1, |(operation, _)| *operation);
    let note = if stretch > 1 { format!(", the longest of each {stretch}") } else { String::new() };
    let _ = writeln!(
        page,
        "<figure><figcaption>Latency by operation{note}</figcaption>\n{}</figure>",
        latency_chart(&report.course, report.operations.run)
    );
    let counts = error_counts(report);
    let _ = writeln!(
        page,
        "<figure><figcaption>PacketCounters hurt, by error class{}</figcaption>\n{}</figure>\n</div>",
        if counts.iter().any(|(_, _, number)| *number > 0) { " (bars are logarithmic)" } else { "" },
        bar_chart(&counts)
    );
}

fn fabric(page: &mut String, report: &SimulationReport) {
    let fabric = &report.fabric;
    let _ = write!(
        page,
        "<h2>Fabric</h2>\n<p>{}: {}, {}, {}. The tree has {} and {}.</p>\n",
        escape(&fabric.shape),
        pluralize(fabric.hosts.into(), "host"),
        pluralize(fabric.switches.into(), "switch"),
        pluralize(fabric.cables, "cable"),
        pluralize(fabric.tree_nodes as u64, "aggregation node"),
        pluralize(fabric.roots as u64, "root"),
    );
    let legend = report.picture.legend();
    let stop = if legend.is_empty() { String::new() } else { format!(" {legend}.") };
    let _ = write!(
        page,
        "<figure class=\"picture\">\n{}<figcaption>\
         <span class=\"key\"><i class=\"k-busy\"></i>carries packets: the stronger the more</span>\
         <span class=\"key\"><i class=\"k-idle\"></i>carried nothing</span>\
         <span class=\"key\"><i class=\"k-hurt\"></i>damage or loss: the stronger the more</span>{}</figcaption>\n</figure>\n",
        report.picture.svg(),
        escape(&stop),
    );
}

fn links(page: &mut String, report: &SimulationReport) {
    page.push_str("<div class=\"tables\">\n");
    link_table(page, "Links with most damage", &report.damaged_links);
    link_table(page, "Busiest links", &report.busiest_links);
    page.push_str("</div>\n");
}

fn link_table(page: &mut String, title: &str, links: &[LinkLine]) {
    if links.is_empty() {
        return;
    }
    let _ = writeln!(
        page,
        "<div class=\"wide\"><table>\n<caption>{title}</caption>\n<tr><th>link</th><th>lane</th><th>packets</th><th>damaged</th><th>lost</th></tr>"
    );
    for link in links {
        let name = escape(&format!("{} > {}", link.from, link.to));
        let cells = [u64::from(link.lane), u64::from(link.packets), link.damaged, link.lost];
        let cells: String = cells.map(|number| format!("<td>{}</td>", group_digits(number))).concat();
        let _ = writeln!(page, "<tr><th>{name}</th>{cells}</tr>");
    }
    page.push_str("</table></div>\n");
}

fn failures(page: &mut String, report: &SimulationReport) {
    let oracle = &report.oracle;
    if !oracle.listed_violations.is_empty() {
        page.push_str("<h2>Objections</h2>\n<ul class=\"wrong\">\n");
        for violation in &oracle.listed_violations {
            let _ = writeln!(page, "<li>{}</li>", escape(violation));
        }
        page.push_str("</ul>\n");
    }
    if oracle.listed_failures.is_empty() {
        return;
    }
    page.push_str("<h2>Failures</h2>\n<div class=\"wide\"><table class=\"words\">\n<tr><th>operation</th><th>rank</th><th>cause</th></tr>\n");
    for line in &oracle.listed_failures {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
            line.operation,
            line.rank,
            escape(&line.cause)
        );
    }
    page.push_str("</table></div>\n");
    let unlisted = oracle.failures.saturating_sub(oracle.listed_failures.len() as u64);
    if unlisted > 0 {
        let _ = writeln!(page, "<p>And {} more.</p>", group_digits(unlisted));
    }
}

fn all_parameters(page: &mut String, report: &SimulationReport) {
    page.push_str("<details><summary>All parameters</summary>\n<div class=\"tables\">\n");
    for (table, fields) in &report.parameters {
        let _ = writeln!(page, "<div class=\"wide\"><table class=\"words\">\n<caption>[{table}]</caption>");
        for (name, value) in fields {
            let _ = writeln!(page, "<tr><th>{name}</th><td>{}</td></tr>", escape(value));
        }
        page.push_str("</table></div>\n");
    }
    page.push_str("</div></details>\n");
}

pub(super) const STYLE: &str = "\
:root { color-scheme: light dark; --surface: #fcfcfb; --raised: #f3f2ef; --ink: #1c1b19; --muted: #6b6862; --grid: #e3e1dc;
  --accent: #2a6fb0; --idle: #d8d5ce; --bad: #c8372d; --good: #2f7d4f; }
@media (prefers-color-scheme: dark) { :root { --surface: #171615; --raised: #211f1d; --ink: #ecebe8; --muted: #a19d95;
  --grid: #34312d; --accent: #69aeea; --idle: #3d3a36; --bad: #f0645a; --good: #62b988; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--surface); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 20px 48px; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .3rem; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; padding-bottom: .25rem; border-bottom: 1px solid var(--grid); }
.about { margin: 0 0 1rem; color: var(--muted); max-width: 75ch; }
.verdict { margin: 0 0 1.2rem; padding: .55rem .9rem; background: var(--raised); border-left: 4px solid var(--good); border-radius: 3px; }
.verdict b { color: var(--good); margin-right: .3rem; }
.verdict.wrong { border-color: var(--bad); } .verdict.wrong b { color: var(--bad); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: 0; }
dt { color: var(--muted); } dd { margin: 0; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 1rem 1.6rem; margin-top: 1rem; }
figure { margin: 0; } figcaption { color: var(--muted); font-size: .87rem; margin-bottom: .3rem; }
.picture figcaption { margin-top: .6rem; }
.key { white-space: nowrap; margin-right: 1.3rem; }
.key i { display: inline-block; width: 22px; height: 0; margin-right: .45rem; vertical-align: middle; border-top: 3px solid; }
.k-busy { border-color: var(--accent) !important; } .k-idle { border-color: var(--idle) !important; } .k-hurt { border-color: var(--bad) !important; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--muted); font: 11.5px system-ui, sans-serif; } svg text.strong { fill: var(--ink); }
.axis { stroke: var(--muted); fill: none; } .grid { stroke: var(--grid); fill: none; }
.bar { fill: var(--accent); } .dot { fill: var(--accent); fill-opacity: .75; } .cross { stroke: var(--bad); stroke-width: 1.5; fill: none; }
.harm { fill: var(--bad); } .none { fill: none; }
.busy { stroke: var(--accent); fill: none; } .idle { stroke: var(--idle); stroke-width: .6; fill: none; } .hurt { stroke: var(--bad); fill: none; }
rect.switch { fill: var(--ink); } rect.host { fill: var(--muted); } rect.dead { fill: var(--bad); }
.wide { overflow-x: auto; } .tables { display: flex; flex-wrap: wrap; gap: 1rem 3rem; margin-top: 1rem; align-items: flex-start; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--muted); padding-bottom: .3rem; }
th, td { padding: .22rem .9rem .22rem 0; text-align: right; border-bottom: 1px solid var(--grid); white-space: nowrap; font-weight: 400; }
th:first-child, .words td, .words th { text-align: left; } tr:first-child th { color: var(--muted); } .words tr:first-child th { color: inherit; }
details { margin-top: 2.2rem; } summary { cursor: pointer; color: var(--muted); }
footer { margin-top: 2.5rem; color: var(--muted); font-size: .85rem; }
";
