//! Several simulations side by side: the combinations of a sweep, or several scenario files.
//!
//! In: the report of each run, and what distinguishes it. Out: one table, one page with a line per run, CSV, JSON. The numbers are those
//! of virtual time, so equal seeds give equal bytes.

use serde::Serialize;

use super::traffic::FlowReport;
use super::{SimulationReport, compared_traffic};
use crate::latency_distribution::LatencyDistribution;
use crate::number_format::group_digits;
use crate::report::{
    Axis, DataFile, LineChart, PageSection, PageVerdict, PlaceChart, PlaceValue, ReportPage, csv_cell, format_table,
};

/// All runs.
#[derive(Serialize)]
pub struct SimulationComparison {
    version: u32,
    runs: Vec<ComparedRun>,
}

/// One run.
#[derive(Serialize)]
struct ComparedRun {
    /// What distinguishes it from the others.
    label: String,
    /// The same in fewer letters: fields without their tables, where that is clear.
    #[serde(skip)]
    short_label: String,
    file: String,
    scenario: String,
    /// The swept fields and their values.
    settings: Vec<(String, String)>,
    algorithm: String,
    hosts: u32,
    seed: u64,
    completed: u32,
    failed: u32,
    violations: u64,
    latency: Option<LatencyDistribution>,
    packet_hops: u64,
    causes: Vec<String>,
    flows: FlowReport,
    trace: String,
    #[serde(skip)]
    series: Vec<(f64, f64)>,
    /// What the scenario and its settings change from the defaults.
    #[serde(skip)]
    changed: Vec<(String, String)>,
}

impl SimulationComparison {
    /// Compares runs; each has the fields in which it differs from the others.
    pub fn new(runs: Vec<(Vec<(String, String)>, SimulationReport)>) -> Self {
        let several_files = runs.iter().any(|(_, report)| report.scenario.file != runs[0].1.scenario.file);
        let run = |(settings, report): (Vec<(String, String)>, SimulationReport)| {
            let label = |name: &dyn Fn(&str) -> String| {
                let parts = settings.iter().map(|(field, value)| format!("{}={value}", name(field)));
                let file = (several_files || settings.is_empty()).then(|| report.scenario.name.clone());
                file.into_iter().chain(parts).collect::<Vec<_>>().join(" ")
            };
            let last = |field: &str| field.rsplit('.').next().unwrap_or(field).to_owned();
            let is_clear = |field: &str| settings.iter().filter(|(other, _)| last(other) == last(field)).count() < 2;
            let short = |field: &str| if is_clear(field) { last(field) } else { field.to_owned() };
            let micros = |span: units::SimSpan| span.as_nanos_f64() / 1e3;
            let points = report.latency_series.iter();
            ComparedRun {
                label: label(&str::to_owned),
                short_label: label(&short),
                algorithm: report.parameters["collective"]["algorithm"].clone(),
                hosts: report.fabric.members,
                seed: report.scenario.seed,
                completed: report.operations.completed,
                failed: report.operations.failed,
                violations: report.oracle.violations,
                packet_hops: report.counters.hops,
                causes: report.oracle.causes.iter().map(|line| line.cause.clone()).collect(),
                series: points.filter_map(|(op, span)| Some((f64::from(op + 1), micros((*span)?)))).collect(),
                file: report.scenario.file,
                scenario: report.scenario.name,
                latency: report.latency.complete,
                flows: report.flows,
                trace: report.trace,
                changed: report.changed,
                settings,
            }
        };
        Self { version: 1, runs: runs.into_iter().map(run).collect() }
    }

    /// True if any run violated an invariant, or an operation, a flow or a workload of it failed.
    pub fn has_failures(&self) -> bool {
        self.runs.iter().any(|run| run.violations > 0 || run.failed > 0 || run.flows.has_failures())
    }

    fn flows(&self) -> Vec<(&str, &FlowReport)> {
        self.runs.iter().map(|run| (run.label.as_str(), &run.flows)).collect()
    }

