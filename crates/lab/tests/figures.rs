//! The figures of the README are drawn from their results: none can differ from what the code draws today.
//!
//! After a change, `PLEACH_UPDATE_FIGURES=1 cargo test -p pleach-lab --test figures` draws them again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lab::report::line_figure;
use lab::simulated_run::SimulatedRun;
use lab::simulation_report::{RunCost, SimulationReport, latency_figure};
use serde_json::Value;
use simulator::scenario::Scenario;

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Compares a figure with its file, or writes the file.
fn check_figure(path: &str, svg: &str) {
    if std::env::var_os("PLEACH_UPDATE_FIGURES").is_some() {
        std::fs::write(repository(path), svg).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    assert!(read(path) == svg, "{path} is out of date: run this test with PLEACH_UPDATE_FIGURES=1");
}

/// From `pleach bench mpi --scene pair --mpi mpirun.openmpi --format json --output docs/figures/mpi-pair.json`; of several runs, the
/// mean of the medians.
#[test]
fn latency_is_drawn_from_the_results_of_bench_mpi() {
    let report: Value = serde_json::from_str(&read("docs/figures/mpi-pair.json")).expect("a report in JSON");
    let runs = report["scenes"].as_array().expect("runs");
    let rows = || runs.iter().filter_map(|run| run["rows"].as_array()).flatten();
    let line = |variant: &str| -> Vec<(f64, f64)> {
        let mut medians = BTreeMap::<u64, Vec<f64>>::new();
        for row in rows() {
            let Some(bytes) = row["measure"].as_str().and_then(|name| name.strip_prefix("allreduce:")) else {
                continue;
            };
            let median = row[variant]["median"].as_f64().expect("a median");
            medians.entry(bytes.parse().expect("a number of bytes")).or_default().push(median);
        }
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        medians.iter().map(|(bytes, values)| (*bytes as f64, mean(values))).collect()
    };
    let series = [("with Pleach", line("with")), ("Open MPI alone", line("plain"))];
    assert!(series.iter().all(|(_, points)| points.len() > 5), "several sizes");
    check_figure(
        "docs/figures/latency.svg",
        &line_figure(&series, "bytes of an allreduce, 2 ranks on one host", "us"),
    );
}

#[test]
fn faults_are_drawn_from_a_simulated_run() {
    let file = "scenarios/cable-outage.toml";
    let scenario = Scenario::parse(&read(file), file).expect("a scenario");
    let mut run = SimulatedRun::set_up(&scenario).expect("it can run");
    let mut checker = run.checker(&scenario);
    let timings = run.run(&scenario, &mut checker, |_| ());
    let report = SimulationReport::new(&scenario, file, &run, &timings, checker.judge(), RunCost::default());
    assert!(!report.has_violations(), "the oracle found no wrong result");
    check_figure("docs/figures/faults.svg", &latency_figure(&report));
}
