//! Starts pleach on all hosts of a job: ranks run on all of them or on none.
//!
//! In: the agents' processes. Out: the same when every host is ready, or one error that names the hosts that are not. A host that cannot be
//! reached or lacks the program is found before the first rank starts, so the job fails with one line and leaves nothing behind.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lab::local_fabric::child_process::launch_rank_command;
use lab::local_fabric::own_executable;
use lab::local_fabric::signals::{SignalQueue, TERMINATION};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::allocation::SLURM_STEP_LIMITS;
use super::host_agent::HostJob;
use super::host_answer::{HostAnswer, RESERVE, START};
use super::input_relay::InputConnection;

/// Before the ssh of the user's choice notices by itself that a host cannot be reached or is gone, a quarter of an hour may pass. An option of
/// the user comes first, and ssh takes the first.
const SSH_LIMITS: [&str; 6] =
    ["-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"];
/// How long a host may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// What is shown of an agent's complaints.
const MAX_REASON_BYTES: u64 = 4096;
/// Longer lines of a login script are split.
const MAX_LINE_BYTES: usize = 65_536;
/// An error names at most this many hosts.
const MAX_HOSTS_NAMED: usize = 16;

/// Starts `pleach launch-host` on hosts.
pub(super) struct HostStarter<'a> {
    /// Runs a command on a host: AGENT HOST COMMAND.
    agent: &'a str,
    remote_pleach: Option<&'a Path>,
    own: PathBuf,
}

impl<'a> HostStarter<'a> {
    pub(super) fn new(agent: &'a str, remote_pleach: Option<&'a Path>) -> Result<Self> {
        Ok(Self { agent, remote_pleach, own: own_executable()? })
    }

    /// Where pleach is on the hosts.
    pub(super) fn remote_pleach(&self) -> Result<String> {
        let remote = self.remote_pleach.unwrap_or(&self.own);
        let text = remote.to_str().context("the path of pleach is not text; use --remote-pleach")?;
        Ok(text.to_owned())
    }

    /// Starts it on a host.
    pub(super) fn start(&self, host: &str, stdout: Stdio, stderr: Stdio) -> Result<Child> {
        let mut command = self.command(host, "launch-host")?;
        command.stdin(Stdio::piped()).stdout(stdout).stderr(stderr);
        command.spawn().with_context(|| format!("cannot start {}", self.agent))
    }

    /// Forwards the stdin of this process to a socket on a host.
    pub(super) fn forward_input(&self, host: &str, socket: &str) -> Result<InputConnection> {
        let mut command = self.command(host, &format!("launch-host --input {socket}"))?;
        command.stdin(Stdio::inherit()).stdout(Stdio::null());
        let agent = command.spawn().with_context(|| format!("cannot start {}", self.agent))?;
        Ok(InputConnection::new(agent, host))
    }

    /// Runs pleach with some words on a host.
    fn command(&self, host: &str, words: &str) -> Result<Command> {
        let mut agent_words = self.agent.split_whitespace();
        let agent = agent_words.next().context("--agent is empty; the default is ssh")?;
        let remote = self.remote_pleach()?;
        // It ends with this process, and then the ranks end.
        let mut command = launch_rank_command(&self.own, None);
        command.arg(agent).args(agent_words);
        if Path::new(agent).file_name().is_some_and(|name| name == "ssh") {
            command.args(SSH_LIMITS);
        }
        command.arg(host);
        // Some agents pass the rest to a shell, as ssh does; others, as srun, do not, and a quote would be part of the name.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte);
        if remote.bytes().all(is_plain) {
            command.arg(remote).args(words.split_whitespace());
        } else {
            command.arg(format!("'{}' {words}", remote.replace('\'', r"'\''")));
        }
        // Settings travel in the job: some agents, as srun, would pass on the whole environment, and with it secrets.
        let all = std::env::vars_os().map(|(name, _)| name);
        let is_ours = |name: &OsString| name.to_string_lossy().starts_with("PLEACH_");
        for name in all.filter(is_ours).chain(SLURM_STEP_LIMITS.map(OsString::from)) {
            command.env_remove(name);
        }
        Ok(command)
    }
}

/// Hosts on which no rank runs yet. Dropping them ends the agents, and so pleach on the hosts.
pub(super) struct StartingHosts(Vec<StartingHost>);

struct StartingHost {
    name: String,
    agent: Child,
    /// The line that is being read.
    line: Vec<u8>,
    answer: Option<HostAnswer>,
}

/// What the hosts said of the job.
pub(super) enum Readiness {
    Ready,
    /// These hosts have no such program.
    NoProgram(String),
}

