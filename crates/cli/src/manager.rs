//! `pleach manager`: places groups on aggregation nodes and enforces quotas.

mod topology_file;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use control::ManagerDaemon;
use dashboard::{Dashboard, WebToken};
use manager::{ManagerSettings, TopologyPlan};
use serde::Deserialize;
use tracing::info;
use units::Span;

use crate::configuration::{
    self, DEFAULT_MANAGER, PartialQuota, authentication, non_empty_or, renamed, resolve, secret_file,
};
use crate::logging;
use crate::service_notifier::ServiceNotifier;
use lab::CommandOutcome;
use topology_file::read_topology;

/// Runs the manager: nodes register with it, jobs request groups from it.
#[derive(clap::Args, Deserialize, Default)]
#[command(after_help = HELP)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ManagerArgs {
    /// Address to listen at [default: 127.0.0.1:4797]
    #[arg(long, env = "PLEACH_LISTEN", value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Tree of the nodes, in TOML, as Slurm's topology.conf, or as ibnetdiscover prints it; without it nodes declare their parents, or
    /// the manager arranges them
    #[arg(long, env = "PLEACH_TOPOLOGY", value_name = "FILE")]
    topology: Option<PathBuf>,
    /// File with the secret of the cluster (PLEACH_SECRET_FILE); PLEACH_SECRET is the secret itself
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Accept clients without authentication, although there is no secret
    #[arg(
        long,
        env = "PLEACH_ALLOW_UNAUTHENTICATED",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    allow_unauthenticated: Option<bool>,
    /// Hosts per leaf, and children per node, where the manager arranges the tree [default: 16]
    #[arg(long, env = "PLEACH_FANOUT", value_name = "NUMBER")]
    fanout: Option<usize>,
    /// How long a job that lost its connection keeps its groups [default: 10]
    #[arg(long, env = "PLEACH_JOB_GRACE", value_name = "SECONDS")]
    job_grace: Option<u64>,
    /// Quota of jobs that request none; operations and bytes are per node [default: groups=64,operations=4096,bytes=67108864]
    #[arg(long, env = "PLEACH_DEFAULT_QUOTA", value_name = "PARTS")]
    default_quota: Option<PartialQuota>,
    /// Largest quota of a job [default: groups=1024,operations=65536,bytes=4294967296]
    #[arg(long, env = "PLEACH_MAX_QUOTA", value_name = "PARTS")]
    max_quota: Option<PartialQuota>,
    /// Serve Prometheus metrics at this address
    #[arg(long, env = "PLEACH_METRICS", value_name = "ADDRESS:PORT")]
    metrics: Option<String>,
    /// Serve a web page that shows the cluster, read-only, at this address, or at this port of 127.0.0.1
    #[arg(long, env = "PLEACH_WEB", value_name = "[ADDRESS:]PORT")]
    web: Option<String>,
    /// File with the token that viewers of the page need; without one the page is served on loopback only
    #[arg(long, env = "PLEACH_WEB_TOKEN_FILE", value_name = "FILE")]
    web_token_file: Option<PathBuf>,
    /// Log level [default: info]
    #[arg(long, env = "PLEACH_LOG", value_name = "LEVEL")]
    log: Option<logging::LogLevel>,
    /// Log format [default: text]
    #[arg(long, env = "PLEACH_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<logging::LogFormat>,
    /// File in TOML with any of these settings; flags take precedence over the environment, and that over the file
    #[arg(long, env = "PLEACH_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// Old name of --allow-unauthenticated
    #[arg(long, hide = true, env = "PLEACH_OPEN", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    open: Option<bool>,
    /// Old name of --max-quota
    #[arg(long, hide = true, env = "PLEACH_MOST_QUOTA")]
    most_quota: Option<PartialQuota>,
    /// Ignored
    #[arg(long, hide = true, env = "PLEACH_RENEW_AFTER")]
    renew_after: Option<f64>,
}

const HELP: &str = "\
Examples:
  pleach manager
  PLEACH_SECRET='correct horse' pleach manager --listen 10.0.0.1:4797 --metrics 127.0.0.1:9797
  pleach manager --listen 10.0.0.1:4797 --allow-unauthenticated --topology nodes.toml
  pleach manager --web 8080                                  then open http://127.0.0.1:8080/
  pleach manager --web 10.0.0.1:8080 --web-token-file /etc/pleach/web-token
                                                             then once http://10.0.0.1:8080/?token=TOKEN

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
In Slurm's or ibnetdiscover's form each switch is a node of that name, and serves the hosts at the switch.

The first line of output is the address at which the manager listens; the log goes to stderr. Then:
pleach top, pleach doctor --manager ADDRESS:PORT. docs/operations.md has more.";

