//! `pleach manager`: places groups over the aggregation nodes and hands out what they may use.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use protocol::manager::message::Quota;
use protocol::manager::{Settings, TopologyPlan};
use runtime::control::{ManagerDaemon, Openness, Secret};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use units::Span;

use crate::Outcome;

/// Where a manager listens if nobody says otherwise.
pub(crate) const DEFAULT_ADDRESS: &str = "127.0.0.1:4797";

/// Runs the manager: nodes register with it, jobs ask it for groups.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Where to listen (PLEACH_LISTEN) [default: 127.0.0.1:4797]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// The places of nodes, in TOML (PLEACH_TOPOLOGY); without it nodes say where they belong, or are arranged
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// A file with the secret of the cluster (PLEACH_SECRET_FILE); or the secret itself in PLEACH_SECRET
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Obey whoever can reach the address, although there is no secret
    #[arg(long)]
    open: bool,
    /// Hosts per leaf, and nodes per node, where the manager arranges the tree [default: 16]
    #[arg(long, value_name = "NUMBER")]
    fanout: Option<usize>,
    /// How long a job that lost its connection keeps its groups [default: 10]
    #[arg(long, value_name = "SECONDS")]
    job_grace: Option<u64>,
    /// All of this, and the quotas of jobs, in TOML (PLEACH_CONFIG); flags and the environment count more
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

const HELP: &str = "\
Examples:
  pleach manager
  PLEACH_SECRET='correct horse' pleach manager --listen 10.0.0.1:4797
  pleach manager --listen 10.0.0.1:4797 --open --topology nodes.toml

A topology file:
  [[node]]
  name = \"spine1\"
  [[node]]
  name = \"rack1\"
  parents = [\"spine1\"]
  serves = [\"10.1.0.0/24\", \"rack1-*\"]

A configuration file may say listen, topology, secret_file, open, fanout, job_grace, and
  [default_quota]                what a job gets that does not ask, at each node
  groups = 64
  operations = 4096
  bytes = 67108864
  [most_quota]                   the same for what it gets at most

The first line printed is the address at which the manager listens; what happens is logged to standard error.";

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct File {
    listen: Option<String>,
    topology: Option<PathBuf>,
    secret_file: Option<PathBuf>,
    open: bool,
    fanout: Option<usize>,
    job_grace: Option<u64>,
    default_quota: Option<Quota>,
    most_quota: Option<Quota>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let file: File = configuration(arguments.config.as_deref())?;
    let listen = or_environment(arguments.listen.clone(), "PLEACH_LISTEN").or(file.listen.clone());
    let listen = resolve(listen.as_deref().unwrap_or(DEFAULT_ADDRESS))?;
    let secret = secret(arguments.secret_file.as_deref(), file.secret_file.as_deref())?;
    let openness = if arguments.open || file.open { Openness::Open } else { Openness::Guarded };
    let settings = settings(arguments, &file)?;
    let mut daemon = ManagerDaemon::bind(listen, settings, secret, openness)
        .with_context(|| format!("the manager cannot listen at {listen}"))?;
    println!("{}", daemon.address());
    loop {
        for note in daemon.turn(Duration::from_secs(1))? {
            eprintln!("manager: {note}");
        }
    }
}

fn settings(arguments: &Arguments, file: &File) -> Result<Settings> {
    let usual = Settings::default();
    let topology = arguments.topology.clone().or_else(|| path_from_environment("PLEACH_TOPOLOGY"));
    let topology = match topology.or(file.topology.clone()) {
        Some(path) => {
            let plan: TopologyPlan = read_toml(&path)?;
            plan.check().with_context(|| format!("the topology in {}", path.display()))?;
            plan
        }
        None => TopologyPlan::default(),
    };
    let fanout = arguments.fanout.or(file.fanout).unwrap_or(usual.fanout);
    if fanout < 2 {
        bail!("a fan-out of {fanout} makes no tree; give --fanout 2 or more");
    }
    let grace = arguments.job_grace.or(file.job_grace);
    Ok(Settings {
        topology,
        fanout,
        job_grace: grace.map_or(usual.job_grace, |seconds| Span::from_micros(seconds.saturating_mul(1_000_000))),
        default_quota: file.default_quota.unwrap_or(usual.default_quota),
        most_quota: file.most_quota.unwrap_or(usual.most_quota),
        ..usual
    })
}

/// The configuration file, if there is one.
pub(crate) fn configuration<T: DeserializeOwned + Default>(flag: Option<&Path>) -> Result<T> {
    match flag.map(Path::to_owned).or_else(|| path_from_environment("PLEACH_CONFIG")) {
        Some(path) => read_toml(&path),
        None => Ok(T::default()),
    }
}

fn read_toml<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("{} is not as it should be", path.display()))
}

/// What the flag says, else the environment.
pub(crate) fn or_environment(flag: Option<String>, variable: &str) -> Option<String> {
    flag.or_else(|| std::env::var(variable).ok().filter(|value| !value.is_empty()))
}

fn path_from_environment(variable: &str) -> Option<PathBuf> {
    or_environment(None, variable).map(PathBuf::from)
}

/// The cluster's secret: from the file that the flag names, from the environment, from the file that the configuration
/// names.
pub(crate) fn secret(flag: Option<&Path>, configured: Option<&Path>) -> Result<Option<Secret>> {
    let from_file =
        |path: &Path| Secret::from_file(path).with_context(|| format!("the secret in {}", path.display())).map(Some);
    if let Some(path) = flag {
        return from_file(path);
    }
    if let Some(words) = or_environment(None, "PLEACH_SECRET") {
        return Ok(Some(Secret::new(&words).context("the secret in PLEACH_SECRET")?));
    }
    let path = path_from_environment("PLEACH_SECRET_FILE").or(configured.map(Path::to_owned));
    path.as_deref().map_or(Ok(None), from_file)
}

/// An address with a port, by name or number.
pub(crate) fn resolve(text: &str) -> Result<SocketAddr> {
    let mut found = text
        .to_socket_addrs()
        .with_context(|| format!("{text} is no address; write HOST:PORT, for example {DEFAULT_ADDRESS}"))?;
    found.next().with_context(|| format!("{text} has no address"))
}
