//! `pleach launch-host`: the ranks of a job on one of its hosts.
//!
//! `pleach launch` starts it there by ssh. In, by stdin: the request `reserve` for a port, the [`HostJob`] in one line, `start` when all hosts
//! are ready, then lines `signal N`, and others every few seconds. Out: the ports, whether this host is ready, the output of the ranks, and
//! their highest exit status. When stdin ends or is silent, the launcher or the connection is gone, and so is the job.

use std::io::{self, BufRead, BufReader, Read, Stdin};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lab::local_fabric::child_process::launch_rank_command;
use lab::local_fabric::signals::SignalQueue;
use lab::local_fabric::{own_executable, without_settings};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::host_answer::{HostAnswer, RESERVE, START};
use super::input_relay::{self, InputListener};
use super::rank;
use super::supervisor::{Supervisor, take_over_signals};
use crate::configuration::SECRET_VARIABLES;

/// A job with the longest command line and environment that kernels allow.
const MAX_JOB_BYTES: u64 = 4 << 20;
/// The launcher waits for the other hosts before it sends the next line.
const START_TIMEOUT: Duration = Duration::from_secs(90);
/// The launcher gives a sign of life every five seconds.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// A launcher that is stopped gives none, and tells only ranks so.
const SERVICE_SILENCE_TIMEOUT: Duration = Duration::from_secs(600);

/// What a host must know of the job.
#[derive(Serialize, Deserialize)]
pub(super) struct HostJob {
    pub(super) first_rank: u32,
    pub(super) ranks: u32,
    /// The folder in which the ranks run.
    pub(super) folder: PathBuf,
    /// For all ranks.
    pub(super) variables: Vec<(String, String)>,
    pub(super) program: Vec<String>,
    /// Prefix every line with its rank.
    pub(super) prefix: bool,
    pub(super) grace_seconds: f64,
    /// The name of a service of the job, such as a node: one process, without a rank.
    pub(super) service: Option<String>,
    /// Where rank 0 gets its stdin, if it gets one.
    #[serde(default)]
    pub(super) input: Option<String>,
}

/// The ranks of a job on this host; started by `pleach launch`.
#[derive(clap::Args)]
pub(crate) struct LaunchHostArgs {
    /// Stdin is that of rank 0, which waits for it at this socket.
    #[arg(long, value_name = "NAME")]
    input: Option<String>,
}

pub(crate) fn run(arguments: &LaunchHostArgs) -> Result<ExitCode> {
    if let Some(name) = &arguments.input {
        return input_relay::send_input(name).map(|()| ExitCode::SUCCESS);
    }
    let signals = take_over_signals().context("cannot block signals")?;
    let mut input = BufReader::new(LauncherStream { stdin: std::io::stdin(), silence: Some(START_TIMEOUT) });
    let job = read_job(&mut input)?;
    let readiness = job.prepare();
    if job.service.is_some() {
        match (readiness, job.program.first()) {
            (HostAnswer::Ready, _) => {}
            (HostAnswer::Obstacle(why), _) => bail!("cannot start on this host: {why}"),
            (_, program) => bail!("there is no program {} on this host", program.map_or("", String::as_str)),
        }
    } else if !is_started(&readiness, &mut input)? {
        return Ok(ExitCode::FAILURE); // The launcher says why, or is gone.
    }
    let supervisor = job.start(signals)?.staying_awake();
    let silence = if job.service.is_some() { SERVICE_SILENCE_TIMEOUT } else { SILENCE_TIMEOUT };
    std::thread::spawn(move || forward_signals(input, silence));
    Ok(ExitCode::from(supervisor.run(|| {})?))
}

impl HostJob {
    /// Enters the folder, and finds out whether the ranks can start.
    fn prepare(&self) -> HostAnswer {
        if let Err(error) = std::env::set_current_dir(&self.folder) {
            return HostAnswer::Obstacle(format!("cannot enter the folder {} there: {error}", self.folder.display()));
        }
        match self.program.first().filter(|program| rank::is_missing(program.as_ref())) {
            Some(_) => HostAnswer::NoProgram,
            None => HostAnswer::Ready,
        }
    }

