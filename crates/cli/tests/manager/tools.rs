//! `pleach top`, `pleach doctor` and metrics, against a manager and a node that are processes.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::process::*;

/// A manager with one node.
fn pair() -> (Process, Process) {
    let manager = Process::start(&["manager", "--listen", "127.0.0.1:0"]);
    let node = Process::start(&["node", "--manager", &manager.line, "--name", "only"]);
    wait_for_nodes(&mut client(&manager), 1);
    (manager, node)
}

#[test]
fn top_prints_one_view_without_a_terminal() {
    let (manager, _node) = pair();
    let mut client = client(&manager);
    client.open_job("weather", None).expect("admitted");
    client.open_group(request(3)).expect("opened");
    client.open_group(request(1)).expect_err("one host has nothing to fold");
    let (status, table) = output_of(&["top", "--manager", &manager.line, "--interval", "0.2"]);
    assert_eq!(status, 0, "{table}");
    for words in ["1 of 1 node", "weather", "below only", "NODE", "only", "groups refused: too few hosts", "OP/S"] {
        assert!(table.contains(words), "no {words:?} in\n{table}");
    }
    assert!(!table.contains('\x1b'), "no escape sequences without a terminal");
    let (_, text) =
        output_of(&["top", "--once", "--manager", &manager.line, "--format", "json", "--interval", "0.2"]);
    let view: Value = serde_json::from_str(&text).expect("one object");
    assert_eq!(view["nodes"][0]["name"], "only");
    assert_eq!((&view["jobs"][0]["refused"], &view["jobs"][0]["groups"]), (&1.into(), &1.into()));
    assert_eq!((&view["groups"][0]["leaders"], &view["groups"][0]["phase"]), (&3.into(), &"open".into()));
    assert_eq!(view["errors"]["groups refused: too few hosts"], 1);
    assert!(view["nodes"][0]["operations_per_second"].is_number(), "{view}");
}

/// What ibnetdiscover prints about two leaves of a host each below a spine.
const DISCOVERED: &str = "\
vendid=0x2c9
devid=0xc738
switchguid=0x1(1)
Switch\t4 \"S-1\"\t# \"leaf one\" base port 0 lid 1 lmc 0
[1]\t\"H-1\"[1](1)\t# \"node1 HCA-1\" lid 2 4xFDR
[2]\t\"S-2\"[1]\t# \"spine\" lid 3 4xFDR
Switch\t4 \"S-2\"\t# \"spine\" base port 0 lid 3 lmc 0
[1]\t\"S-1\"[2]\t# \"leaf one\" lid 1 4xFDR
[2]\t\"S-3\"[2]\t# \"leaf two\" lid 4 4xFDR
Switch\t4 \"S-3\"\t# \"leaf two\" base port 0 lid 4 lmc 0
[1]\t\"H-2\"[1](2)\t# \"node2 mlx5_0\" lid 5 4xFDR
[2]\t\"S-2\"[2]\t# \"spine\" lid 3 4xFDR
Ca\t1 \"H-1\"\t# \"node1 HCA-1\"
[1](1)\t\"S-1\"[1]\t# lid 2 lmc 0 \"leaf one\" lid 1 4xFDR
Ca\t1 \"H-2\"\t# \"node2 mlx5_0\"
[1](2)\t\"S-3\"[1]\t# lid 5 lmc 0 \"leaf two\" lid 4 4xFDR
";

