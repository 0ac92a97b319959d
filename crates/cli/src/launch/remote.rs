//! A job on other machines: an agent, such as ssh, starts `pleach launch-host` on each of them (`host_agent.rs`).
//!
//! The agents' processes are supervised as ranks are elsewhere: if one fails, the others are ended. The job's token travels by stdin,
//! where other users do not see it. The launcher's own stdin has a connection of its own (`input_relay.rs`).

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use control::CREDENTIAL_VARIABLE;
use lab::local_fabric::child_process::launch_rank_command;
use lab::local_fabric::signals::{SignalQueue, TERMINATION};
use lab::local_fabric::{fault_file, own_executable, random_hex};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::allocation::SLURM_STEP_LIMITS;
use super::host_agent::{HostJob, PORT_LINE, RESERVE};
use super::host_list::HostRanks;
use super::input_relay::{self, InputConnection};
use super::remote_fabric::{NodeLogs, RemoteFabric, RemoteFabricSpec};
use super::supervisor::{Supervisor, take_over_signals};
use super::{LaunchArgs, program_words};
use crate::configuration::{self, SECRET_VARIABLES};

/// How long the first host may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// What identifies a rank of another job, perhaps one around this.
const OF_A_RANK: [&str; 5] = ["PLEACH_RANK", "PLEACH_SIZE", "PLEACH_JOB", "PLEACH_TOKEN", "PLEACH_RENDEZVOUS"];
/// What is true of this host only.
const OF_A_HOST: [&str; 2] = ["PLEACH_HOST", "PLEACH_ADDRESSES"];

/// Runs the job; `variables` are those of the command line.
pub(super) fn run(
    arguments: &LaunchArgs,
    agent: &str,
    hosts: &[HostRanks],
    mut variables: Vec<(&'static str, String)>,
    prefix: bool,
) -> Result<ExitCode> {
    ensure!(
        arguments.ranks_per_host.is_none(),
        "--ranks-per-host is for jobs on this machine; write how many ranks a host takes, as in --hosts a:8,b:8"
    );
    configuration::raise_descriptor_limit(); // Three pipes for each host.
    let mut signals = take_over_signals().context("cannot block signals")?;
    let starter = HostStarter { agent, remote_pleach: arguments.remote_pleach.as_deref(), own: own_executable()? };
    let faults = variables.iter().find(|(name, _)| *name == fault_file::VARIABLE).map(|(_, plan)| plan.clone());
    let fabric = arguments.nodes.map(|nodes| {
        let logs = if arguments.node_logs { NodeLogs::All } else { NodeLogs::Warnings };
        let plan = RemoteFabricSpec { nodes, faults: faults.as_deref(), logs };
        RemoteFabric::start(&starter, hosts, &plan, &mut signals).context("cannot start aggregation nodes")
    });
    let mut fabric = fabric.transpose()?;
    if let Some(fabric) = &fabric {
        variables.retain(|(name, _)| *name != CREDENTIAL_VARIABLE);
        variables.extend(fabric.variables()?);
    }
    let mut agents = Vec::new();
    for host in hosts {
        agents.push(starter.start(&host.name, Stdio::piped(), Stdio::piped())?);
    }
    let port = reserve_port(&mut agents[0], &hosts[0].name, &mut signals)?;
    let rendezvous = format!("{}:{port}", address_of(&hosts[0].name));
    let size = hosts.last().map_or(0, |host| host.ranks.end);
    let common = common_variables(arguments, size, &rendezvous, variables)?;
    let input = input_relay::name_if_needed().context("cannot forward stdin")?;
    let mut supervisor = Supervisor::new("pleach launch", signals, Duration::from_secs_f64(arguments.grace));
    for (host, mut agent) in hosts.iter().zip(agents) {
        let mut control = agent.stdin.take().context("the agent has a stdin")?;
        let job = HostJob {
            first_rank: host.ranks.start,
            ranks: host.ranks.len() as u32,
            folder: std::env::current_dir().context("this folder does not exist any more")?,
            variables: common.clone(),
            program: program_words(arguments)?,
            prefix,
            grace_seconds: arguments.grace,
            service: None,
            input: input.clone().filter(|_| host.ranks.start == 0),
        };
        // If it has ended already, the supervisor reports how.
        let _ = writeln!(control, "{}", serde_json::to_string(&job)?);
        supervisor.adopt(format!("host {}", host.name), agent, control);
    }
    let mut input = input.map(|name| starter.forward_input(&hosts[0].name, &name)).transpose()?;
    let status = supervisor.run(|| {
        if let Some(failure) = input.as_mut().and_then(InputConnection::failure) {
            eprintln!("pleach launch: {failure}");
        }
        for ended in fabric.iter_mut().flat_map(RemoteFabric::watch) {
            eprintln!("pleach launch: {ended}; the job continues without it");
        }
    })?;
    // Drops the nodes and the manager.
    Ok(ExitCode::from(status))
}

/// Starts `pleach launch-host` on hosts.
pub(super) struct HostStarter<'a> {
    /// Runs a command on a host: AGENT HOST COMMAND.
    agent: &'a str,
    remote_pleach: Option<&'a Path>,
    own: PathBuf,
}

