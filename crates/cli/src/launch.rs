//! `pleach launch`: starts the processes of a job, on this machine or on others, and cleans up after them.
//!
//! Every rank is started through `pleach launch-rank` (`rank.rs`), which moves to its host and dies with this process. `supervisor.rs`
//! waits for all of them; `line_prefixer.rs` prefixes their output with the rank. Manager and nodes, if wanted, are a [`LocalFabric`].
//! `remote.rs` starts ranks on other machines through `host_agent.rs`.

mod allocation;
pub(crate) mod group_guard;
pub(crate) mod host_agent;
mod host_answer;
mod host_list;
mod host_start;
mod input_relay;
mod line_prefixer;
mod pod;
pub(crate) mod rank;
mod remote;
mod remote_fabric;
pub(crate) mod supervisor;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use namespaces::NamespaceNetwork;

use crate::configuration;
use allocation::BatchAllocation;
use host_list::{LaunchHosts, assign_ranks, read_host_file};
use lab::local_fabric::child_process::StderrMode;
use lab::local_fabric::rank_launcher::{self, RankLauncher};
use lab::local_fabric::{FabricSite, LocalFabric, LocalFabricSpec, MAX_NODES, fault_file, hosts_for};
use pod::PodShare;
use supervisor::{Supervisor, take_over_signals};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LaunchArgs {
    /// Number of processes [default: as many as the named hosts take]
    #[arg(short = 'n', long = "ranks", value_parser = clap::value_parser!(u32).range(1..=4096))]
    ranks: Option<u32>,
    /// Where they run: on hosts such as a,b:8 (with the number of ranks that each takes), on loopback, or on hosts made of network
    /// namespaces, netns (needs root) [default: the hosts that Slurm or PBS gave to the job; else loopback]
    #[arg(long, value_name = "HOSTS")]
    hosts: Option<LaunchHosts>,
    /// File with the hosts, one per line: host, host:8 or host slots=8
    #[arg(long, value_name = "FILE", conflicts_with = "hosts")]
    hostfile: Option<PathBuf>,
    /// Command that runs another on a host: AGENT HOST COMMAND [default: ssh; srun on the hosts of a Slurm allocation]
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// Where pleach is on the hosts [default: where it is here]
    #[arg(long, value_name = "FILE")]
    remote_pleach: Option<PathBuf>,
    /// Variable for ranks on other hosts, NAME or NAME=VALUE; PLEACH_* go there by themselves
    #[arg(long, value_name = "VARIABLE")]
    env: Vec<String>,
    /// Ranks per host; on loopback each group of this many ranks is treated as a host of its own [default: 1; on loopback without
    /// --nodes all ranks]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    ranks_per_host: Option<u32>,
    /// Start a manager and this many aggregation nodes for the job: a root, and leaves that share the hosts.
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_NODES)))]
    nodes: Option<u32>,
    /// Manager of existing nodes (PLEACH_MANAGER; its secret is in PLEACH_SECRET or PLEACH_SECRET_FILE).
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "nodes")]
    manager: Option<String>,
    /// Do not run the job if it gets no aggregation nodes (PLEACH_MANAGER_REQUIRED).
    #[arg(long)]
    require_nodes: bool,
    /// Name of the job at the manager; a unique suffix is added.
    #[arg(long, value_name = "NAME", default_value = "launch", value_parser = job_name)]
    job: String,
    /// Faults to inject into packets of ranks and nodes, as in scenarios: flip, lose, duplicate, delay, reorder, down
    /// (PLEACH_FAULTS).
    #[arg(long, value_name = "FILE", alias = "fault")]
    faults: Option<PathBuf>,
    /// Methods between hosts, such as hbcast or barrier=hgsync,allreduce=ring (PLEACH_ALGORITHM).
    #[arg(long, value_name = "NAMES")]
    algorithm: Option<pleach::MethodPreferences>,
    /// Show the logs of the manager and the nodes.
    #[arg(long, requires = "nodes")]
    node_logs: bool,
    /// Prefix every line with its rank, as is the default on a terminal.
    #[arg(long)]
    prefix: bool,
    /// Seconds that the other ranks have to end after one has failed, or after a termination signal.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    grace: f64,
    /// Program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Without questions.
const DEFAULT_AGENT: &str = "ssh -o BatchMode=yes";

