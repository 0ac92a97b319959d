//! The simulation report as one HTML page.

use std::fmt::Write;

use super::downloads::download_link;
use super::table::error_counts;
use super::{LinkLine, SimulationReport, parameters};
use crate::number_format::{group_digits, pluralize, si_number};
use crate::report::page::{CLOSE_PAGE, open_page};
use crate::report::{bar_chart, escape, histogram, latency_chart, standalone};

/// The latency of each operation, as an SVG file.
pub fn latency_figure(report: &SimulationReport) -> String {
    standalone(&latency_chart(&report.latency_series, report.operations.run))
}

/// The report as a page.
pub fn html(report: &SimulationReport) -> String {
    let mut page = open_page(&report.scenario.name);
    head(&mut page, report);
    if report.jobs.is_empty() {
        latency(&mut page, report);
    } else {
        page.push_str(&super::jobs::html(&report.jobs));
        page.push_str("<div class=\"charts\">\n");
        errors(&mut page, report);
        page.push_str("</div>\n");
    }
    page.push_str(&super::traffic::html(&report.flows));
    over_time(&mut page, report);
    fabric(&mut page, report);
    links(&mut page, report);
    failures(&mut page, report);
    all_parameters(&mut page, report);
    data(&mut page, report);
    let _ = write!(
        page,
        "<footer>pleach simulate {} --seed {} · trace {} · {:.2} s, {} packet hops per second</footer>\n{CLOSE_PAGE}",
        escape(&report.scenario.file),
        report.scenario.seed,
        report.trace,
        report.machine.seconds,
        si_number(report.machine.hops_per_second),
    );
    page
}

