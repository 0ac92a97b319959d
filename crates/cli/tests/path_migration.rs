//! `pleach reproduce path-migration`, small: every kernel survives its cuts with the correct result.

use std::process::Command;

use serde_json::Value;

#[test]
#[ignore = "long: all kernels as processes, each with and without a cut"]
fn every_kernel_is_correct_with_and_without_a_cut() {
    let arguments = ["reproduce", "path-migration", "--seconds", "0.3", "--cuts", "2", "--format", "json"];
    let output = Command::new(env!("CARGO_BIN_EXE_pleach")).args(arguments).output().expect("pleach starts");
    // Times of this machine are reported and not gated: they mean nothing while other tests run.
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{complaint}{}", String::from_utf8_lossy(&output.stdout));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let kernels = report["kernels"].as_array().expect("a list");
    let names: Vec<&str> = kernels.iter().filter_map(|kernel| kernel["kernel"].as_str()).collect();
    assert_eq!(names, ["IS", "FT", "LU"]);
    for kernel in kernels {
        assert_eq!(kernel["wrong"], 0, "{}", kernel["kernel"]);
        let runs = kernel["runs"].as_array().expect("a list");
        let candidates: Vec<&str> = runs.iter().filter_map(|run| run["candidate"].as_str()).collect();
        assert_eq!(candidates, ["armed", "silent", "plain", "noticed", "armed"]);
        for run in runs.iter().filter(|run| run["cut"].is_array()) {
            assert!(run["moved"].as_u64() > Some(0), "{}: {run}", kernel["kernel"]);
        }
    }
    let statements = report["measured"].as_array().expect("a list");
    assert!(statements.iter().all(|row| row["claim"].as_str().is_some_and(|claim| claim.starts_with("PM-"))));
    assert!(statements.iter().all(|row| row["gated"] == false));
}
