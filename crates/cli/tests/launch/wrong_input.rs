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
    let rendezvous = ("PLEACH_RENDEZVOUS", "127.0.0.1:1");
    for (variables, missing) in [
        (&[("PLEACH_RANK", "0")][..], "PLEACH_SIZE"),
        (&[("PLEACH_SIZE", "2")], "PLEACH_RANK"),
        (&[("PLEACH_RANK", "0"), ("PLEACH_SIZE", "2"), rendezvous], "PLEACH_TOKEN"),
        (&[("PLEACH_RANK", "1"), ("PLEACH_SIZE", "2"), rendezvous], "PLEACH_TOKEN"),
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
