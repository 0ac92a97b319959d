//! What a run has to say, gathered once and told three ways: a table, JSON, a page.

mod fabric_diagram;
mod html;
pub mod page;
mod parameters;
mod svg;
mod table;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;
use simulator::FabricCounters;
use simulator::collective::{CollectiveTiming, LinkReport, SimulatedCollective};
use simulator::scenario::{ResultCheck, Scenario};
use units::Span;

use crate::latency_distribution::LatencyDistribution;
use crate::oracle_checker::OracleJudgement;
use fabric_diagram::FabricDiagram;

pub use html::html;
pub use svg::{escape, histogram, line_chart};
pub use table::{TableRows, format_table, table, with_header};

/// How to report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ReportFormat {
    /// Text for the terminal.
    Table,
    /// One object, with field names that stay.
    Json,
    /// One self-contained page with charts and a picture of the fabric.
    Html,
}

/// Writes a report to where the user wants it: a file, or the standard output.
pub fn write_report(text: &str, output: Option<&Path>) -> Result<()> {
    match output {
        Some(path) => {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
            eprintln!("wrote {}", path.display());
        }
        // A reader that has seen enough, such as `head`, is no mistake.
        None => std::io::stdout().write_all(text.as_bytes()).unwrap_or_default(),
    }
    Ok(())
}

/// Links that are listed by name.
const LISTED_LINKS: usize = 12;
/// Points of the latency plot: more would not be seen.
const PLOTTED: usize = 800;

/// Everything. Field names are those of the JSON report and stay as they are.
#[derive(Serialize)]
pub struct SimulationReport {
    /// Of these field names.
    pub version: u32,
    pub scenario: ScenarioLine,
    pub fabric: FabricLine,
    /// By table and field, as a scenario file would say it.
    pub parameters: BTreeMap<&'static str, BTreeMap<&'static str, String>>,
    pub faults: Vec<String>,
    pub operations: OperationCounts,
    pub latency: LatencyReport,
    pub counters: FabricCounters,
    pub damaged_links: Vec<LinkLine>,
    pub busiest_links: Vec<LinkLine>,
    pub oracle: OracleReport,
    /// Same seed and parameters, same trace.
    pub trace: String,
    pub machine: SimulationCost,
    #[serde(skip)]
    pub picture: FabricDiagram,
    /// The longest latency of each stretch of operations, for the plot; none where an operation failed.
    #[serde(skip)]
    pub course: Vec<(u32, Option<Span>)>,
}

#[derive(Serialize)]
pub struct ScenarioLine {
    pub file: String,
    pub name: String,
    pub about: String,
    pub seed: u64,
}

#[derive(Serialize)]
pub struct FabricLine {
    pub shape: String,
    pub hosts: u32,
    pub switches: u32,
    pub cables: u64,
    pub members: u32,
    pub tree_nodes: usize,
    pub roots: usize,
    /// Nodes by level, hosts first.
    pub levels: Vec<u32>,
}

#[derive(Serialize)]
pub struct OperationCounts {
    pub run: u32,
    /// Complete at every member.
    pub completed: u32,
    /// Failed or never ended at some member.
    pub failed: u32,
}

/// Of the operations that completed.
#[derive(Serialize)]
pub struct LatencyReport {
    /// From the start to the last member's result.
    pub complete: Option<LatencyDistribution>,
    /// From the start to the first root's.
    pub reduce: Option<LatencyDistribution>,
}

#[derive(Serialize)]
pub struct LinkLine {
    pub from: String,
    pub to: String,
    pub lane: u8,
    pub packets: u32,
    pub damaged: u64,
    pub lost: u64,
}

#[derive(Serialize)]
pub struct OracleReport {
    /// `bits`, `delivery` or `nothing`.
    pub looked_at: &'static str,
    /// Deliveries compared bit by bit with the reference.
    pub checked: u64,
    /// Deliveries of which only the number counted.
    pub counted: u64,
    pub violations: u64,
    pub listed_violations: Vec<String>,
    /// Operations that failed at a member, with a cause.
    pub failures: u64,
    pub listed_failures: Vec<FailureLine>,
    /// Operations that ended well at some members and badly at others.
    pub splits: u64,
}

#[derive(Serialize)]
pub struct FailureLine {
    pub operation: u32,
    pub rank: u32,
    pub cause: String,
}

/// What the run cost the machine that simulated it; the only part that differs from run to run.
#[derive(Serialize)]
pub struct SimulationCost {
    pub seconds: f64,
    pub hops_per_second: f64,
    pub state_bytes: usize,
}

impl OracleReport {
    /// True if something happened that must not.
    pub fn objects(&self) -> bool {
        self.violations > 0
    }

    /// In one line.
    pub fn sentence(&self) -> String {
        use crate::number_format::{group_digits, pluralize};
        let wrong = match self.violations {
            0 => "0 wrong results".to_owned(),
            number => format!("{} OBJECTIONS", group_digits(number)),
        };
        let looked = match self.looked_at {
            "nothing" => "nothing was checked".to_owned(),
            "bits" => format!("{} checked bit by bit", pluralize(self.checked, "delivery")),
            _ => format!("{} counted, once each", pluralize(self.counted, "delivery")),
        };
        let failed = match self.failures {
            0 => String::new(),
            number => format!("; {} failed with a cause", pluralize(number, "delivery")),
        };
        format!("{wrong}, {looked}{failed}")
    }
}

