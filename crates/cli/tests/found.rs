//! Scenarios that once exposed a bug, each reduced to its minimum.
//!
//! Every one must end without a panic and without a violation.

use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Runs a scenario of `tests/found/`, which must end in time, without a panic.
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
        match run.try_wait().expect("pleach can be polled") {
            Some(status) => break status,
            None if started.elapsed() > Duration::from_secs(20) => {
                run.kill().expect("pleach can be killed");
                run.wait().expect("it ends");
                panic!("{name} did not end within 20 s");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let text = std::fs::read_to_string(&output).unwrap_or_default();
    let _ = std::fs::remove_file(output);
    (status, serde_json::from_str(&text).unwrap_or_else(|_| panic!("{name}: {status}")))
}

/// Runs a scenario that must not violate an invariant. Operations may fail, and then the command says so.
fn report_of(name: &str) -> serde_json::Value {
    let (status, report) = end_of(name);
    let oracle = &report["oracle"];
    let violations = oracle["listed_violations"].as_array().expect("a list");
    assert!(violations.is_empty(), "{name}: {oracle}");
    assert_eq!(status.success(), oracle["failures"] == 0, "{name}: {oracle}");
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
    unreachable_members_get_an_error = "all-results-lost.toml";
    all_members_of_spatial_trees_learn_of_a_dead_switch = "spatial-dead-switch.toml";
    a_member_with_two_ports_survives_one_dead_switch = "two-ports-killed-switch.toml";
    early_requests_for_repair_do_not_block_the_connection = "small-window-early-repair.toml";
    early_requests_for_repair_do_not_fail_an_operation = "early-repair-spatial.toml";
    a_timeout_below_the_round_trip_only_costs_time = "timeout-below-the-round-trip.toml";
}

#[test]
fn a_link_that_damages_every_packet_ends_in_typed_errors() {
    // Soft faults must not fail an operation, so the oracle reports violations here; but no member may hang.
    let (_, report) = end_of("damaged-for-ever.toml");
    let violations = report["oracle"]["listed_violations"].as_array().expect("a list");
    assert!(!violations.is_empty());
    for violation in violations {
        assert!(
            violation.as_str().is_some_and(|text| text.contains("failed although all faults were transient")),
            "{violation}"
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
