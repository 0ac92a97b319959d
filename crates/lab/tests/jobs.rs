//! Several jobs in one simulated fabric: each is judged, and each has a row of its own.

use lab::report::Provenance;
use lab::simulated_run::SimulatedRun;
use lab::simulation_report::{RunCost, SimulationReport, html, json, table};
use serde_json::Value;
use simulator::scenario::{RunProgress, Scenario};

/// Four leaves of four hosts; each leaf has one cable up, so that what leaves a leaf competes.
const NARROW: &str = "[fabric]\nkind = \"xgft\"\nchildren = [4, 4]\nparents = [1, 4]\ntaper = 4\n[link]\nrate = \"HDR\"\n\
                      buffer-bytes = 65536\n";
/// The same with four cables.
const WIDE: &str =
    "[fabric]\nkind = \"xgft\"\nchildren = [4, 4]\nparents = [1, 4]\n[link]\nrate = \"HDR\"\nbuffer-bytes = 65536\n";

fn report(text: &str) -> SimulationReport {
    let scenario = Scenario::parse(text, "jobs.toml").unwrap_or_else(|error| panic!("{error}"));
    let mut run = SimulatedRun::set_up(&scenario).expect("it can be set up");
    let mut checker = run.checker(&scenario);
    let mut last = RunProgress::Operations(0);
    let timings = run.run(&scenario, &mut checker, |progress| last = progress);
    assert_eq!(last, RunProgress::Operations(timings.len() as u32), "progress counts all operations");
    SimulationReport::new(&scenario, "jobs.toml", &run, &timings, checker.judge(), RunCost::default())
}

fn values(report: &SimulationReport) -> Value {
    serde_json::from_str(&json(report)).expect("JSON")
}

/// The median latency of a job, in nanoseconds.
fn median(report: &SimulationReport, job: usize) -> f64 {
    values(report)["jobs"][job]["latency"]["median_ns"].as_f64().expect("it completed")
}

fn job(name: &str, hosts: &str, rest: &str) -> String {
    format!("[[job]]\nname = \"{name}\"\nhosts = [{hosts}]\n{rest}\n")
}

const RING: &str = "algorithm = \"ring\"\nelement = \"f32\"\nbytes = 65536\noperations = 3\n";

#[test]
fn every_job_is_judged_and_has_a_row() {
    let text = format!(
        "{WIDE}{}{}{}{}",
        job("sum", "0, 1, 4, 5", RING),
        job("blocks", "2, 6, 10, 14, 15", "operation = \"alltoall\"\nelement = \"u8\"\nbytes = 9999\noperations = 4"),
        job("switches", "3, 7, 11", "element = \"f64\"\nbytes = 10000\noperations = 5\nlate-us = 3"),
        job("sizes", "8, 9, 12, 13", "size-only-bytes = 30000\noperations = 2\nstart-us = 5"),
    );
    let report = report(&text);
    let (text, found) = (table(&report), values(&report));
    let page = html(&report).render(&found, &Provenance::default());
    assert!(!report.has_violations() && !report.has_failures(), "{text}");
    let judged: Vec<u64> = (0..4).map(|job| found["jobs"][job]["judged"].as_u64().expect("a number")).collect();
    assert_eq!(judged, [3 * 4, 4 * 5, 5 * 3 * 3, 2 * 4 * 8]);
    assert_eq!(found["operations"]["completed"], 14);
    for (name, what) in [
        ("sum", "allreduce by ring"),
        ("blocks", "alltoall by pairwise"),
        ("switches", "allreduce by aggregation"),
        ("sizes", "allreduce by aggregation"),
    ] {
        let is_row = |line: &str| line.contains(name) && line.contains(what);
        assert!(text.lines().any(is_row), "{name}: {text}");
        assert!(page.contains(what), "{name}");
    }
    assert!(
        text.contains("77 checked bit by bit") || text.contains("checked bit by bit or by digest, 64 counted"),
        "{text}"
    );
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let text = format!(
        "{NARROW}[[job]]\nmembers = 6\nplacement = \"random\"\n{RING}[[job]]\nmembers = 9\nplacement = \"random\"\n\
         late-us = 2\n[[fault]]\nkind = \"lose\"\nprobability = 0.001\n"
    );
    let (one, other) = (report(&text), report(&text));
    assert!(!one.has_violations() && !one.has_failures(), "{}", table(&one));
    assert_eq!(values(&one)["trace"], values(&other)["trace"]);
    assert_eq!(values(&one)["jobs"], values(&other)["jobs"]);
}