#[test]
fn nodes_take_the_places_of_the_switches_that_ibnetdiscover_found() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("discovered.topo");
    std::fs::write(&file, DISCOVERED).expect("the target folder can be written to");
    let manager = Process::start(&["manager", "--listen", "127.0.0.1:0", "--topology", &file.display().to_string()]);
    let start = |name| Process::start(&["node", "--manager", &manager.line, "--name", name]);
    let _nodes = ["spine", "leaf-one"].map(start);
    wait_for_nodes(&mut client(&manager), 2);
    let arguments = ["top", "--once", "--manager", &manager.line, "--format", "json", "--interval", "0.2"];
    let view: Value = serde_json::from_str(&output_of(&arguments).1).expect("one object");
    let parents = |name: &str| {
        let nodes = view["nodes"].as_array().expect("a list");
        nodes.iter().find(|node| node["name"] == name).unwrap_or_else(|| panic!("no {name}: {view}"))["parents"]
            .clone()
    };
    assert_eq!((parents("leaf-one"), parents("spine")), (json!(["spine"]), json!([])));
}

#[test]
fn doctor_checks_this_machine() {
    let output = pleach(&["doctor", "--format", "json"]).output().expect("the binary is there");
    let diagnosis: Value = serde_json::from_slice(&output.stdout).expect("one object");
    let findings = diagnosis["findings"].as_array().expect("a list");
    for what in ["processors", "vector units", "shared memory", "huge pages", "locked memory", "open files", "clock"]
        .into_iter()
        .chain(["UDP", "packets per call", "receive buffers", "send buffers", "multicast", "IPv6", "raw sockets"])
        .chain(["namespaces", "RDMA", "MPI"])
    {
        let finding = findings.iter().find(|finding| finding["what"] == what).unwrap_or_else(|| panic!("no {what}"));
        assert!(finding["found"].as_str().is_some_and(|found| !found.is_empty()), "{finding}");
        let advised = finding["advice"].as_str().is_some_and(|advice| !advice.is_empty());
        assert_eq!(advised, finding["verdict"] != "good", "{finding}");
    }
    let broken = findings.iter().any(|finding| finding["verdict"] == "broken");
    assert_eq!(output.status.code(), Some(i32::from(broken)));
    let (_, table) = output_of(&["doctor"]);
    assert!(table.contains("shared memory") && !table.contains("manager"), "{table}");
}

#[test]
fn doctor_checks_the_manager_and_the_secret() {
    let (manager, node) = pair();
    let (status, table) = output_of(&["doctor", "--manager", &manager.line]);
    assert_eq!(status, 0, "{table}");
    for words in ["same as the manager's", "all 0.2.0", "1 node in 1 tree"] {
        assert!(table.contains(words), "no {words:?} in\n{table}");
    }
    drop(node);
    until("the loss is known", || output_of(&["doctor", "--manager", &manager.line]).1.contains("pleach node"));
    for secret in ["not the right one", ""] {
        let mut command = pleach(&["doctor", "--format", "json", "--manager", &manager.line]);
        let output = command.env("PLEACH_SECRET", secret).output().expect("the binary is there");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{text}");
        let diagnosis: Value = serde_json::from_str(&text).expect("one object");
        let findings = diagnosis["findings"].as_array().expect("a list");
        assert!(
            findings.iter().any(|finding| finding["what"] == "secret" && finding["verdict"] == "broken"),
            "{text}"
        );
    }
    let (status, table) = output_of(&["doctor", "--manager", "127.0.0.1:1"]);
    assert!(status == 1 && table.contains("BROKEN") && table.contains("firewall"), "{table}");
}

#[test]
fn doctor_explains_why_a_job_used_aggregation_or_did_not() {
    let (manager, _node) = pair();
    let mut client = client(&manager);
    let ask = || output_of(&["doctor", "--manager", &manager.line, "--job", "weather"]);
    let (status, text) = ask();
    assert!(status == 1 && text.contains("PLEACH_MANAGER"), "{text}");
    client.open_job("weather", None).expect("admitted");
    let mut large = request(3);
    (large.window, large.segment_bytes) = (1_024, 1 << 20);
    client.open_group(large).expect_err("too large");
    let (status, text) = ask();
    assert!(status == 1 && text.contains("every group was rejected") && text.contains("node only has"), "{text}");
    client.open_group(request(3)).expect("opened");
    let (status, text) = ask();
    assert!(status == 0 && text.contains("it had 1 group") && text.contains("1 group rejected"), "{text}");
    let arguments = ["doctor", "--manager", &manager.line, "--job", "weather", "--format", "json"];
    let explanation: Value = serde_json::from_str(&output_of(&arguments).1).expect("one object");
    assert_eq!(explanation["aggregation"], true);
    assert_eq!(explanation["accounts"][0]["totals"]["opened"], 1);
}

