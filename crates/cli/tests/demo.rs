//! `pleach demo` as a user runs it, shorter: its output, and that it fails when it should.

#[path = "launch/processes.rs"]
mod processes;

use std::process::{Child, Command, Stdio};

use processes::{Descendant, assert_gone, end_of, find, pleach, signal, signal_to, text, wait_for_children};

fn demo(arguments: &[&str]) -> Command {
    let mut command = pleach();
    command.arg("demo").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(seconds: &str) -> Child {
    demo(&["--seconds", seconds]).spawn().expect("pleach starts")
}

fn ids(processes: &[Descendant]) -> Vec<u32> {
    processes.iter().map(|child| child.process).collect()
}

/// The second phase has a manager, nodes and ranks.
fn is_second_phase(found: &[Descendant]) -> bool {
    let ranks = found.iter().filter(|child| child.arguments.iter().any(|word| word == "demo-rank")).count();
    let nodes = ["root", "leaf1", "leaf2"].iter().filter(|name| find(found, &["node", name]).is_some()).count();
    ranks == 8 && nodes == 3 && find(found, &["manager"]).is_some()
}

#[test]
fn every_phase_passes_and_the_exit_status_says_so() {
    let output = demo(&["--seconds", "0.2"]).output().expect("pleach starts");
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}{}", text(&output.stderr));
    assert!(!shown.contains('\x1b'), "no control characters without a terminal");
    for phase in 1..=5 {
        let line = shown.lines().find(|line| line.starts_with(&format!("{phase}. ")) && line.ends_with("  ok"));
        assert!(line.is_some_and(|line| line.contains(" 0 wrong of ")), "phase {phase}: {shown}");
    }
    assert!(shown.contains("5. node leaf1 (process "), "{shown}");
    // At least five phases of three rounds of 136 operations at 8 ranks.
    let last = shown.lines().last().expect("some lines");
    let checked = last.strip_prefix("0 wrong results, ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    assert!(checked.replace(',', "").parse::<u64>().is_ok_and(|checked| checked >= 5 * 3 * 136 * 8), "{last}");
    for name in ["barrier", "fixed order", "exact sum", "f32 max", "broadcast", "256 KiB", "in flight took up to"] {
        assert!(shown.contains(name), "{name}: {shown}");
    }
}

#[test]
fn a_lost_rank_is_a_failure_that_names_it() {
    let child = start("20");
    let found = wait_for_children(&child, |found| found.len() == 8);
    let rank = |child: &&Descendant| {
        let variables = std::fs::read(format!("/proc/{}/environ", child.process)).unwrap_or_default();
        variables.split(|byte| *byte == 0).any(|variable| variable == b"PLEACH_RANK=3")
    };
    signal_to(found.iter().find(rank).expect("there is a rank 3").process, "KILL");
    let output = child.wait_with_output().expect("ours");
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{shown}{}", text(&output.stderr));
    let named = shown.lines().any(|line| line.starts_with("FAILED ") && line.contains("rank 3"));
    assert!(named && shown.contains("phases failed"), "{shown}");
    assert_gone(&ids(&found));
}

#[test]
fn a_wrong_input_is_detected_in_every_result_that_depends_on_it() {
    let pleach = env!("CARGO_BIN_EXE_pleach");
    let script = format!(
        "exec {pleach} demo-rank --millis 1 --fold-order host-algorithm --seed $((PLEACH_RANK == 5 ? 2 : 1))"
    );
    let arguments = ["launch", "-n", "8", "--ranks-per-host", "2", "--prefix", "--", "sh", "-c", &script];
    let output = processes::pleach().args(arguments).output().expect("pleach starts");
    let shown = text(&output.stdout);
    assert!(output.status.success(), "the demo judges, not its ranks: {shown}{}", text(&output.stderr));
    let done = shown.lines().filter(|line| line.contains("{\"BatchDone\":")).count();
    let right =
        shown.lines().filter(|line| line.contains("{\"BatchDone\":") && line.contains("\"wrong\":[]")).count();
    // Barriers have no inputs, and the wrong input of a broadcast shows only at ranks with another root.
    assert!(done >= 3 * 7 * 8 && right >= 3 * 8 && right < done / 2, "{right} of {done}");
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let child = start("1");
    let found = wait_for_children(&child, is_second_phase);
    signal(&child, "INT");
    assert_eq!(end_of(child).0, Some(128 + 2));
    assert_gone(&ids(&found));
}

#[test]
fn killing_the_demo_kills_all_its_processes() {
    let mut child = start("1");
    let found = wait_for_children(&child, is_second_phase);
    child.kill().expect("it runs");
    child.wait().expect("it was killed");
    assert_gone(&ids(&found));
    // If its ranks had not joined yet, their rendezvous file is left.
    for file in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
        if std::fs::read_to_string(file.path()).is_ok_and(|text| text.contains(&format!(" demo-{}-", child.id()))) {
            let _ = std::fs::remove_file(file.path());
        }
    }
}

#[test]
fn invalid_arguments_are_rejected() {
    for arguments in [&["--seconds", "0"][..], &["--operations", "6"], &["--simulated", "--seconds", "3"]] {
        assert_eq!(demo(arguments).output().expect("pleach starts").status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn the_simulated_demo_runs_without_a_terminal() {
    let output = demo(&["--simulated", "--operations", "6"]).output().expect("pleach starts");
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}");
    assert!(!shown.contains('\x1b'), "no control characters without a terminal");
    let last = shown.lines().last().expect("some lines");
    assert!(last.starts_with("0 wrong results, 62,208 deliveries checked bit by bit, 0 operations failed"), "{last}");
}
