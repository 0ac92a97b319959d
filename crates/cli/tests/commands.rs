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
    let (status, report) = report_and_status(arguments);
    assert_eq!(status, Some(0), "{arguments:?}: {report}");
    report
}

fn report_and_status(arguments: &[&str]) -> (Option<i32>, Value) {
    let output = pleach(&[&["simulate", "--format", "json"], arguments].concat());
    let report = serde_json::from_slice(&output.stdout);
    (output.status.code(), report.unwrap_or_else(|_| panic!("{arguments:?}: {}", text(&output.stderr))))
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
        let words = std::fs::read_to_string(&file).expect("readable");
        if words.contains("\n[sweep]") {
            continue; // A comparison, with a test of its own.
        }
        // The faults of these need some time to strike.
        let strikes = matches!(name.as_str(), "killed-node" | "tree-rebuilt");
        let operations = if strikes { "30" } else { "4" };
        let (status, report) = report_and_status(&[&file.display().to_string(), "--operations", operations]);
        assert_eq!(status, Some(i32::from(strikes)), "{name}");
        assert_eq!(report["oracle"]["violations"], 0, "{name}");
        if words.contains("\n[collective]") || words.contains("\n[[job]]") {
            let seen = [&report["oracle"]["checked"], &report["oracle"]["counted"]];
            assert!(seen.iter().any(|number| number.as_u64() > Some(0)), "{name}: nothing was looked at");
        } else {
            let flows = &report["flows"];
            let has_bytes = |line: &Value| line["bytes"].as_u64() > Some(0);
            let traffic = flows["traffic"].as_array().is_some_and(|lines| lines.iter().any(has_bytes));
            assert!(traffic || has_bytes(&flows["workload"]), "{name}: nothing was sent");
        }
    }
}

/// A run after whose cut cable nothing is rebuilt fails to the end; with the rebuilt tree one operation fails.
#[test]
fn after_a_cut_the_tree_is_rebuilt_and_operations_go_on() {
    let (status, report) = report_and_status(&[&scenario("tree-rebuilt")]);
    assert_eq!(status, Some(1), "an operation failed, so the run is not green");
    assert_eq!((&report["operations"]["run"], &report["tree_rebuilds"]), (&Value::from(10), &Value::from(1)));
    assert_eq!(report["operations"]["failed"], 1, "{}", report["operations"]);
    assert_eq!(report["oracle"]["violations"], 0);
    let cause = report["oracle"]["causes"][0]["cause"].as_str().expect("a cause");
    assert!(cause.contains("S0") || cause.contains("S16"), "in the user's names: {cause}");
}

