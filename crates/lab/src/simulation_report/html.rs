//! The simulation report as one HTML page.

use std::fmt::Write;

use units::SimSpan;

use super::table::error_counts;
use super::{LinkLine, SimulationReport, parameters};
use crate::number_format::{group_digits, pluralize, si_number, time_unit};
use crate::report::{
    Axis, ChartPoint, DataFile, Figure, LineChart, PageVerdict, ReportPage, bar_chart, escape, histogram, standalone,
};

/// The latency of each operation, as an SVG file.
pub fn latency_figure(report: &SimulationReport) -> String {
    standalone(&latency_chart(report))
}

/// The report as a page.
pub fn html(report: &SimulationReport) -> ReportPage {
    let mut page = String::new();
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
    let _ = writeln!(page, "<footer>trace {}</footer>", report.trace);
    let about = report.scenario.about.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let page = ReportPage::new(&report.scenario.name, verdict(report))
        .about(about)
        .seed(report.scenario.seed)
        .changed(&report.changed)
        .cost(cost(report), "machine")
        .html(&page)
        .file(DataFile::csv("over-time.csv", report.timeline.csv()));
    match report.flows.traffic.is_empty() {
        true => page,
        false => page.file(DataFile::csv("traffic.csv", super::traffic::csv(&report.flows))),
    }
}

fn cost(report: &SimulationReport) -> String {
    let machine = &report.machine;
    format!(
        "{:.2} s after {:.2} s of set-up, {} packet hops per second, {}B of state",
        machine.seconds,
        machine.set_up_seconds,
        si_number(machine.hops_per_second),
        si_number(machine.state_bytes as f64)
    )
}

fn head(page: &mut String, report: &SimulationReport) {
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

/// How many operations completed, the oracle's verdict, and what became of the flows.
fn verdict(report: &SimulationReport) -> PageVerdict {
    let operations = &report.operations;
    let mut text = match (operations.run, operations.failed) {
        (0, _) => String::new(),
        (run, 0) => format!("{} completed; ", pluralize(run.into(), "operation")),
        (run, failed) => format!("{failed} of {} failed; ", pluralize(run.into(), "operation")),
    };
    text.push_str(&report.oracle.summary());
    if !report.flows.traffic.is_empty() || report.flows.workload.is_some() {
        let _ = write!(text, "; {}", report.flows.summary());
    }
    if report.tree_rebuilds > 0 {
        let _ = write!(text, "; tree rebuilt {}", pluralize(report.tree_rebuilds.into(), "time"));
    }
    if report.has_violations() || report.has_failures() {
        PageVerdict::failed(text)
    } else if report.oracle.looked_at == "nothing" {
        PageVerdict::measured(text)
    } else {
        PageVerdict::held(text)
    }
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
            page.push_str(&histogram(distribution, &format!("Operations by latency, {name}")).html());
        }
    }
    if report.operations.run > 0 {
        page.push_str(&latency_chart(report).html());
    }
    errors(page, report);
    page.push_str("</div>\n");
}

fn errors(page: &mut String, report: &SimulationReport) {
    page.push_str(&bar_chart("Damaged or lost packets, by error class", "packets", &error_counts(report)).html());
}

/// Latency by operation; failed ones are marked at the top.
fn latency_chart(report: &SimulationReport) -> Figure {
    let series = &report.latency_series;
    let longest = series.iter().filter_map(|(_, span)| *span).max().unwrap_or(SimSpan::from_nanos(1));
    let (unit, size) = time_unit(longest);
    let point = |(operation, span): &(u32, Option<SimSpan>)| {
        let span = (*span)?;
        let point = ChartPoint::new(f64::from(*operation), span.as_picos() as f64 / size);
        Some(point.note(format!("operation {operation}: {span}")))
    };
    let group = series.get(1).map_or(1, |(operation, _)| *operation);
    let note = if group > 1 { format!(", maximum of each {group}") } else { String::new() };
    let last = f64::from(report.operations.run.max(3) - 1);
    let operations = Axis::new("operation").counts().tight().including([0.0, last]);
    let chart =
        LineChart::new(format!("Latency by operation{note}"), operations, Axis::new(format!("latency, {unit}")))
            .scattered("latency", series.iter().filter_map(point));
    let failed = series.iter().filter(|(_, span)| span.is_none());
    failed
        .fold(chart, |chart, (operation, _)| {
            chart.failure(f64::from(*operation), format!("operation {operation}: failed"))
        })
        .figure()
}

/// What happened over time, with the moments of faults.
fn over_time(page: &mut String, report: &SimulationReport) {
    let charts = report.timeline.charts();
    if charts.is_empty() {
        return;
    }
    page.push_str("<h2>Over time</h2>\n<div class=\"charts\">\n");
    for chart in charts {
        page.push_str(&chart.html());
    }
    page.push_str("</div>\n");
    for moment in report.timeline.faults.iter().take(32) {
        let _ = writeln!(page, "<p class=\"about\">{} us: {}</p>", moment.at_us, escape(&moment.what));
    }
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