impl ManagerArgs {
    /// Adds the settings of the file, and warns of deprecated ones.
    fn with_file(self) -> Result<Self> {
        let file: Self = configuration::from_file(self.config.as_deref())?;
        configuration::ignored("renew_after", self.renew_after.or(file.renew_after), "services need no restart");
        Ok(Self {
            listen: non_empty_or(self.listen, file.listen),
            topology: self.topology.or(file.topology),
            secret_file: secret_file(self.secret_file, file.secret_file),
            allow_unauthenticated: renamed(
                "allow_unauthenticated",
                self.allow_unauthenticated.or(file.allow_unauthenticated),
                "open",
                self.open.or(file.open),
            ),
            fanout: self.fanout.or(file.fanout),
            job_grace: self.job_grace.or(file.job_grace),
            default_quota: self.default_quota.or(file.default_quota),
            max_quota: renamed(
                "max_quota",
                self.max_quota.or(file.max_quota),
                "most_quota",
                self.most_quota.or(file.most_quota),
            ),
            metrics: non_empty_or(self.metrics, file.metrics),
            web: non_empty_or(self.web, file.web),
            web_token_file: self.web_token_file.or(file.web_token_file),
            log: self.log.or(file.log),
            log_format: self.log_format.or(file.log_format),
            config: self.config,
            ..Self::default()
        })
    }

    /// Starts to serve the page, if it is wanted.
    fn serve_web(&self, manager: SocketAddr) -> Result<Option<Dashboard>> {
        let token_file = self.web_token_file.as_deref().filter(|path| !path.as_os_str().is_empty());
        let Some(web) = &self.web else {
            if token_file.is_some() {
                bail!("--web-token-file has no effect without --web; add --web PORT");
            }
            return Ok(None);
        };
        let token = token_file
            .map(|path| {
                WebToken::from_file(path).with_context(|| format!("cannot use --web-token-file {}", path.display()))
            })
            .transpose()?;
        Ok(Some(Dashboard::serve(web_address(web)?, token, manager)?))
    }

    fn settings(&self) -> Result<ManagerSettings> {
        let defaults = ManagerSettings::default();
        let topology = match &self.topology {
            Some(path) => read_topology(path)?,
            None => TopologyPlan::default(),
        };
        let fanout = self.fanout.unwrap_or(defaults.fanout);
        if fanout < 2 {
            bail!("a fan-out of {fanout} cannot form a tree; use --fanout 2 or more");
        }
        let seconds = |seconds: u64| Span::from_micros(seconds.min(MAX_GRACE_SECONDS).saturating_mul(1_000_000));
        Ok(ManagerSettings {
            topology,
            fanout,
            job_grace: self.job_grace.map_or(defaults.job_grace, seconds),
            default_quota: self.default_quota.unwrap_or_default().over(defaults.default_quota),
            max_quota: self.max_quota.unwrap_or_default().over(defaults.max_quota),
            ..defaults
        })
    }
}

/// A port alone is one of 127.0.0.1.
fn web_address(text: &str) -> Result<SocketAddr> {
    match text.parse::<u16>() {
        Ok(port) => Ok(SocketAddr::from(([127, 0, 0, 1], port))),
        Err(_) => resolve(text).context("--web takes a port, or an address with a port"),
    }
}

/// A week.
const MAX_GRACE_SECONDS: u64 = 7 * 24 * 3600;

pub(crate) fn run(arguments: ManagerArgs) -> Result<CommandOutcome> {
    let arguments = arguments.with_file()?;
    let settings = arguments.settings()?;
    let listen = resolve(arguments.listen.as_deref().unwrap_or(DEFAULT_MANAGER))?;
    let secret = configuration::secret(arguments.secret_file.as_deref())?;
    let authentication_mode = if secret.is_some() { "with a secret" } else { "without a secret" };
    configuration::raise_descriptor_limit();
    let mut daemon = ManagerDaemon::bind(listen, settings, secret, authentication(arguments.allow_unauthenticated))
        .with_context(|| format!("the manager cannot listen at {listen}; use another --listen"))?;
    let metrics = arguments.metrics.as_deref().map(resolve).transpose()?;
    let metrics = metrics
        .map(|at| daemon.serve_metrics(at).with_context(|| format!("cannot serve metrics at {at}")))
        .transpose()?;
    let web = arguments.serve_web(daemon.address())?;
    logging::start(arguments.log.unwrap_or_default(), arguments.log_format.unwrap_or_default());
    configuration::announce(&daemon.address().to_string());
    info!(target: "pleach::manager", address = %daemon.address(), version = env!("CARGO_PKG_VERSION"),
        "manager listens at {}, {authentication_mode}", daemon.address());
    if let Some(address) = metrics {
        info!(target: "pleach::manager", metrics = %address, "metrics at http://{address}/metrics");
    }
    if let Some(dashboard) = web {
        let (address, token) =
            (dashboard.address(), if arguments.web_token_file.is_some() { ", with a token" } else { "" });
        info!(target: "pleach::manager", web = %address, "web page at http://{address}/{token}");
        daemon.observe(Box::new(dashboard));
    }
    let mut service = ServiceNotifier::ready();
    loop {
        daemon.turn(Duration::from_secs(1))?;
        service.turn();
    }
}

#[cfg(test)]
mod tests {
    use super::web_address;

    #[test]
    fn a_port_alone_means_loopback() {
        assert_eq!(web_address("8080").expect("a port"), "127.0.0.1:8080".parse().expect("an address"));
        assert_eq!(web_address("[::1]:80").expect("an address"), "[::1]:80".parse().expect("an address"));
        assert!(["99999", "-1", "10.0.0.1", "nonsense"].iter().all(|text| web_address(text).is_err()));
    }

    #[test]
    fn flags_variables_and_file_settings_have_the_same_names() {
        crate::configuration::tests::names_agree::<super::ManagerArgs>();
    }
}
