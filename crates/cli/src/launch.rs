//! `pleach launch`: starts the processes of a job on this machine, and leaves nothing behind.
//!
//! Every rank is started through `pleach launch-rank` (`rank.rs`), which moves to its host and dies with us. `supervisor.rs` waits
//! for all of them; `lines.rs` puts ranks before lines. Manager and nodes, if wanted, are a [`LocalFabric`].

mod line_prefixer;
pub(crate) mod rank;
pub(crate) mod supervisor;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use namespaces::NamespaceNetwork;

use lab::local_fabric::child_process::StderrMode;
use lab::local_fabric::rank_launcher::{self, RankLauncher};
use lab::local_fabric::{FabricSite, LocalFabric, LocalFabricSpec, MOST_NODES, fault_file, hosts_for};
use supervisor::{Supervisor, take_over_signals};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LaunchArgs {
    /// How many processes.
    #[arg(short = 'n', long = "ranks", value_parser = clap::value_parser!(u32).range(1..=4096))]
    ranks: u32,
    /// Where they run: beside each other, or on hosts of their own made of network namespaces (needs root).
    #[arg(long, value_enum, default_value_t = LaunchHosts::Loopback)]
    hosts: LaunchHosts,
    /// How many share one host, with --hosts netns or --nodes 1; on loopback as if they were on hosts of their own
    /// [default: 1; without --nodes all of loopback]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    ranks_per_host: Option<u32>,
    /// Starts a manager and so many aggregation nodes for the job: a root, and leaves that share the hosts.
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_NODES)))]
    nodes: Option<u32>,
    /// The manager of nodes that are there already (PLEACH_MANAGER; its secret in PLEACH_SECRET or PLEACH_SECRET_FILE).
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "nodes")]
    manager: Option<String>,
    /// How the manager shall call the job; a dash and what makes it unique follow.
    #[arg(long, value_name = "NAME", default_value = "launch", value_parser = job_name)]
    job: String,
    /// Faults in what ranks and nodes send, as in scenarios: flip, lose, duplicate, delay, reorder, down (PLEACH_FAULTS).
    #[arg(long, value_name = "FILE", alias = "fault")]
    faults: Option<PathBuf>,
    /// How operations go between hosts, such as hbcast or barrier=hgsync,allreduce=ring (PLEACH_ALGORITHM).
    #[arg(long, value_name = "NAMES")]
    algorithm: Option<pleach::MethodPreferences>,
    /// Shows what manager and nodes log.
    #[arg(long, requires = "nodes")]
    node_logs: bool,
    /// Puts the rank before every line, as is done anyway on a terminal.
    #[arg(long)]
    prefix: bool,
    /// Seconds that the others have to end by themselves when one has failed, or when asked to end.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    grace: f64,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LaunchHosts {
    /// All on this machine as it is.
    Loopback,
    /// Network namespaces, joined by a bridge.
    Netns,
}

const EXAMPLES: &str = "\
Examples:
  pleach launch -n 4 -- ./program --size 8
  pleach launch -n 2 --prefix -- sh -c 'echo rank $PLEACH_RANK of $PLEACH_SIZE'
  pleach launch -n 8 --nodes 3 -- ./program                            through a root and two leaves, as 8 hosts
  pleach launch -n 8 --nodes 3 --ranks-per-host 2 -- ./program         as 4 hosts with shared memory
  pleach launch -n 16 --hosts netns -- ./program                       16 hosts on one bridge
  pleach launch -n 16 --hosts netns --ranks-per-host 4 -- ./program    4 hosts
  pleach launch -n 16 --hosts netns --nodes 5 -- ./program             and manager and nodes on hosts of their own

Sets PLEACH_RANK, PLEACH_SIZE, PLEACH_JOB, PLEACH_TOKEN; between hosts PLEACH_RENDEZVOUS and PLEACH_HOST; with --nodes
PLEACH_MANAGER and PLEACH_SECRET; on loopback with --nodes or --ranks-per-host PLEACH_HOST and PLEACH_SHARED_MEMORY. Signals
are passed on. When one process fails, the others have --grace seconds; then they are ended. When a node fails, the job goes
on without it.

