//! Wrong input gives one line that says what is wrong, however many ranks the job has.

use super::*;

/// Ranks that join and sum a little.
pub(crate) const RANKS: [&str; 8] =
    ["--", env!("CARGO_BIN_EXE_pleach"), "bench-rank", "--batches", "1", "--seconds", "0.01", "allreduce:8"];

fn errors(arguments: &[&str]) -> (Option<i32>, Vec<String>) {
    let ended = output(arguments);
    (ended.status.code(), text(&ended.stderr).lines().map(str::to_owned).collect())
}

#[test]
fn a_missing_program_is_named_once() {
    for program in ["/no/such/program", "no-such-program"] {
        let (status, lines) = errors(&["-n", "5", "--", program]);
        assert_eq!(status, Some(127));
        assert_eq!(lines, [format!("pleach launch: cannot run {program}: there is no such program")]);
    }
}

#[test]
fn a_wrong_setting_is_named_once_before_anything_starts() {
    for (name, value, expected) in [
        ("PLEACH_ALGORITHM", "fast", "PLEACH_ALGORITHM: "),
        (
            "PLEACH_RESULTS",
            "none",
            "PLEACH_RESULTS: \"none\" is not one of automatic, connections, multicast and both",
        ),
    ] {
        for hosts in [&[][..], &["--hosts", "n7:4", "--agent", "false"]] {
            let ended = launch(hosts).args(["-n", "4"]).args(RANKS).env(name, value).output().expect("pleach starts");
            let said = text(&ended.stderr);
            assert_eq!((ended.status.code(), said.lines().count()), (Some(2), 1), "{said}");
            assert!(said.starts_with(&format!("error: {expected}")), "{said}");
        }
    }
    let mut overridden = launch(&["-n", "2", "--algorithm", "ring"]);
    let ended = overridden.args(RANKS).env("PLEACH_ALGORITHM", "fast").output().expect("pleach starts");
    assert!(ended.status.success(), "{}", text(&ended.stderr));
}

#[test]
fn a_rank_that_does_not_join_is_named_once() {
    let script = format!("[ $PLEACH_RANK = 1 ] || exec {}", RANKS[1..].join(" "));
    let mut command = launch(&["-n", "4", "--", "sh", "-c", &script]);
    let ended = command.env("PLEACH_PATIENCE", "1").output().expect("pleach starts");
    let said = text(&ended.stderr);
    let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(errors.len() == 1 && errors[0].starts_with("error: rank 1 did not join within 1."), "{said}");
}

/// The time that docs/operations.md names.
#[test]
#[ignore = "long: half a minute"]
fn a_host_that_does_not_answer_within_thirty_seconds_is_named() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("silent-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let agent = folder.join("agent");
    std::fs::write(&agent, "exec sleep 300\n").expect("a file");
    let began = Instant::now();
    let (status, lines) = errors(&["--hosts", "n7:2", "--agent", &format!("sh {}", agent.display()), "--", "true"]);
    let seconds = began.elapsed().as_secs();
    assert_eq!(status, Some(2), "{lines:?}");
    assert_eq!(lines, ["error: no answer from host n7 within 30 s"]);
    assert!((30..35).contains(&seconds), "{seconds} s");
    std::fs::remove_dir_all(&folder).expect("our folder");
}

/// A rank of the test below: for a `main` that returns an error, as for this test, Rust prints the error's `Debug` form.
#[test]
#[ignore = "other tests launch it"]
fn as_a_rank_that_returns_its_errors() -> Result<(), Box<dyn std::error::Error>> {
    pleach::join()?.barrier()?;
    Ok(())
}

#[test]
fn a_program_that_returns_its_errors_says_in_words_which_rank_is_missing() {
    let own = std::env::current_exe().expect("this test");
    let rank =
        format!("{} --exact wrong_input::as_a_rank_that_returns_its_errors --ignored --nocapture", own.display());
    let script = format!("[ $PLEACH_RANK = 1 ] || exec {rank}");
    let mut command = launch(&["-n", "2", "--", "sh", "-c", &script]);
    let ended = command.env("PLEACH_PATIENCE", "1").output().expect("pleach starts");
    let said = text(&ended.stderr);
    let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("Error: ")).collect();
    assert!(!ended.status.success() && errors.len() == 1, "{said}");
    let is_text =
        |line: &str| line.starts_with("Error: rank 1 did not join within 1.") && line.ends_with("; is it running?");
    assert!(is_text(errors[0]) && !said.contains("{ "), "{said}");
}

