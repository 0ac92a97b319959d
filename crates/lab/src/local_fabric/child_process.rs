//! A child process whose output is captured, and which does not outlive this process.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Lines of stderr that are captured.
const CAPTURED_LINES: usize = 12;
/// Longer lines are split.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// The kernel accounts CPU time in hundredths of a second (USER_HZ).
const MICROS_PER_TICK: f64 = 10_000.0;
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A line of a child's stdout with the child's number; none at the end of the stream.
pub type OutputLine = (u32, Option<String>);

/// What to do with the stderr of a child.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum StderrMode {
    /// Capture the last lines, to be shown if it fails.
    Captured,
    /// Capture the last lines, and forward all with its name.
    Forwarded,
}

/// A child process. Dropping it kills it.
pub struct ChildProcess {
    name: String,
    child: Child,
    status: Option<ExitStatus>,
    /// True if [`Self::newly_ended`] has returned its status.
    is_reported: bool,
    lines: Arc<Mutex<VecDeque<String>>>,
    /// Reads its stderr to the end.
    listener: Option<JoinHandle<()>>,
}

impl ChildProcess {
    /// Starts a command made by [`launch_rank_command`]. Its stdout, if wanted, goes line by line to `listener`.
    pub fn start(
        name: &str,
        command: &mut Command,
        stderr: StderrMode,
        listener: Option<(u32, Sender<OutputLine>)>,
    ) -> Result<Self> {
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        command.stdout(if listener.is_some() { Stdio::piped() } else { Stdio::null() });
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let lines = Arc::new(Mutex::new(VecDeque::new()));
        let errors = child.stderr.take().map(|errors| {
            let (lines, name) = (Arc::clone(&lines), name.to_owned());
            std::thread::spawn(move || capture_stderr(errors, &lines, &name, stderr))
        });
        if let (Some(output), Some((number, listener))) = (child.stdout.take(), listener) {
            std::thread::spawn(move || {
                // Read on although the receiver may be gone, so that the child does not block on a full pipe.
                for_each_line(output, |line| drop(listener.send((number, Some(line)))));
                let _ = listener.send((number, None));
            });
        }
        Ok(Self { name: name.to_owned(), child, status: None, is_reported: false, lines, listener: errors })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// CPU time so far; zero once it has ended.
    pub fn processor_micros(&self) -> f64 {
        // The name, in parentheses, may hold anything; user and kernel time are the 12th and 13th fields after it.
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
        ticks * MICROS_PER_TICK
    }

    /// Resident memory, in MiB.
    pub fn resident_mib(&self) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .context("cannot read the status of the child")?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .context("the kernel reports no resident memory")?;
        let kib: f64 = line.trim().split(' ').next().context("the kernel reports no resident memory")?.parse()?;
        Ok(kib / 1024.0)
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// The same, once.
    pub fn newly_ended(&mut self) -> Option<ExitStatus> {
        if self.is_reported {
            return None;
        }
        let status = self.ended();
        self.is_reported = status.is_some();
        status
    }

    /// Its process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it; returns its process number.
    pub fn kill(&mut self) -> Result<u32> {
        anyhow::ensure!(self.ended().is_none(), "{} has already ended{}", self.name, self.last_stderr_lines());
        self.child.kill().with_context(|| format!("cannot kill {}", self.name))?;
        Ok(self.child.id())
    }

    /// Sends it a signal, if it still runs.
    pub fn signal(&mut self, signal: Signal) {
        // It has not been reaped, so the process number is still its own.
        if self.ended().is_none()
            && let Ok(id) = i32::try_from(self.child.id())
        {
            let _ = kill(Pid::from_raw(id), signal);
        }
    }

    /// Kills it if it still runs, and waits for it.
    pub fn kill_and_wait(&mut self) -> ExitStatus {
        let _ = self.child.kill();
        let status = self.child.wait().unwrap_or_default();
        // It has no children that could hold its stderr open.
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
        *self.status.get_or_insert(status)
    }

    /// The same, after it had `grace` to end by itself.
    pub fn kill_and_wait_after(&mut self, grace: Duration) -> ExitStatus {
        let began = Instant::now();
        while self.ended().is_none() && began.elapsed() < grace {
            std::thread::sleep(POLL_INTERVAL);
        }
        self.kill_and_wait()
    }

    /// The last lines of its stderr, to be appended to a message.
    pub fn last_stderr_lines(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|line| format!("\n  {}: {line}", self.name)).collect()
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill_and_wait();
    }
}

/// The beginning of a command. A program with arguments that is appended runs in the namespace and ends with this thread. It is in a
/// process group of its own, so that the terminal's signals reach it through this process.
pub fn launch_rank_command(own: &Path, namespace: Option<&Path>) -> Command {
    let mut command = Command::new(own);
    command.args(["launch-rank", "--parent", &std::process::id().to_string()]);
    if let Some(namespace) = namespace {
        command.arg("--namespace").arg(namespace);
    }
    command.arg("--").process_group(0);
    command
}

fn capture_stderr(errors: impl Read, lines: &Mutex<VecDeque<String>>, name: &str, stderr: StderrMode) {
    for_each_line(errors, |line| {
        if stderr == StderrMode::Forwarded {
            eprintln!("[{name}] {line}");
        }
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == CAPTURED_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    });
}

fn for_each_line(source: impl Read, mut handle: impl FnMut(String)) {
    let mut reader = BufReader::new(source);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(1..) => handle(String::from_utf8_lossy(&line).trim_end().to_owned()),
            _ => return,
        }
    }
}
