//! `pleach manager` and `pleach node` as processes: they find each other, and a client gets a group.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use protocol::manager::{GroupRequest, Leader};
use runtime::control::{ManagerClient, Notice, Secret};
use units::Rank;

const SECRET: &str = "correct horse battery staple";
const PATIENCE: Duration = Duration::from_secs(20);

/// A process that does not outlive the test, and the first line that it printed.
struct Process {
    child: Child,
    line: String,
}

impl Process {
    fn start(arguments: &[&str]) -> Self {
        let mut child = pleach(arguments)
            .env("PLEACH_SECRET", SECRET)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary is there");
        let mut line = String::new();
        let output = child.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("it prints where it is");
        Self { child, line: line.trim().to_owned() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pleach(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.args(arguments);
    for variable in ["CONFIG", "LISTEN", "MANAGER", "NODE_NAME", "SECRET", "SECRET_FILE", "TOPOLOGY"] {
        command.env_remove(format!("PLEACH_{variable}"));
    }
    command
}

fn fails(arguments: &[&str]) -> String {
    let Output { status, stderr, .. } = pleach(arguments).output().expect("the binary is there");
    assert_eq!(status.code(), Some(2), "{arguments:?}");
    String::from_utf8(stderr).expect("text")
}

#[test]
fn nodes_find_the_manager_and_a_client_gets_a_group() {
    let manager = Process::start(&["manager", "--listen", "127.0.0.1:0"]);
    let node = |name: &str, parent: &[&str]| {
        Process::start(&[&["node", "--manager", &manager.line, "--name", name], parent].concat())
    };
    let _top = node("top", &[]);
    let left = node("left", &["--parent", "top"]);
    let _right = node("right", &["--parent", "top", "--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"]);
    let address: SocketAddr = manager.line.parse().expect("the manager prints its address");
    let mut client = ManagerClient::connect(address, Secret::new(SECRET).ok(), PATIENCE).expect("it is there");
    let began = Instant::now();
    while client.status().expect("it answers").nodes.iter().filter(|node| node.alive).count() < 3 {
        assert!(began.elapsed() < PATIENCE, "the nodes did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
    client.open_job("test", None).expect("admitted");
    let leader = |rank: u32| Leader {
        rank: Rank(rank),
        host: format!("host{rank}"),
        addresses: vec![SocketAddr::from(([127, 0, 0, 1], 9))],
    };
    let leaders = (0..4).map(leader).collect();
    let request =
        GroupRequest { leaders, window: 4, segment_bytes: 256, distribution: Default::default(), avoid: Vec::new() };
    let group = client.open_group(request.clone()).expect("opened");
    assert_eq!(group.seats.len(), 3);
    assert_eq!(group.seats[1].addresses, [left.line.parse().expect("a node prints its address")]);
    assert_eq!(group.seats[2].addresses.len(), 2);
    drop(left);
    let notice = loop {
        assert!(began.elapsed() < 2 * PATIENCE, "the job did not hear of the lost node");
        if let Some(notice) = client.poll_notice() {
            break notice;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(matches!(notice, Notice::Revoked { node: Some(name), .. } if name == "left"));
    client.open_group(request).expect("opened without it");
}

#[test]
fn what_is_wrong_is_said_with_what_to_do() {
    let folder = std::env::temp_dir().join(format!("pleach-manager-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("a plain name").to_owned()
    };
    let circle = file("circle.toml", "[[node]]\nname='a'\nparents=['b']\n[[node]]\nname='b'\nparents=['a']\n");
    let unknown = file("unknown.toml", "lisen = '127.0.0.1:0'\n");
    let short = file("short", "123");
    for (arguments, words) in [
        (vec!["manager", "--listen", "0.0.0.0:0"], "--open"),
        (vec!["manager", "--listen", "nonsense"], "HOST:PORT"),
        (vec!["manager", "--listen", "127.0.0.1:0", "--topology", &circle], "above itself"),
        (vec!["manager", "--listen", "127.0.0.1:0", "--fanout", "1"], "--fanout 2"),
        (vec!["manager", "--config", &unknown], "lisen"),
        (vec!["manager", "--secret-file", &short], "at least 8 characters"),
        (vec!["node", "--listen", "192.0.2.1:0"], "of this machine"),
        (vec!["node", "--control", "0.0.0.0:0"], "--control"),
    ] {
        let said = fails(&arguments);
        assert!(said.contains(words), "{arguments:?} said: {said}");
    }
    std::fs::remove_dir_all(&folder).expect("removed");
}
