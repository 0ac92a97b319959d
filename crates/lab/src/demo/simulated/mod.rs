//! `pleach demo --simulated`: an allreduce over 1,728 simulated hosts under faults, drawn in the terminal.
//!
//! Each phase is a scenario like those in `scenarios/`, with real doubles. Every result of every host is compared bit by bit
//! with the oracle's.

mod fabric_view;

use std::time::Instant;

use anyhow::{Context, Result};
use oracle::Verdict;
use simulator::FabricCounters;
use simulator::collective::CollectiveTiming;
use simulator::scenario::Scenario;

use crate::CommandOutcome;
use crate::latency_distribution::LatencyDistribution;
use crate::number_format::{group_digits, pluralize};
use crate::oracle_checker::OracleChecker;
use crate::report::format_table;
use fabric_view::FabricView;

/// The user's choices.
pub(super) struct SimulatedDemoSettings {
    /// Seed of the faults.
    pub seed: u64,
    /// Operations of each phase.
    pub operations: u32,
}

/// The fabric of SE-11, the same in all phases.
const FABRIC: &str = "\
[fabric]
kind = \"xgft\"
children = [24, 12, 6]
parents = [1, 12, 6]
";

/// Random bit errors and lost packets.
const NOISE: &str = "
[[fault]]
kind = \"flip\"
mean-us = 200
[[fault]]
kind = \"lose\"
probability = 0.00002
";

/// What a phase shows.
struct SimulatedPhase {
    title: &'static str,
    collective: &'static str,
    faults: &'static str,
}

/// A cable between switches of level 1 and level 2 is cut: for a while, and for good.
const CUT: &str = "
[[fault]]
kind = \"down\"
link = \"S0-S72\"
at-us = 30
for-us = 50
";
const CUT_FOR_GOOD: &str = "
[[fault]]
kind = \"down\"
link = \"S0-S72\"
at-us = 30
";

const PLAIN: &str = "repair-after-us = 10\n";
const TEMPORAL: &str = "repair-after-us = 10\nreplication = \"temporal\"\ncopies = 2\n";
const SPATIAL: &str = "repair-after-us = 10\nreplication = \"spatial\"\ncopies = 2\n";

const PHASES: [SimulatedPhase; 6] = [
    SimulatedPhase { title: "no faults", collective: PLAIN, faults: "" },
    SimulatedPhase { title: "bits flip, packets are lost", collective: PLAIN, faults: NOISE },
    SimulatedPhase { title: "the same, each packet twice in a row", collective: TEMPORAL, faults: NOISE },
    SimulatedPhase { title: "the same, each packet on two ports", collective: SPATIAL, faults: NOISE },
    SimulatedPhase { title: "a cable is out for 50 us", collective: TEMPORAL, faults: CUT },
    SimulatedPhase { title: "a cable is cut for good, two ports", collective: SPATIAL, faults: CUT_FOR_GOOD },
];

/// The results of a phase.
struct SimulatedPhaseResult {
    title: &'static str,
    complete: Option<LatencyDistribution>,
    failed: usize,
    counters: FabricCounters,
    verdict: Verdict,
}

pub(super) fn run(settings: &SimulatedDemoSettings) -> Result<CommandOutcome> {
    let started = Instant::now();
    let mut view = FabricView::new();
    view.print("Pleach: an allreduce of 32 doubles over 1,728 simulated hosts, folded inside the switches.");
    view.print("Every result of every host is compared bit by bit with the result of an independent oracle.");
    view.print("");
    let mut results = Vec::new();
    for (number, phase) in PHASES.iter().enumerate() {
        results.push(run_phase(number, phase, settings, &mut view)?);
    }
    view.print("");
    for line in summary(&results).lines() {
        view.print(line);
    }
    let checked: u64 = results.iter().map(|phase| phase.verdict.checked).sum();
    let wrong: u64 = results.iter().map(|phase| phase.verdict.violation_count()).sum();
    let failed: usize = results.iter().map(|phase| phase.failed).sum();
    for violation in results.iter().flat_map(|phase| &phase.verdict.violations) {
        view.print(&format!("VIOLATION  {violation}"));
    }
    view.print("");
    view.print(&format!(
        "{} wrong results, {} checked bit by bit, {} failed; {:.1} s.",
        group_digits(wrong),
        pluralize(checked, "delivery"),
        pluralize(failed as u64, "operation"),
        started.elapsed().as_secs_f64(),
    ));
    // All phases can be survived, so a failed operation counts as a failure too.
    Ok(if wrong == 0 && failed == 0 && checked > 0 { CommandOutcome::Passed } else { CommandOutcome::Failed })
}