impl SimulationReport {
    pub fn new(
        scenario: &Scenario,
        file: &str,
        collective: &SimulatedCollective,
        timings: &[CollectiveTiming],
        judgement: OracleJudgement,
        elapsed: Duration,
    ) -> Self {
        let counters = collective.counters().clone();
        let completed = timings.iter().filter(|timing| timing.complete.is_some()).count() as u32;
        let seconds = elapsed.as_secs_f64();
        let (damaged_links, busiest_links) = links(scenario, collective);
        Self {
            version: 1,
            scenario: ScenarioLine {
                file: file.to_owned(),
                name: scenario.name.clone(),
                about: scenario.about.trim().to_owned(),
                seed: scenario.seed,
            },
            fabric: fabric_line(scenario, collective),
            parameters: parameters::parameters(scenario),
            faults: parameters::faults(&scenario.plan),
            operations: OperationCounts {
                run: timings.len() as u32,
                completed,
                failed: timings.len() as u32 - completed,
            },
            latency: LatencyReport {
                complete: LatencyDistribution::of(timings.iter().filter_map(|timing| timing.complete)),
                reduce: LatencyDistribution::of(
                    timings.iter().filter(|timing| timing.complete.is_some()).filter_map(|timing| timing.reduce),
                ),
            },
            machine: SimulationCost {
                seconds,
                hops_per_second: if seconds > 0.0 { counters.hops as f64 / seconds } else { 0.0 },
                state_bytes: collective.memory(),
            },
            counters,
            damaged_links,
            busiest_links,
            oracle: oracle_line(scenario.check, judgement),
            trace: format!("{:#018x}", collective.trace()),
            picture: FabricDiagram::new(&scenario.fabric, &scenario.plan, collective.links()),
            course: course(timings),
        }
    }
}

/// The report as JSON.
pub fn json(report: &SimulationReport) -> String {
    let mut text = serde_json::to_string_pretty(report).expect("a report has only text keys");
    text.push('\n');
    text
}

fn fabric_line(scenario: &Scenario, collective: &SimulatedCollective) -> FabricLine {
    let fabric = &scenario.fabric;
    FabricLine {
        shape: fabric.to_string(),
        hosts: fabric.hosts(),
        switches: fabric.switches(),
        cables: fabric.cable_count(),
        members: collective.ranks(),
        tree_nodes: collective.tree().nodes.len(),
        roots: collective.tree().roots().count(),
        levels: fabric_diagram::level_sizes(fabric),
    }
}

fn oracle_line(check: ResultCheck, judgement: OracleJudgement) -> OracleReport {
    let OracleJudgement { verdict, failures } = judgement;
    let line = |failure: &crate::oracle_checker::FailedOperation| FailureLine {
        operation: failure.op.0,
        rank: failure.rank.0,
        cause: failure.cause.to_string(),
    };
    OracleReport {
        looked_at: simulator::scenario::names::word(&simulator::scenario::names::CHECKS, check),
        checked: verdict.checked,
        counted: verdict.only_agreed,
        violations: verdict.violation_count(),
        listed_violations: verdict.violations.iter().map(ToString::to_string).collect(),
        failures: verdict.failed,
        listed_failures: failures.iter().map(line).collect(),
        splits: verdict.splits.len() as u64 + verdict.unlisted_splits,
    }
}

/// The links with most damage, and those with most packets.
fn links(scenario: &Scenario, collective: &SimulatedCollective) -> (Vec<LinkLine>, Vec<LinkLine>) {
    let fabric = &scenario.fabric;
    let line = |link: &LinkReport| LinkLine {
        from: fabric.name(link.from),
        to: fabric.name(link.to),
        lane: link.lane.0,
        packets: link.packets,
        damaged: link.tally.damaged,
        lost: link.tally.lost,
    };
    let harm = |link: &LinkReport| link.tally.damaged + link.tally.lost;
    // Millions of links may have carried something: only the first of each list are kept and sorted.
    let mut all: Vec<LinkReport> = collective.links().collect();
    let first = |all: &mut Vec<LinkReport>, key: &dyn Fn(&LinkReport) -> u64| -> Vec<LinkLine> {
        let wanted = LISTED_LINKS.min(all.len());
        let order = |link: &LinkReport| (std::cmp::Reverse(key(link)), link.from, link.to, link.lane);
        if wanted < all.len() {
            all.select_nth_unstable_by_key(wanted, order);
        }
        all[..wanted].sort_unstable_by_key(order);
        all[..wanted].iter().filter(|link| key(link) > 0).map(line).collect()
    };
    let damaged = first(&mut all, &harm);
    let busiest = first(&mut all, &|link| u64::from(link.packets));
    (damaged, busiest)
}

fn course(timings: &[CollectiveTiming]) -> Vec<(u32, Option<Span>)> {
    let together = timings.len().div_ceil(PLOTTED).max(1);
    let longest = |(number, stretch): (usize, &[CollectiveTiming])| {
        let failed = stretch.iter().any(|timing| timing.complete.is_none());
        let longest = if failed { None } else { stretch.iter().filter_map(|timing| timing.complete).max() };
        ((number * together) as u32, longest)
    };
    timings.chunks(together).enumerate().map(longest).collect()
}
