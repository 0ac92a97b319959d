//! Both ways of a call: what Pleach does slower is left to the MPI, with right results, and no rank waits for another in vain.

use serde_json::Value;

use crate::jobs::{End, Job, MPICH, Mpi, OPEN_MPI, scratch_file};

/// Calls that were part of a trial.
fn trial_calls(end: &End) -> u64 {
    end.report["trials"]["calls"].as_u64().unwrap_or_default()
}

/// A program that checks all results, and its argument. Debian's MPICH fails the conformance program by itself: its minimum of unsigned
/// shorts is wrong, and it crashes in an in-place reduce.
fn program_of(mpi: Mpi) -> (&'static str, &'static str) {
    if mpi.name == MPICH.name { ("survival", "300") } else { ("conformance", "quick") }
}

fn check_results_while_both_ways_are_tried(mpi: Mpi, ranks: u32, shared_memory: &str) {
    let (name, argument) = program_of(mpi);
    let program = mpi.compile(&format!("{name}.c"));
    let job = Job::new(mpi, &program, ranks).measured().set("PLEACH_SHARED_MEMORY", shared_memory);
    let end = job.argument(argument).run();
    assert!(end.stdout.contains(&format!("{name}: ")), "{}", end.stdout);
    assert_eq!((&end.report["trials"]["choice"], &end.report["failures"]), (&"measure".into(), &0.into()));
    assert!(trial_calls(&end) > 0 && end.calls("left", |row| row["why"] == "tried both ways") > 0, "{}", end.report);
    assert!(end.calls("taken", |_| true) > 0, "{}", end.report);
}

#[test]
fn results_are_right_while_both_ways_are_tried_under_open_mpi() {
    check_results_while_both_ways_are_tried(OPEN_MPI, 2, "on");
}

#[test]
fn results_are_right_while_both_ways_are_tried_over_the_network_under_open_mpi() {
    check_results_while_both_ways_are_tried(OPEN_MPI, 3, "off");
}

#[test]
fn results_are_right_while_both_ways_are_tried_under_mpich() {
    check_results_while_both_ways_are_tried(MPICH, 2, "on");
}

#[test]
fn results_are_right_while_both_ways_are_tried_over_the_network_under_mpich() {
    check_results_while_both_ways_are_tried(MPICH, 2, "off");
}

#[test]
fn threads_with_communicators_of_their_own_try_both_ways_under_open_mpi() {
    let program = OPEN_MPI.compile("threads.c");
    let end = Job::new(OPEN_MPI, &program, 2).measured().run();
    assert!(end.stdout.contains("threads: "), "{}", end.stdout);
    assert!(trial_calls(&end) > 0, "{}", end.report);
}

/// Every third packet is lost, so that Pleach is much slower than the MPI in shared memory.
#[test]
fn what_pleach_does_slower_is_left_to_the_mpi_and_reported_under_open_mpi() {
    let program = OPEN_MPI.compile("survival.c");
    let plan = scratch_file("lossy.toml", "[[fault]]\nkind = \"lose\"\nprobability = 0.3\n");
    let end = Job::new(OPEN_MPI, &program, 2)
        .measured()
        .set("PLEACH_SHARED_MEMORY", "off")
        .set("PLEACH_FAULTS", plan.to_str().expect("a plain path"))
        .argument("300")
        .run();
    assert!(end.stdout.contains("survival: 300 rounds"), "{}", end.stdout);
    assert_eq!(end.report["failures"], 0, "{}", end.report);
    assert!(end.calls("left", |row| row["why"] == "Pleach is slower") > 200, "{}", end.report);
    let ways = end.report["trials"]["ways"].as_array().cloned().unwrap_or_default();
    let left: Vec<&Value> = ways.iter().filter(|row| row["faster"] == "mpi").collect();
    assert!(!left.is_empty(), "{}", end.report);
    for row in left {
        assert!(row["pleach_microseconds"].as_f64() > row["mpi_microseconds"].as_f64(), "{}", end.report);
    }
}

fn everything_is_left_to_the_mpi(mpi: Mpi) {
    let (name, argument) = program_of(mpi);
    let program = mpi.compile(&format!("{name}.c"));
    let end = Job::new(mpi, &program, 2).set("PLEACH_MPI_CHOICE", "mpi").argument(argument).run();
    assert!(end.stdout.contains(&format!("{name}: ")), "{}", end.stdout);
    assert_eq!((end.calls("taken", |_| true), trial_calls(&end)), (0, 0), "{}", end.report);
    assert!(end.calls("left", |row| row["why"] == "PLEACH_MPI_CHOICE=mpi") > 1000, "{}", end.report);
}

#[test]
fn everything_is_left_to_the_mpi_if_that_is_chosen_under_open_mpi() {
    everything_is_left_to_the_mpi(OPEN_MPI);
}

#[test]
fn everything_is_left_to_the_mpi_if_that_is_chosen_under_mpich() {
    everything_is_left_to_the_mpi(MPICH);
}

#[test]
fn an_unknown_choice_is_reported_and_the_program_runs_under_open_mpi() {
    let program = OPEN_MPI.compile("survival.c");
    let end = Job::new(OPEN_MPI, &program, 2).set("PLEACH_MPI_CHOICE", "fast").argument("10").run();
    assert!(end.stdout.contains("survival: 10 rounds"), "{}", end.stdout);
    let complaint = "PLEACH_MPI_CHOICE is \"fast\"; set it to measure, pleach or mpi";
    assert_eq!(end.stderr.lines().filter(|line| line.contains(complaint)).count(), 1, "{}", end.stderr);
}

/// Pleach fails in the middle of the trials, and while some calls are left to the MPI: no result is wrong, and no rank hangs.
#[test]
fn a_rank_whose_packets_are_lost_during_trials_costs_no_result_under_open_mpi() {
    let program = OPEN_MPI.compile("survival.c");
    for (ranks, muted, nth) in [(2, 0, 150), (3, 2, 600)] {
        let end = Job::new(OPEN_MPI, &program, ranks)
            .measured()
            .set("PLEACH_SHARED_MEMORY", "off")
            .drop_packets_of("OMPI_COMM_WORLD_RANK", muted, nth)
            .argument("1000")
            .run();
        assert!(end.stdout.contains("survival: 1000 rounds"), "{}", end.stdout);
        assert!(end.calls("taken", |_| true) > 0 && trial_calls(&end) > 0, "{}", end.report);
    }
}

/// A profiler that is loaded before Pleach sees every call: it calls `PMPI_…`, which Pleach provides as well.
#[test]
fn a_profiler_that_the_program_is_linked_with_sees_every_call_under_open_mpi() {
    let profiler = OPEN_MPI.compile_profiler("profiler.c");
    let program = OPEN_MPI.compile_linked_with("survival.c", &profiler);
    let end = Job::new(OPEN_MPI, &program, 2).argument("100").run();
    assert!(end.stdout.contains("profiler: 200 allreduces"), "{}", end.stdout);
    assert!(end.calls("taken", |row| row["operation"] == "allreduce") >= 400, "{}", end.report);
}

#[test]
fn a_profiler_that_is_loaded_first_sees_every_call_under_open_mpi() {
    let program = OPEN_MPI.compile("survival.c");
    let profiler = OPEN_MPI.compile_profiler("profiler.c");
    let end = Job::new(OPEN_MPI, &program, 2).preloaded_after(&profiler).argument("100").run();
    assert!(end.stdout.contains("profiler: 200 allreduces"), "{}", end.stdout);
    assert!(end.calls("taken", |row| row["operation"] == "allreduce") >= 400, "{}", end.report);
}