#[test]
fn shipped_sweeps_compare_their_combinations() {
    for (name, runs) in [("routing-choices", 4), ("tapered-tree", 3)] {
        let report = report(&[&scenario(name)]);
        let times: Vec<f64> = report["runs"]
            .as_array()
            .expect("runs")
            .iter()
            .map(|run| run["latency"]["median_ns"].as_f64().expect("it completed"))
            .collect();
        assert_eq!(times.len(), runs, "{name}");
        // Spraying beats ECMP; a taper costs time.
        let (fast, slow) = if name == "routing-choices" { (times[2], times[1]) } else { (times[0], times[2]) };
        assert!(fast < slow, "{name}: {times:?}");
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
    let (status, report) = report_and_status(&[&scenario("killed-node")]);
    assert_eq!(status, Some(1), "a run with failed operations is not a success");
    assert!(report["operations"]["failed"].as_u64() > Some(0));
    assert_eq!(report["oracle"]["splits"], 0, "all members of an operation are told the same");
    let cause = report["oracle"]["listed_failures"][0]["cause"].as_str().expect("a cause");
    assert_eq!(cause, "S6 does not answer");
    let causes = report["oracle"]["causes"].as_array().expect("grouped by cause");
    assert_eq!((causes.len(), &causes[0]["cause"]), (1, &report["oracle"]["listed_failures"][0]["cause"]));
    assert_eq!(causes[0]["results"], report["oracle"]["failures"]);
}

#[test]
fn ring_tree_and_network_are_compared_with_a_cable_cut() {
    let file = scenario("three-allreduces");
    let smaller = ["--set", "collective.bytes=65536", "--operations", "1"];
    let report = report(&[&[file.as_str()], &smaller[..]].concat());
    let runs = report["runs"].as_array().expect("a comparison");
    let algorithms: Vec<&str> = runs.iter().filter_map(|run| run["algorithm"].as_str()).collect();
    assert_eq!(algorithms, ["ring", "tree", "aggregation"]);
    for run in runs {
        assert_eq!((&run["failed"], &run["violations"], &run["hosts"]), (&0.into(), &0.into(), &512.into()), "{run}");
    }
}

#[test]
fn a_sweep_is_one_table_and_one_csv_file_and_repeats_byte_by_byte() {
    let csv = std::env::temp_dir().join(format!("pleach-sweep-{}.csv", std::process::id()));
    let run = || {
        let (file, path) = (scenario("k-ary-n-tree"), csv.display().to_string());
        let sweep =
            ["--operations", "2", "--set", "link.rate=EDR,HDR", "--set", "collective.count=1,16", "--csv", &path];
        let output = pleach(&[&["simulate", &file], &sweep[..]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let written = std::fs::read_to_string(&csv).expect("the CSV file");
        (text(&output.stdout), written)
    };
    let (table, written) = run();
    assert_eq!(run(), (table.clone(), written.clone()));
    let _ = std::fs::remove_file(&csv);
    assert_eq!(table.matches("link.rate=EDR collective.count=16").count(), 1, "{table}");
    let lines: Vec<&str> = written.lines().collect();
    assert_eq!(lines.len(), 5, "{written}");
    assert!(
        lines[0].starts_with("file,scenario,link.rate,collective.count,algorithm,hosts,seed,completed"),
        "{}",
        lines[0]
    );
}

/// Scenarios without operations: their tables, charts and columns are those of flows.
#[test]
fn a_sweep_of_traffic_compares_flows() {
    let csv = std::env::temp_dir().join(format!("pleach-traffic-{}.csv", std::process::id()));
    let (file, path) = (scenario("tapered-tree"), csv.display().to_string());
    let output = pleach(&["simulate", &file, "--format", "html", "--csv", &path]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = text(&output.stdout);
    assert!(page.contains("Traffic and workloads") && page.contains("99th percentile"), "{page}");
    assert_eq!(page.matches("<svg").count(), 1);
    let written = std::fs::read_to_string(&csv).expect("the CSV file");
    let _ = std::fs::remove_file(&csv);
    let column = |line: &str, name: &str| {
        let head = written.lines().next().expect("a head").split(',').position(|field| field == name);
        line.split(',').nth(head.expect("the column")).expect("a cell").to_owned()
    };
    let times: Vec<f64> =
        written.lines().skip(1).map(|line| column(line, "flow_p99_ns").parse().expect("a time")).collect();
    assert!(times.len() == 3 && times.is_sorted(), "fewer cables, longer times: {times:?}");
    let table = text(&pleach(&["simulate", &file]).stdout);
    assert!(table.contains("p99 us") && table.contains("fabric.taper=4") && !table.contains("algorithm"), "{table}");
}

/// Regression: the exit status of a comparison was 0 although flows had failed.
#[test]
fn a_comparison_with_flows_that_fail_fails() {
    let lost = "\n[[fault]]\nkind = \"down\"\nlink = \"H3-S0\"\nat-us = 1\n";
    let scenario = std::fs::read_to_string(scenario("tapered-tree")).expect("a shipped scenario") + lost;
    let file = std::env::temp_dir().join(format!("pleach-traffic-{}.toml", std::process::id()));
    std::fs::write(&file, scenario).expect("a temporary file");
    let output = pleach(&["simulate", &file.display().to_string()]);
    let _ = std::fs::remove_file(&file);
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{table}{}", text(&output.stderr));
    assert!(table.contains("FAILED"), "{table}");
}

#[test]
fn several_files_are_compared_on_request() {
    let files = [scenario("k-ary-n-tree"), scenario("multicast-broadcast")];
    let several = ["simulate", &files[0], &files[1], "--operations", "2"];
    let output = pleach(&several);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("several scenarios need --compare"));
    let output = pleach(&[&several[..], &["--compare", "--format", "html"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = text(&output.stdout);
    assert!(page.contains("4-ary 4-tree") && page.contains("A broadcast by multicast"));
    // Medians by run, and latency by operation.
    assert_eq!(page.matches("<svg").count(), 2);
}

#[test]
fn a_wrong_value_of_a_swept_field_is_named() {
    let output = pleach(&["simulate", &scenario("torus"), "--set", "link.rate=EDR,WARP"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("error: link.rate: \"WARP\" is not one of its values"));
    let output = pleach(&["simulate", &scenario("torus"), "--set", "collective.algorithm=chain"]);
    assert!(
        text(&output.stderr)
            .starts_with("error: collective.algorithm: \"chain\" is not an algorithm of this operation")
    );
}

#[test]
fn hosts_reduce_what_the_oracle_expects_with_every_algorithm() {
    for (operation, algorithms) in [
        (
            "allreduce",
            &["ring", "rabenseifner", "recursive-doubling", "recursive-k-ing", "tree", "aggregation", "choose"][..],
        ),
        ("reduce", &["ring", "rabenseifner", "tree", "choose"]),
        ("broadcast", &["chain", "scatter-allgather", "tree", "aggregation", "choose"]),
        ("barrier", &["dissemination", "tree", "recursive-doubling", "choose"]),
    ] {
        let operation_set = format!("collective.operation={operation}");
        let algorithm_set = format!("collective.algorithm={}", algorithms.join(","));
        let file = std::env::temp_dir().join(format!("pleach-hosts-{operation}-{}.toml", std::process::id()));
        let count = if operation == "barrier" { "" } else { "count = 3001\n" };
        let lines = "[[fault]]\nkind = \"lose\"\nprobability = 0.0005\n";
        let fabric = "[fabric]\nkind = \"xgft\"\nchildren = [6, 7]\nparents = [1, 6]\n";
        std::fs::write(&file, format!("{fabric}[collective]\noperations = 3\n{count}{lines}")).expect("written");
        let report = report(&[&file.display().to_string(), "--set", &operation_set, "--set", &algorithm_set]);
        let _ = std::fs::remove_file(&file);
        for run in report["runs"].as_array().expect("a comparison") {
            assert_eq!((&run["violations"], &run["completed"]), (&0.into(), &3.into()), "{operation}: {run}");
        }
    }
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
        "flows",
        "latency",
        "machine",
        "operations",
        "oracle",
        "parameters",
        "scenario",
        "timeline",
        "trace",
        "tree_rebuilds",
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
    // Two histograms, latency by operation, errors, three charts over time and the fabric.
    assert_eq!(page.matches("<svg").count(), 8);
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
}

/// Regression: the page's footer had the time that the run took.
#[test]
fn a_seed_gives_the_same_page_but_for_machine_and_time() {
    let page = || {
        let run = ["simulate", &scenario("lossy-ethernet"), "--format", "html"];
        let page = text(&pleach(&run).stdout);
        let (before, rest) = page.split_once("<dl class=\"this-run\">").expect("a list of its own");
        let (_, after) = rest.split_once("</dl>").expect("its end");
        format!("{before}{after}")
    };
    assert_eq!(page(), page());
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
         = allowed: \"SDR\", \"DDR\", \"QDR\", \"FDR\", \"EDR\", \"HDR\", \"NDR\", \"XDR\", \
         \"10G\", \"25G\", \"40G\", \"50G\", \"100G\", \"200G\", \"400G\", \"800G\"\n",
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

#[test]
fn the_version_names_the_commit() {
    let said = text(&pleach(&["--version"]).stdout);
    assert!(said.starts_with(concat!("pleach ", env!("CARGO_PKG_VERSION"))), "{said}");
    // A checkout has a commit; a package of the sources has none.
    let is_checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.git").exists();
    let commit = said.trim().split_once(" (").and_then(|(_, commit)| commit.strip_suffix(')'));
    assert_eq!(commit.is_some_and(|commit| commit.len() == 10), is_checkout, "{said}");
}

#[test]
fn shells_complete_commands_and_man_shows_them() {
    for (shell, word) in [("bash", "complete -F _pleach"), ("zsh", "#compdef pleach"), ("fish", "complete -c pleach")]
    {
        let completions = text(&pleach(&["completions", shell]).stdout);
        assert!(completions.contains(word) && completions.contains("reproduce"), "{shell}");
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("man-pages");
    let written = pleach(&["man-pages", &folder.display().to_string()]);
    assert_eq!(written.status.code(), Some(0), "{}", text(&written.stderr));
    for page in ["pleach", "pleach-exec", "pleach-bench-mpi", "pleach-reproduce-sharp"] {
        let page = std::fs::read_to_string(folder.join(format!("{page}.1"))).expect("a page for every command");
        assert!(page.contains(".SH NAME") && page.contains(".SH OPTIONS"));
    }
    assert!(!folder.join("pleach-launch-rank.1").exists(), "hidden commands have no page");
}
