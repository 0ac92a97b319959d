//! Workloads from files and generators, run on small fabrics and compared with what can be computed by hand.

use std::path::Path;

use simulator::collective::NoObserver;
use simulator::scenario::{RunProgress, Scenario, ScenarioRun};

const WIRE: f64 = 50.0;
const SWITCH: f64 = 100.0;
const ADAPTER: f64 = 200.0;
/// HDR: bytes per nanosecond.
const RATE: f64 = 25.0;
const HEADERS: f64 = 26.0;
const MTU: f64 = 4_096.0;

const LINK: &str =
    "[link]\nrate = \"HDR\"\nwire-ns = 50\nswitch-delay-ns = 100\nadapter-delay-ns = 200\nbuffer-bytes = 65536\n";

/// One message between two hosts of one switch.
fn message(bytes: f64) -> f64 {
    2.0 * ADAPTER + 2.0 * WIRE + SWITCH + (bytes + (bytes / MTU).ceil() * HEADERS) / RATE
}

fn run(text: &str, file: &str) -> (ScenarioRun, Option<f64>) {
    let scenario = Scenario::parse(text, file).unwrap_or_else(|error| panic!("{error}"));
    let mut run = scenario.set_up(1).unwrap_or_else(|error| panic!("{error}"));
    let timings = run.run(1, &mut NoObserver, |_| ());
    let time = timings[0].complete.map(|time| time.as_nanos_f64());
    (run, time)
}

/// Runs a GOAL schedule on hosts of one switch.
fn run_goal(name: &str, goal: &str, hosts: u32) -> (ScenarioRun, Option<f64>) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(folder.join(format!("{name}.goal")), goal).expect("the folder of tests can be written");
    let fabric = format!("[fabric]\nkind = \"xgft\"\nchildren = [{hosts}]\nparents = [1]\n");
    let text = format!("{fabric}{LINK}[workload]\ngoal = \"{name}.goal\"\n[flows]\nlimit-us = 100000\n");
    run(&text, &folder.join(format!("{name}.toml")).display().to_string())
}

#[test]
fn a_ping_pong_takes_the_time_of_its_messages_and_computations() {
    let goal = "num_ranks 2\nrank 0 {\n a: calc 5000\n b: send 4096b to 1 tag 1\n b requires a\n c: recv 100000b from 1 tag 2\n}\n\
        rank 1 {\n a: recv 4096b from 0 tag 1\n b: calc 3000\n b requires a\n c: send 100000b to 0 tag 2\n c requires b\n}\n";
    let (run, time) = run_goal("ping", goal, 2);
    let expected = 5_000.0 + message(4_096.0) + 3_000.0 + message(100_000.0);
    let found = time.expect("it completes");
    assert!((found / expected - 1.0).abs() < 0.005, "{found} ns, expected {expected} ns");
    let summary = run.workload().expect("a workload");
    assert_eq!((summary.completed, summary.messages, summary.bytes), (6, 2, 104_096));
}

#[test]
fn computations_on_one_processor_follow_each_other_and_on_two_overlap() {
    let schedule =
        |second: u32| format!("num_ranks 1\nrank 0 {{\n a: calc 10000 cpu 0\n b: calc 10000 cpu {second}\n}}\n");
    assert_eq!(run_goal("one-cpu", &schedule(0), 2).1, Some(20_000.0));
    assert_eq!(run_goal("two-cpus", &schedule(1), 2).1, Some(10_000.0));
}

#[test]
fn irequires_waits_for_the_start_and_requires_for_the_end() {
    let schedule =
        |how: &str| format!("num_ranks 1\nrank 0 {{\n a: calc 10000 cpu 0\n b: calc 1000 cpu 1\n b {how} a\n}}\n");
    assert_eq!(run_goal("started", &schedule("irequires"), 2).1, Some(10_000.0));
    assert_eq!(run_goal("completed", &schedule("requires"), 2).1, Some(11_000.0));
}