impl StartingHosts {
    /// Starts `pleach launch-host` on hosts.
    pub(super) fn start<'n>(starter: &HostStarter<'_>, names: impl IntoIterator<Item = &'n str>) -> Result<Self> {
        let mut hosts = Self(Vec::new());
        for name in names {
            let agent = starter.start(name, Stdio::piped(), Stdio::piped())?;
            hosts.0.push(StartingHost { name: name.to_owned(), agent, line: Vec::new(), answer: None });
        }
        Ok(hosts)
    }

    /// Asks the first host for a free port.
    pub(super) fn reserve_port(&mut self, signals: &SignalQueue) -> Result<u16> {
        let first = self.0.get_mut(..1).context("a job has a host")?;
        first[0].say(RESERVE);
        await_answers(first, signals)?;
        match first[0].answer.take() {
            Some(HostAnswer::Port(port)) => Ok(port),
            Some(HostAnswer::Obstacle(why)) => bail!("host {} has no port for the job: {why}", first[0].name),
            Some(answer) => bail!("host {} answered \"{answer}\" instead of a port", first[0].name),
            None => bail!("host {} did not answer with a port", first[0].name),
        }
    }

    /// Sends each host its part of the job, and waits until all are ready.
    pub(super) fn prepare(
        &mut self,
        jobs: impl IntoIterator<Item = HostJob>,
        signals: &SignalQueue,
    ) -> Result<Readiness> {
        for (host, job) in self.0.iter_mut().zip(jobs) {
            host.say(&serde_json::to_string(&job)?);
        }
        await_answers(&mut self.0, signals)?;
        for host in &self.0 {
            if let Some(HostAnswer::Obstacle(why)) = &host.answer {
                let same = HostAnswer::Obstacle(why.clone());
                bail!("cannot start the job on {}: {why}", self.names(|host| host.answer.as_ref() == Some(&same)));
            }
        }
        let is_missing = |host: &StartingHost| host.answer == Some(HostAnswer::NoProgram);
        if self.0.iter().any(is_missing) {
            return Ok(Readiness::NoProgram(self.names(is_missing)));
        }
        Ok(Readiness::Ready)
    }

    /// The ranks start.
    pub(super) fn go(mut self) -> Vec<Child> {
        let hosts = std::mem::take(&mut self.0);
        hosts
            .into_iter()
            .map(|mut host| {
                host.say(START);
                host.agent
            })
            .collect()
    }

    /// The agents, without a job.
    pub(super) fn into_agents(mut self) -> Vec<Child> {
        std::mem::take(&mut self.0).into_iter().map(|host| host.agent).collect()
    }

    fn names(&self, is_meant: impl Fn(&StartingHost) -> bool) -> String {
        host_names(self.0.iter().filter(|host| is_meant(host)).map(|host| host.name.as_str()))
    }
}

impl Drop for StartingHosts {
    fn drop(&mut self) {
        // All at once, then one by one.
        for host in &self.0 {
            let _ = killpg(Pid::from_raw(host.agent.id().cast_signed()), Signal::SIGKILL);
        }
        for host in &mut self.0 {
            let _ = host.agent.wait();
        }
    }
}

impl StartingHost {
    fn say(&mut self, line: &str) {
        // If the agent has ended, reading its answer reports how.
        let _ = self.agent.stdin.as_mut().map(|stdin| writeln!(stdin, "{line}"));
    }

    /// Reads a byte of an answer: what follows the answer belongs to the ranks.
    fn read(&mut self) -> Result<()> {
        let mut byte = [0];
        let stdout = self.agent.stdout.as_mut().context("the agent has a stdout")?;
        let count = stdout.read(&mut byte).with_context(|| format!("cannot start pleach on host {}", self.name))?;
        if count == 0 {
            let how = self.how_it_ended()?;
            bail!("cannot start pleach on host {}: {how}", self.name);
        }
        if byte != *b"\n" && self.line.len() < MAX_LINE_BYTES {
            self.line.push(byte[0]);
        } else {
            self.answer = HostAnswer::parse(&String::from_utf8_lossy(&std::mem::take(&mut self.line)));
        }
        Ok(())
    }

    /// What the agent said at its end, in one line.
    fn how_it_ended(&mut self) -> Result<String> {
        let mut said = Vec::new();
        let _ = self.agent.stderr.take().map(|stderr| stderr.take(MAX_REASON_BYTES).read_to_end(&mut said));
        let status = self.agent.wait()?;
        let text = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        Ok(format!("{} ({status})", lines.join("; ")))
    }
}

/// Waits until each of these hosts has answered.
fn await_answers(hosts: &mut [StartingHost], signals: &SignalQueue) -> Result<()> {
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    loop {
        let silent: Vec<&mut StartingHost> = hosts.iter_mut().filter(|host| host.answer.is_none()).collect();
        if silent.is_empty() {
            return Ok(());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let names = host_names(silent.iter().map(|host| host.name.as_str()));
            bail!("no answer from {names} within {} s", ANSWER_TIMEOUT.as_secs());
        }
        let is_readable = wait_for_any(&silent, signals, left)?;
        while let Some(signal) = signals.next() {
            ensure!(!TERMINATION.contains(&signal), "interrupted by {signal}");
        }
        for (host, _) in silent.into_iter().zip(is_readable).filter(|(_, is_readable)| *is_readable) {
            host.read()?;
        }
    }
}

/// Waits for output of any host or a signal; which hosts have output.
fn wait_for_any(hosts: &[&mut StartingHost], signals: &SignalQueue, timeout: Duration) -> Result<Vec<bool>> {
    let mut waiting = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
    for host in hosts {
        let stdout = host.agent.stdout.as_ref().context("the agent has a stdout")?;
        waiting.push(PollFd::new(stdout.as_fd(), PollFlags::POLLIN));
    }
    match poll(&mut waiting, PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX)) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(waiting[1..].iter().map(|host| host.any().unwrap_or(false)).collect())
}

/// "host a", "hosts a, b", "hosts a, b and 3 more".
fn host_names<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.collect();
    let shown = names[..names.len().min(MAX_HOSTS_NAMED)].join(", ");
    match names.len() {
        1 => format!("host {shown}"),
        count if count > MAX_HOSTS_NAMED => format!("hosts {shown} and {} more", count - MAX_HOSTS_NAMED),
        _ => format!("hosts {shown}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_few_hosts_and_counts_the_rest() {
        assert_eq!(host_names(["a"].into_iter()), "host a");
        assert_eq!(host_names(["a", "b"].into_iter()), "hosts a, b");
        assert!(host_names(["a"; 20].into_iter()).ends_with("a, a and 4 more"));
    }
}
