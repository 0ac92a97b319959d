//! `pleach bench` between hosts made of network namespaces, in small: it runs, its results are checked, its report is complete. Where
//! namespaces cannot be created, the tests print so and return.

use std::process::Command;

use namespaces::NamespaceNetwork;
use serde_json::Value;

/// Runs a benchmark. Times are not judged here, so that a missed target (exit status 1) is a success.
fn bench(arguments: &[&str]) -> Option<Value> {
    if let Err(error) = NamespaceNetwork::new(1) {
        namespaces::skip_test(error);
        return None;
    }
    let test = std::env::current_exe().expect("this test");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.arg("bench").args(arguments).args(["--rounds", "1", "--format", "json"]);
    // The library that was built with this test.
    command.env("PLEACH_MPI_LIBRARY", test.parent().expect("a folder"));
    let output = command.output().expect("pleach starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
    Some(serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}")))
}

#[test]
fn every_operation_is_measured_with_and_without_nodes_under_open_mpi() {
    let operations = "barrier,allreduce,bcast,reduce-scatter,allgather";
    let scene = ["mpi", "--scene", "hosts", "--quick", "--mpi", "mpirun.openmpi", "--hosts", "2", "--nodes", "0,1"];
    let matrix = ["--sizes", "8,4KiB", "--operations", operations, "--choice", "pleach,measure"];
    let Some(report) = bench(&[&scene[..], &matrix].concat()) else {
        return;
    };
    let hosts = &report["hosts"];
    assert_eq!(hosts["failures"], serde_json::json!([]), "{report}");
    assert_eq!((&hosts["tables"][0]["hosts"], &hosts["tables"][0]["mtu_bytes"]), (&2.into(), &1500.into()));
    let rows = hosts["tables"][0]["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2 * 2 * (1 + 4 * 2), "{report}");
    let by = |choice: &str| rows.iter().filter(|row| row["choice"] == choice).collect::<Vec<&Value>>();
    assert_eq!((by("pleach").len(), by("measure").len()), (rows.len() / 2, rows.len() / 2), "{report}");
    for row in by("measure") {
        assert_eq!(
            (&row["target"], &row["verdict_to_best"], &row["cpu_verdict"]),
            (&1.05.into(), &Value::Null, &Value::Null)
        );
    }
    for row in rows {
        for time in ["plain", "with", "plain_cpu", "with_cpu"] {
            assert!(row[time]["median"].as_f64() > Some(0.0), "{time}: {row}");
        }
    }
}

#[test]
fn processor_time_of_long_allreduces_is_judged_under_open_mpi() {
    let scene = ["mpi", "--scene", "hosts", "--quick", "--mpi", "mpirun.openmpi", "--hosts", "2", "--nodes", "0"];
    let Some(report) = bench(&[&scene[..], &["--sizes", "8,64KiB", "--operations", "allreduce"]].concat()) else {
        return;
    };
    let rows = report["hosts"]["tables"][0]["rows"].as_array().expect("rows");
    let targets: Vec<&Value> = rows.iter().map(|row| &row["cpu_target"]).collect();
    assert_eq!(targets, [&Value::Null, &1.0.into()], "{report}");
    assert!(rows[1]["cpu_verdict"].is_string(), "{report}");
}

#[test]
fn allreduces_between_hosts_are_compared_with_gloo_or_a_note_says_why_not() {
    let Some(report) = bench(&["mpi", "--scene", "gloo", "--quick"]) else { return };
    let Some(rows) = report["gloo"]["rows"].as_array() else {
        assert!(report["notes"].to_string().contains("python3-torch"), "{report}");
        return;
    };
    let sizes: Vec<&Value> = rows.iter().map(|row| &row["bytes"]).collect();
    assert_eq!(sizes, [&Value::from(1 << 20), &(25 << 20).into()], "{report}");
    for row in rows {
        assert!(row["verdict"].is_string() && row["target"] == 0.6, "{report}");
        for time in ["gloo", "pleach", "ratio", "gloo_cpu", "pleach_cpu"] {
            assert!(row[time]["median"].as_f64() > Some(0.0), "{time}: {row}");
        }
    }
}

/// Messages compared with one MPI: every size has times and a verdict.
fn messages_are_judged(mpi: &str) {
    let Some(report) = bench(&["pingpong", "--quick", "--between", "namespaces", "--mpi", mpi]) else { return };
    assert_eq!(report["mpis"].as_array().map(Vec::len), Some(1), "{report}");
    for row in report["rows"].as_array().expect("rows") {
        let mpi = &row["mpi"];
        assert!(mpi["us"]["median"].as_f64() > Some(0.0) && mpi["verdict"].is_string(), "{report}");
        assert_eq!((&mpi["target"], &mpi["best"]), (&0.9.into(), &report["mpis"][0]), "{report}");
    }
}

#[test]
fn messages_between_hosts_are_judged_under_open_mpi() {
    messages_are_judged("mpirun.openmpi");
}

#[test]
fn messages_between_hosts_are_judged_under_mpich() {
    messages_are_judged("mpirun.mpich");
}

#[test]
fn messages_between_hosts_are_compared_with_bare_sockets() {
    let arguments = ["pingpong", "--quick", "--between", "namespaces", "--mtu", "1500", "--against", "none"];
    let Some(report) = bench(&arguments) else { return };
    assert_eq!((&report["mtu_bytes"], &report["between"]), (&1500.into(), &"namespaces".into()));
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 4, "{report}");
    for time in ["checked_us", "unchecked_us", "plain_udp_us", "of_plain_udp"] {
        assert!(rows.iter().all(|row| row[time]["median"].as_f64() > Some(0.0)), "{time}: {report}");
    }
    // A busy machine may lose a datagram of the bare sockets, which send nothing again; a note says so then.
    let measured = rows.iter().all(|row| row["limit_us"]["median"].as_f64() > Some(0.0));
    assert!(measured || report["notes"].to_string().contains("bare loop"), "{report}");
}
