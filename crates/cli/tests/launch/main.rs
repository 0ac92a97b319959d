//! `pleach launch` as a user runs it: real processes, real signals.

mod batch_job;
mod between_hosts;
mod c_header;
#[path = "../manager/process.rs"]
#[allow(dead_code, reason = "the tests of the manager use the rest")]
mod daemons;
mod host_processes;
mod multicast;
mod nodes;
mod over_ssh;
mod pods;
mod processes;
mod slurm_examples;
mod unused_manager;
mod within_slurm;
mod wrong_input;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use host_processes::{all_on_hosts, assert_none_on_hosts, on_hosts};
use processes::{SOON, assert_gone, end_of, signal, text, without_settings};

fn launch(arguments: &[&str]) -> Command {
    let mut command = processes::pleach();
    command.arg("launch").args(arguments).stdin(Stdio::null());
    command
}

/// Starts ranks that run a test of this executable.
fn as_ranks(test: &str, arguments: &[&str]) -> Command {
    let own = std::env::current_exe().expect("this test");
    let mut command = launch(arguments);
    command.args(["--prefix", "--"]).arg(own).args(["--exact", test, "--ignored", "--nocapture"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The two numbers that each rank prints at the end, each after one of `labels`; the first label opens the line.
fn counters(output: &Output, labels: [&str; 2]) -> Vec<(u64, u64)> {
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let number = |text: &str| -> u64 { text.trim().parse().expect("a number") };
    let told = |line: &str| {
        let (first, second) = line.split_once(&format!("] {} ", labels[0]))?.1.split_once(labels[1])?;
        Some((number(first), number(second)))
    };
    said.lines().filter_map(told).collect()
}

fn output(arguments: &[&str]) -> Output {
    launch(arguments).output().expect("pleach starts")
}

/// Starts ranks that print one number per line, and reads so many of them.
fn start(arguments: &[&str], lines: usize) -> (Child, Vec<u32>) {
    let mut child = launch(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pleach starts");
    let reader = BufReader::new(child.stdout.take().expect("piped"));
    let numbers = reader.lines().take(lines).map(|line| line.expect("text").parse().expect("a number")).collect();
    (child, numbers)
}

#[test]
fn every_rank_knows_its_place_and_every_line_its_rank() {
    let script = "echo $PLEACH_RANK of $PLEACH_SIZE; echo $PLEACH_JOB $PLEACH_TOKEN; echo oops >&2";
    let ended = output(&["-n", "3", "--prefix", "--", "sh", "-c", script]);
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    let said = text(&ended.stdout);
    let mut jobs: Vec<&str> = Vec::new();
    for rank in 0..3 {
        let prefix = format!("[{rank}] ");
        let lines: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix(&prefix)).collect();
        assert_eq!(lines[0], format!("{rank} of 3"));
        jobs.push(lines[1]);
    }
    assert!(jobs[0].len() > 32 && jobs.iter().all(|job| *job == jobs[0]), "{jobs:?}");
    let mut errors: Vec<String> = text(&ended.stderr).lines().map(str::to_owned).collect();
    errors.sort();
    assert_eq!(errors, ["[0] oops", "[1] oops", "[2] oops"]);
}

#[test]
fn output_that_is_not_for_a_terminal_is_left_as_it_is() {
    let ended = output(&["-n", "1", "--", "printf", "a\\nb"]);
    assert_eq!(text(&ended.stdout), "a\nb");
}

#[test]
fn rank_zero_reads_what_is_given_and_the_others_nothing() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("launch-input");
    std::fs::write(&file, "given").expect("the target folder can be written to");
    let mut command = launch(&["-n", "2", "--prefix", "--", "cat"]);
    command.stdin(std::fs::File::open(&file).expect("it was written"));
    assert_eq!(text(&command.output().expect("pleach starts").stdout), "[0] given\n");
}

#[test]
fn the_worst_exit_status_is_returned() {
    let status = |script: &str| output(&["-n", "4", "--", "sh", "-c", script]).status.code();
    assert_eq!(status("exit $((PLEACH_RANK * 10))"), Some(30));
    assert_eq!(status("exit 0"), Some(0));
    assert_eq!(status("[ $PLEACH_RANK = 2 ] && kill -SEGV $$; exit 1"), Some(128 + 11));
    let missing = output(&["-n", "2", "--", "/no/such/program"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(text(&missing.stderr).contains("/no/such/program"), "{}", text(&missing.stderr));
}

#[test]
fn wrong_commands_are_told_so() {
    for arguments in
        [&["-n", "0", "--", "true"][..], &["-n", "2"], &["-n", "2", "--ranks-per-host", "0", "--", "true"]]
    {
        assert_eq!(output(arguments).status.code(), Some(2), "{arguments:?}");
    }
    assert!(text(&output(&["--help"]).stdout).contains("--hosts netns --ranks-per-host 4"));
}

#[test]
fn when_one_fails_the_rest_have_their_grace_and_are_ended() {
    let script = "[ $PLEACH_RANK = 1 ] && exit 7; echo $$; exec sleep 60";
    let began = Instant::now();
    let (child, processes) = start(&["-n", "3", "--grace", "0.2", "--", "sh", "-c", script], 2);
    let (code, said) = end_of(child);
    assert_eq!(code, Some(7), "{said}");
    assert!(said.contains("rank 1 ended with status 7") && began.elapsed() < SOON, "{said}");
    assert_gone(&processes);
}

#[test]
fn who_ignores_a_polite_end_is_ended_all_the_same() {
    let script = "[ $PLEACH_RANK = 1 ] && exit 7; trap '' TERM; echo $$; while :; do sleep 1; done";
    let (child, processes) = start(&["-n", "2", "--grace", "0", "--", "sh", "-c", script], 1);
    assert_eq!(end_of(child).0, Some(7));
    assert_gone(&processes);
}

#[test]
fn what_a_rank_started_does_not_outlive_it() {
    let (child, processes) = start(&["-n", "2", "--", "sh", "-c", "sleep 60 & echo $!"], 2);
    assert_eq!(end_of(child).0, Some(0));
    assert_gone(&processes);
}

#[test]
fn signals_are_passed_on_once() {
    let script =
        "trap 'count=$((count + 1))' USR1; trap 'exit $((40 + count))' TERM; echo $$; while :; do sleep 0.01; done";
    let (child, processes) = start(&["-n", "2", "--", "sh", "-c", script], 2);
    signal(&child, "USR1");
    std::thread::sleep(Duration::from_millis(200));
    signal(&child, "TERM");
    assert_eq!(end_of(child).0, Some(41));
    assert_gone(&processes);
}

#[test]
fn a_second_interrupt_ends_those_who_ignore_the_first() {
    let script = "trap '' INT; echo $$; while :; do sleep 1; done";
    let (child, processes) = start(&["-n", "2", "--", "sh", "-c", script], 2);
    signal(&child, "INT");
    std::thread::sleep(Duration::from_millis(100));
    signal(&child, "INT");
    end_of(child);
    assert_gone(&processes);
}

#[test]
fn when_the_launcher_is_killed_its_ranks_are_too() {
    let (mut child, processes) = start(&["-n", "3", "--", "sh", "-c", "echo $$; exec sleep 60"], 3);
    assert_eq!(processes.len(), 3);
    child.kill().expect("it runs");
    child.wait().expect("it was killed");
    assert_gone(&processes);
}

/// A rank is often a child of a script, which the kernel does not end with the launcher.
#[test]
fn when_the_launcher_is_killed_what_its_ranks_started_ends_too() {
    let (mut child, processes) = start(&["-n", "2", "--", "sh", "-c", "sleep 60 & echo $!; wait"], 2);
    child.kill().expect("it runs");
    child.wait().expect("it was killed");
    assert_gone(&processes);
}

#[test]
fn ranks_that_end_before_they_meet_leave_no_rendezvous_file() {
    let own = std::env::current_exe().expect("this test");
    let waiting = format!("exec {} --exact as_a_rank --ignored --nocapture", own.display());
    let script = format!("[ $PLEACH_RANK = 1 ] && exec sleep 60; {waiting}");
    let mut command = launch(&["-n", "2", "--", "sh", "-c", &script]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("pleach starts");
    let job = format!(" launch-{}-", child.id());
    let rendezvous_files = || {
        let files = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
        texts.filter(|text| text.contains(&job)).count()
    };
    let began = Instant::now();
    while rendezvous_files() == 0 {
        assert!(began.elapsed() < SOON, "rank 0 creates a rendezvous file");
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(&child, "INT");
    end_of(child);
    assert_eq!(rendezvous_files(), 0);
}

/// A rank of the tests below.
#[test]
#[ignore = "other tests launch it"]
fn as_a_rank() {
    use bootstrap::{self, JobEnvironment, LocalEndpoint, RendezvousTimeouts};
    let place = JobEnvironment::from_environment().expect("pleach launch sets the environment");
    let joined =
        bootstrap::join(&place, LocalEndpoint::default(), &RendezvousTimeouts::default()).expect("all ranks join");
    println!("\nmet {} {:?}", place.rank, joined.table.hosts());
    joined.failure_detector.leave(SOON);
}

/// The hosts as each rank sees them.
fn met(arguments: &[&str]) -> Vec<String> {
    let own = std::env::current_exe().expect("this test");
    let mut command = launch(arguments);
    // With prefixes lines stay whole, although all write at once.
    command.args(["--prefix", "--"]).arg(own).args(["--exact", "as_a_rank", "--ignored", "--nocapture"]);
    let ended = command.output().expect("pleach starts");
    assert!(ended.status.success(), "{}{}", text(&ended.stdout), text(&ended.stderr));
    let mut met: Vec<String> =
        text(&ended.stdout).lines().filter_map(|line| Some(line.split_once("] met ")?.1.to_owned())).collect();
    met.sort();
    met
}

#[test]
fn ranks_on_loopback_can_be_as_if_on_several_hosts() {
    let script = "echo $PLEACH_RANK $PLEACH_HOST $PLEACH_SHARED_MEMORY";
    let ended = output(&["-n", "3", "--ranks-per-host", "2", "--prefix", "--", "sh", "-c", script]);
    let said = text(&ended.stdout);
    let mut lines: Vec<&str> = said.lines().map(|line| &line[4..]).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 host0 2", "1 host0 2", "2 host1 2"]);
}

#[test]
fn ranks_on_loopback_meet_on_one_host() {
    assert_eq!(met(&["-n", "3"]), ["0 [[0, 1, 2]]", "1 [[0, 1, 2]]", "2 [[0, 1, 2]]"]);
}
