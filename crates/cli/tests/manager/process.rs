//! `pleach` as a process that does not outlive the test.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use control::{ClusterSecret, ManagerClient};
use manager::{GroupLeader, GroupRequest};
use units::Rank;

pub(crate) const SECRET: &str = "correct horse battery staple";
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A process, and the first line that it printed.
pub(crate) struct Process {
    child: Child,
    pub(crate) line: String,
}

impl Process {
    /// With the secret of these tests.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::run(pleach(arguments).env("PLEACH_SECRET", SECRET))
    }

    pub(crate) fn run(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary is there");
        let mut line = String::new();
        let output = child.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("it prints where it is");
        Self { child, line: line.trim().to_owned() }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.line.parse().unwrap_or_else(|_| panic!("{:?} is no address", self.line))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it; all that it logged.
    pub(crate) fn end(mut self) -> String {
        let _ = self.child.kill();
        let mut text = String::new();
        self.child.stderr.take().expect("it is piped").read_to_string(&mut text).expect("text");
        text
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Another build of the program to test: figures are those of what users install.
const PROGRAM: &str = "PLEACH_TEST_PROGRAM";

/// True if the program was not built with the assertions of tests.
pub(crate) fn is_as_users_have_it() -> bool {
    std::env::var_os(PROGRAM).is_some() || !cfg!(debug_assertions)
}

/// Without the settings of the user who runs the tests.
pub(crate) fn pleach(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os(PROGRAM).unwrap_or_else(|| env!("CARGO_BIN_EXE_pleach").into()));
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("PLEACH_")) {
            command.env_remove(name);
        }
    }
    command
}

/// The stderr of a command that must fail.
pub(crate) fn fails(arguments: &[&str]) -> String {
    let Output { status, stderr, .. } = pleach(arguments).output().expect("the binary is there");
    assert_eq!(status.code(), Some(2), "{arguments:?}");
    String::from_utf8(stderr).expect("text")
}

/// Exit status and standard output of a command that ends by itself, with the secret of these tests.
pub(crate) fn output_of(arguments: &[&str]) -> (i32, String) {
    let output = pleach(arguments).env("PLEACH_SECRET", SECRET).output().expect("the binary is there");
    let text = String::from_utf8(output.stdout).expect("text");
    (output.status.code().unwrap_or(-1), text + &String::from_utf8_lossy(&output.stderr))
}

pub(crate) fn client(manager: &Process) -> ManagerClient {
    ManagerClient::connect(manager.address(), ClusterSecret::new(SECRET).ok(), PATIENCE).expect("it is there")
}

/// Waits until something holds, but not for ever.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn wait_for_nodes(client: &mut ManagerClient, count: usize) {
    until("the nodes register", || {
        client.status().expect("it answers").nodes.iter().filter(|node| node.alive).count() >= count
    });
}

/// A group of leaders without processes.
pub(crate) fn request(leaders: u32) -> GroupRequest {
    let leader = |rank: u32| GroupLeader {
        rank: Rank(rank),
        host: format!("host{rank}"),
        addresses: vec![SocketAddr::from(([127, 0, 0, 1], 9))],
    };
    let leaders = (0..leaders).map(leader).collect();
    GroupRequest { leaders, window: 4, segment_bytes: 256, distribution: Default::default(), avoid: Vec::new() }
}

/// The TCP ports on which a process listens.
pub(crate) fn listening_ports(id: u32) -> Vec<u16> {
    let open = std::fs::read_dir(format!("/proc/{id}/fd")).expect("it lives").flatten();
    let sockets: Vec<String> = open
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel tells");
    let listens = |line: &str| -> Option<u16> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_ours = *fields.get(3)? == "0A" && sockets.iter().any(|socket| Some(&socket.as_str()) == fields.get(9));
        u16::from_str_radix(fields[1].split(':').nth(1)?, 16).ok().filter(|_| is_ours)
    };
    table.lines().filter_map(listens).collect()
}

/// CPU time of a process, in steps of 10 ms.
pub(crate) fn processor_time(id: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).expect("it lives");
    let fields: Vec<&str> = text.rsplit_once(") ").expect("a name in brackets").1.split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}