#[test]
fn ranks_by_hand_say_at_once_which_variable_is_missing() {
    let rank = |variables: &[(&str, &str)]| {
        let mut command = processes::pleach();
        let ended = command.args(&RANKS[2..]).envs(variables.iter().copied()).output().expect("pleach starts");
        (ended.status.code(), text(&ended.stderr))
    };
    let (rendezvous, token) = (("PLEACH_RENDEZVOUS", "127.0.0.1:1"), ("PLEACH_TOKEN", "secret"));
    for (variables, missing) in [
        (&[("PLEACH_RANK", "0")][..], "PLEACH_SIZE"),
        (&[("PLEACH_SIZE", "2")], "PLEACH_RANK"),
        (&[("PLEACH_RANK", "0"), ("PLEACH_SIZE", "2"), rendezvous], "PLEACH_TOKEN"),
        (&[("PLEACH_RANK", "1"), ("PLEACH_SIZE", "2"), rendezvous], "PLEACH_TOKEN"),
        (&[("PLEACH_RANK", "0"), ("PLEACH_SIZE", "2"), token], "but not PLEACH_RENDEZVOUS or PLEACH_JOB"),
        (&[("PLEACH_RANK", "1"), rendezvous, token], "PLEACH_SIZE"),
        (&[rendezvous, token], "PLEACH_RENDEZVOUS is set, but not PLEACH_RANK"),
        (
            &[("PLEACH_RANK", "2"), ("PLEACH_SIZE", "2"), rendezvous],
            "PLEACH_RANK is \"2\", expected a number from 0 to 1",
        ),
    ] {
        let began = Instant::now();
        let (status, said) = rank(variables);
        assert_eq!((status, said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.starts_with("error: PLEACH_") && said.contains(missing), "{said}");
        assert!(began.elapsed() < SOON, "at once");
    }
}

/// Ranks wait so long for others.
const PATIENCE: &str = "5";
const AT_ONCE: Duration = Duration::from_secs(3);

/// What four ranks by hand write to stderr, each line with the time that it took. `differs` has the variables that a rank gets wrong.
fn ranks_by_hand(differs: impl Fn(u32) -> Option<(&'static str, &'static str)>) -> [Vec<(Duration, String)>; 4] {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback").local_addr().expect("bound");
    let began = Instant::now();
    let reading = [0, 1, 2, 3].map(|rank| {
        let mut command = processes::pleach();
        command.args(&RANKS[2..]).stderr(Stdio::piped()).stdout(Stdio::null());
        command.env("PLEACH_RANK", rank.to_string()).env("PLEACH_SIZE", "4").env("PLEACH_PATIENCE", PATIENCE);
        command.env("PLEACH_RENDEZVOUS", free.to_string()).env("PLEACH_TOKEN", "correct horse");
        command.envs(differs(rank));
        let mut child = command.spawn().expect("pleach starts");
        let errors = BufReader::new(child.stderr.take().expect("piped"));
        std::thread::spawn(move || {
            let lines = errors.lines().map(|line| (began.elapsed(), line.expect("text"))).collect();
            assert_eq!(child.wait().expect("our own child").code(), Some(2), "{lines:?}");
            lines
        })
    });
    reading.map(|thread| thread.join().expect("no panic"))
}

/// A line that a rank writes at once, and whose parts are these.
#[track_caller]
fn assert_said_at_once(lines: &[(Duration, String)], parts: &[&str]) {
    let (after, line) = lines.first().expect("it says something");
    assert!(*after < AT_ONCE && parts.iter().all(|part| line.contains(part)), "{lines:?}");
}

#[test]
fn ranks_by_hand_say_at_once_whose_variable_differs() {
    let token = ("PLEACH_TOKEN", "battery staple");
    let size = ("PLEACH_SIZE", "5");
    let warning = "pleach: warning: ";
    for (wrong, variable, at_rank_zero) in [
        (&[3][..], token, "a process at 127.0.0.1 was rejected: its PLEACH_TOKEN"),
        (&[1, 2, 3], token, "a process at 127.0.0.1 was rejected: its PLEACH_TOKEN"),
        (&[2], size, "rank 2 at 127.0.0.1 was rejected: its PLEACH_SIZE is 5, rank 0's is 4"),
    ] {
        let said = ranks_by_hand(|rank| wrong.contains(&rank).then_some(variable));
        let count = wrong.len();
        let because = format!(
            "{count} connection{} rejected because of another {}",
            if count == 1 { " was" } else { "s were" },
            variable.0
        );
        for (rank, lines) in (0..).zip(&said) {
            assert_eq!(lines.len(), if rank == 0 { 2 } else { 1 }, "rank {rank}: {lines:?}");
            if wrong.contains(&rank) {
                assert_said_at_once(lines, &["error: rank 0 rejected this process: ", variable.0]);
                continue;
            }
            if rank == 0 {
                assert_said_at_once(lines, &[warning, at_rank_zero]);
            }
            let (_, last) = lines.last().expect("an error");
            assert!(last.starts_with("error: rank") && last.contains(&because), "rank {rank}: {lines:?}");
        }
    }
}

#[test]
fn two_ranks_by_hand_with_one_number_are_named_at_once() {
    let said = ranks_by_hand(|rank| (rank == 3).then_some(("PLEACH_RANK", "1")));
    assert_said_at_once(&said[0], &["pleach: warning: rank 1 at 127.0.0.1 was rejected", "this PLEACH_RANK already"]);
    let of_both =
        [&said[1], &said[3]].into_iter().filter(|lines| lines[0].1.contains("rank 0 rejected this process"));
    let rejected: Vec<_> = of_both.collect();
    assert_eq!(rejected.len(), 1, "the other one has the place: {said:?}");
    assert_said_at_once(rejected[0], &["PLEACH_RANK"]);
    let (_, last) = said[0].last().expect("an error");
    assert!(
        last.starts_with("error: rank 3 did not join") && last.contains("a PLEACH_RANK that another"),
        "{said:?}"
    );
}

#[test]
fn commands_that_ask_the_manager_say_first_what_is_wrong() {
    for (command, expected) in [
        (&["top", "--once", "--manager", "127.0.0.1:1"][..], "no connection to the manager at 127.0.0.1:1: "),
        (&["doctor", "--job", "x", "--manager", "127.0.0.1:1"], "no connection to the manager at 127.0.0.1:1: "),
        (&["top", "--once", "--manager", "nonsense"], "nonsense is not an address; write HOST:PORT"),
    ] {
        let ended = processes::pleach().args(command).output().expect("pleach starts");
        let said = text(&ended.stderr);
        assert_eq!((ended.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.starts_with(&format!("error: {expected}")), "{said}");
    }
}
