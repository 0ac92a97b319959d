//! Scenarios as users run them: payload, protocol machines, faults, and the oracle, which judges every bit.
//!
//! In: the scenarios of `scenarios/` with the most work for the oracle. Out: hops per second, and the share of the oracle. Each scenario
//! runs several times; the share is measured in a further run, because reading the clock for every result takes time of its own.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use protocol::Payload;
use serde::Serialize;
use simulator::collective::{CollectiveObserver, OperationFailure};
use simulator::scenario::Scenario;
use units::{OpId, Rank};

use crate::oracle_checker::OracleChecker;

/// Runs of each scenario whose rates are compared.
const RUNS: usize = 5;

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../scenarios/", $name, ".toml")))),*]
    };
}

/// The scenarios, by name.
const SCENARIOS: [(&str, &str); 11] = shipped![
    "bit-error-rate",
    "cable-outage",
    "dragonfly",
    "four-error-classes",
    "hypercube",
    "k-ary-n-tree",
    "modern-links",
    "paper-failure-free",
    "spatial-cut-cable",
    "temporal-random-errors",
    "torus",
];

/// The speed of one scenario.
#[derive(Serialize)]
pub(super) struct ScenarioRow {
    pub(super) scenario: &'static str,
    pub(super) hosts: u32,
    pub(super) bytes: u32,
    pub(super) hops: u64,
    pub(super) results_judged: u64,
    pub(super) median_mhops_per_s: f64,
    pub(super) slowest_mhops_per_s: f64,
    pub(super) fastest_mhops_per_s: f64,
    /// Contributions, references and comparisons.
    pub(super) oracle_share: f64,
}

/// Measures every scenario on a fabric of at most so many hosts.
pub(super) fn measure(largest: u32) -> Result<Vec<ScenarioRow>> {
    let mut rows = Vec::new();
    for (name, text) in SCENARIOS {
        let scenario = Scenario::parse(text, name)?;
        if scenario.fabric.hosts() <= largest {
            rows.push(row(name, &scenario)?);
        }
    }
    Ok(rows)
}

fn row(name: &'static str, scenario: &Scenario) -> Result<ScenarioRow> {
    let (mut rates, mut hops, mut judged) = (Vec::new(), 0, 0);
    for _ in 0..RUNS {
        let mut run = scenario.set_up(scenario.seed)?;
        let mut checker = OracleChecker::of_scenario(scenario, &run);
        let started = Instant::now();
        run.run(scenario.operations, &mut checker, |_| ());
        let seconds = started.elapsed().as_secs_f64();
        hops = run.counters().hops;
        rates.push(hops as f64 / seconds / 1e6);
        let verdict = checker.judge().verdict;
        ensure!(verdict.violation_count() == 0, "{name}: the oracle found a violation");
        judged = verdict.checked;
    }
    rates.sort_by(f64::total_cmp);
    Ok(ScenarioRow {
        scenario: name,
        hosts: scenario.fabric.hosts(),
        bytes: scenario.collective.contents.bytes(),
        hops,
        results_judged: judged,
        median_mhops_per_s: rates[RUNS / 2],
        slowest_mhops_per_s: rates[0],
        fastest_mhops_per_s: rates[RUNS - 1],
        oracle_share: oracle_share(scenario)?,
    })
}

/// The oracle's share of the time of a run.
fn oracle_share(scenario: &Scenario) -> Result<f64> {
    let mut run = scenario.set_up(scenario.seed)?;
    let inner = OracleChecker::of_scenario(scenario, &run);
    let mut timed = TimedObserver { inner, time: Duration::ZERO, calls: 0 };
    let started = Instant::now();
    run.run(scenario.operations, &mut timed, |_| ());
    let whole = started.elapsed();
    // The clock is read twice for each call, once within the time that is measured and once outside.
    let clock = clock_cost() * timed.calls;
    let oracle = timed.time.saturating_sub(clock);
    Ok(oracle.as_secs_f64() / whole.saturating_sub(2 * clock).as_secs_f64().max(1e-9))
}

/// The time that it takes to read the clock.
fn clock_cost() -> Duration {
    let started = Instant::now();
    let reads = 10_000;
    for _ in 0..reads {
        std::hint::black_box(Instant::now());
    }
    started.elapsed() / reads
}

/// Measures the time of an observer's calls.
struct TimedObserver<O> {
    inner: O,
    time: Duration,
    calls: u32,
}

impl<O: CollectiveObserver> TimedObserver<O> {
    fn timed<T>(&mut self, call: impl FnOnce(&mut O) -> T) -> T {
        let started = Instant::now();
        let result = call(&mut self.inner);
        self.time += started.elapsed();
        self.calls += 1;
        result
    }
}

impl<O: CollectiveObserver> CollectiveObserver for TimedObserver<O> {
    fn contribution(&mut self, rank: Rank, op: OpId) -> Payload {
        self.timed(|inner| inner.contribution(rank, op))
    }

    fn started(&mut self, rank: Rank, op: OpId) {
        self.inner.started(rank, op);
    }

    fn delivered(&mut self, rank: Rank, op: OpId, result: &Payload) {
        self.timed(|inner| inner.delivered(rank, op, result));
    }

    fn tree_rebuilt(&mut self, tree: &topology::AggregationTree) {
        self.inner.tree_rebuilt(tree);
    }

    fn failed(&mut self, rank: Rank, op: OpId, cause: OperationFailure) {
        self.timed(|inner| inner.failed(rank, op, cause));
    }
}
