//! `pleach demo --simulated`: an allreduce over 1,728 simulated hosts while things go wrong, drawn in the terminal.
//!
//! Each act is a scenario like those in `scenarios/`, run with real doubles; every result of every host is compared
//! bit by bit with what the oracle computed by itself.

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

/// What the user may choose.
pub(super) struct SimulatedDemoSettings {
    /// Another seed, other faults.
    pub seed: u64,
    /// Operations of each act.
    pub operations: u32,
}

/// The fabric of SE-11, the same in all acts.
const FABRIC: &str = "\
[fabric]
kind = \"xgft\"
children = [24, 12, 6]
parents = [1, 12, 6]
";

/// Random bit errors, and packets that vanish.
const NOISE: &str = "
[[fault]]
kind = \"flip\"
mean-us = 200
[[fault]]
kind = \"lose\"
probability = 0.00002
";

/// A part of the show.
struct SimulatedPhase {
    title: &'static str,
    collective: &'static str,
    faults: &'static str,
}

/// A cable between a switch of level 1 and one of level 2 is pulled: for a while, and for good.
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

const ACTS: [SimulatedPhase; 6] = [
    SimulatedPhase { title: "nothing goes wrong", collective: PLAIN, faults: "" },
    SimulatedPhase { title: "bits flip, packets vanish", collective: PLAIN, faults: NOISE },
    SimulatedPhase { title: "the same, each packet twice in a row", collective: TEMPORAL, faults: NOISE },
    SimulatedPhase { title: "the same, each packet on two ports", collective: SPATIAL, faults: NOISE },
    SimulatedPhase { title: "a cable is out for 50 us", collective: TEMPORAL, faults: CUT },
    SimulatedPhase { title: "a cable is cut for good, two ports", collective: SPATIAL, faults: CUT_FOR_GOOD },
];

/// What came of an act.
struct SimulatedPhaseResult {
    title: &'static str,
    complete: Option<LatencyDistribution>,
    failed: usize,
    counters: FabricCounters,
    verdict: Verdict,
}

pub(super) fn run(show: &SimulatedDemoSettings) -> Result<CommandOutcome> {
    let started = Instant::now();
    let mut stage = FabricView::new();
    stage.say("Pleach: an allreduce of 32 doubles over 1,728 simulated hosts, folded inside the switches.");
    stage.say("Every result of every host is compared, bit by bit, with what an independent oracle computed.");
    stage.say("");
    let mut ended = Vec::new();
    for (number, act) in ACTS.iter().enumerate() {
        ended.push(perform(number, act, show, &mut stage)?);
    }
    stage.say("");
    for line in summary(&ended).lines() {
        stage.say(line);
    }
    let checked: u64 = ended.iter().map(|act| act.verdict.checked).sum();
    let wrong: u64 = ended.iter().map(|act| act.verdict.violation_count()).sum();
    let failed: usize = ended.iter().map(|act| act.failed).sum();
    for violation in ended.iter().flat_map(|act| &act.verdict.violations) {
        stage.say(&format!("OBJECTION  {violation}"));
    }
    stage.say("");
    stage.say(&format!(
        "{} wrong results, {} checked bit by bit, {} failed; {:.1} s.",
        group_digits(wrong),
        pluralize(checked, "delivery"),
        pluralize(failed as u64, "operation"),
        started.elapsed().as_secs_f64(),
    ));
    // All acts can be survived, so an operation that failed is not right either.
    Ok(if wrong == 0 && failed == 0 && checked > 0 { CommandOutcome::Right } else { CommandOutcome::Wrong })
}

/// Runs one act, drawing as it goes.
fn perform(
    number: usize,
    act: &SimulatedPhase,
    show: &SimulatedDemoSettings,
    stage: &mut FabricView,
) -> Result<SimulatedPhaseResult> {
    let text = format!("{FABRIC}[collective]\n{}{}", act.collective, act.faults);
    let scenario = Scenario::parse(&text, act.title).context("the demo's own scenario")?;
    let mut collective = scenario.collective(show.seed)?;
    let (parameters, plan) = (&scenario.collective, &scenario.plan);
    let mut judge = OracleChecker::new(show.seed, show.operations, &collective, parameters, plan, scenario.check);
    stage.begin(number + 1, act.title, &scenario.fabric, show.operations);
    let mut timings: Vec<CollectiveTiming> = Vec::new();
    while timings.len() < show.operations as usize {
        let batch = BATCH.min(show.operations - timings.len() as u32);
        timings.extend(collective.run(batch, &mut judge, |_| ()));
        stage.show(timings.len() as u32, timings.last().and_then(|timing| timing.complete), collective.links());
    }
    let ended = SimulatedPhaseResult {
        title: act.title,
        complete: LatencyDistribution::of(timings.iter().filter_map(|timing| timing.complete)),
        failed: timings.iter().filter(|timing| timing.complete.is_none()).count(),
        counters: collective.counters().clone(),
        verdict: judge.judge().verdict,
    };
    stage.end(&line(number + 1, &ended));
    Ok(ended)
}

/// Operations between two drawings.
const BATCH: u32 = 2;

/// An act in one line, once it is over.
fn line(number: usize, act: &SimulatedPhaseResult) -> String {
    let sign = if act.verdict.is_clean() && act.failed == 0 { "ok" } else { "WRONG" };
    let (damaged, lost) = harm(&act.counters);
    format!(
        "{number}. {:<38} {} wrong of {}; {} damaged, {} lost  {sign}",
        act.title,
        group_digits(act.verdict.violation_count()),
        group_digits(act.verdict.checked),
        group_digits(damaged),
        group_digits(lost),
    )
}

/// PacketCounters damaged and packets lost.
fn harm(counters: &FabricCounters) -> (u64, u64) {
    let damaged = counters.physical + counters.malformed + counters.routing + counters.marked + counters.end_to_end;
    (damaged, counters.lost_by_plan + counters.lost_on_down_links + counters.overrun)
}

fn summary(ended: &[SimulatedPhaseResult]) -> String {
    let head = ["latency in us", "min", "median", "p90", "max", "damaged", "lost", "wrong"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for act in ended {
        let times = match &act.complete {
            Some(d) => [d.min_ns, d.median_ns, d.p90_ns, d.max_ns].map(|nanos| format!("{:.3}", nanos / 1e3)),
            None => ["-"; 4].map(str::to_owned),
        };
        let (damaged, lost) = harm(&act.counters);
        let counts = [damaged, lost, act.verdict.violation_count()].map(group_digits);
        rows.push(std::iter::once(act.title.to_owned()).chain(times).chain(counts).collect());
    }
    format_table(&rows)
}
