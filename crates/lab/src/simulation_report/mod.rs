//! The report of `pleach simulate`: built once from a run, rendered as text, JSON or an HTML page.

mod changed_fields;
mod compared_traffic;
mod comparison;
mod fabric_diagram;
mod html;
mod jobs;
mod parameters;
mod table;
mod timeline;
mod traffic;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use simulator::FabricCounters;
use simulator::collective::{CollectiveTiming, LinkReport, OperationFailure};
use simulator::scenario::{ResultCheck, Scenario, ScenarioJob};
use simulator::segmented::VectorContents;
use topology::{Fabric, NodeId};
use units::SimSpan;

use crate::job_checker::JobJudgement;
use crate::latency_distribution::LatencyDistribution;
use crate::oracle_checker::OracleJudgement;
use crate::simulated_run::{RunJudgement, SimulatedRun};
use fabric_diagram::FabricDiagram;
use jobs::JobLine;
use timeline::RunTimeline;
use traffic::FlowReport;

pub use changed_fields::changed_fields;
pub use comparison::{SimulationComparison, comparison_html, comparison_table};
pub use html::{html, latency_figure};
pub use table::table;

/// Links that are listed by name.
const LISTED_LINKS: usize = 12;
/// Points of the latency chart. More would overlap.
const MAX_CHART_POINTS: usize = 800;

/// The whole report. Field names are those of the JSON report: they are stable.
#[derive(Serialize)]
pub struct SimulationReport {
    /// Version of the field names.
    pub(crate) version: u32,
    pub(crate) scenario: ScenarioLine,
    pub(crate) fabric: FabricLine,
    /// By table and field, spelled as in a scenario file.
    pub(crate) parameters: BTreeMap<&'static str, BTreeMap<&'static str, String>>,
    /// What the scenario sets, by field: all else is a default.
    #[serde(skip)]
    pub(crate) changed: Vec<(String, String)>,
    pub(crate) faults: Vec<String>,
    pub(crate) operations: OperationCounts,
    /// Of all jobs, if there are several.
    pub(crate) latency: LatencyReport,
    /// Several jobs at the same time, if the scenario has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) jobs: Vec<JobLine>,
    pub(crate) counters: FabricCounters,
    pub(crate) damaged_links: Vec<LinkLine>,
    pub(crate) busiest_links: Vec<LinkLine>,
    pub(crate) oracle: OracleReport,
    /// Traffic and workloads.
    pub(crate) flows: FlowReport,
    /// How often the aggregation tree was rebuilt after a failure.
    pub(crate) tree_rebuilds: u32,
    pub(crate) timeline: RunTimeline,
    /// Hash of all events: equal seeds and parameters give equal hashes.
    pub(crate) trace: String,
    pub(crate) machine: SimulationCost,
    #[serde(skip)]
    pub(crate) diagram: FabricDiagram,
    /// The longest latency of each group of consecutive operations, for the chart; none where an operation failed.
    #[serde(skip)]
    pub(crate) latency_series: Vec<(u32, Option<SimSpan>)>,
}

#[derive(Serialize)]
pub(crate) struct ScenarioLine {
    pub(crate) file: String,
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) seed: u64,
    /// Why the selector chose the algorithm, if it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) choice: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct FabricLine {
    pub(crate) shape: String,
    pub(crate) hosts: u32,
    pub(crate) switches: u32,
    pub(crate) cables: u64,
    pub(crate) members: u32,
    pub(crate) tree_nodes: usize,
    pub(crate) roots: usize,
    /// Nodes by level, hosts first.
    pub(crate) levels: Vec<u32>,
}

#[derive(Serialize)]
pub(crate) struct OperationCounts {
    pub(crate) run: u32,
    /// Completed at every member.
    pub(crate) completed: u32,
    /// Failed or did not end at some member.
    pub(crate) failed: u32,
}

/// Latencies of the operations that completed.
#[derive(Serialize)]
pub(crate) struct LatencyReport {
    /// From the start to the last member's result.
    pub(crate) complete: Option<LatencyDistribution>,
    /// From the start to the first root's result.
    pub(crate) reduce: Option<LatencyDistribution>,
}

#[derive(Serialize)]
pub(crate) struct LinkLine {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) lane: u8,
    pub(crate) packets: u32,
    pub(crate) damaged: u64,
    pub(crate) lost: u64,
}