    /// The same for charts.
    fn short_flows(&self) -> Vec<(&str, &FlowReport)> {
        self.runs.iter().map(|run| (run.short_label.as_str(), &run.flows)).collect()
    }

    /// The runs as CSV, with a column for each swept field. Times are in nanoseconds.
    pub fn csv(&self) -> String {
        let mut fields: Vec<&str> = Vec::new();
        for (field, _) in self.runs.iter().flat_map(|run| &run.settings) {
            if !fields.contains(&field.as_str()) {
                fields.push(field);
            }
        }
        let numbers = ["completed", "failed", "violations", "packet_hops"];
        let times = ["min_ns", "median_ns", "mean_ns", "p90_ns", "p99_ns", "max_ns"];
        let head = ["file", "scenario"].into_iter().chain(fields.iter().copied());
        let head: Vec<String> =
            head.chain(["algorithm", "hosts", "seed"]).chain(numbers).chain(times).map(csv_cell).collect();
        let head = head.into_iter().chain(compared_traffic::CSV_FIELDS.map(str::to_owned)).collect::<Vec<_>>();
        let mut text = head.join(",") + "\n";
        for run in &self.runs {
            let value = |field: &&str| {
                run.settings
                    .iter()
                    .find(|(name, _)| name == field)
                    .map_or(String::new(), |(_, value)| csv_cell(value))
            };
            let mut cells = vec![csv_cell(&run.file), csv_cell(&run.scenario)];
            cells.extend(fields.iter().map(value));
            cells.extend([csv_cell(&run.algorithm), run.hosts.to_string(), run.seed.to_string()]);
            cells.extend(
                [run.completed.into(), run.failed.into(), run.violations, run.packet_hops]
                    .map(|n: u64| n.to_string()),
            );
            cells.extend(match &run.latency {
                Some(d) => [d.min_ns, d.median_ns, d.mean_ns, d.p90_ns, d.p99_ns, d.max_ns].map(|ns| ns.to_string()),
                None => std::array::from_fn(|_| String::new()),
            });
            cells.extend(compared_traffic::csv_cells(&run.flows));
            text.push_str(&(cells.join(",") + "\n"));
        }
        text
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let head =
            ["run", "algorithm", "hosts", "median us", "p99 us", "max us", "completed", "failed", "packet hops"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for run in &self.runs {
            let micros = |pick: fn(&LatencyDistribution) -> f64| {
                run.latency.as_ref().map_or("-".to_owned(), |latency| format!("{:.3}", pick(latency) / 1e3))
            };
            let failed = match (run.violations, run.failed) {
                (0, failed) => failed.to_string(),
                (violations, _) => format!("{violations} VIOLATIONS"),
            };
            rows.push(vec![
                run.label.clone(),
                run.algorithm.clone(),
                group_digits(run.hosts.into()),
                micros(|latency| latency.median_ns),
                micros(|latency| latency.p99_ns),
                micros(|latency| latency.max_ns),
                run.completed.to_string(),
                failed,
                group_digits(run.packet_hops),
            ]);
        }
        rows
    }

    /// One line for each run with failures.
    fn failure_lines(&self) -> Vec<String> {
        let line = |run: &ComparedRun| match run.causes.len() {
            0 => None,
            1 => Some(format!("{}: {}", run.label, run.causes[0])),
            more => Some(format!("{}: {}, and {} other causes", run.label, run.causes[0], more - 1)),
        };
        self.runs.iter().filter_map(line).chain(compared_traffic::failure_lines(&self.flows())).collect()
    }

    /// Whether any run has operations; scenarios may have traffic alone.
    fn has_operations(&self) -> bool {
        self.runs.iter().any(|run| run.algorithm != "flows")
    }
}

/// The comparison as text.
pub fn comparison_table(comparison: &SimulationComparison) -> String {
    let traffic = compared_traffic::rows(&comparison.flows());
    let mut tables = Vec::new();
    if comparison.has_operations() || traffic.len() < 2 {
        tables.push(format_table(&comparison.rows()));
    }
    if traffic.len() > 1 {
        tables.push(format_table(&traffic));
    }
    let mut text = tables.join("\n");
    for line in comparison.failure_lines() {
        text.push_str(&format!("\nFAILED      {line}"));
    }
    if !comparison.failure_lines().is_empty() {
        text.push('\n');
    }
    text
}

/// The comparison as a page.
pub fn comparison_html(comparison: &SimulationComparison) -> ReportPage {
    let mut page = ReportPage::new("Comparison of simulations", comparison.verdict())
        .changed(&comparison.changed())
        .file(DataFile::csv("runs.csv", comparison.csv()));
    if let [first, rest @ ..] = &comparison.runs[..]
        && rest.iter().all(|run| run.seed == first.seed)
    {
        page = page.seed(first.seed);
    }
    if comparison.has_operations() {
        page =
            page.section(PageSection::new("All runs").charts(comparison.latency_by_run()).table(&comparison.rows()));
    }
    let flows = comparison.flows();
    let traffic = compared_traffic::rows(&flows);
    if traffic.len() > 1 {
        let charts = compared_traffic::charts(&comparison.short_flows());
        page = page.section(PageSection::new("Traffic and workloads").charts(charts).table(&traffic));
    }
    let lines = LineChart::new("Latency by operation", Axis::new("operation").tight(), Axis::new("latency, us"));
    let runs = comparison.runs.iter().filter(|run| run.series.len() > 1); // One operation is no line.
    let lines = runs.fold(lines, |chart, run| chart.curve(&run.short_label, run.series.iter().copied()));
    if let Some(figure) = lines.figure_if_any() {
        page = page.section(PageSection::new("Latency").charts([figure]));
    }
    let failures = comparison.failure_lines();
    if !failures.is_empty() {
        page = page.section(PageSection::new("Failures").paragraphs(failures));
    }
    page
}

impl SimulationComparison {
    /// What held or failed in all runs together.
    fn verdict(&self) -> PageVerdict {
        let is_wrong = |run: &&ComparedRun| run.violations > 0 || run.failed > 0 || run.flows.has_failures();
        let wrong = self.runs.iter().filter(is_wrong).count();
        let all = self.runs.len();
        match wrong {
            0 => PageVerdict::held(format!("all operations and flows of {all} runs completed, none failed")),
            _ => PageVerdict::failed(format!("{wrong} of {all} runs had operations or flows that failed")),
        }
    }

