//! Supervises processes: forwards signals and output, terminates the rest when one fails, and determines the exit status.
//!
//! In: started processes, signals. Out: the highest exit status. A process is killed by its process group, which this process created,
//! and only before it was reaped: until then the number cannot belong to another group.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ChildStdin, Command};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::group_guard::GroupGuard;
use super::line_prefixer::LinePrefixer;
use lab::local_fabric::describe_exit_status;
use lab::local_fabric::signals::{SignalQueue, TERMINATION};

/// Between SIGTERM and SIGKILL.
const KILL_DELAY: Duration = Duration::from_secs(2);
/// For output that is still in a pipe after its process has ended; a process outside the group may hold the pipe open.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// Between two signs of life.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// The exit status of ssh if the connection breaks, or of a rank.
const BROKEN_CONNECTION: u8 = 255;
const BY_SSH: &str = " (that of ssh if the connection breaks)";

/// Forwarded to the processes.
const FORWARDED: [Signal; 7] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCONT,
];

/// Blocks and queues the signals that a supervisor handles.
pub(crate) fn take_over_signals() -> nix::Result<SignalQueue> {
    SignalQueue::take_over(FORWARDED.into_iter().chain([Signal::SIGCHLD, Signal::SIGTSTP]))
}

pub(crate) struct Supervisor {
    /// The name of the command, for messages.
    command: &'static str,
    signals: SignalQueue,
    grace: Duration,
    processes: Vec<SupervisedProcess>,
    /// Ends what the processes have started if this process is killed. None before one was started.
    guard: Option<GroupGuard>,
    pipes: Vec<OutputPipe>,
    exit_status: u8,
    /// The next signal to processes that still run, and when.
    next_signal: Option<(Instant, Signal)>,
    /// Whether a process that ends by a signal has failed, or was terminated by the supervisor.
    killed_by: KilledBy,
    suspension: SuspensionMode,
    /// When processes that stand for others are told that this one is still there.
    next_heartbeat: Instant,
}

/// What a request to stop for a while does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SuspensionMode {
    /// Stops the processes and this one, as a shell expects.
    WithProcesses,
    /// Stops only the processes: this one must hear when they shall continue.
    ProcessesOnly,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum KilledBy {
    Others,
    Supervisor,
}

struct SupervisedProcess {
    name: String,
    child: Child,
    /// For a process that stands for others on another host: it is told of signals instead of getting them.
    control: Option<ChildStdin>,
    is_running: bool,
}

struct OutputPipe {
    source: File,
    /// None if output is forwarded as it is.
    lines: Option<LinePrefixer>,
    target: OutputStream,
}

#[derive(Clone, Copy)]
enum OutputStream {
    Output,
    Errors,
}

impl Supervisor {
    pub(crate) fn new(command: &'static str, signals: SignalQueue, grace: Duration) -> Self {
        let (processes, pipes) = (Vec::new(), Vec::new());
        Self {
            command,
            signals,
            grace,
            processes,
            guard: None,
            pipes,
            exit_status: 0,
            next_signal: None,
            killed_by: KilledBy::Others,
            suspension: SuspensionMode::WithProcesses,
            next_heartbeat: Instant::now(),
        }
    }

    /// Stops only the processes if asked to stop for a while.
    pub(super) fn staying_awake(mut self) -> Self {
        self.suspension = SuspensionMode::ProcessesOnly;
        self
    }

    /// Starts a process; returns its stdin, if that is piped. If its output is piped, it is forwarded with its label before every line.
    pub(crate) fn start(
        &mut self,
        name: String,
        label: &str,
        command: &mut Command,
    ) -> io::Result<Option<ChildStdin>> {
        if self.guard.is_none() {
            self.guard = Some(GroupGuard::start()?);
        }
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        self.guard.iter_mut().for_each(|guard| guard.watch(pid(&child)));
        self.add(name, child, None, Some(&format!("[{label}] ")));
        Ok(stdin)
    }

    /// Takes over a process that stands for others on another host. Its output is forwarded as it is; signals but SIGKILL are lines of
    /// its stdin.
    pub(super) fn adopt(&mut self, name: String, child: Child, control: ChildStdin) {
        self.add(name, child, Some(control), None);
    }

    fn add(&mut self, name: String, mut child: Child, control: Option<ChildStdin>, prefix: Option<&str>) {
        let outputs = [
            child.stdout.take().map(|pipe| (OwnedFd::from(pipe), OutputStream::Output)),
            child.stderr.take().map(|pipe| (OwnedFd::from(pipe), OutputStream::Errors)),
        ];
        for (pipe, target) in outputs.into_iter().flatten() {
            let lines = prefix.map(|prefix| LinePrefixer::new(prefix.to_owned()));
            self.pipes.push(OutputPipe { source: File::from(pipe), lines, target });
        }
        self.processes.push(SupervisedProcess { name, child, control, is_running: true });
    }

    /// Blocks until all processes have ended; the highest exit status. Calls `on_wakeup` after every event.
    pub(crate) fn run(mut self, mut on_wakeup: impl FnMut()) -> anyhow::Result<u8> {
        while self.processes.iter().any(|process| process.is_running) {
            self.send_heartbeats();
            let is_remote = self.processes.iter().any(|process| process.control.is_some());
            let heartbeat = is_remote.then_some(self.next_heartbeat);
            self.wait(self.next_signal.map(|(when, _)| when).into_iter().chain(heartbeat).min())?;
            while let Some(signal) = self.signals.next() {
                self.handle(signal);
            }
            self.reap()?;
            on_wakeup();
            if let Some((when, signal)) = self.next_signal
                && Instant::now() >= when
            {
                self.terminate(signal);
            }
        }
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        while !self.pipes.is_empty() && Instant::now() < deadline {
            self.wait(Some(deadline))?;
            while self.signals.next().is_some() {}
        }
        for pipe in &mut self.pipes {
            let _ = pipe.finish();
        }
        Ok(self.exit_status)
    }