Exit status: the worst of the processes, 128 and the signal's number for one that was killed, 127 if there is no such
program, 2 if the command is wrong or the hosts or nodes cannot be made.";

fn job_name(text: &str) -> Result<String, String> {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !(1..=64).contains(&text.len()) || !text.bytes().all(is_fit) {
        return Err("a name has 1 to 64 letters, digits, dashes, dots and underscores".into());
    }
    Ok(text.into())
}

pub(crate) fn run(arguments: &LaunchArgs) -> Result<ExitCode> {
    ensure!(
        arguments.manager.is_none() || arguments.hosts == LaunchHosts::Loopback,
        "--manager with --hosts netns: hosts made of namespaces reach nothing outside; use --nodes"
    );
    let faults = arguments.faults.as_deref().map(|path| -> Result<PathBuf> {
        fault_file::read(path)?;
        std::path::absolute(path).with_context(|| path.display().to_string())
    });
    let faults = faults.transpose()?;
    // From here on signals wait until the supervisor takes them, so that an early one leaves nothing behind either.
    let signals = take_over_signals().context("signals cannot be taken over")?;
    let per_host = arguments.ranks_per_host.unwrap_or(1);
    let rank_hosts = arguments.ranks.div_ceil(per_host) as usize;
    let network = match arguments.hosts {
        LaunchHosts::Loopback => None,
        LaunchHosts::Netns => Some(NamespaceNetwork::new(rank_hosts + arguments.nodes.map_or(0, hosts_for))?),
    };
    let site =
        network.as_ref().map_or(FabricSite::Loopback, |network| FabricSite::Hosts { network, first: rank_hosts });
    let voice = if arguments.node_logs { StderrMode::Shown } else { StderrMode::Kept };
    let fabric = arguments.nodes.map(|nodes| {
        let plan = LocalFabricSpec { nodes, site, faults: faults.as_deref(), voice };
        LocalFabric::start(&plan).context("aggregation nodes cannot be had")
    });
    let mut fabric = fabric.transpose()?;
    let hosts = match &network {
        Some(network) => rank_launcher::RankHosts::Namespaces { network, per_host },
        None if fabric.is_some() || arguments.ranks_per_host.is_some() => {
            rank_launcher::RankHosts::Pretended { per_host }
        }
        None => rank_launcher::RankHosts::This,
    };
    let variables = variables(arguments, fabric.as_ref(), faults.as_ref());
    let started = RankLauncher::new(&arguments.job, arguments.ranks, hosts)?.with(variables);
    let output =
        if arguments.prefix || std::io::stdout().is_terminal() { OutputMode::Prefixed } else { OutputMode::AsItIs };
    let mut supervisor = Supervisor::new("pleach launch", signals, Duration::from_secs_f64(arguments.grace));
    for rank in 0..arguments.ranks {
        let mut command = started.command(rank, &arguments.program);
        streams(&mut command, rank, output);
        let name = format!("rank {rank}");
        let started = supervisor.start(name, &rank.to_string(), &mut command);
        started.with_context(|| format!("rank {rank} cannot be started"))?;
    }
    let worst = supervisor.run(|| {
        for (name, how) in fabric.iter_mut().flat_map(LocalFabric::newly_ended) {
            eprintln!("pleach launch: {name} {how}; the job goes on without it");
        }
    })?;
    // Then nodes and manager end, and at last their hosts.
    Ok(ExitCode::from(worst))
}

fn variables(
    arguments: &LaunchArgs,
    fabric: Option<&LocalFabric>,
    faults: Option<&PathBuf>,
) -> Vec<(&'static str, String)> {
    let mut variables = fabric.map(LocalFabric::variables).unwrap_or_default();
    variables.extend(arguments.manager.clone().map(|manager| ("PLEACH_MANAGER", manager)));
    variables.extend(arguments.algorithm.map(|wanted| ("PLEACH_ALGORITHM", wanted.to_string())));
    variables.extend(faults.map(|plan| (fault_file::VARIABLE, plan.display().to_string())));
    variables
}

/// What becomes of what ranks write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputMode {
    AsItIs,
    /// Every line with its rank.
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
    seconds.ok_or_else(|| "a number of seconds, at most a day".to_owned())
}
