//! `pleach reproduce quadrics`, small: gated numbers hold, and every other difference has an explanation.

use std::process::{Command, Output};

use serde_json::Value;

fn quadrics(arguments: &[&str]) -> Output {
    let all = [&["reproduce", "quadrics", "--quick"], arguments].concat();
    Command::new(env!("CARGO_BIN_EXE_pleach")).args(all).output().expect("pleach starts")
}

#[test]
fn gated_numbers_hold_and_every_difference_is_explained() {
    let output = quadrics(&["--nodes", "256", "--format", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let comparisons = report["comparisons"].as_array().expect("a list");
    for row in comparisons {
        let matched = row["verdict"] == "match" || row["verdict"] == "equal";
        assert!(matched || row["gated"] == false, "{row}");
        assert_eq!(matched, row["remark"] == "", "{row}");
    }
    // The calibration uses only the ping and the idle barriers on 16 nodes; the noise has its own two inputs.
    let with = |role: &str| {
        let rows = comparisons.iter().filter(|row| row["label"] == role);
        rows.filter_map(|row| row["id"].as_str()).collect::<Vec<_>>()
    };
    let one_number = ["hgsync-idle-4", "hgsync-idle-8", "hgsync-idle-16"];
    assert!(
        with("calibrated")
            .iter()
            .all(|id| id.starts_with("ping-") || id.ends_with("-idle-16") || one_number.contains(id))
    );
    assert_eq!(with("input"), ["below-hgsync-idle-9", "above-hgsync-idle-20"]);
    // The effect of load is a curve over the size of the background's messages, which the paper does not give.
    let curve = report["congestion"].as_array().expect("a list");
    let slower = |point: &Value| point["software_slower"].as_f64() > point["hardware_slower"].as_f64();
    assert!(curve.len() == 5 && curve.iter().all(slower), "{curve:?}");
    assert!(
        report["gates"].as_array().expect("a list").iter().all(|gate| gate["holds"] == true),
        "{}",
        report["gates"]
    );
    let sizes = report["scale"].as_array().expect("a list");
    assert_eq!(sizes.iter().map(|size| &size["nodes"]).collect::<Vec<_>>(), [64, 256]);
}

#[test]
fn the_page_has_all_charts_and_a_seed_reproduces_every_number() {
    let page = || quadrics(&["--nodes", "64", "--calls", "40", "--format", "html"]).stdout;
    let text = String::from_utf8(page()).expect("UTF-8");
    for wanted in [
        "Barriers by nodes",
        "Distributions",
        "barriers by nodes, in us",
        "256 KB by nodes",
        "several roots",
        "Figure 15",
    ] {
        assert!(text.contains(wanted), "{wanted}");
    }
    let again = String::from_utf8(page()).expect("UTF-8");
    assert_eq!(without_this_run(&text), without_this_run(&again));
}

/// The page without the machine and the time, which are a list of their own.
fn without_this_run(page: &str) -> String {
    let (before, rest) = page.split_once("<dl class=\"this-run\">").expect("the list");
    let (_, after) = rest.split_once("</dl>").expect("its end");
    format!("{before}{after}")
}

#[test]
fn other_parameters_are_used_and_invalid_ones_are_named() {
    let shipped = include_str!("../../../experiments/quadrics/parameters.toml");
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let run = |name: &str, from: &str, to: &str| {
        assert!(shipped.contains(from), "{from}");
        let file = folder.join(name);
        std::fs::write(&file, shipped.replace(from, to)).expect("a writable folder");
        quadrics(&["--calls", "20", "--nodes", "0", "--parameters", &file.display().to_string()])
    };
    let slow = run("slow-switches.toml", "switch-ns = 35.0", "switch-ns = 350.0");
    assert_eq!(slow.status.code(), Some(1), "with slow switches the ping is not reproduced");
    let wrong = run("flat-tree.toml", "dimension = 3", "dimension = 0");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("fabric.dimension: 0 is not between 3 and 8"));
    let stuck = run("slow-links.toml", "link-megabytes = 396.0", "link-megabytes = 1.0");
    assert_eq!(stuck.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&stuck.stderr).contains("takes more than a second of virtual time"));
    let nowhere = quadrics(&["--output", "/no/such/folder/report.html"]);
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("the folder /no/such/folder does not exist"));
}
