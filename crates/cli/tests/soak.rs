//! `pleach soak` as people run it.

use std::process::{Command, Output};

use serde_json::Value;

fn soak(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_pleach")).arg("soak").args(arguments).output();
    output.expect("pleach starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("pleach writes UTF-8")
}

fn report(arguments: &[&str]) -> Value {
    let output = soak(&[&["--format", "json"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stdout));
    serde_json::from_slice(&output.stdout).expect("a JSON report")
}

#[test]
fn a_soak_counts_what_it_checked() {
    let report = report(&["--seeds", "20", "--threads", "2"]);
    assert_eq!((&report["seeds"], &report["failed_seeds"]), (&20.into(), &0.into()));
    assert!(report["results_checked"].as_u64() > Some(1_000), "{report}");
    let output = text(&soak(&["--seeds", "3"]).stdout);
    assert!(output.contains("3 seeds in") && output.contains("no violations"), "{output}");
}

#[test]
fn a_seed_can_be_replayed() {
    let [once, again, other] = ["7", "7", "8"].map(|seed| report(&["--seed", seed]));
    assert_eq!((&once["seeds"], &once["first_seed"]), (&1.into(), &7.into()));
    assert_eq!(once["trace"], again["trace"]);
    assert_ne!(once["trace"], other["trace"]);
}

#[test]
fn wrong_arguments_are_rejected() {
    for (arguments, word) in [
        (&["--seeds", "0"][..], "not in 1.."),
        (&["--seeds", "many"], "invalid digit"),
        (&["--seeds", "-5"], "unexpected argument"),
        (&["--threads", "0"], "not in 1.."),
        (&["--seed", "1", "--seeds", "2"], "cannot be used with"),
        (&["--seed", "9223372036854775808"], "not in 0.."),
        (&["--format", "html"], "possible values: table, json"),
        (&["--canary", "no-such-defect"], "--canary"),
        (&["--case", "/no/such/file"], "/no/such/file"),
        (&["--case", "/dev/zero"], "/dev/zero is larger"),
        (&["--case", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")], "is not a case of the soak"),
    ] {
        let output = soak(arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(word), "{arguments:?}: {error}");
    }
}

#[test]
fn the_help_has_examples() {
    let help = text(&soak(&["--help"]).stdout);
    assert!(help.contains("pleach soak --seeds 10000") && help.contains("Exit status"), "{help}");
}
