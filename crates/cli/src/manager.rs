//! `pleach manager`: places groups over the aggregation nodes and hands out what they may use.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use control::ManagerDaemon;
use manager::{ManagerSettings, TopologyPlan};
use serde::Deserialize;
use tracing::info;
use units::Span;

use crate::configuration::{self, DEFAULT_MANAGER, PartialQuota, openness, resolve, secret_file, words};
use crate::logging;
use lab::CommandOutcome;

/// Runs the manager: nodes register with it, jobs ask it for groups.
#[derive(clap::Args, Deserialize, Default)]
#[command(after_help = HELP)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ManagerArgs {
    /// Where to listen [default: 127.0.0.1:4797]
    #[arg(long, env = "PLEACH_LISTEN", value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// The places of nodes, in TOML; without it nodes say where they belong, or are arranged
    #[arg(long, env = "PLEACH_TOPOLOGY", value_name = "FILE")]
    topology: Option<PathBuf>,
    /// A file with the secret of the cluster (PLEACH_SECRET_FILE); or the secret itself in PLEACH_SECRET
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Obey whoever can reach the address, although there is no secret
    #[arg(long, env = "PLEACH_OPEN", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    open: Option<bool>,
    /// Hosts per leaf, and nodes per node, where the manager arranges the tree [default: 16]
    #[arg(long, env = "PLEACH_FANOUT", value_name = "NUMBER")]
    fanout: Option<usize>,
    /// How long a job that lost its connection keeps its groups [default: 10]
    #[arg(long, env = "PLEACH_JOB_GRACE", value_name = "SECONDS")]
    job_grace: Option<u64>,
    /// What a job gets that does not ask, the last two at each node [default: groups=64,operations=4096,bytes=67108864]
    #[arg(long, env = "PLEACH_DEFAULT_QUOTA", value_name = "PARTS")]
    default_quota: Option<PartialQuota>,
    /// What a job gets at most [default: groups=1024,operations=65536,bytes=4294967296]
    #[arg(long, env = "PLEACH_MOST_QUOTA", value_name = "PARTS")]
    most_quota: Option<PartialQuota>,
    /// Show metrics to Prometheus at this address
    #[arg(long, env = "PLEACH_METRICS", value_name = "ADDRESS:PORT")]
    metrics: Option<String>,
    /// Days after which it starts itself anew, as soon as nobody needs it [default: 30]
    #[arg(long, env = "PLEACH_RENEW_AFTER", value_name = "DAYS")]
    renew_after: Option<f64>,
    /// How much is logged [default: info]
    #[arg(long, env = "PLEACH_LOG", value_name = "LEVEL")]
    log: Option<logging::LogLevel>,
    /// How it is written [default: text]
    #[arg(long, env = "PLEACH_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<logging::LogFormat>,
    /// A file in TOML with any of this; flags count more than the environment, and that more than the file
    #[arg(long, env = "PLEACH_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,
}

const HELP: &str = "\
Examples:
  pleach manager
  PLEACH_SECRET='correct horse' pleach manager --listen 10.0.0.1:4797 --metrics 127.0.0.1:9797
  pleach manager --listen 10.0.0.1:4797 --open --topology nodes.toml

A configuration file (--config):
  listen = \"10.0.0.1:4797\"
  secret_file = \"/etc/pleach/secret\"
  job_grace = 30
  default_quota = { groups = 16 }

A topology file (--topology):
  [[node]]
  name = \"spine1\"
  [[node]]
  name = \"rack1\"
  parents = [\"spine1\"]
  serves = [\"10.1.0.0/24\", \"rack1-*\"]

The first line printed is the address at which the manager listens; what happens is logged to standard error. Then:
pleach top, pleach doctor --manager ADDRESS:PORT. docs/operations.md has more.";

impl ManagerArgs {
    /// With the file's word where nothing else was said.
    fn with_file(self) -> Result<Self> {
        let file: Self = configuration::from_file(self.config.as_deref())?;
        Ok(Self {
            listen: words(self.listen, file.listen),
            topology: self.topology.or(file.topology),
            secret_file: secret_file(self.secret_file, file.secret_file),
            open: self.open.or(file.open),
            fanout: self.fanout.or(file.fanout),
            job_grace: self.job_grace.or(file.job_grace),
            default_quota: self.default_quota.or(file.default_quota),
            most_quota: self.most_quota.or(file.most_quota),
            metrics: words(self.metrics, file.metrics),
            renew_after: self.renew_after.or(file.renew_after),
            log: self.log.or(file.log),
            log_format: self.log_format.or(file.log_format),
            config: self.config,
        })
    }

    fn settings(&self) -> Result<ManagerSettings> {
        let usual = ManagerSettings::default();
        let topology = match &self.topology {
            Some(path) => {
                let plan: TopologyPlan = configuration::read_toml(path)?;
                plan.check().with_context(|| format!("the topology in {}", path.display()))?;
                plan
            }
            None => TopologyPlan::default(),
        };
        let fanout = self.fanout.unwrap_or(usual.fanout);
        if fanout < 2 {
            bail!("a fan-out of {fanout} makes no tree; give --fanout 2 or more");
        }
        let seconds = |seconds: u64| Span::from_micros(seconds.min(MOST_GRACE).saturating_mul(1_000_000));
        Ok(ManagerSettings {
            topology,
            fanout,
            job_grace: self.job_grace.map_or(usual.job_grace, seconds),
            default_quota: self.default_quota.unwrap_or_default().over(usual.default_quota),
            most_quota: self.most_quota.unwrap_or_default().over(usual.most_quota),
            ..usual
        })
    }
}

/// A week: longer than that nobody is waited for.
const MOST_GRACE: u64 = 7 * 24 * 3600;

pub(crate) fn run(arguments: ManagerArgs) -> Result<CommandOutcome> {
    let arguments = arguments.with_file()?;
    let settings = arguments.settings()?;
    let listen = resolve(arguments.listen.as_deref().unwrap_or(DEFAULT_MANAGER))?;
    let secret = configuration::secret(arguments.secret_file.as_deref())?;
    let guarded = if secret.is_some() { "with a secret" } else { "without a secret" };
    configuration::raise_descriptor_limit();
    let mut daemon = ManagerDaemon::bind(listen, settings, secret, openness(arguments.open))
        .with_context(|| format!("the manager cannot listen at {listen}; choose another --listen"))?;
    let metrics = arguments.metrics.as_deref().map(resolve).transpose()?;
    let metrics =
        metrics.map(|at| daemon.show_metrics(at).with_context(|| format!("no metrics at {at}"))).transpose()?;
    logging::start(arguments.log.unwrap_or_default(), arguments.log_format.unwrap_or_default());
    configuration::announce(&daemon.address().to_string());
    info!(target: "pleach::manager", address = %daemon.address(), version = env!("CARGO_PKG_VERSION"),
        "the manager listens at {}, {guarded}", daemon.address());
    if let Some(address) = metrics {
        info!(target: "pleach::manager", metrics = %address, "metrics are at http://{address}/metrics");
    }
    loop {
        daemon.turn(Duration::from_secs(1))?;
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_setting_has_one_name() {
        crate::configuration::tests::names_agree::<super::ManagerArgs>();
    }
}