fn head(page: &mut String, report: &SimulationReport) {
    let is_wrong = report.has_violations() || report.has_failures();
    let (class, sign) = if is_wrong { ("wrong", "✗") } else { ("right", "✓") };
    let about = report.scenario.about.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let _ = write!(
        page,
        "<h1>{}</h1>\n<p class=\"about\">{}</p>\n<p class=\"verdict {class}\"><b>{sign}</b> {}</p>\n",
        escape(&report.scenario.name),
        escape(&about),
        escape(&verdict(report)),
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

/// The oracle's verdict, and what became of the flows.
fn verdict(report: &SimulationReport) -> String {
    let mut text = report.oracle.summary();
    if !report.flows.traffic.is_empty() || report.flows.workload.is_some() {
        let _ = write!(text, "; {}", report.flows.summary());
    }
    if report.tree_rebuilds > 0 {
        let _ = write!(text, "; tree rebuilt {}", pluralize(report.tree_rebuilds.into(), "time"));
    }
    text
}

fn latency(page: &mut String, report: &SimulationReport) {
    page.push_str("<h2>Latency and errors</h2>\n");
    let rows = [("complete", &report.latency.complete), ("reduce phase", &report.latency.reduce)];
    page.push_str("<div class=\"wide\"><table>\n<tr><th></th><th>operations</th><th>min</th><th>median</th><th>mean</th><th>p90</th><th>p99</th><th>max</th></tr>\n");
    for (name, distribution) in rows {
        let Some(d) = distribution else { continue };
        let cells: String = [d.min_ns, d.median_ns, d.mean_ns, d.p90_ns, d.p99_ns, d.max_ns]
            .map(|nanos| format!("<td>{}</td>", units::SimSpan::from_picos((nanos * 1e3).round() as u64)))
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
    let group = report.latency_series.get(1).map_or(1, |(operation, _)| *operation);
    let note = if group > 1 { format!(", maximum of each {group}") } else { String::new() };
    let _ = writeln!(
        page,
        "<figure><figcaption>Latency by operation{note}</figcaption>\n{}</figure>",
        latency_chart(&report.latency_series, report.operations.run)
    );
    errors(page, report);
    page.push_str("</div>\n");
}

fn errors(page: &mut String, report: &SimulationReport) {
    let counts = error_counts(report);
    let _ = writeln!(
        page,
        "<figure><figcaption>Damaged or lost packets, by error class{}</figcaption>\n{}</figure>",
        if counts.iter().any(|(_, _, number)| *number > 0) { " (bars are logarithmic)" } else { "" },
        bar_chart(&counts)
    );
}

/// What happened over time, with the moments of faults.
fn over_time(page: &mut String, report: &SimulationReport) {
    let charts = report.timeline.charts();
    if charts.is_empty() {
        return;
    }
    page.push_str("<h2>Over time</h2>\n<div class=\"charts\">\n");
    for (title, chart) in charts {
        let _ = writeln!(page, "<figure><figcaption>{}</figcaption>\n{chart}</figure>", escape(&title));
    }
    page.push_str("</div>\n");
    for moment in report.timeline.faults.iter().take(32) {
        let _ = writeln!(page, "<p class=\"about\">{} us: {}</p>", moment.at_us, escape(&moment.what));
    }
}

/// The data as files.
fn data(page: &mut String, report: &SimulationReport) {
    let mut links = vec![
        download_link("report.json", "application/json", &super::json(report)),
        download_link("over-time.csv", "text/csv", &report.timeline.csv()),
    ];
    if !report.flows.traffic.is_empty() {
        links.push(download_link("traffic.csv", "text/csv", &super::traffic::csv(&report.flows)));
    }
    let _ = writeln!(page, "<h2>Data</h2>\n<p>{}</p>", links.join(" · "));
}

fn fabric(page: &mut String, report: &SimulationReport) {
    let fabric = &report.fabric;
    let (nodes, roots) =
        (pluralize(fabric.tree_nodes as u64, "aggregation node"), pluralize(fabric.roots as u64, "root"));
    let tree = if fabric.tree_nodes == 0 { String::new() } else { format!(" The tree has {nodes} and {roots}.") };
    let _ = write!(
        page,
        "<h2>Fabric</h2>\n<p>{}: {}, {}, {}.{tree}</p>\n",
        escape(&fabric.shape),
        pluralize(fabric.hosts.into(), "host"),
        pluralize(fabric.switches.into(), "switch"),
        pluralize(fabric.cables, "cable"),
    );
    let legend = report.diagram.legend();
    let stop = if legend.is_empty() { String::new() } else { format!(" {legend}.") };
    let _ = write!(
        page,
        "<figure class=\"picture\">\n{}<figcaption>\
         <span class=\"key\"><i class=\"k-busy\"></i>carried bytes: blue few, green half, orange as many as the busiest</span>\
         <span class=\"key\"><i class=\"k-idle\"></i>carried nothing</span>\
         <span class=\"key\"><i class=\"k-faulty\"></i>damage or loss: the stronger, the more</span>{}</figcaption>\n</figure>\n",
        report.diagram.svg(),
        escape(&stop),
    );
}

fn links(page: &mut String, report: &SimulationReport) {
    page.push_str("<div class=\"tables\">\n");
    link_table(page, "Links with the most damage", &report.damaged_links);
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
        page.push_str("<h2>Violations</h2>\n<ul class=\"wrong\">\n");
        for violation in &oracle.listed_violations {
            let _ = writeln!(page, "<li>{}</li>", escape(violation));
        }
        page.push_str("</ul>\n");
    }
    if oracle.causes.is_empty() {
        return;
    }
    page.push_str("<h2>Failures</h2>\n<div class=\"wide\"><table class=\"text\">\n<tr><th>cause</th><th>operations</th><th>results missing</th></tr>\n");
    for line in &oracle.causes {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{} to {}</td><td>{}</td></tr>",
            escape(&line.cause),
            line.first_operation,
            line.last_operation,
            group_digits(line.results)
        );
    }
    page.push_str("</table></div>\n");
}

fn all_parameters(page: &mut String, report: &SimulationReport) {
    page.push_str("<details><summary>All parameters</summary>\n<div class=\"tables\">\n");
    for (table, fields) in &report.parameters {
        let _ = writeln!(page, "<div class=\"wide\"><table class=\"text\">\n<caption>[{table}]</caption>");
        for (name, value) in fields {
            let _ = writeln!(page, "<tr><th>{name}</th><td>{}</td></tr>", escape(value));
        }
        page.push_str("</table></div>\n");
    }
    page.push_str("</div></details>\n");
}