#[test]
fn a_schedule_that_cannot_go_on_says_who_waits_for_what() {
    let goal = "num_ranks 2\nrank 0 {\n a: calc 10\n b: recv 8b from 1 tag 3\n b requires a\n}\nrank 1 {\n c: send 8b to 0 tag 4\n}\n";
    let (run, time) = run_goal("stalled", goal, 2);
    assert_eq!(time, None);
    let summary = run.workload().expect("a workload");
    assert_eq!(summary.completed, 2);
    let stalled = &summary.stalled[0];
    assert_eq!((stalled.rank, stalled.line), (0, 4));
    assert!(stalled.waits_for.contains("rank 1") && stalled.waits_for.contains("tag 3"), "{}", stalled.waits_for);
}

#[test]
fn messages_of_one_pair_and_tag_match_in_the_order_of_their_sends() {
    // The short message arrives long before the long one, but is the second.
    let goal = "num_ranks 2\nrank 0 {\n a: send 1000000b to 1\n b: send 8b to 1\n}\n\
        rank 1 {\n a: recv 1000000b from 0\n b: recv 8b from 0\n c: calc 5000\n c requires a\n}\n";
    let (run, time) = run_goal("overtaking", goal, 2);
    assert_eq!(run.workload().expect("a workload").completed, 5);
    let (found, least) = (time.expect("it completes"), message(1e6) + 5_000.0);
    assert!(found >= least && found < 1.01 * least, "{found} ns, expected {least} ns");
}

#[test]
fn a_message_that_is_longer_than_its_receive_is_named() {
    let goal = "num_ranks 2\nrank 0 {\n a: send 4096b to 1 tag 2\n}\nrank 1 {\n b: recv 8b from 0 tag 2\n}\n";
    let (run, time) = run_goal("too-long", goal, 2);
    assert_eq!(time, None);
    let stalled = &run.workload().expect("a workload").stalled[0];
    assert_eq!((stalled.rank, stalled.line), (1, 6));
    assert!(stalled.waits_for.contains("at most 8") && stalled.waits_for.contains("4096"), "{}", stalled.waits_for);
}

#[test]
fn a_schedule_with_more_ranks_than_hosts_is_refused() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(folder.join("many.goal"), "num_ranks 9\n").expect("the folder of tests can be written");
    let text =
        format!("[fabric]\nkind = \"xgft\"\nchildren = [4]\nparents = [1]\n{LINK}[workload]\ngoal = \"many.goal\"\n");
    let file = folder.join("many.toml").display().to_string();
    let error = Scenario::parse(&text, &file).expect_err("nine on four");
    assert!(error.message.contains("9 ranks") && error.field == "workload.goal", "{error}");
}

const STAR: &str = "[fabric]\nkind = \"xgft\"\nchildren = [8]\nparents = [1]\n";

#[test]
fn a_data_parallel_step_takes_computation_and_a_ring() {
    let training = "[training]\nparameters = 4000000\nlayers = 1\ndata = 8\nforward-us = 100\nbackward-us = 200\n";
    let (_, time) = run(&format!("{STAR}{LINK}{training}"), "step.toml");
    let expected = 300_000.0 + 14.0 * message(8e6 / 8.0);
    let found = time.expect("it completes");
    assert!((found / expected - 1.0).abs() < 0.01, "{found} ns, expected {expected} ns");
}

#[test]
fn overlap_hides_gradients_behind_computation() {
    let training = |overlap: bool| {
        format!(
            "[training]\nparameters = 8000000\nlayers = 8\ndata = 2\ntensor = 2\npipeline = 2\nmicro-batches = 2\n\
             activation-bytes = 65536\nforward-us = 50\nbackward-us = 100\noverlap = {overlap}\n"
        )
    };
    let time = |overlap| run(&format!("{STAR}{LINK}{}", training(overlap)), "step.toml").1.expect("it completes");
    let (hidden, open) = (time(true), time(false));
    // Four layers a stage, each with 2 MB of gradients among two ranks.
    assert!(hidden < open && open - hidden > 100_000.0, "{hidden} ns with overlap, {open} ns without");
    // At least the computation of a stage, twice 4 layers of 150 us.
    assert!(hidden > 2.0 * 4.0 * 150_000.0);
}

