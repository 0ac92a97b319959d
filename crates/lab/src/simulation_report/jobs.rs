//! Several jobs in the report: a row for each, and the latency of its operations as a line.

use std::fmt::Write;

use serde::Serialize;
use simulator::collective::CollectiveTiming;
use simulator::scenario::{Scenario, ScenarioJob};
use units::{SimSpan, SimTime};

use super::{OperationCounts, latency_series};
use crate::job_checker::JobJudgement;
use crate::latency_distribution::LatencyDistribution;
use crate::number_format::{group_digits, pluralize};
use crate::report::page::html_table;
use crate::report::{Axis, LineChart, format_table};

/// One job. Field names are those of the JSON report.
#[derive(Serialize)]
pub(crate) struct JobLine {
    pub(crate) name: String,
    pub(crate) operation: &'static str,
    pub(crate) algorithm: &'static str,
    /// Why the selector chose the algorithm, if it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) choice: Option<String>,
    /// `packed`, `random` or `list`.
    pub(crate) placement: &'static str,
    pub(crate) members: u32,
    pub(crate) hosts: Vec<String>,
    /// What a member contributes, or the result of an allgather.
    pub(crate) bytes: u64,
    pub(crate) operations: OperationCounts,
    pub(crate) latency: Option<LatencyDistribution>,
    /// Bytes by the median latency.
    pub(crate) gbit_per_s: Option<f64>,
    pub(crate) start_us: f64,
    /// When its last operation ended; none if none has.
    pub(crate) finished_us: Option<f64>,
    /// Results that the oracle compared or counted.
    pub(crate) judged: u64,
    pub(crate) violations: u64,
    #[serde(skip)]
    series: Vec<(f64, f64)>,
}

/// The lines of all jobs.
pub(super) fn lines(scenario: &Scenario, judgements: &[JobJudgement]) -> Vec<JobLine> {
    scenario.jobs.iter().zip(judgements).map(|(job, judgement)| line(scenario, job, judgement)).collect()
}

fn line(scenario: &Scenario, job: &ScenarioJob, found: &JobJudgement) -> JobLine {
    let (operation, algorithm) = job.names();
    let latency = LatencyDistribution::of(found.timings.iter().filter_map(|timing| timing.complete));
    let bits = 8.0 * job.bytes() as f64;
    let rate = |latency: &LatencyDistribution| bits / latency.median_ns;
    let verdict = &found.judgement.verdict;
    JobLine {
        name: job.name.clone(),
        operation,
        algorithm,
        choice: job.choice.clone(),
        placement: job.placement.name(),
        members: job.members(),
        hosts: job.hosts.iter().map(|host| scenario.fabric.name(topology::NodeId(*host))).collect(),
        bytes: job.bytes(),
        operations: counts(job.operations, &found.timings),
        gbit_per_s: latency.as_ref().filter(|_| bits > 0.0).map(rate),
        latency,
        start_us: micros(job.start),
        finished_us: found.finished.map(|time| micros(time.since(SimTime::ZERO))),
        judged: verdict.checked + verdict.cross_checked,
        violations: verdict.violation_count(),
        series: latency_series(&found.timings)
            .into_iter()
            .filter_map(|(op, span)| Some((f64::from(op + 1), micros(span?))))
            .collect(),
    }
}

/// A job ends with its first failure: what it did not begin has failed as well.
fn counts(asked: u32, timings: &[CollectiveTiming]) -> OperationCounts {
    let completed = timings.iter().filter(|timing| timing.complete.is_some()).count() as u32;
    OperationCounts { run: timings.len() as u32, completed, failed: asked - completed }
}

fn micros(span: SimSpan) -> f64 {
    span.as_nanos_f64() / 1e3
}

fn rows(jobs: &[JobLine]) -> Vec<Vec<String>> {
    let head = [
        "job",
        "operation",
        "members",
        "bytes",
        "completed",
        "min us",
        "median us",
        "p99 us",
        "max us",
        "Gbit/s",
        "finished us",
    ];
    let row = |job: &JobLine| {
        let asked = job.operations.completed + job.operations.failed;
        let time = |of: fn(&LatencyDistribution) -> f64| {
            job.latency.as_ref().map_or("-".to_owned(), |latency| format!("{:.3}", of(latency) / 1e3))
        };
        vec![
            job.name.clone(),
            format!("{} by {}", job.operation, job.algorithm),
            format!("{} {}", group_digits(job.members.into()), job.placement),
            group_digits(job.bytes),
            format!("{} of {}", group_digits(job.operations.completed.into()), group_digits(asked.into())),
            time(|latency| latency.min_ns),
            time(|latency| latency.median_ns),
            time(|latency| latency.p99_ns),
            time(|latency| latency.max_ns),
            job.gbit_per_s.map_or("-".to_owned(), |rate| format!("{rate:.2}")),
            job.finished_us.map_or("-".to_owned(), |time| format!("{time:.3}")),
        ]
    };
    std::iter::once(head.map(str::to_owned).to_vec()).chain(jobs.iter().map(row)).collect()
}

/// The jobs as text.
pub(super) fn text(jobs: &[JobLine]) -> String {
    let mut text = String::from("\n");
    text.push_str(&format_table(&rows(jobs)));
    for (job, choice) in jobs.iter().filter_map(|job| Some((job, job.choice.as_ref()?))) {
        let _ = writeln!(text, "{}: {choice}", job.name);
    }
    text
}

/// The jobs as a part of a page.
pub(super) fn html(jobs: &[JobLine]) -> String {
    let mut page = format!("<h2>{}</h2>\n", summary(jobs));
    page.push_str(&html_table(&rows(jobs)));
    let chart =
        LineChart::new("Latency by operation of each job", Axis::new("operation").tight(), Axis::new("latency, us"));
    let lines = jobs.iter().filter(|job| !job.series.is_empty());
    if let Some(figure) =
        lines.fold(chart, |chart, job| chart.curve(&job.name, job.series.iter().copied())).figure_if_any()
    {
        let _ = writeln!(page, "<div class=\"charts\">\n{}</div>", figure.html());
    }
    page
}

/// How many jobs there are.
pub(super) fn summary(jobs: &[JobLine]) -> String {
    pluralize(jobs.len() as u64, "job")
}