#[derive(Serialize)]
pub(crate) struct OracleReport {
    /// `bits`, `digests`, `delivery`, `flows` (their bytes are counted), `nothing`, or `jobs` if they differ.
    pub(crate) looked_at: &'static str,
    /// Deliveries that were compared bit by bit with the reference.
    pub(crate) checked: u64,
    /// Deliveries that were only counted.
    pub(crate) counted: u64,
    pub(crate) violations: u64,
    pub(crate) listed_violations: Vec<String>,
    /// Operations that failed at a member with a cause.
    pub(crate) failures: u64,
    /// The same failures, by cause.
    pub(crate) causes: Vec<CauseLine>,
    pub(crate) listed_failures: Vec<FailureLine>,
    /// Operations that completed at some members and failed at others.
    pub(crate) splits: u64,
}

#[derive(Serialize)]
pub(crate) struct FailureLine {
    pub(crate) operation: u32,
    pub(crate) rank: u32,
    pub(crate) cause: String,
}

#[derive(Serialize)]
pub(crate) struct CauseLine {
    pub(crate) cause: String,
    /// Results that members did not get; segments of long vectors count singly.
    pub(crate) results: u64,
    pub(crate) first_operation: u32,
    pub(crate) last_operation: u32,
}

/// The cost of the simulation on this machine: the only part that differs from run to run.
#[derive(Serialize)]
pub(crate) struct SimulationCost {
    /// Fabric, tree and machines.
    pub(crate) set_up_seconds: f64,
    /// The operations, with contributions and checks.
    pub(crate) seconds: f64,
    pub(crate) hops_per_second: f64,
    pub(crate) state_bytes: usize,
}

/// The time that a run took on this machine.
#[derive(Clone, Copy, Default, Debug)]
pub struct RunCost {
    /// To set up fabric, tree and machines.
    pub set_up: Duration,
    /// To run the operations.
    pub run: Duration,
}

impl OracleReport {
    pub(crate) fn has_violations(&self) -> bool {
        self.violations > 0
    }

    /// The verdict in one line.
    pub(crate) fn summary(&self) -> String {
        use crate::number_format::{group_digits, pluralize};
        let wrong = match self.violations {
            0 => "0 wrong results".to_owned(),
            number => format!("{} VIOLATIONS", group_digits(number)),
        };
        let checked = match self.looked_at {
            "nothing" => "nothing was checked".to_owned(),
            "flows" => "flows have no contents: their bytes are counted".to_owned(),
            "bits" => format!("{} checked bit by bit", pluralize(self.checked, "delivery")),
            "digests" => {
                format!("{} checked by digest: the vectors exceed memory", pluralize(self.checked, "delivery"))
            }
            "jobs" => format!(
                "{} checked bit by bit or by digest, {} counted",
                pluralize(self.checked, "delivery"),
                group_digits(self.counted)
            ),
            _ => format!("{} counted, once each", pluralize(self.counted, "delivery")),
        };
        let failed = match self.failures {
            0 => String::new(),
            number => format!("; {} failed with a cause", pluralize(number, "delivery")),
        };
        format!("{wrong}, {checked}{failed}")
    }
}

impl SimulationReport {
    /// True if the run violated an invariant.
    pub fn has_violations(&self) -> bool {
        self.oracle.has_violations()
    }

    /// True if an operation failed or did not end.
    pub fn has_failures(&self) -> bool {
        self.operations.failed > 0 || self.oracle.failures > 0 || self.flows.has_failures()
    }

    /// Names the fields that the scenario sets, for the page's provenance.
    #[must_use]
    pub fn with_changes(mut self, changed: Vec<(String, String)>) -> Self {
        self.changed = changed;
        self
    }

