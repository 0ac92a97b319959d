//! `pleach pingpong` as a user runs it: two processes over loopback.

use std::io::Read;
use std::process::{Child, Command, Output, Stdio};

/// Starts a server on a port that only this test uses.
fn listen(port: &str) -> Child {
    let mut server = Command::new(env!("CARGO_BIN_EXE_pleach"))
        .args(["pingpong", "--listen", "--bind", "127.0.0.1", "--udp-port", "0", "--port", port, "--limit", "20"])
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("pleach starts");
    // It prints this when it listens.
    let mut said = [0; 9];
    server.stderr.as_mut().expect("piped").read_exact(&mut said).expect("it prints a line");
    assert_eq!(&said, b"listening");
    server
}

fn connect(port: &str, more: &[&str]) -> Output {
    let arguments =
        ["pingpong", "127.0.0.1", "--bind", "127.0.0.1", "--udp-port", "0", "--port", port, "--limit", "20"];
    Command::new(env!("CARGO_BIN_EXE_pleach")).args(arguments).args(more).output().expect("pleach starts")
}

#[test]
fn every_returned_message_is_compared_while_packets_are_lost_and_corrupted() {
    let mut server = listen("28515");
    let faults = ["--size", "5000", "-n", "50", "--drop", "20", "--corrupt", "20", "--format", "json"];
    let client = connect("28515", &faults);
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    let score: serde_json::Value = serde_json::from_slice(&client.stdout).expect("JSON");
    assert_eq!((score["compared"].as_u64(), score["altered"].as_u64()), (Some(50), Some(0)));
    assert!(score["packets_repeated"].as_u64() > Some(0), "{score}");
    assert!(server.wait().expect("it ends").success());
}

/// A regression test: the peer was contacted first, and gave up when nothing followed.
#[test]
fn an_invalid_plan_is_reported_with_its_line_before_connecting() {
    let plan = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("pingpong-mistake.toml");
    std::fs::write(&plan, "[[fault]]\nkind = \"lose\"\nlink = \"S0>S8\"\n")
        .expect("the target folder can be written to");
    let mut server = listen("28516");
    let mistaken = connect("28516", &["--fault", &plan.display().to_string()]);
    let said = String::from_utf8_lossy(&mistaken.stderr).into_owned();
    assert_eq!(mistaken.status.code(), Some(2), "{said}");
    assert!(said.contains("line 3") && said.contains("port 0"), "{said}");
    assert!(connect("28516", &["-n", "3"]).status.success());
    assert!(server.wait().expect("it ends").success());
}