    /// Starts the ranks of this host.
    pub(super) fn start(&self, signals: SignalQueue) -> Result<Supervisor> {
        let own = own_executable()?;
        let mut supervisor = Supervisor::new("pleach launch", signals, Duration::from_secs_f64(self.grace_seconds));
        for rank in self.first_rank..self.first_rank + self.ranks {
            let mut command = launch_rank_command(&own, None);
            command.args(&self.program).stdin(Stdio::null());
            for name in SECRET_VARIABLES {
                command.env_remove(name);
            }
            let name = match &self.service {
                Some(name) => {
                    without_settings(&mut command);
                    name.clone()
                }
                None => format!("rank {rank}"),
            };
            command.envs(self.variables.iter().map(|(name, value)| (name, value)));
            if self.service.is_none() {
                command.env("PLEACH_RANK", rank.to_string());
            }
            if self.prefix {
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
            }
            let listener = self.input.as_deref().filter(|_| rank == 0).map(InputListener::bind).transpose();
            let listener = listener.context("cannot forward stdin to rank 0")?;
            if listener.is_some() {
                command.stdin(Stdio::piped());
            }
            let started = supervisor.start(name.clone(), &rank.to_string(), &mut command);
            let stdin = started.with_context(|| format!("cannot start {name}"))?;
            if let Some((listener, stdin)) = listener.zip(stdin) {
                listener.relay_to(stdin);
            }
        }
        Ok(supervisor)
    }
}

/// Answers requests for ports until the job arrives.
fn read_job(input: &mut impl BufRead) -> Result<HostJob> {
    loop {
        let mut line = String::new();
        input.take(MAX_JOB_BYTES).read_line(&mut line).context("cannot read the job from stdin")?;
        match line.trim() {
            "" => bail!("`pleach launch` starts this command on the hosts of a job; there is no job on stdin"),
            RESERVE => {
                let port = free_port().context("no port is free")?;
                HostAnswer::Port(port).send(&mut std::io::stdout()).context("cannot answer")?;
            }
            job => return serde_json::from_str(job).context("the job on stdin is malformed"),
        }
    }
}

/// Says whether this host is ready, and waits for the word to start, which comes if all hosts are.
fn is_started(readiness: &HostAnswer, input: &mut impl BufRead) -> Result<bool> {
    readiness.send(&mut std::io::stdout()).context("cannot answer")?;
    let mut line = String::new();
    Ok(input.read_line(&mut line).is_ok() && *readiness == HostAnswer::Ready && line.trim() == START)
}

/// A TCP port that is free now.
fn free_port() -> std::io::Result<u16> {
    TcpListener::bind("[::]:0")
        .or_else(|_| TcpListener::bind("0.0.0.0:0"))?
        .local_addr()
        .map(|address| address.port())
}

/// Sends the signals that the launcher asks for to this process, whose supervisor forwards them; at the end, one that ends it.
fn forward_signals(mut input: BufReader<LauncherStream>, silence: Duration) {
    input.get_mut().silence = Some(silence);
    let mut line = String::new();
    while input.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        let number = line.strip_prefix("signal ").and_then(|number| number.trim().parse::<i32>().ok());
        if let Some(signal) = number.and_then(|number| Signal::try_from(number).ok()) {
            match signal {
                // A launcher that is stopped gives no sign of life.
                Signal::SIGTSTP => input.get_mut().silence = None,
                Signal::SIGCONT => input.get_mut().silence = Some(silence),
                _ => {}
            }
            let _ = kill(Pid::this(), signal);
        }
        line.clear();
    }
    let _ = kill(Pid::this(), Signal::SIGTERM);
}

/// The stdin of this process, as a stream that fails if nothing comes for too long.
struct LauncherStream {
    stdin: Stdin,
    /// None: for as long as it takes.
    silence: Option<Duration>,
}

impl Read for LauncherStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let timeout = self
            .silence
            .map_or(PollTimeout::NONE, |silence| PollTimeout::try_from(silence).unwrap_or(PollTimeout::MAX));
        if poll(&mut [PollFd::new(self.stdin.as_fd(), PollFlags::POLLIN)], timeout)? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stdin.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_a_job_says_so() {
        for (input, expected) in [("", "no job on stdin"), ("{}\n", "malformed"), ("hello\n", "malformed")] {
            let error = format!("{:#}", read_job(&mut input.as_bytes()).err().expect("there is no job"));
            assert!(error.contains(expected), "{input:?}: {error}");
        }
    }
}