const EXAMPLES: &str = "\
Examples:
  pleach launch -n 4 -- ./program --size 8
  pleach launch -n 2 --prefix -- sh -c 'echo rank $PLEACH_RANK of $PLEACH_SIZE'
  pleach launch --hosts a:8,b:8 -- ./program                           16 ranks on two hosts, by ssh
  pleach launch --hostfile hosts --manager a:4797 -- ./program         and through the nodes of a cluster
  pleach launch --nodes 3 -- ./program                                 in a batch script of Slurm or PBS: on its hosts, with nodes there
  pleach launch -n 8 --nodes 3 -- ./program                            through a root and two leaves, as 8 hosts
  pleach launch -n 8 --nodes 3 --ranks-per-host 2 -- ./program         as 4 hosts with shared memory
  pleach launch -n 16 --hosts netns -- ./program                       16 hosts on one bridge
  pleach launch -n 16 --hosts netns --ranks-per-host 4 -- ./program    4 hosts
  pleach launch -n 16 --hosts netns --nodes 5 -- ./program             and manager and nodes on their own hosts

Sets PLEACH_RANK, PLEACH_SIZE, PLEACH_JOB, PLEACH_TOKEN; between hosts PLEACH_RENDEZVOUS and PLEACH_HOST; with --nodes
PLEACH_MANAGER and PLEACH_JOB_CREDENTIAL; on loopback with --nodes or --ranks-per-host PLEACH_HOST and PLEACH_SHARED_MEMORY. Signals
are forwarded; stdin goes to rank 0 unless it is a terminal. When one process fails, the others have --grace seconds to end; then they are killed. When a node fails, the job
continues without it. Ranks on other hosts run in the same folder there, and end with this command or the connection to it.

Exit status: the highest of the processes, 128 plus the signal number for one that was killed, 127 if there is no such
program, 2 if the command line is wrong or hosts or nodes cannot be created.";

fn job_name(text: &str) -> Result<String, String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !(1..=64).contains(&text.len()) || !text.bytes().all(is_allowed) {
        return Err("a name has 1 to 64 letters, digits, dashes, dots and underscores".into());
    }
    Ok(text.into())
}

pub(crate) fn run(arguments: &LaunchArgs) -> Result<ExitCode> {
    let mut allocated_agent = None;
    let hosts = match (&arguments.hostfile, &arguments.hosts) {
        (Some(file), _) => read_host_file(file)?,
        (None, Some(hosts)) => hosts.clone(),
        (None, None) => match BatchAllocation::from_environment()? {
            Some(allocation) => {
                allocated_agent = allocation.agent;
                LaunchHosts::Named(allocation.hosts)
            }
            None => LaunchHosts::Loopback,
        },
    };
    ensure!(
        arguments.manager.is_none() || hosts != LaunchHosts::Netns,
        "--manager does not work with --hosts netns: hosts made of namespaces reach nothing outside; use --nodes"
    );
    let faults = arguments.faults.as_deref().map(|path| -> Result<PathBuf> {
        fault_file::read(path)?;
        std::path::absolute(path).with_context(|| path.display().to_string())
    });
    let faults = faults.transpose()?;
    let output = if arguments.prefix || std::io::stdout().is_terminal() {
        OutputMode::Prefixed
    } else {
        OutputMode::Unchanged
    };
    let prefix = output == OutputMode::Prefixed;
    let has_hosts = arguments.hosts.is_some() || arguments.hostfile.is_some();
    check_settings(arguments, matches!(hosts, LaunchHosts::Named(_)))?;
    if let Some(pod) = PodShare::from_environment()?.filter(|_| !has_hosts) {
        let signals = take_over_signals().context("cannot block signals")?;
        let variables = variables(arguments, None, faults.as_ref())?;
        return Ok(ExitCode::from(pod.run(arguments, program_words(arguments)?, variables, prefix, signals)?));
    }
    if let LaunchHosts::Named(named) = &hosts {
        let assigned = assign_ranks(named, arguments.ranks)?;
        let agent = arguments.agent.as_deref().or(allocated_agent).unwrap_or(DEFAULT_AGENT);
        return remote::run(arguments, agent, &assigned, variables(arguments, None, faults.as_ref())?, prefix);
    }
    let ranks = arguments.ranks.context("how many processes? use -n, for example -n 4, or --hosts a:8,b:8")?;
    run_here(arguments, hosts == LaunchHosts::Netns, ranks, faults.as_ref(), output)
}