    /// Waits for a signal, output or a deadline, and forwards output.
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
        // A pipe whose writers or whose reader has gone is closed, so that a writer gets an error.
        self.pipes.retain_mut(|pipe| !ready.next().unwrap_or(false) || pipe.forward().unwrap_or(false));
        Ok(())
    }

    fn handle(&mut self, signal: Signal) {
        if signal == Signal::SIGTSTP && self.suspension == SuspensionMode::ProcessesOnly {
            self.send(Signal::SIGTSTP);
        } else if signal == Signal::SIGTSTP {
            self.send(Signal::SIGTSTP);
            let _ = kill(Pid::this(), Signal::SIGSTOP); // Execution continues here after SIGCONT.
            self.send(Signal::SIGCONT);
        } else if TERMINATION.contains(&signal) && self.next_signal.is_some() {
            self.terminate(Signal::SIGKILL); // The second request.
        } else if FORWARDED.contains(&signal) {
            self.send(signal);
            if TERMINATION.contains(&signal) {
                self.next_signal = Some((Instant::now() + self.grace, Signal::SIGKILL));
            }
        }
    }

    /// Reaps all processes that have ended.
    fn reap(&mut self) -> anyhow::Result<()> {
        for index in 0..self.processes.len() {
            let process = &mut self.processes[index];
            let id = pid(&process.child);
            let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
            if !process.is_running || matches!(waitid(Id::Pid(id), look)?, WaitStatus::StillAlive) {
                continue;
            }
            // Kills the rest of its group while the group number is certainly its own.
            let _ = killpg(id, Signal::SIGKILL);
            self.guard.iter_mut().for_each(|guard| guard.forget(id));
            process.is_running = false;
            let status = process.child.wait()?;
            let (code, how) = exit_code(status);
            if code == 0 || self.killed_by == KilledBy::Supervisor {
                continue;
            }
            self.exit_status = self.exit_status.max(code);
            if self.next_signal.is_none() {
                self.next_signal = Some((Instant::now() + self.grace, Signal::SIGTERM));
                let (command, name) = (self.command, &self.processes[index].name);
                let is_agent = self.processes[index].control.is_some();
                let how = if is_agent && code == BROKEN_CONNECTION { format!("{how}{BY_SSH}") } else { how };
                if self.processes.iter().any(|process| process.is_running) {
                    let grace = self.grace.as_secs_f64();
                    eprintln!("{command}: {name} {how}; terminating the others in {grace} s");
                } else {
                    eprintln!("{command}: {name} {how}");
                }
            }
        }
        Ok(())
    }

    /// Sends a signal to all processes that still run, and SIGKILL later.
    fn terminate(&mut self, signal: Signal) {
        let running: Vec<&str> =
            self.processes.iter().filter(|process| process.is_running).map(|process| process.name.as_str()).collect();
        if !running.is_empty() {
            let shown = running[..running.len().min(16)].join(", ");
            eprintln!("{}: sending {signal} to {} processes that still run ({shown})", self.command, running.len());
        }
        self.killed_by = KilledBy::Supervisor;
        self.send(signal);
        self.next_signal = Some((Instant::now() + KILL_DELAY, Signal::SIGKILL));
    }

    /// Tells processes that stand for others that this one is still there: a connection may end without notice.
    fn send_heartbeats(&mut self) {
        let now = Instant::now();
        if now >= self.next_heartbeat {
            self.next_heartbeat = now + HEARTBEAT_INTERVAL;
            for control in self.processes.iter_mut().filter_map(|process| process.control.as_mut()) {
                let _ = writeln!(control, "alive"); // If it is closed, the process is about to end.
            }
        }
    }

    fn send(&mut self, signal: Signal) {
        for process in self.processes.iter_mut().filter(|process| process.is_running) {
            match &mut process.control {
                // A few bytes in a pipe that is read at once; if it is closed, the process is about to end.
                Some(control) if signal != Signal::SIGKILL => drop(writeln!(control, "signal {}", signal as i32)),
                _ => drop(killpg(pid(&process.child), signal)),
            }
        }
    }
}

/// No process outlives the supervisor, also after an error or a panic.
impl Drop for Supervisor {
    fn drop(&mut self) {
        self.send(Signal::SIGKILL);
        for process in self.processes.iter_mut().filter(|process| process.is_running) {
            let _ = process.child.wait();
        }
    }
}

impl OutputStream {
    fn lock(self) -> Box<dyn Write> {
        match self {
            Self::Output => Box::new(io::stdout().lock()),
            Self::Errors => Box::new(io::stderr().lock()),
        }
    }
}

impl OutputPipe {
    /// Forwards available output; false at its end.
    fn forward(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 65_536];
        let count = self.source.read(&mut buffer)?;
        if count == 0 {
            self.finish()?;
            return Ok(false);
        }
        let bytes = &buffer[..count];
        let mut target = self.target.lock();
        match &mut self.lines {
            Some(lines) => lines.push(bytes, &mut target)?,
            None => target.write_all(bytes).and_then(|()| target.flush())?,
        }
        Ok(true)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.lines.as_mut().map_or(Ok(()), |lines| lines.finish(&mut self.target.lock()))
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("process numbers are positive"))
}

/// The exit status as a shell reports it, and a description.
fn exit_code(status: std::process::ExitStatus) -> (u8, String) {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().map(|code| code & 0xff).or(status.signal().map(|signal| 128 + signal));
    (code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX), describe_exit_status(status))
}
