//! `pleach launch` as a user runs it: real processes, real signals.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(10);

fn launch(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.arg("launch").args(arguments).stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> Output {
    launch(arguments).output().expect("pleach starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_alive(process: u32) -> bool {
    // A zombie whose parent is gone or busy is as good as gone.
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[track_caller]
fn assert_gone(processes: &[u32]) {
    let began = Instant::now();
    while processes.iter().any(|process| is_alive(*process)) {
        assert!(began.elapsed() < SOON, "left behind: {processes:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(child: &Child, name: &str) {
    let sent =
        Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status().expect("there is a sh");
    assert!(sent.success());
}

/// Starts ranks that print numbers, one a line, and returns so many of them.
fn start(arguments: &[&str], lines: usize) -> (Child, Vec<u32>) {
    let mut child = launch(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pleach starts");
    let reader = BufReader::new(child.stdout.take().expect("piped"));
    let numbers = reader.lines().take(lines).map(|line| line.expect("text").parse().expect("a number")).collect();
    (child, numbers)
}

#[track_caller]
fn end_of(mut child: Child) -> (Option<i32>, String) {
    let began = Instant::now();
    while child.try_wait().expect("ours").is_none() {
        assert!(began.elapsed() < SOON, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    (child.wait().expect("ours").code(), said)
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
        [&["-n", "0", "--", "true"][..], &["-n", "2"], &["-n", "2", "--ranks-per-host", "2", "--", "true"]]
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

/// A rank of the tests below.
#[test]
#[ignore = "other tests launch it"]
fn as_a_rank() {
    use runtime::job::{self, Offer, Place, Terms};
    let place = Place::here().expect("pleach launch says who we are");
    let joined = job::join(&place, Offer::default(), &Terms::default()).expect("all come");
    println!("\nmet {} {:?}", place.rank, joined.table.hosts());
    joined.lifeline.leave(SOON);
}

/// What each rank found about hosts.
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
fn ranks_on_loopback_meet_on_one_host() {
    assert_eq!(met(&["-n", "3"]), ["0 [[0, 1, 2]]", "1 [[0, 1, 2]]", "2 [[0, 1, 2]]"]);
}

mod between_hosts {
    use super::*;

    fn leftovers(process: u32) -> Vec<String> {
        let names = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with(&format!("pleach-net-{process}-"))).collect()
    }

    /// False where hosts cannot be made, after saying why; with `CI` set it panics, since nobody reads what passes.
    fn can_have_hosts() -> bool {
        let tried = output(&["-n", "1", "--hosts", "netns", "--", "true"]);
        let said = text(&tried.stderr);
        if tried.status.code() == Some(2) && said.contains("hosts in network namespaces need") {
            let ci = std::env::var("CI").unwrap_or_default();
            assert!(matches!(ci.as_str(), "" | "0" | "false"), "not tested, and CI is set: {said}");
            println!("not tested: {said}");
            return false;
        }
        assert!(tried.status.success(), "{said}");
        true
    }

    #[test]
    fn ranks_meet_across_hosts_and_find_those_beside_them() {
        if can_have_hosts() {
            let hosts = "[[0, 1], [2, 3], [4]]";
            let expected: Vec<String> = (0..5).map(|rank| format!("{rank} {hosts}")).collect();
            assert_eq!(met(&["-n", "5", "--hosts", "netns", "--ranks-per-host", "2"]), expected);
        }
    }

    #[test]
    fn no_namespace_is_left_behind_after_an_interrupt() {
        if can_have_hosts() {
            let script = "echo $$; exec sleep 60";
            let (child, processes) = start(&["-n", "2", "--hosts", "netns", "--", "sh", "-c", script], 2);
            let process = child.id();
            assert_eq!(leftovers(process).len(), 3);
            signal(&child, "INT");
            assert_eq!(end_of(child).0, Some(128 + 2));
            assert_gone(&processes);
            assert_eq!(leftovers(process), [""; 0]);
        }
    }

    /// Nobody says goodbye when the power fails: only the silence tells.
    #[test]
    fn a_host_that_vanishes_is_noticed_by_both_sides() {
        use runtime::job::{self, News, Offer, Place, Terms, Variables};
        let network = match namespaces::Network::new(2) {
            Ok(network) => network,
            Err(error) => {
                assert!(!can_have_hosts(), "{error}");
                return;
            }
        };
        let terms = Terms { silence: Duration::from_secs(3), ..Terms::default() };
        let join = |rank: usize| {
            let rendezvous = format!("{}:7411", network.host(0).address());
            let variables = [("RANK", rank.to_string()), ("SIZE", "2".to_owned()), ("RENDEZVOUS", rendezvous)];
            let job = [("JOB", "vanish".to_owned())];
            let variables: Variables =
                variables.into_iter().chain(job).map(|(name, value)| (format!("PLEACH_{name}"), value)).collect();
            let place = Place::of(&variables, |_| None).expect("all is said");
            let joined = network.host(rank).inside(|| job::join(&place, Offer::default(), &terms)).expect("it moves");
            joined.expect("both come")
        };
        let (mut zero, mut one) = std::thread::scope(|scope| {
            let one = scope.spawn(|| join(1));
            (join(0), one.join().expect("no panic"))
        });
        assert_eq!(zero.table.hosts(), [[0], [1]]);
        let switch = network.names().pop().expect("the switch is last").to_owned();
        let cut = Command::new("ip").args(["-n", &switch, "link", "set", "dev", "port1", "down"]).status();
        assert!(cut.expect("ip is there").success());
        let began = Instant::now();
        let mut heard = [None, None];
        while heard.iter().any(Option::is_none) {
            assert!(began.elapsed() < SOON, "{heard:?}");
            heard[0] = heard[0].take().or_else(|| zero.lifeline.turn());
            heard[1] = heard[1].take().or_else(|| one.lifeline.turn());
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(heard, [Some(News::Lost { rank: 1 }), Some(News::Lost { rank: 0 })]);
        assert!(began.elapsed() > Duration::from_millis(500), "the cut itself is not seen by a socket");
    }
}
