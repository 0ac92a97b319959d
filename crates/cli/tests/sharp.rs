//! `pleach reproduce sharp`, small: gated numbers hold, and every other difference has an explanation.

use std::process::{Command, Output};

use serde_json::Value;

fn sharp(arguments: &[&str]) -> Output {
    let all = [&["reproduce", "sharp", "--quick", "--calls", "200"], arguments].concat();
    Command::new(env!("CARGO_BIN_EXE_pleach")).args(all).output().expect("pleach starts")
}

fn rows<'a>(report: &'a Value, list: &str) -> &'a Vec<Value> {
    report[list].as_array().expect("a list")
}

#[test]
fn gated_numbers_hold_and_every_difference_is_explained() {
    let output = sharp(&["--hosts", "1024", "--format", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let comparisons = rows(&report, "comparisons");
    assert_eq!(comparisons.len(), 173, "all numbers of Tables I to VII, and the effect of children");
    for row in comparisons {
        let matched = row["verdict"] == "match" || row["verdict"] == "equal";
        assert!(matched || row["gated"] == false, "{row}");
        assert_eq!(matched, row["remark"] == "", "{row}");
    }
    assert_eq!(report["summary"]["calibrated_parameters"], 6, "each number counts, and more are too many");
    // The calibration uses only two columns of Table I and one row of Table VI, under whatever name.
    let with = |label: &str| {
        let rows = comparisons.iter().filter(|row| row["label"] == label);
        rows.filter_map(|row| row["id"].as_str()).collect::<Vec<_>>()
    };
    assert_eq!(with("calibrated").len(), 14 + 1 + 4 + 3);
    assert!(with("calibrated").iter().all(|id| {
        id.starts_with("native-32-")
            || id.starts_with("native-64-")
            || *id == "children-32-64"
            || id.ends_with("-1024")
    }));
    assert!(with("predicted").iter().all(|id| !id.ends_with("-1024")));
    assert!(rows(&report, "gates").iter().all(|gate| gate["holds"] == true), "{}", report["gates"]);
    let sizes = rows(&report, "scale");
    assert_eq!(sizes.iter().map(|size| &size["radix"]).collect::<Vec<_>>(), [36, 64, 128]);
    assert!(sizes.iter().all(|size| size["hosts"].as_u64() >= Some(1024) && size["hosts_us"].is_f64()), "{sizes:?}");
}

#[test]
fn the_page_has_the_chart_beyond_the_paper_and_a_seed_reproduces_every_number() {
    let page = sharp(&["--hosts", "1024", "--hosts-alone", "0", "--format", "html"]);
    assert!(page.status.success());
    let text = String::from_utf8(page.stdout.clone()).expect("UTF-8");
    assert!(text.contains("Beyond the paper") && text.contains(">aggregation, 128<"));
    assert!(!text.contains(">hosts alone, 128<"), "omitted on request");
    let again = sharp(&["--hosts", "1024", "--hosts-alone", "0", "--format", "html"]).stdout;
    assert_eq!(without_this_run(&text), without_this_run(&String::from_utf8(again).expect("UTF-8")));
}

/// The page without the machine and the time, which are a list of their own.
fn without_this_run(page: &str) -> String {
    let (before, rest) = page.split_once("<dl class=\"this-run\">").expect("the list");
    let (_, after) = rest.split_once("</dl>").expect("its end");
    format!("{before}{after}")
}

#[test]
fn other_parameters_are_used_and_invalid_ones_are_named() {
    let shipped = include_str!("../../../experiments/sharp/parameters.toml");
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let run = |name: &str, from: &str, to: &str| {
        assert!(shipped.contains(from), "{from}");
        let file = folder.join(name);
        std::fs::write(&file, shipped.replace(from, to)).expect("a writable folder");
        sharp(&["--hosts", "0", "--parameters", &file.display().to_string()])
    };
    let slow = run("slow.toml", "stage-ns = 240.0", "stage-ns = 2400.0");
    assert_eq!(slow.status.code(), Some(1), "with slow units Table I is not reproduced");
    assert!(String::from_utf8_lossy(&slow.stdout).contains("A gated number does not hold."));
    let wrong = run("wrong.toml", "leaves = 8", "leaves = 0");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("fabric.leaves: 0 is not between 1 and 32"));
}
