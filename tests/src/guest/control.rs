//! Commands to the guest and their results, over the guest's control port: two pipes of the emulator.
//!
//! In: command lines. Out: the output and exit of each, in any order. The other end is `init.sh`.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How a command in the guest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With this status; 128 and more is 128 plus the number of a signal.
    Status(i32),
    /// The guest killed it at its limit.
    TimedOut,
}

/// The output of a command in the guest, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// How it ended.
    pub exit: Exit,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Output {
    /// Whether it ended in time with status zero.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.exit == Exit::Status(0)
    }
}

impl fmt::Display for Output {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.exit {
            Exit::Status(status) => writeln!(formatter, "exit status {status}")?,
            Exit::TimedOut => writeln!(formatter, "took too long")?,
        }
        write!(formatter, "{}{}", self.stdout, self.stderr)
    }
}

/// Matches a result with its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CommandNumber(u32);

/// Why no result came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ControlError {
    /// None came in time.
    TimedOut,
    /// The guest ended, or sent a malformed result.
    Closed,
}

/// The host's end of the control port.
pub(super) struct Control {
    commands: Mutex<Commands>,
    answers: Arc<Answers>,
}

struct Commands {
    pipe: ChildStdin,
    next: u32,
}

#[derive(Default)]
struct Answers {
    state: Mutex<ControlState>,
    changed: Condvar,
}

#[derive(Default)]
struct ControlState {
    /// The index of the device's RoCEv2 address over IPv4, once the guest is ready.
    gid_index: Option<u16>,
    outputs: BTreeMap<CommandNumber, Output>,
    is_closed: bool,
}

impl Control {
    /// Reads results in a new thread, which ends when the emulator closes its pipe.
    pub(super) fn start(commands: ChildStdin, answers: ChildStdout) -> Self {
        let state = Arc::new(Answers::default());
        let listener = Arc::clone(&state);
        std::thread::spawn(move || {
            let mut answers = BufReader::new(answers);
            while let Some(answer) = read_answer(&mut answers) {
                listener.update(|state| match answer {
                    Answer::Ready(gid_index) => state.gid_index = Some(gid_index),
                    Answer::Done(task, output) => {
                        state.outputs.insert(task, output);
                    }
                });
            }
            listener.update(|state| state.is_closed = true);
        });
        Self { commands: Mutex::new(Commands { pipe: commands, next: 0 }), answers: state }
    }

    /// Waits until the guest is ready; returns the index of its address for RoCEv2 over IPv4.
    pub(super) fn wait_ready(&self, limit: Duration) -> Result<u16, ControlError> {
        self.answers.wait(limit, |state| state.gid_index)
    }

    /// Starts a command in the guest, with a time limit.
    pub(super) fn start_command(&self, command: &str, limit: Duration) -> std::io::Result<CommandNumber> {
        assert!(!command.contains('\n'), "a command is one line: {command}");
        let mut commands = lock(&self.commands);
        let number = commands.next;
        commands.next += 1;
        writeln!(commands.pipe, "run {number} {:.3} {command}", limit.as_secs_f64())?;
        commands.pipe.flush()?;
        Ok(CommandNumber(number))
    }

    /// Ends a command and all processes that it started; the guest reports it as if the command had ended by itself.
    pub(super) fn kill_command(&self, task: CommandNumber) -> std::io::Result<()> {
        let mut commands = lock(&self.commands);
        writeln!(commands.pipe, "kill {}", task.0)?;
        commands.pipe.flush()
    }

    /// Waits for the result of a command and removes it.
    pub(super) fn wait_command(&self, task: CommandNumber, limit: Duration) -> Result<Output, ControlError> {
        self.answers.wait(limit, |state| state.outputs.remove(&task))
    }
}

impl Answers {
    fn update(&self, change: impl FnOnce(&mut ControlState)) {
        change(&mut lock(&self.state));
        self.changed.notify_all();
    }

    fn wait<T>(
        &self,
        limit: Duration,
        mut take: impl FnMut(&mut ControlState) -> Option<T>,
    ) -> Result<T, ControlError> {
        let deadline = Instant::now() + limit;
        let mut state = lock(&self.state);
        loop {
            if let Some(taken) = take(&mut state) {
                return Ok(taken);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if state.is_closed {
                return Err(ControlError::Closed);
            } else if left.is_zero() {
                return Err(ControlError::TimedOut);
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// No code that can panic runs under a lock here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Answer {
    Ready(u16),
    Done(CommandNumber, Output),
}

/// The next result; none if the port is closed or the result is malformed.
fn read_answer(port: &mut impl BufRead) -> Option<Answer> {
    let mut line = String::new();
    port.read_line(&mut line).ok()?;
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["ready", gid_index] => Some(Answer::Ready(gid_index.parse().ok()?)),
        ["done", number, status, stdout, stderr] => {
            let exit = match status {
                "late" => Exit::TimedOut,
                status => Exit::Status(status.parse().ok()?),
            };
            let stdout = read_text(port, stdout)?;
            let stderr = read_text(port, stderr)?;
            Some(Answer::Done(CommandNumber(number.parse().ok()?), Output { exit, stdout, stderr }))
        }
        _ => None,
    }
}

fn read_text(port: &mut impl Read, length: &str) -> Option<String> {
    let length: u64 = length.parse().ok()?;
    let mut bytes = Vec::new();
    let read = port.take(length).read_to_end(&mut bytes).ok()?;
    (u64::try_from(read) == Ok(length)).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_one_after_the_other() {
        let mut port = &b"ready 1\ndone 7 0 3 2\nabc\nedone 8 late 0 0\n"[..];
        assert!(matches!(read_answer(&mut port), Some(Answer::Ready(1))));
        let Some(Answer::Done(task, output)) = read_answer(&mut port) else { panic!("an answer") };
        assert_eq!((task, output.stdout.as_str(), output.stderr.as_str()), (CommandNumber(7), "abc", "\ne"));
        let Some(Answer::Done(task, output)) = read_answer(&mut port) else { panic!("an answer") };
        assert_eq!((task, output.exit), (CommandNumber(8), Exit::TimedOut));
        assert!(read_answer(&mut port).is_none());
    }

    #[test]
    fn a_port_that_closes_early_or_babbles_has_no_answer() {
        for text in ["", "done 7 0 3 2\nab", "done 7 0\n", "Segmentation fault\n"] {
            assert!(read_answer(&mut text.as_bytes()).is_none(), "{text:?}");
        }
    }
}
