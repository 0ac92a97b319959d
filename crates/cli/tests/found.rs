//! Scenarios that once made something go wrong: each was cut down until nothing could be left out.
//!
//! Every one must end, without a panic and without an objection of the oracle.

use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Runs a scenario of `tests/found/`, which must end within the time, without a panic.
fn end_of(name: &str) -> (ExitStatus, serde_json::Value) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/found").join(name);
    let output = std::env::temp_dir().join(format!("pleach-found-{}-{name}.json", std::process::id()));
    let mut run = Command::new(env!("CARGO_BIN_EXE_pleach"))
        .args(["simulate", "--format", "json", "--output"])
        .arg(&output)
        .arg(file)
        .stderr(Stdio::null())
        .spawn()
        .expect("pleach starts");
    let started = Instant::now();
    let status = loop {
        match run.try_wait().expect("pleach can be waited for") {
            Some(status) => break status,
            None if started.elapsed() > Duration::from_secs(20) => {
                run.kill().expect("it can be ended");
                run.wait().expect("it ends");
                panic!("{name} does not end");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let text = std::fs::read_to_string(&output).unwrap_or_default();
    let _ = std::fs::remove_file(output);
    (status, serde_json::from_str(&text).unwrap_or_else(|_| panic!("{name}: {status}")))
}

/// Runs a scenario to which the oracle must not object.
fn report_of(name: &str) -> serde_json::Value {
    let (status, report) = end_of(name);
    assert!(status.success(), "{name}: {}", report["oracle"]);
    report
}

macro_rules! found {
    ($($(#[$attribute:meta])* $name:ident = $file:literal;)*) => {
        $(#[test] $(#[$attribute])* fn $name() {
            report_of($file);
        })*
    };
}

found! {
    spatial_copies_and_split_nodes_go_together = "spatial-radix-limit.toml";
    sharing_outside_fat_trees_shares_the_right_things = "sharing-outside-fat-trees.toml";
    a_rule_by_level_leaves_uncabled_ports_alone = "level-rule-uncabled-ports.toml";
    members_that_nothing_reaches_are_told = "all-results-lost.toml";
    a_dead_switch_is_told_to_all_members_of_spatial_trees = "spatial-dead-switch.toml";
    a_member_with_two_ports_survives_one_dead_switch = "two-ports-killed-switch.toml";
    early_requests_for_repair_do_not_block_the_connection = "small-window-early-repair.toml";
    early_requests_for_repair_do_not_fail_an_operation = "early-repair-spatial.toml";
    a_timeout_below_the_round_trip_only_costs_time = "timeout-below-the-round-trip.toml";
}

#[test]
fn a_link_that_garbles_everything_ends_in_typed_errors() {
    // Soft faults must not fail an operation, so the oracle objects here; but nobody may be left waiting.
    let (_, report) = end_of("damaged-for-ever.toml");
    let objections = report["oracle"]["listed_violations"].as_array().expect("a list");
    assert!(!objections.is_empty());
    for objection in objections {
        assert!(
            objection.as_str().is_some_and(|text| text.contains("failed though every fault was soft")),
            "{objection}"
        );
    }
}

#[test]
fn a_multicast_reaches_hosts_below_nodes_on_the_same_switch() {
    let report = report_of("multicast-inside-a-switch.toml");
    let slowest = report["latency"]["complete"]["max_ns"].as_f64().expect("it completed");
    assert!(slowest < 5_000.0, "{slowest} ns");
}

#[test]
fn a_lost_contribution_is_sent_again_after_the_timeout() {
    let report = report_of("lost-contribution.toml");
    let slowest = report["latency"]["complete"]["max_ns"].as_f64().expect("it completed");
    assert!(slowest < 10_000.0, "{slowest} ns");
}