/// Runs a job on this machine.
fn run_here(
    arguments: &LaunchArgs,
    in_namespaces: bool,
    ranks: u32,
    faults: Option<&PathBuf>,
    output: OutputMode,
) -> Result<ExitCode> {
    if let Some(program) = arguments.program.first().filter(|program| rank::is_missing(program)) {
        eprintln!("pleach launch: cannot run {}: there is no such program", program.display());
        return Ok(ExitCode::from(rank::NO_PROGRAM));
    }
    // Blocked until the supervisor reads them, so that an early signal does not leave processes behind.
    let signals = take_over_signals().context("cannot block signals")?;
    let per_host = arguments.ranks_per_host.unwrap_or(1);
    let rank_hosts = ranks.div_ceil(per_host) as usize;
    let network = in_namespaces
        .then(|| NamespaceNetwork::new(rank_hosts + arguments.nodes.map_or(0, hosts_for)))
        .transpose()?;
    let site =
        network.as_ref().map_or(FabricSite::Loopback, |network| FabricSite::Hosts { network, first: rank_hosts });
    let stderr = if arguments.node_logs { StderrMode::Forwarded } else { StderrMode::Captured };
    let fabric = arguments.nodes.map(|nodes| {
        let plan = LocalFabricSpec { nodes, site, faults: faults.map(PathBuf::as_path), stderr };
        LocalFabric::start(&plan).context("cannot start aggregation nodes")
    });
    let mut fabric = fabric.transpose()?;
    let hosts = match &network {
        Some(network) => rank_launcher::RankHosts::Namespaces { network, per_host },
        None if fabric.is_some() || arguments.ranks_per_host.is_some() => {
            rank_launcher::RankHosts::Emulated { per_host }
        }
        None => rank_launcher::RankHosts::Local,
    };
    let variables = variables(arguments, fabric.as_ref(), faults)?;
    let started = RankLauncher::new(&arguments.job, ranks, hosts)?.with(variables);
    let mut supervisor = Supervisor::new("pleach launch", signals, Duration::from_secs_f64(arguments.grace));
    for rank in 0..ranks {
        let mut command = started.command(rank, &arguments.program);
        for name in configuration::SECRET_VARIABLES {
            command.env_remove(name);
        }
        streams(&mut command, rank, output);
        let name = format!("rank {rank}");
        let started = supervisor.start(name, &rank.to_string(), &mut command);
        started.with_context(|| format!("cannot start rank {rank}"))?;
    }
    let status = supervisor.run(|| {
        for (name, how) in fabric.iter_mut().flat_map(LocalFabric::newly_ended) {
            eprintln!("pleach launch: {name} {how}; the job continues without it");
        }
    })?;
    // Drops the nodes and the manager, and then their hosts.
    Ok(ExitCode::from(status))
}

/// Settings that belong to one host: those of other hosts are theirs.
const OF_ONE_HOST: [&str; 3] = ["PLEACH_ADDRESSES", "PLEACH_FAULTS", "PLEACH_NETWORK_COSTS"];

/// A wrong setting is named once, before anything starts, instead of by every rank.
fn check_settings(arguments: &LaunchArgs, on_other_hosts: bool) -> Result<()> {
    let Err(error) = pleach::Settings::from_environment() else { return Ok(()) };
    let pleach::JoinError::InvalidSetting { name, .. } = &error else { return Err(error.into()) };
    let is_overridden = match *name {
        "PLEACH_ALGORITHM" => arguments.algorithm.is_some(),
        "PLEACH_FAULTS" => arguments.faults.is_some(),
        "PLEACH_MANAGER_REQUIRED" => arguments.require_nodes,
        _ => false,
    };
    let is_given = |variable: &String| variable.split('=').next() == Some(*name);
    let is_elsewhere = on_other_hosts && (OF_ONE_HOST.contains(name) || arguments.env.iter().any(is_given));
    if is_overridden || is_elsewhere { Ok(()) } else { Err(error.into()) }
}

fn variables(
    arguments: &LaunchArgs,
    fabric: Option<&LocalFabric>,
    faults: Option<&PathBuf>,
) -> Result<Vec<(&'static str, String)>> {
    let mut variables = match fabric {
        Some(fabric) => fabric.variables()?,
        None => configuration::job_credential().into_iter().collect(),
    };
    variables.extend(arguments.manager.clone().map(|manager| ("PLEACH_MANAGER", manager)));
    variables.extend(arguments.require_nodes.then(|| ("PLEACH_MANAGER_REQUIRED", "1".to_owned())));
    variables.extend(arguments.algorithm.map(|wanted| ("PLEACH_ALGORITHM", wanted.to_string())));
    variables.extend(faults.map(|plan| (fault_file::VARIABLE, plan.display().to_string())));
    Ok(variables)
}

/// The program and its arguments, as text: they are sent to other hosts.
fn program_words(arguments: &LaunchArgs) -> Result<Vec<String>> {
    let words: Result<Vec<String>, _> = arguments.program.iter().map(|word| word.clone().into_string()).collect();
    words.map_err(|word| anyhow::anyhow!("the argument {} is not text", word.display()))
}

/// What to do with the output of ranks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputMode {
    Unchanged,
    /// Prefix every line with its rank.
    Prefixed,
}

fn streams(command: &mut Command, rank: u32, output: OutputMode) {
    if rank != 0 || std::io::stdin().is_terminal() {
        command.stdin(Stdio::null());
    }
    if output == OutputMode::Prefixed {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| "a number of seconds from 0 to 86400".to_owned())
}