    /// The fields that the scenarios and the sweep change, with all their values.
    fn changed(&self) -> Vec<(String, String)> {
        let mut changed: Vec<(String, Vec<&str>)> = Vec::new();
        for (field, value) in self.runs.iter().flat_map(|run| &run.changed) {
            match changed.iter_mut().find(|(name, _)| name == field) {
                Some((_, values)) if values.contains(&value.as_str()) => {}
                Some((_, values)) => values.push(value),
                None => changed.push((field.clone(), vec![value])),
            }
        }
        changed.into_iter().map(|(field, values)| (field, values.join(", "))).collect()
    }

    /// The median latency of each run, with the range from the shortest to the longest.
    fn latency_by_run(&self) -> Option<crate::report::Figure> {
        let value = |run: &ComparedRun| {
            let latency = run.latency.as_ref()?;
            Some(PlaceValue::new(latency.median_ns / 1e3).spread(latency.min_ns / 1e3, latency.max_ns / 1e3))
        };
        let values: Vec<Option<PlaceValue>> = self.runs.iter().map(value).collect();
        let places = self.runs.iter().map(|run| run.short_label.clone()).collect();
        let title = "Median latency by run, from the shortest to the longest";
        let chart = PlaceChart::new(title, Axis::new("latency, us"), places);
        values.iter().any(Option::is_some).then(|| chart.series("median", values).figure())
    }
}
