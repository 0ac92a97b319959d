//! A child process that is heard, and that does not outlive this one.

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

/// Lines of its errors that are kept.
const LAST_LINES: usize = 12;
/// A longer line is cut.
const MOST_LINE_BYTES: u64 = 1 << 20;

/// Of the kernel's accounts, which count in hundredths of a second (USER_HZ).
const MICROS_OF_A_TICK: f64 = 10_000.0;
/// Between two looks.
const GLANCE: Duration = Duration::from_millis(5);

/// A line of a child's output, with the child's number; none when it has no more to say.
pub type OutputLine = (u32, Option<String>);

/// What becomes of what a child writes to its standard error.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum StderrMode {
    /// The last lines are kept, to be shown if it fails.
    Kept,
    /// And all are shown, with its name.
    Shown,
}

/// A child process. Dropped, it is ended.
pub struct ChildProcess {
    name: String,
    child: Child,
    status: Option<ExitStatus>,
    /// Whether somebody has asked for the end and been told.
    is_told: bool,
    words: Arc<Mutex<VecDeque<String>>>,
    /// Hears its errors until there are no more.
    listener: Option<JoinHandle<()>>,
}

impl ChildProcess {
    /// Starts a command made by [`launch_rank_command`]. Its output, if wanted, goes line by line to `listener`.
    pub fn start(
        name: &str,
        command: &mut Command,
        voice: StderrMode,
        listener: Option<(u32, Sender<OutputLine>)>,
    ) -> Result<Self> {
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        command.stdout(if listener.is_some() { Stdio::piped() } else { Stdio::null() });
        let mut child = command.spawn().with_context(|| format!("{name} cannot be started"))?;
        let words = Arc::new(Mutex::new(VecDeque::new()));
        let errors = child.stderr.take().map(|errors| {
            let (words, name) = (Arc::clone(&words), name.to_owned());
            std::thread::spawn(move || keep_words(errors, &words, &name, voice))
        });
        if let (Some(output), Some((number, listener))) = (child.stdout.take(), listener) {
            std::thread::spawn(move || {
                // Nobody may be listening any more; then it is read all the same, so that it does not wait for us.
                for_each_line(output, |line| drop(listener.send((number, Some(line)))));
                let _ = listener.send((number, None));
            });
        }
        Ok(Self { name: name.to_owned(), child, status: None, is_told: false, words, listener: errors })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Processor time that it has taken so far; zero once it is gone.
    pub fn processor_micros(&self) -> f64 {
        // The name, in parentheses, may hold anything; user and kernel time are the 12th and 13th words after it.
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let words = text.rsplit_once(')').map_or("", |(_, words)| words).split_whitespace();
        let ticks: f64 = words.skip(11).take(2).filter_map(|word| word.parse::<f64>().ok()).sum();
        ticks * MICROS_OF_A_TICK
    }

    /// Memory that is in use, in MiB.
    pub fn resident_mib(&self) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).context("its status")?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("its memory")?;
        let kib: f64 = line.trim().split(' ').next().context("its memory")?.parse()?;
        Ok(kib / 1024.0)
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// The same, once.
    pub fn newly_ended(&mut self) -> Option<ExitStatus> {
        if self.is_told {
            return None;
        }
        let status = self.ended();
        self.is_told = status.is_some();
        status
    }

    /// Kills it; the number of its process.
    pub fn kill(&mut self) -> Result<u32> {
        anyhow::ensure!(self.ended().is_none(), "{} has ended already{}", self.name, self.last_words());
        self.child.kill().with_context(|| format!("{} cannot be killed", self.name))?;
        Ok(self.child.id())
    }

    /// Sends it a signal, if it still runs.
    pub fn signal(&mut self, signal: Signal) {
        // It has not been waited for: the number is its own.
        if self.ended().is_none()
            && let Ok(id) = i32::try_from(self.child.id())
        {
            let _ = kill(Pid::from_raw(id), signal);
        }
    }

    /// Ends it if it still runs.
    pub fn kill_and_wait(&mut self) -> ExitStatus {
        let _ = self.child.kill();
        let status = self.child.wait().unwrap_or_default();
        // It starts nobody who could keep its errors open.
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
        *self.status.get_or_insert(status)
    }

    /// The same, but it has so long to end by itself.
    pub fn kill_and_wait_after(&mut self, grace: Duration) -> ExitStatus {
        let began = Instant::now();
        while self.ended().is_none() && began.elapsed() < grace {
            std::thread::sleep(GLANCE);
        }
        self.kill_and_wait()
    }

    /// The last that it said, to be put behind a sentence.
    pub fn last_words(&self) -> String {
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        words.iter().map(|line| format!("\n  {}: {line}", self.name)).collect()
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill_and_wait();
    }
}

/// The beginning of a command: what is appended to it, a program and its arguments, runs in the namespace and ends with this
/// thread. It is in a process group of its own, so that a terminal's signals come through us.
pub fn launch_rank_command(own: &Path, namespace: Option<&Path>) -> Command {
    let mut command = Command::new(own);
    command.args(["launch-rank", "--parent", &std::process::id().to_string()]);
    if let Some(namespace) = namespace {
        command.arg("--namespace").arg(namespace);
    }
    command.arg("--").process_group(0);
    command
}

fn keep_words(errors: impl Read, words: &Mutex<VecDeque<String>>, name: &str, voice: StderrMode) {
    for_each_line(errors, |line| {
        if voice == StderrMode::Shown {
            eprintln!("[{name}] {line}");
        }
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        if words.len() == LAST_LINES {
            words.pop_front();
        }
        words.push_back(line);
    });
}

fn for_each_line(source: impl Read, mut heard: impl FnMut(String)) {
    let mut reader = BufReader::new(source);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.by_ref().take(MOST_LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(1..) => heard(String::from_utf8_lossy(&line).trim_end().to_owned()),
            _ => return,
        }
    }
}
