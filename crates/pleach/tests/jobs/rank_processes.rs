//! Real processes for a test: the test binary starts itself once per rank.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "PLEACH_TEST_ROLE";
/// Against hangs only: a busy machine takes a hundred times as long as an idle one.
const TIMEOUT: Duration = Duration::from_secs(240);

/// A job of several processes.
pub(crate) struct RankProcesses<'t> {
    pub(crate) test: &'t str,
    pub(crate) ranks: u32,
    pub(crate) variables: Vec<(&'t str, String)>,
    /// A command before each rank's own.
    pub(crate) prefix: Vec<String>,
}

impl<'t> RankProcesses<'t> {
    pub(crate) fn new(test: &'t str, ranks: u32) -> Self {
        Self { test, ranks, variables: Vec::new(), prefix: Vec::new() }
    }

    pub(crate) fn with(mut self, name: &'t str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// In a rank's process runs `body`; otherwise starts all ranks and expects each to succeed.
    pub(crate) fn run(self, body: impl FnOnce()) {
        if is_rank() {
            return body();
        }
        for (rank, (status, stderr)) in self.start().into_iter().map(wait_with_stderr).enumerate() {
            assert_eq!(status, Some(0), "rank {rank} of {}: {stderr}", self.test);
        }
    }

    /// Starts all ranks.
    pub(crate) fn start(&self) -> Vec<Child> {
        let rendezvous = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
        let program = std::env::current_exe().expect("this program");
        let start = |rank: u32| {
            let mut words = self.prefix.iter().map(OsStr::new).chain([program.as_os_str()]);
            Command::new(words.next().expect("at least the program"))
                .args(words)
                .args(["--exact", self.test, "--nocapture"])
                .env(ROLE, "rank")
                .env("PLEACH_RANK", rank.to_string())
                .env("PLEACH_SIZE", self.ranks.to_string())
                .env("PLEACH_HOST", format!("host{rank}"))
                .env("PLEACH_RENDEZVOUS", rendezvous.to_string())
                .env("PLEACH_TOKEN", format!("{}-{}", self.test, std::process::id()))
                .envs(self.variables.iter().map(|(name, value)| (*name, value)))
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("a process")
        };
        (0..self.ranks).map(start).collect()
    }
}

pub(crate) fn is_rank() -> bool {
    std::env::var_os(ROLE).is_some()
}

/// Waits for a process, and kills it after a timeout: its exit status and its stderr.
pub(crate) fn wait_with_stderr(mut child: Child) -> (Option<i32>, String) {
    let began = Instant::now();
    let status = loop {
        match child.try_wait().expect("a child of this process") {
            Some(status) => break status.code(),
            None if began.elapsed() > TIMEOUT => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let mut stderr = String::new();
    if let Some(mut stream) = child.stderr.take() {
        let _ = std::io::Read::read_to_string(&mut stream, &mut stderr);
    }
    stderr.truncate(4_000);
    (status, stderr)
}

/// A /dev/shm of its own, in a mount namespace that lives as long as this. Ranks with different ones are on different hosts.
pub(crate) struct SharedMemoryNamespace {
    holder: Child,
}

impl SharedMemoryNamespace {
    /// With so much space, in the words of `mount`; none if mounting is not allowed, which is an error under CI.
    pub(crate) fn new(size: &str) -> Option<Self> {
        let script = format!("mount -t tmpfs -o size={size} tmpfs /dev/shm && echo ready && exec sleep 1000");
        let mut command = Command::new("unshare");
        let holder = command.args(["--mount", "sh", "-c", &script]).stdout(Stdio::piped()).spawn();
        let mut namespace = Self { holder: holder.expect("unshare of util-linux") };
        let mut line = String::new();
        let stdout = namespace.holder.stdout.as_mut().expect("a pipe");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).expect("a line");
        if line == "ready\n" {
            return Some(namespace);
        }
        let ci = std::env::var("CI").unwrap_or_default();
        assert!(matches!(ci.as_str(), "" | "0" | "false"), "not tested, and CI is set: mounting needs root");
        println!("not tested: mounting needs root");
        None
    }

    /// The argument of `nsenter` that enters it.
    pub(crate) fn argument(&self) -> String {
        format!("--mount=/proc/{}/ns/mnt", self.holder.id())
    }
}

impl Drop for SharedMemoryNamespace {
    fn drop(&mut self) {
        let _ = self.holder.kill().and_then(|()| self.holder.wait());
    }
}
