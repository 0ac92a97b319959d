//! Waits for all ranks, or for another launcher of them: passes on signals and output, ends the rest when one fails, and finds the
//! worst exit status.
//!
//! Ranks are ended by the number of their process group, which we made, and only while their own process has not been
//! waited for: until then the number cannot be another's.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::line_prefixer::LinePrefixer;
use lab::local_fabric::how;
use lab::local_fabric::signals::{ENDING, SignalQueue};

/// Between asking a process to end and ending it.
const LAST_CALL: Duration = Duration::from_secs(2);
/// For output that is still in a pipe when its process has ended, and perhaps held open by one that escaped us.
const DRAINING: Duration = Duration::from_millis(200);

/// Passed on as they come.
const PASSED_ON: [Signal; 7] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCONT,
];

/// This process's signals, as a supervisor wants them.
pub(crate) fn take_over_signals() -> nix::Result<SignalQueue> {
    SignalQueue::take_over(PASSED_ON.into_iter().chain([Signal::SIGCHLD, Signal::SIGTSTP]))
}

pub(crate) struct Supervisor {
    /// Whose it is, for messages.
    command: &'static str,
    signals: SignalQueue,
    grace: Duration,
    ranks: Vec<SupervisedProcess>,
    pipes: Vec<OutputPipe>,
    worst: u8,
    /// What those who still run will get, and when.
    next_blow: Option<(Instant, Signal)>,
    /// Whether an end by signal is a failure of the rank or our own doing.
    blame: KilledBy,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum KilledBy {
    Theirs,
    Ours,
}

struct SupervisedProcess {
    name: String,
    child: Child,
    is_running: bool,
}

struct OutputPipe {
    source: File,
    lines: LinePrefixer,
    target: OutputStream,
}

#[derive(Clone, Copy)]
enum OutputStream {
    Output,
    Errors,
}

impl Supervisor {
    pub(crate) fn new(command: &'static str, signals: SignalQueue, grace: Duration) -> Self {
        let (ranks, pipes) = (Vec::new(), Vec::new());
        Self { command, signals, grace, ranks, pipes, worst: 0, next_blow: None, blame: KilledBy::Theirs }
    }

    /// Starts a process. If its output is piped, it is passed on with its label before every line.
    pub(crate) fn start(&mut self, name: String, label: &str, command: &mut Command) -> io::Result<()> {
        let mut child = command.spawn()?;
        let outputs = [
            child.stdout.take().map(|pipe| (OwnedFd::from(pipe), OutputStream::Output)),
            child.stderr.take().map(|pipe| (OwnedFd::from(pipe), OutputStream::Errors)),
        ];
        for (pipe, target) in outputs.into_iter().flatten() {
            let lines = LinePrefixer::new(format!("[{label}] "));
            self.pipes.push(OutputPipe { source: File::from(pipe), lines, target });
        }
        self.ranks.push(SupervisedProcess { name, child, is_running: true });
        Ok(())
    }

    /// Returns when all have ended: the worst exit status. Whenever something has happened, `look_around` is called too.
    pub(crate) fn run(mut self, mut look_around: impl FnMut()) -> anyhow::Result<u8> {
        while self.ranks.iter().any(|rank| rank.is_running) {
            self.wait(self.next_blow.map(|(when, _)| when))?;
            while let Some(signal) = self.signals.next() {
                self.handle(signal);
            }
            self.reap()?;
            look_around();
            if let Some((when, signal)) = self.next_blow
                && Instant::now() >= when
            {
                self.strike(signal);
            }
        }
        let deadline = Instant::now() + DRAINING;
        while !self.pipes.is_empty() && Instant::now() < deadline {
            self.wait(Some(deadline))?;
            while self.signals.next().is_some() {}
        }
        for pipe in &mut self.pipes {
            let _ = pipe.finish();
        }
        Ok(self.worst)
    }