/// Runs one phase and draws its progress.
fn run_phase(
    number: usize,
    phase: &SimulatedPhase,
    settings: &SimulatedDemoSettings,
    view: &mut FabricView,
) -> Result<SimulatedPhaseResult> {
    let text = format!("{FABRIC}[collective]\n{}{}", phase.collective, phase.faults);
    let scenario = Scenario::parse(&text, phase.title).context("internal error in a scenario of the demo")?;
    let mut collective = scenario.collective(settings.seed)?;
    let (parameters, plan) = (&scenario.collective, &scenario.plan);
    let mut checker =
        OracleChecker::new(settings.seed, settings.operations, &collective, parameters, plan, scenario.check);
    view.begin(number + 1, phase.title, &scenario.fabric, settings.operations);
    let mut timings: Vec<CollectiveTiming> = Vec::new();
    while timings.len() < settings.operations as usize {
        let batch = BATCH.min(settings.operations - timings.len() as u32);
        timings.extend(collective.run(batch, &mut checker, |_| ()));
        view.update(timings.len() as u32, timings.last().and_then(|timing| timing.complete), collective.links());
    }
    let results = SimulatedPhaseResult {
        title: phase.title,
        complete: LatencyDistribution::of(timings.iter().filter_map(|timing| timing.complete)),
        failed: timings.iter().filter(|timing| timing.complete.is_none()).count(),
        counters: collective.counters().clone(),
        verdict: checker.judge().verdict,
    };
    view.end(&line(number + 1, &results));
    Ok(results)
}

/// Operations between two redraws.
const BATCH: u32 = 2;

/// The results of a phase in one line.
fn line(number: usize, phase: &SimulatedPhaseResult) -> String {
    let sign = if phase.verdict.is_clean() && phase.failed == 0 { "ok" } else { "WRONG" };
    let (damaged, lost) = damaged_and_lost(&phase.counters);
    format!(
        "{number}. {:<38} {} wrong of {}; {} damaged, {} lost  {sign}",
        phase.title,
        group_digits(phase.verdict.violation_count()),
        group_digits(phase.verdict.checked),
        group_digits(damaged),
        group_digits(lost),
    )
}

/// Packets damaged and packets lost.
fn damaged_and_lost(counters: &FabricCounters) -> (u64, u64) {
    let damaged = counters.physical + counters.malformed + counters.routing + counters.marked + counters.end_to_end;
    (damaged, counters.lost_by_plan + counters.lost_on_down_links + counters.overrun)
}

fn summary(results: &[SimulatedPhaseResult]) -> String {
    let head = ["latency in us", "min", "median", "p90", "max", "damaged", "lost", "wrong"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for phase in results {
        let times = match &phase.complete {
            Some(d) => [d.min_ns, d.median_ns, d.p90_ns, d.max_ns].map(|nanos| format!("{:.3}", nanos / 1e3)),
            None => ["-"; 4].map(str::to_owned),
        };
        let (damaged, lost) = damaged_and_lost(&phase.counters);
        let counts = [damaged, lost, phase.verdict.violation_count()].map(group_digits);
        rows.push(std::iter::once(phase.title.to_owned()).chain(times).chain(counts).collect());
    }
    format_table(&rows)
}