#[test]
fn traffic_within_a_rail_never_crosses_the_spine() {
    let fabric = "[fabric]\nkind = \"rail-optimised\"\nservers = 4\nrails = 2\n";
    let spine_bytes = |hosts: &str| {
        let traffic = format!("[[traffic]]\npattern = \"all-to-all\"\nhosts = \"{hosts}\"\nbytes = 10000\n");
        let (run, time) = run(&format!("{fabric}{LINK}{traffic}"), "rails.toml");
        assert!(time.is_some());
        // Hosts 0 to 7, leaves 8 and 9, spines from 10 on.
        run.links().filter(|link| link.to.0 >= 10).map(|link| link.bytes).sum::<u64>()
    };
    assert_eq!(spine_bytes("0,2,4,6"), 0, "adapter 0 of every server");
    assert!(spine_bytes("0,1,2,3") > 0, "both adapters of two servers");
}

#[test]
fn random_placement_changes_the_hosts_and_not_the_results() {
    let collective = "[collective]\nalgorithm = \"ring\"\nsize-only-bytes = 100000\noperations = 1\nmembers = 8\n";
    let fabric = "[fabric]\nkind = \"xgft\"\nchildren = [4, 4]\nparents = [1, 4]\n";
    let run = |placement: &str| run(&format!("{fabric}{LINK}{collective}placement = \"{placement}\"\n"), "ring.toml");
    let ((packed, packed_time), (random, random_time)) = (run("packed"), run("random"));
    let spine = |run: &ScenarioRun| {
        run.links().filter(|link| link.to.0 >= 20).map(|link| u64::from(link.packets)).sum::<u64>()
    };
    assert!(spine(&random) > spine(&packed), "a ring at random crosses the spine more often");
    assert!(random_time.expect("it completes") > packed_time.expect("it completes"));
}

/// The shares that a run reports, until it has completed.
fn shares(text: &str) -> Vec<f64> {
    let scenario = Scenario::parse(text, "progress.toml").unwrap_or_else(|error| panic!("{error}"));
    let mut run = scenario.set_up(1).unwrap_or_else(|error| panic!("{error}"));
    let mut reports = Vec::new();
    let timings = run.run(1, &mut NoObserver, |progress| reports.push(progress));
    assert!(timings[0].complete.is_some(), "it completes");
    assert_eq!(reports.pop(), Some(RunProgress::Operations(1)), "the end is told as well");
    let share = |progress: RunProgress| match progress {
        RunProgress::Share(share) => share,
        RunProgress::Operations(_) => panic!("flows alone are one operation"),
    };
    reports.into_iter().map(share).collect()
}

/// A share that ascends about as evenly as time passes tells how long the rest takes.
#[test]
fn flows_alone_tell_how_far_they_are() {
    let fabric =
        format!("[fabric]\nkind = \"xgft\"\nchildren = [8, 4]\nparents = [1, 8]\n{LINK}[flows]\nlimit-us = 1e6\n");
    for flows in [
        "[training]\nparameters = 50000000\ndata = 32\nlayers = 2\n",
        "[[traffic]]\npattern = \"permutation\"\nbytes = 20000000\n",
        "[[traffic]]\npattern = \"poisson\"\nload = 0.5\nsizes = [[10000, 0.5], [100000, 1.0]]\nfor-us = 3000\n",
        "[[traffic]]\npattern = \"flood\"\nfor-us = 800\n",
    ] {
        let found = shares(&format!("{fabric}{flows}"));
        assert!(found.len() > 3, "{flows}: {found:?}");
        assert!(found.is_sorted() && found.iter().all(|share| (0.0..=1.0).contains(share)), "{flows}: {found:?}");
        let half = found.partition_point(|share| *share < 0.5) as f64 / found.len() as f64;
        assert!((0.2..0.8).contains(&half), "{flows}: half of it after {half} of the events: {found:?}");
    }
}
