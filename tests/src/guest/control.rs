//! Commands to the guest and their answers, over the two pipes of the emulator that are the guest's control port.
//!
//! In: command lines. Out: what each wrote and how it ended, in any order. The other end is `init.sh`.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How a command in the guest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With this status; 128 and more stands for a signal.
    Status(i32),
    /// It was ended because it took too long.
    Late,
}

/// What a command in the guest wrote, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// How it ended.
    pub exit: Exit,
    /// What it wrote to its standard output.
    pub stdout: String,
    /// What it wrote to its standard error.
    pub stderr: String,
}

impl Output {
    /// It ended in time with status zero.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.exit == Exit::Status(0)
    }
}

impl fmt::Display for Output {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.exit {
            Exit::Status(status) => writeln!(formatter, "exit status {status}")?,
            Exit::Late => writeln!(formatter, "took too long")?,
        }
        write!(formatter, "{}{}", self.stdout, self.stderr)
    }
}

/// Which command an answer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TaskNumber(u32);

/// The control port has no more answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// None came in time.
    Late,
    /// The guest is gone, or it wrote what we do not understand.
    Closed,
}

/// Our end of the control port.
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
    heard: Mutex<Heard>,
    changed: Condvar,
}

#[derive(Default)]
struct Heard {
    /// The index of the device's RoCEv2 address over IPv4, once the guest is ready.
    gid_index: Option<u16>,
    outputs: BTreeMap<TaskNumber, Output>,
    is_closed: bool,
}

impl Control {
    /// Listens in a thread of its own, which ends when the emulator closes its pipe.
    pub(super) fn start(commands: ChildStdin, answers: ChildStdout) -> Self {
        let heard = Arc::new(Answers::default());
        let listener = Arc::clone(&heard);
        std::thread::spawn(move || {
            let mut answers = BufReader::new(answers);
            while let Some(answer) = read_answer(&mut answers) {
                listener.note(|heard| match answer {
                    Answer::Ready(gid_index) => heard.gid_index = Some(gid_index),
                    Answer::Done(task, output) => {
                        heard.outputs.insert(task, output);
                    }
                });
            }
            listener.note(|heard| heard.is_closed = true);
        });
        Self { commands: Mutex::new(Commands { pipe: commands, next: 0 }), answers: heard }
    }

    /// Waits until the guest is ready for commands; returns the index of its address for RoCEv2 over IPv4.
    pub(super) fn wait_ready(&self, limit: Duration) -> Result<u16, Silence> {
        self.answers.wait(limit, |heard| heard.gid_index)
    }

    /// Has the guest start a command that may take this long.
    pub(super) fn start_task(&self, command: &str, limit: Duration) -> std::io::Result<TaskNumber> {
        assert!(!command.contains('\n'), "a command is one line: {command}");
        let mut commands = lock(&self.commands);
        let number = commands.next;
        commands.next += 1;
        writeln!(commands.pipe, "run {number} {:.3} {command}", limit.as_secs_f64())?;
        commands.pipe.flush()?;
        Ok(TaskNumber(number))
    }

    /// Has the guest end a command and all that it started; it answers as if the command had ended by itself.
    pub(super) fn kill_task(&self, task: TaskNumber) -> std::io::Result<()> {
        let mut commands = lock(&self.commands);
        writeln!(commands.pipe, "kill {}", task.0)?;
        commands.pipe.flush()
    }

    /// Waits for a command's answer and takes it.
    pub(super) fn wait_task(&self, task: TaskNumber, limit: Duration) -> Result<Output, Silence> {
        self.answers.wait(limit, |heard| heard.outputs.remove(&task))
    }
}

impl Answers {
    fn note(&self, change: impl FnOnce(&mut Heard)) {
        change(&mut lock(&self.heard));
        self.changed.notify_all();
    }

    fn wait<T>(&self, limit: Duration, mut take: impl FnMut(&mut Heard) -> Option<T>) -> Result<T, Silence> {
        let deadline = Instant::now() + limit;
        let mut heard = lock(&self.heard);
        loop {
            if let Some(taken) = take(&mut heard) {
                return Ok(taken);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if heard.is_closed {
                return Err(Silence::Closed);
            } else if left.is_zero() {
                return Err(Silence::Late);
            }
            let waited = self.changed.wait_timeout(heard, left);
            heard = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// No lock here is held across code that can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Answer {
    Ready(u16),
    Done(TaskNumber, Output),
}

/// The next answer; none where the port is closed or its words make no sense.
fn read_answer(port: &mut impl BufRead) -> Option<Answer> {
    let mut line = String::new();
    port.read_line(&mut line).ok()?;
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["ready", gid_index] => Some(Answer::Ready(gid_index.parse().ok()?)),
        ["done", number, status, stdout, stderr] => {
            let exit = match status {
                "late" => Exit::Late,
                status => Exit::Status(status.parse().ok()?),
            };
            let stdout = read_text(port, stdout)?;
            let stderr = read_text(port, stderr)?;
            Some(Answer::Done(TaskNumber(number.parse().ok()?), Output { exit, stdout, stderr }))
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
        assert_eq!((task, output.stdout.as_str(), output.stderr.as_str()), (TaskNumber(7), "abc", "\ne"));
        let Some(Answer::Done(task, output)) = read_answer(&mut port) else { panic!("an answer") };
        assert_eq!((task, output.exit), (TaskNumber(8), Exit::Late));
        assert!(read_answer(&mut port).is_none());
    }

    #[test]
    fn a_port_that_closes_early_or_babbles_has_no_answer() {
        for text in ["", "done 7 0 3 2\nab", "done 7 0\n", "Segmentation fault\n"] {
            assert!(read_answer(&mut text.as_bytes()).is_none(), "{text:?}");
        }
    }
}