impl HostStarter<'_> {
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
    fn forward_input(&self, host: &str, socket: &str) -> Result<InputConnection> {
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
        command.arg(agent).args(agent_words).arg(host);
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

/// Asks a host for a free port.
pub(super) fn reserve_port(agent: &mut Child, host: &str, signals: &mut SignalQueue) -> Result<u16> {
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    let asked = agent.stdin.as_mut().map(|stdin| writeln!(stdin, "{RESERVE}"));
    let stdout = asked.and(agent.stdout.as_mut()).context("the agent has pipes")?;
    match read_port(stdout, deadline, signals) {
        Ok(Some(port)) => Ok(port),
        Ok(None) if Instant::now() >= deadline => {
            let _ = agent.kill();
            bail!("host {host} does not answer within {} s", ANSWER_TIMEOUT.as_secs())
        }
        Ok(None) => {
            let mut said = String::new();
            let _ = agent.stderr.take().map(|stderr| stderr.take(MAX_REASON_BYTES).read_to_string(&mut said));
            let status = agent.wait()?;
            bail!("cannot start pleach on host {host}: {} ({status})", said.trim())
        }
        Err(error) => Err(error).with_context(|| format!("cannot start pleach on host {host}")),
    }
}

/// What is shown of an agent's complaints.
const MAX_REASON_BYTES: u64 = 4096;

/// The port in a line of its own; none at the end or after the deadline. What a login script prints before is skipped.
fn read_port(stdout: &mut ChildStdout, deadline: Instant, signals: &mut SignalQueue) -> Result<Option<u16>> {
    let mut line = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        let mut waiting =
            [PollFd::new(stdout.as_fd(), PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        if poll(&mut waiting, timeout)? == 0 {
            return Ok(None);
        }
        let is_answered = waiting[0].any().unwrap_or(false);
        while let Some(signal) = signals.next() {
            ensure!(!TERMINATION.contains(&signal), "interrupted by {signal}");
        }
        if !is_answered {
            continue;
        }
        // Byte by byte: what follows belongs to the ranks.
        let mut byte = [0];
        match stdout.read(&mut byte)? {
            0 => return Ok(None),
            _ if byte != *b"\n" => line.push(byte[0]),
            _ => {
                let text = String::from_utf8_lossy(&std::mem::take(&mut line)).into_owned();
                if let Some(port) = text.strip_prefix(PORT_LINE).and_then(|port| port.trim().parse().ok()) {
                    return Ok(Some(port));
                }
            }
        }
    }
}

/// A host as others reach it: without the user, and in brackets if it is an IPv6 address.
pub(super) fn address_of(host: &str) -> String {
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// Variables of all ranks: the user's settings, those of the command line, and those of the job.
fn common_variables(
    arguments: &LaunchArgs,
    size: u32,
    rendezvous: &str,
    variables: Vec<(&'static str, String)>,
) -> Result<Vec<(String, String)>> {
    let is_setting = |name: &str| {
        let stays_here = SECRET_VARIABLES.iter().chain(&OF_A_RANK).chain(&OF_A_HOST).any(|found| *found == name);
        name.starts_with("PLEACH_") && !stays_here
    };
    let mut common: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| is_setting(name))
        .collect();
    for variable in &arguments.env {
        let (name, value) = match variable.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                (&variable[..], std::env::var(variable).with_context(|| format!("--env {variable}: it is not set"))?)
            }
        };
        common.push((name.to_owned(), value));
    }
    common.extend(variables.into_iter().map(|(name, value)| (name.to_owned(), value)));
    let job = format!("{}-{}-{}", arguments.job, std::process::id(), &random_hex()?[..8]);
    let of_the_job = [
        ("PLEACH_SIZE", size.to_string()),
        ("PLEACH_JOB", job),
        ("PLEACH_TOKEN", random_hex()?),
        ("PLEACH_RENDEZVOUS", rendezvous.to_owned()),
    ];
    common.extend(of_the_job.map(|(name, value)| (name.to_owned(), value)));
    Ok(common)
}