    /// Builds the report of a run.
    pub fn new(
        scenario: &Scenario,
        file: &str,
        run: &SimulatedRun,
        timings: &[CollectiveTiming],
        judgement: RunJudgement,
        cost: RunCost,
    ) -> Self {
        let counters = run.counters();
        let (jobs, oracle) = match judgement {
            RunJudgement::Operations(judgement) => {
                (Vec::new(), oracle_line(scenario, judgement, looked_at(scenario), &scenario.placement))
            }
            RunJudgement::Jobs(judgements) => {
                (jobs::lines(scenario, &judgements), oracle_of_jobs(scenario, judgements))
            }
        };
        let completed = timings.iter().filter(|timing| timing.complete.is_some()).count() as u32;
        let seconds = cost.run.as_secs_f64();
        let (damaged_links, busiest_links) = links(scenario, run);
        Self {
            version: 1,
            scenario: ScenarioLine {
                file: file.to_owned(),
                name: scenario.name.clone(),
                about: scenario.about.trim().to_owned(),
                seed: scenario.seed,
                choice: scenario.choice.clone(),
            },
            fabric: fabric_line(scenario, run),
            parameters: parameters::parameters(scenario),
            changed: Vec::new(),
            faults: parameters::faults(&scenario.plan),
            operations: OperationCounts {
                run: timings.len() as u32,
                completed,
                failed: if jobs.is_empty() {
                    timings.len() as u32 - completed
                } else {
                    jobs.iter().map(|job| job.operations.failed).sum()
                },
            },
            latency: LatencyReport {
                complete: LatencyDistribution::of(timings.iter().filter_map(|timing| timing.complete)),
                reduce: LatencyDistribution::of(
                    timings.iter().filter(|timing| timing.complete.is_some()).filter_map(|timing| timing.reduce),
                ),
            },
            machine: SimulationCost {
                set_up_seconds: cost.set_up.as_secs_f64(),
                seconds,
                hops_per_second: if seconds > 0.0 { counters.hops as f64 / seconds } else { 0.0 },
                state_bytes: run.memory(),
            },
            counters,
            damaged_links,
            busiest_links,
            oracle,
            flows: FlowReport::new(scenario, run),
            tree_rebuilds: run.rebuilds(),
            timeline: RunTimeline::new(scenario, run),
            trace: format!("{:#018x}", run.trace()),
            diagram: FabricDiagram::new(&scenario.fabric, &scenario.plan, run.links()),
            // Operations of several jobs are not one sequence.
            latency_series: if jobs.is_empty() { latency_series(timings) } else { Vec::new() },
            jobs,
        }
    }
}

/// The report as JSON.
pub fn json(report: &SimulationReport) -> String {
    let mut text = serde_json::to_string_pretty(report).expect("a report has only text keys");
    text.push('\n');
    text
}

fn fabric_line(scenario: &Scenario, run: &SimulatedRun) -> FabricLine {
    let fabric = &scenario.fabric;
    FabricLine {
        shape: fabric.to_string(),
        hosts: fabric.hosts(),
        switches: fabric.switches(),
        cables: fabric.cable_count(),
        members: run.ranks(),
        tree_nodes: run.tree().map_or(0, |tree| tree.nodes.len()),
        roots: run.tree().map_or(0, |tree| tree.roots().count()),
        levels: fabric_diagram::level_sizes(fabric),
    }
}

/// The verdicts on all jobs as one; violations and causes name their job.
fn oracle_of_jobs(scenario: &Scenario, judgements: Vec<JobJudgement>) -> OracleReport {
    let looked_at =
        match scenario.jobs.iter().map(looked_at_job).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()[..] {
            [same] => same,
            _ => "jobs",
        };
    let mut all = oracle_line(scenario, OracleJudgement::default(), looked_at, &[]);
    for (job, found) in scenario.jobs.iter().zip(judgements) {
        let line = oracle_line(scenario, found.judgement, looked_at, &job.hosts);
        let named = |text: &String| format!("{}: {text}", job.name);
        all.checked += line.checked;
        all.counted += line.counted;
        all.violations += line.violations;
        all.listed_violations.extend(line.listed_violations.iter().map(named));
        all.failures += line.failures;
        all.causes.extend(line.causes.into_iter().map(|cause| CauseLine { cause: named(&cause.cause), ..cause }));
        let failures = line.listed_failures.into_iter();
        all.listed_failures.extend(failures.map(|failure| FailureLine { cause: named(&failure.cause), ..failure }));
        all.splits += line.splits;
    }
    all
}