/// Both ends of a control connection say their version first, so that each can name both.
#[test]
fn a_peer_with_another_version_is_rejected_with_both_numbers() {
    let manager = Process::start(&["manager", "--listen", "127.0.0.1:0"]);
    let mut peer = TcpStream::connect(manager.address()).expect("it listens");
    peer.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut hello = vec![0; 1024];
    let length = peer.read(&mut hello).expect("the manager says hello");
    hello.truncate(length);
    // The same, of another version.
    let field = b"\"pleach\":";
    let at = hello.windows(field.len()).position(|bytes| bytes == field).expect("a version") + field.len();
    let ours = char::from(std::mem::replace(&mut hello[at], b'9'));
    assert!(ours.is_ascii_digit() && ours != '9', "{ours}");
    peer.write_all(&hello).expect("it listens");
    assert_eq!(peer.read(&mut [0; 1024]).unwrap_or_default(), 0, "the connection is closed");
    let counted = "connections dropped: not a Pleach peer";
    let top = ["top", "--once", "--manager", &manager.line, "--interval", "0.1"];
    until("the manager has counted and logged it", || output_of(&top).1.contains(counted));
    let log = manager.end();
    let expected =
        format!("the peer has version 9 of the control protocol, this process {ours}; run the same Pleach version");
    assert!(log.contains(&expected), "{log}");
}

/// A rank of the test below: sums until the given file is removed.
#[test]
#[ignore = "another test launches it"]
fn as_a_rank() {
    let Ok(continue_file) = std::env::var("PLEACH_TEST_FILE") else { return }; // Not launched by a test.
    let world = pleach::join().expect("all ranks join");
    // All ranks end after the same sum, which the first rank determines.
    for _ in 0..100_000 {
        let is_wanted = world.rank() != 0 || std::path::Path::new(&continue_file).exists();
        let mut wanted = [i64::from(is_wanted)];
        world.all_reduce(&mut wanted, pleach::Operator::Min).expect("all are there");
        if wanted == [0] {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn top_and_doctor_show_a_job_while_it_runs_and_afterwards() {
    let (manager, _node) = pair();
    let file = std::env::temp_dir().join(format!("pleach-test-job-{}", std::process::id()));
    std::fs::write(&file, "").expect("a place for files");
    let own = std::env::current_exe().expect("this test");
    let mut ranks = pleach(&["launch", "-n", "3", "--ranks-per-host", "1", "--job", "weather", "--manager"]);
    ranks.arg(&manager.line).arg("--").arg(own).args(["--exact", "tools::as_a_rank", "--ignored", "--nocapture"]);
    ranks.env("PLEACH_SECRET", SECRET).env("PLEACH_TEST_FILE", &file).stdout(std::process::Stdio::null());
    let mut ranks = ranks.spawn().expect("pleach is there");
    let ask = || output_of(&["doctor", "--manager", &manager.line, "--job", "weather"]);
    until("nodes have reduced something", || ask().1.contains("in which nodes reduced"));
    let (_, table) = output_of(&["top", "--manager", &manager.line, "--interval", "0.2"]);
    assert!(table.contains("1 job,") && table.contains("weather-"), "{table}");
    std::fs::remove_file(&file).expect("it was there");
    assert!(ranks.wait().expect("it ends").success());
    until("the job has ended", || ask().1.contains(", ended"));
    let (status, text) = ask();
    assert!(status == 0 && text.contains("weather: aggregation was used"), "{text}");
}
