//! Real processes for a test: the test binary starts itself once per rank and plays that rank.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "PLEACH_TEST_ROLE";
const PATIENCE: Duration = Duration::from_secs(60);

/// A job of several processes.
pub(crate) struct Troupe<'t> {
    pub(crate) test: &'t str,
    pub(crate) ranks: u32,
    pub(crate) variables: Vec<(&'t str, String)>,
}

impl<'t> Troupe<'t> {
    pub(crate) fn new(test: &'t str, ranks: u32) -> Self {
        Self { test, ranks, variables: Vec::new() }
    }

    pub(crate) fn with(mut self, name: &'t str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// In a rank's process plays `part`; otherwise starts all ranks and expects each to end well.
    pub(crate) fn play(self, part: impl FnOnce()) {
        if is_rank() {
            return part();
        }
        for (rank, (ended, said)) in self.start().into_iter().map(end_of).enumerate() {
            assert_eq!(ended, Some(0), "rank {rank} of {}: {said}", self.test);
        }
    }

    /// Starts all ranks.
    pub(crate) fn start(&self) -> Vec<Child> {
        let meeting = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
        let program = std::env::current_exe().expect("this program");
        let start = |rank: u32| {
            Command::new(&program)
                .args(["--exact", self.test, "--nocapture"])
                .env(ROLE, "rank")
                .env("PLEACH_RANK", rank.to_string())
                .env("PLEACH_SIZE", self.ranks.to_string())
                .env("PLEACH_HOST", format!("host{rank}"))
                .env("PLEACH_RENDEZVOUS", meeting.to_string())
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

/// The exit status of a process, and what it said; it is killed if it takes too long.
pub(crate) fn end_of(mut child: Child) -> (Option<i32>, String) {
    let began = Instant::now();
    let status = loop {
        match child.try_wait().expect("our own child") {
            Some(status) => break status.code(),
            None if began.elapsed() > PATIENCE => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let mut said = String::new();
    if let Some(mut stream) = child.stderr.take() {
        let _ = std::io::Read::read_to_string(&mut stream, &mut said);
    }
    said.truncate(4_000);
    (status, said)
}