    /// Waits for a signal, output or a time, and passes output on.
    fn wait(&mut self, until: Option<Instant>) -> anyhow::Result<()> {
        let mut waiting = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        waiting.extend(self.pipes.iter().map(|pipe| PollFd::new(pipe.source.as_fd(), PollFlags::POLLIN)));
        let timeout = until.map_or(PollTimeout::NONE, |until| {
            let left = until.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
            PollTimeout::try_from(left.min(60_000)).unwrap_or(PollTimeout::ZERO)
        });
        match poll(&mut waiting, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> =
            waiting[1..].iter().map(|pipe| pipe.revents().is_some_and(|events| !events.is_empty())).collect();
        drop(waiting);
        let mut ready = ready.into_iter();
        // A pipe that has ended, or whose reader has, is closed: whoever writes to it then learns so.
        self.pipes.retain_mut(|pipe| !ready.next().unwrap_or(false) || pipe.pass_on().unwrap_or(false));
        Ok(())
    }

    fn handle(&mut self, signal: Signal) {
        if signal == Signal::SIGTSTP {
            self.send(Signal::SIGTSTP);
            let _ = kill(Pid::this(), Signal::SIGSTOP); // Goes on here when continued, and so do the ranks.
            self.send(Signal::SIGCONT);
        } else if ENDING.contains(&signal) && self.next_blow.is_some() {
            self.strike(Signal::SIGKILL); // Asked twice.
        } else if PASSED_ON.contains(&signal) {
            self.send(signal);
            if ENDING.contains(&signal) {
                self.next_blow = Some((Instant::now() + self.grace, Signal::SIGKILL));
            }
        }
    }

    /// Takes note of all that have ended.
    fn reap(&mut self) -> anyhow::Result<()> {
        for index in 0..self.ranks.len() {
            let rank = &mut self.ranks[index];
            let id = pid(&rank.child);
            let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
            if !rank.is_running || matches!(waitid(Id::Pid(id), look)?, WaitStatus::StillAlive) {
                continue;
            }
            // What it started goes with it, as long as its number is certainly its own.
            let _ = killpg(id, Signal::SIGKILL);
            rank.is_running = false;
            let status = rank.child.wait()?;
            let (code, how) = verdict(status);
            if code == 0 || self.blame == KilledBy::Ours {
                continue;
            }
            self.worst = self.worst.max(code);
            if self.next_blow.is_none() {
                self.next_blow = Some((Instant::now() + self.grace, Signal::SIGTERM));
                let (command, name) = (self.command, &self.ranks[index].name);
                if self.ranks.iter().any(|rank| rank.is_running) {
                    eprintln!("{command}: {name} {how}; the others have {:?} to end", self.grace);
                } else {
                    eprintln!("{command}: {name} {how}");
                }
            }
        }
        Ok(())
    }

    /// Ends those who still run: first politely, then not.
    fn strike(&mut self, signal: Signal) {
        let running: Vec<&str> =
            self.ranks.iter().filter(|rank| rank.is_running).map(|rank| rank.name.as_str()).collect();
        if !running.is_empty() {
            let shown = running[..running.len().min(16)].join(", ");
            eprintln!("{}: {signal} to {} that still run ({shown})", self.command, running.len());
        }
        self.blame = KilledBy::Ours;
        self.send(signal);
        self.next_blow = Some((Instant::now() + LAST_CALL, Signal::SIGKILL));
    }

    fn send(&self, signal: Signal) {
        for rank in self.ranks.iter().filter(|rank| rank.is_running) {
            let _ = killpg(pid(&rank.child), signal);
        }
    }
}

/// However we end, by an error or a panic, no rank outlives us.
impl Drop for Supervisor {
    fn drop(&mut self) {
        self.send(Signal::SIGKILL);
        for rank in self.ranks.iter_mut().filter(|rank| rank.is_running) {
            let _ = rank.child.wait();
        }
    }
}

impl OutputPipe {
    /// False when it has ended.
    fn pass_on(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 65_536];
        let count = self.source.read(&mut buffer)?;
        if count == 0 {
            self.finish()?;
            return Ok(false);
        }
        match self.target {
            OutputStream::Output => self.lines.take(&buffer[..count], &mut io::stdout().lock())?,
            OutputStream::Errors => self.lines.take(&buffer[..count], &mut io::stderr().lock())?,
        }
        Ok(true)
    }

    fn finish(&mut self) -> io::Result<()> {
        match self.target {
            OutputStream::Output => self.lines.finish(&mut io::stdout().lock()),
            OutputStream::Errors => self.lines.finish(&mut io::stderr().lock()),
        }
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("the kernel's numbers are positive"))
}

/// The exit status as a shell shows it, and in words.
fn verdict(status: std::process::ExitStatus) -> (u8, String) {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().map(|code| code & 0xff).or(status.signal().map(|signal| 128 + signal));
    (code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX), how(status))
}
