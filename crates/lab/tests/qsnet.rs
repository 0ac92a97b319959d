//! Scenarios on QsNet: judged by the oracle, whatever the faults are.

use lab::report::Provenance;
use lab::simulated_run::SimulatedRun;
use lab::simulation_report::{RunCost, SimulationReport, html, table};
use simulator::scenario::Scenario;

const TREE: &str = "[fabric]\nkind = \"k-ary-n-tree\"\nk = 4\nn = 2\n[link]\ntechnology = \"qsnet\"\n";

fn report(rest: &str) -> SimulationReport {
    let text = format!("{TREE}{rest}");
    let scenario = Scenario::parse(&text, "qsnet.toml").unwrap_or_else(|error| panic!("{error}"));
    let mut run = SimulatedRun::set_up(&scenario).expect("it can be set up");
    let mut checker = run.checker(&scenario);
    let timings = run.run(&scenario, &mut checker, |_| ());
    SimulationReport::new(&scenario, "qsnet.toml", &run, &timings, checker.judge(), RunCost::default())
}

#[test]
fn every_algorithm_passes_the_oracle_beside_faults_that_the_network_repairs() {
    let faults = "[[fault]]\nkind = \"flip\"\nmean-us = 50\n[[fault]]\nkind = \"lose\"\nprobability = 0.002\n\
                  [[fault]]\nkind = \"down\"\nlink = \"S1-S5\"\nat-us = 200\nfor-us = 150\n";
    for (operation, algorithm) in
        [("barrier", "gsync"), ("barrier", "hgsync"), ("broadcast", "bcast"), ("broadcast", "hbcast")]
    {
        let data = if operation == "broadcast" { "bytes = 4000\n" } else { "" };
        let report = report(&format!(
            "[collective]\noperation = \"{operation}\"\nalgorithm = \"{algorithm}\"\noperations = 40\nlate-us = 2\n{data}\
             [qsnet]\nbackground = \"complement\"\nbackground-bytes = 2048\n{faults}"
        ));
        let text = table(&report);
        assert!(!report.has_violations() && !report.has_failures(), "{algorithm}: {text}");
        let judged =
            if operation == "broadcast" { "640 deliveries checked bit by bit" } else { "640 deliveries counted" };
        assert!(text.contains(judged) && text.contains("links with the most damage"), "{algorithm}: {text}");
    }
}

#[test]
fn a_permanent_fault_is_a_failure_with_a_cause_and_no_violation() {
    let report = report(
        "[collective]\noperation = \"broadcast\"\nbytes = 1000\noperations = 6\ntimeout-us = 5\nretry-limit = 2\n\
         [[fault]]\nkind = \"kill\"\nnode = \"H9\"\nat-us = 20\n",
    );
    let json = serde_json::to_value(&report).expect("JSON");
    let (text, page) = (table(&report), html(&report).render(&json, &Provenance::default()));
    assert!(report.has_failures() && !report.has_violations(), "{text}");
    assert!(text.contains("H0 gets no answer from H9"), "{text}");
    assert!(page.contains("verdict wrong") && page.contains("the node is dead, node H9") && page.contains("QsNet"));
}

#[test]
fn only_transient_faults_excuse_nothing() {
    // Every packet to H3 is lost: that is no hard fault, so an operation that fails is a violation.
    let report = report(
        "[collective]\noperations = 2\ntimeout-us = 1\nretry-limit = 1\n[[fault]]\nkind = \"lose\"\nlink = \"S0>H3\"\n",
    );
    assert!(report.has_violations(), "{}", table(&report));
}

#[test]
fn load_slows_the_barrier_in_software_more() {
    let median = |algorithm: &str, background: &str| {
        let report = report(&format!(
            "[collective]\nalgorithm = \"{algorithm}\"\noperations = 30\n[qsnet]\nbackground = \"{background}\"\n"
        ));
        let json: serde_json::Value =
            serde_json::from_str(&lab::simulation_report::json(&report)).expect("a report is JSON");
        json["latency"]["complete"]["median_ns"].as_f64().expect("a median")
    };
    let slowdown = |algorithm: &str| median(algorithm, "uniform") / median(algorithm, "none");
    assert!(slowdown("gsync") > 3.0 * slowdown("hgsync"), "QN-14");
}