fn oracle_line(
    scenario: &Scenario,
    judgement: OracleJudgement,
    looked_at: &'static str,
    hosts: &[u32],
) -> OracleReport {
    let OracleJudgement { verdict, failures, groups } = judgement;
    let line = |failure: &crate::oracle_checker::FailedOperation| FailureLine {
        operation: failure.op.0,
        rank: failure.rank.0,
        cause: cause_text(scenario, hosts, failure.cause),
    };
    let cause = |group: &crate::oracle_checker::FailureGroup| CauseLine {
        cause: cause_text(scenario, hosts, group.cause),
        results: group.results,
        first_operation: group.first.0,
        last_operation: group.last.0,
    };
    OracleReport {
        looked_at,
        checked: verdict.checked,
        counted: verdict.cross_checked,
        violations: verdict.violation_count(),
        listed_violations: verdict.violations.iter().map(ToString::to_string).collect(),
        failures: verdict.failed,
        causes: groups.iter().map(cause).collect(),
        listed_failures: failures.iter().map(line).collect(),
        splits: verdict.partial_failures.len() as u64 + verdict.unlisted_partial_failures,
    }
}

/// What the oracle compared.
fn looked_at(scenario: &Scenario) -> &'static str {
    let is_digest = |hosts: &simulator::segmented::SegmentedParameters| {
        matches!(hosts.vector.contents, VectorContents::Digest { .. })
    };
    if !scenario.has_collective {
        return "flows";
    }
    if scenario.check == ResultCheck::Bits && scenario.hosts.as_ref().is_some_and(is_digest) {
        return "digests";
    }
    simulator::scenario::names::word(&simulator::scenario::names::CHECKS, scenario.check)
}

/// What the oracle compared of a job.
fn looked_at_job(job: &ScenarioJob) -> &'static str {
    match (job.check, job.vector.contents) {
        (ResultCheck::Bits, VectorContents::Digest { .. }) => "digests",
        (check, _) => simulator::scenario::names::word(&simulator::scenario::names::CHECKS, check),
    }
}

/// A cause in the names of the fabric; rank `n` is on `hosts[n]`.
fn cause_text(scenario: &Scenario, hosts: &[u32], cause: OperationFailure) -> String {
    use protocol::aggregation::AbortCause;
    let fabric: &Fabric = &scenario.fabric;
    let host = |rank: u32| hosts.get(rank as usize).copied().unwrap_or(rank);
    let name = |node: u32| fabric.name(NodeId(node));
    match cause {
        OperationFailure::Aborted(AbortCause::LostPeer(node)) if node < fabric.nodes() => {
            format!("{} does not answer", name(node))
        }
        OperationFailure::Aborted(cause) => cause.to_string(),
        OperationFailure::Unreachable { from, to } => {
            format!("{} gets no answer from {} over any route", name(host(from.0)), name(host(to.0)))
        }
    }
}

/// The links with the most damage, and those with the most packets.
fn links(scenario: &Scenario, run: &SimulatedRun) -> (Vec<LinkLine>, Vec<LinkLine>) {
    let fabric = &scenario.fabric;
    let line = |link: &LinkReport| LinkLine {
        from: fabric.name(link.from),
        to: fabric.name(link.to),
        lane: link.lane.0,
        packets: link.packets,
        damaged: link.tally.damaged,
        lost: link.tally.lost,
    };
    let faults = |link: &LinkReport| link.tally.damaged + link.tally.lost;
    // Millions of links may have carried packets: only the first of each list are kept and sorted.
    let mut all: Vec<LinkReport> = run.links().collect();
    let first = |all: &mut Vec<LinkReport>, key: &dyn Fn(&LinkReport) -> u64| -> Vec<LinkLine> {
        let listed = LISTED_LINKS.min(all.len());
        let order = |link: &LinkReport| (std::cmp::Reverse(key(link)), link.from, link.to, link.lane);
        if listed < all.len() {
            all.select_nth_unstable_by_key(listed, order);
        }
        all[..listed].sort_unstable_by_key(order);
        all[..listed].iter().filter(|link| key(link) > 0).map(line).collect()
    };
    let damaged = first(&mut all, &faults);
    let busiest = first(&mut all, &|link| u64::from(link.packets));
    (damaged, busiest)
}

fn latency_series(timings: &[CollectiveTiming]) -> Vec<(u32, Option<SimSpan>)> {
    let group_size = timings.len().div_ceil(MAX_CHART_POINTS).max(1);
    let longest = |(number, group): (usize, &[CollectiveTiming])| {
        let failed = group.iter().any(|timing| timing.complete.is_none());
        let longest = if failed { None } else { group.iter().filter_map(|timing| timing.complete).max() };
        ((number * group_size) as u32, longest)
    };
    timings.chunks(group_size).enumerate().map(longest).collect()
}
