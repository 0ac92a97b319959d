//! The commands as people run them: every shipped scenario, every kind of mistake.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn pleach(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_pleach")).args(arguments).output();
    output.expect("pleach starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("pleach writes UTF-8")
}

fn scenarios() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let files = std::fs::read_dir(folder).expect("scenarios/ is there").map(|entry| entry.expect("readable").path());
    let mut scenarios: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|end| end == "toml")).collect();
    scenarios.sort();
    scenarios
}

fn scenario(name: &str) -> String {
    let file = scenarios().into_iter().find(|file| file.file_stem().is_some_and(|stem| stem == name));
    file.expect("a shipped scenario").display().to_string()
}

fn report(arguments: &[&str]) -> Value {
    let output = pleach(&[&["simulate", "--format", "json"], arguments].concat());
    assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn an_endless_scenario_is_rejected() {
    let output = pleach(&["simulate", "/dev/zero"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("/dev/zero is larger than 16384 KiB"), "{}", text(&output.stderr));
}

#[test]
fn every_shipped_scenario_runs_without_an_objection() {
    let all = scenarios();
    assert!(all.len() >= 12, "a dozen scenarios are shipped");
    for file in all {
        let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
        // The fault of this one needs some time to strike.
        let operations = if name == "killed-node" { "30" } else { "4" };
        let report = report(&[&file.display().to_string(), "--operations", operations]);
        assert_eq!(report["oracle"]["violations"], 0, "{name}");
        let seen = [&report["oracle"]["checked"], &report["oracle"]["counted"]];
        assert!(seen.iter().any(|number| number.as_u64() > Some(0)), "{name}: nothing was looked at");
    }
}

#[test]
fn every_shipped_scenario_says_what_it_is_for() {
    for file in scenarios() {
        let words = std::fs::read_to_string(&file).expect("readable");
        assert!(words.starts_with('#') && words.contains("\nname = ") && words.contains("\nabout = "), "{file:?}");
    }
}

#[test]
fn the_papers_fabric_takes_what_pencil_and_paper_say() {
    let report = report(&[&scenario("paper-failure-free"), "--operations", "2"]);
    assert_eq!(report["latency"]["complete"]["max_ns"], 1724.0);
    assert_eq!(report["latency"]["reduce"]["min_ns"], 1168.0);
    assert_eq!(report["oracle"]["checked"], 2 * 1728);
}

#[test]
fn a_killed_node_is_named_to_every_member() {
    let report = report(&[&scenario("killed-node")]);
    assert!(report["operations"]["failed"].as_u64() > Some(0));
    assert_eq!(report["oracle"]["splits"], 0, "all members of an operation are told the same");
    let cause = report["oracle"]["listed_failures"][0]["cause"].as_str().expect("a cause");
    assert!(cause.contains("does not answer"), "{cause}");
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_another() {
    let file = scenario("modern-links");
    let run = |seed| {
        let mut report = report(&[&file, "--operations", "6", "--seed", seed]);
        report["machine"] = Value::Null;
        report
    };
    assert_eq!(run("5"), run("5"));
    assert_ne!(run("5")["trace"], run("6")["trace"]);
}

#[test]
fn json_keeps_its_field_names() {
    let report = report(&[&scenario("k-ary-n-tree"), "--operations", "2"]);
    let names: Vec<&String> = report.as_object().expect("an object").keys().collect();
    let expected = [
        "busiest_links",
        "counters",
        "damaged_links",
        "fabric",
        "faults",
        "latency",
        "machine",
        "operations",
        "oracle",
        "parameters",
        "scenario",
        "trace",
        "version",
    ];
    assert_eq!(names, expected);
    for field in ["min_ns", "median_ns", "mean_ns", "p90_ns", "p99_ns", "max_ns", "histogram"] {
        assert!(!report["latency"]["complete"][field].is_null(), "{field}");
    }
    for field in ["physical", "malformed", "routing", "overrun", "marked", "end_to_end"] {
        assert!(report["counters"][field].is_u64(), "{field}");
    }
}

#[test]
fn the_page_needs_nothing_from_outside() {
    let output = pleach(&["simulate", &scenario("k-ary-n-tree"), "--operations", "3", "--format", "html"]);
    let page = text(&output.stdout);
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    for outside in ["http:", "https:", "<script", " src=", "<link", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert_eq!(page.matches("<svg").count(), 5);
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
}

#[test]
fn the_table_ends_with_the_oracles_verdict() {
    let output = pleach(&["simulate", &scenario("four-error-classes"), "--operations", "20"]);
    let table = text(&output.stdout);
    let last = table.lines().last().expect("some lines");
    assert_eq!(last, "oracle      0 wrong results, 2,560 deliveries checked bit by bit");
}

#[test]
fn a_mistake_in_a_scenario_is_shown_like_a_compilers() {
    let file = std::env::temp_dir().join(format!("pleach-mistake-{}.toml", std::process::id()));
    std::fs::write(&file, "[fabric]\nkind = \"torus\"\nsizes = [4, 4]\n\n[link]\nrate = \"SDRR\"\n")
        .expect("written");
    let output = pleach(&["simulate", &file.display().to_string()]);
    let _ = std::fs::remove_file(&file);
    assert_eq!(output.status.code(), Some(2));
    let expected = format!(
        "error: link.rate: \"SDRR\" is not one of its values\n --> {}:6:8\n  |\n6 | rate = \"SDRR\"\n  |        ^^^^^^\n  \
         = allowed: \"SDR\", \"DDR\", \"QDR\", \"FDR\", \"EDR\", \"HDR\", \"NDR\", \"XDR\"\n",
        file.display()
    );
    assert_eq!(text(&output.stderr), expected);
}

#[test]
fn what_is_wrong_with_the_command_is_said() {
    let output = pleach(&["simulate", "no-such-file.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("error: cannot read no-such-file.toml: No such file"));
    let output = pleach(&["simulate", &scenario("torus"), "--operations", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("from 1 to 1000000"));
}

#[test]
fn the_fields_are_listed_with_values_and_defaults() {
    let listed = text(&pleach(&["simulate", "--fields"]).stdout);
    for part in ["[fabric]", "[link]", "[collective]", "[[fault]]", "nak-turnaround-ns", "(if absent: 100)"] {
        assert!(listed.contains(part), "{part}");
    }
}