/// Alone, a job takes as long as the same operations as a collective.
#[test]
fn a_job_alone_takes_as_long_as_a_collective() {
    let as_job = report(&format!("{WIDE}[[job]]\nmembers = 8\n{RING}"));
    let as_collective = report(&format!("{WIDE}[collective]\nmembers = 8\npace = \"back-to-back\"\n{RING}"));
    let expected = values(&as_collective)["latency"]["complete"]["median_ns"].as_f64().expect("it completed");
    assert_eq!(median(&as_job, 0), expected);
}

#[test]
fn jobs_on_links_of_their_own_do_not_disturb_each_other_and_others_do() {
    let first = job("first", "\"0-3\"", RING);
    let alone = median(&report(&format!("{NARROW}{first}")), 0);
    let beside = report(&format!("{NARROW}{first}{}", job("second", "\"4-7\"", RING)));
    assert_eq!((median(&beside, 0), median(&beside, 1)), (alone, alone));
    // Both rings cross from leaf to leaf over the same cables.
    let long = "algorithm = \"ring\"\nelement = \"f32\"\nbytes = 1048576\noperations = 3\n";
    let crossing = job("first", "0, 4, 8, 12", long);
    let alone = median(&report(&format!("{NARROW}{crossing}")), 0);
    let beside = report(&format!("{NARROW}{crossing}{}", job("second", "1, 5, 9, 13", long)));
    assert!(median(&beside, 0) > 1.5 * alone, "{} ns beside another, {alone} ns alone", median(&beside, 0));
}

#[test]
fn a_cut_host_ends_its_job_and_no_other() {
    let text = format!(
        "{WIDE}{}{}[[fault]]\nkind = \"down\"\nlink = \"H5-S1\"\nat-us = 10\n",
        job("cut", "4, 5, 6", "algorithm = \"ring\"\nelement = \"f32\"\nbytes = 65536\noperations = 9"),
        job("whole", "0, 1, 8, 9", "algorithm = \"ring\"\nelement = \"f32\"\nbytes = 65536\noperations = 30"),
    );
    let report = report(&text);
    let (text, found) = (table(&report), values(&report));
    assert!(report.has_failures() && !report.has_violations(), "{text}");
    assert_eq!(found["jobs"][1]["operations"]["completed"], 30);
    let counts = &found["jobs"][0]["operations"];
    assert_eq!(counts["completed"].as_u64().expect("a number") + counts["failed"].as_u64().expect("a number"), 9);
    assert!(counts["failed"].as_u64() > Some(0), "{counts}");
    assert!(text.contains("cut: H") && text.contains("gets no answer from"), "{text}");
}

/// The hosts finish what the tree began, and the next operation has a tree around the cut.
#[test]
fn a_tree_that_fails_is_replaced() {
    let text = format!(
        "{WIDE}{}[[fault]]\nkind = \"down\"\nlink = \"S0-S4\"\nat-us = 15\n",
        job("tree", "\"0-15\"", "element = \"f32\"\nbytes = 32768\noperations = 20"),
    );
    let report = report(&text);
    assert!(!report.has_failures() && !report.has_violations(), "{}", table(&report));
    assert_eq!(values(&report)["operations"]["completed"], 20);
}
