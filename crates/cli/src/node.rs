//! `pleach node`: an aggregation node on this machine.

mod poll_window;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use control::NodeControl;
use engine::aggregation::NodeDataPlane;
use manager::message::{Capacity, NodeDescriptor};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Deserialize;
use tracing::info;
use transport::udp::local_address_towards;

use crate::configuration::{self, authentication, non_empty_or, renamed, resolve, secret_file};
use crate::logging;
use crate::service_notifier::ServiceNotifier;
use lab::CommandOutcome;
use lab::local_fabric::fault_file;
use poll_window::PollWindow;

/// Runs an aggregation node: reduces the contributions of its children and forwards the result.
#[derive(clap::Args, Deserialize, Default)]
#[command(after_help = HELP)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NodeArgs {
    /// Address of the manager [default: 127.0.0.1:4797]
    #[arg(long, env = "PLEACH_MANAGER", value_name = "HOST:PORT")]
    manager: Option<String>,
    /// Unique name of the node [default: the host's name]
    #[arg(long, env = "PLEACH_NAME")]
    name: Option<String>,
    /// UDP addresses for packets, one per path [default: the one from which the manager is reached, any port]
    #[arg(long, env = "PLEACH_LISTEN", value_name = "ADDRESS:PORT", value_delimiter = ',')]
    listen: Option<Vec<String>>,
    /// TCP address for control connections of other nodes [default: the first of --listen, any port]
    #[arg(long, env = "PLEACH_CONTROL", value_name = "ADDRESS:PORT")]
    control: Option<String>,
    /// Parent node; several if it may be in several trees
    #[arg(long, env = "PLEACH_PARENT", value_name = "NAME", value_delimiter = ',')]
    parent: Option<Vec<String>>,
    /// Hosts that it serves: names, patterns with *, addresses or networks [default: a share of all]
    #[arg(long, env = "PLEACH_SERVES", value_name = "HOSTS", value_delimiter = ',')]
    serves: Option<Vec<String>>,
    /// Maximum number of groups at a time [default: 1024]
    #[arg(long, env = "PLEACH_SEATS", value_name = "NUMBER")]
    seats: Option<u32>,
    /// Maximum number of operations in flight, over all groups [default: 16384]
    #[arg(long, env = "PLEACH_OPERATIONS", value_name = "NUMBER")]
    operations: Option<u32>,
    /// Maximum memory for payloads, in MiB [default: 1024]
    #[arg(long, env = "PLEACH_MEMORY", value_name = "MIB")]
    memory: Option<u64>,
    /// File with the secret of the cluster (PLEACH_SECRET_FILE); PLEACH_SECRET is the secret itself
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Accept control connections without authentication, although there is no secret
    #[arg(
        long,
        env = "PLEACH_ALLOW_UNAUTHENTICATED",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    allow_unauthenticated: Option<bool>,
    /// Serve Prometheus metrics at this address
    #[arg(long, env = "PLEACH_METRICS", value_name = "ADDRESS:PORT")]
    metrics: Option<String>,
    /// Faults to inject into packets that it sends: a plan in TOML
    #[arg(long, env = "PLEACH_FAULTS", value_name = "FILE")]
    faults: Option<PathBuf>,
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
    /// Ignored
    #[arg(long, hide = true, env = "PLEACH_RENEW_AFTER")]
    renew_after: Option<f64>,
}

const HELP: &str = "\
Examples:
  pleach node                                        with a manager on this machine
  pleach node --name top; pleach node --name left --parent top; pleach node --name right --parent top
  PLEACH_SECRET='correct horse' pleach node --manager 10.0.0.1:4797 --serves '10.1.0.0/24'
  pleach node --manager 10.0.0.1:4797 --listen 10.0.0.7:4791 --listen 10.9.0.7:4791 --allow-unauthenticated

A configuration file (--config):
  manager = \"10.0.0.1:4797\"
  name = \"rack1\"
  parent = [\"spine1\", \"spine2\"]
  serves = [\"10.1.0.0/24\"]
  secret_file = \"/etc/pleach/secret\"

The first line of output lists the addresses for packets; the log goes to stderr. If the manager is lost,
existing groups continue, and the node reconnects until it succeeds. docs/operations.md has more.";

impl NodeArgs {
    /// Adds the settings of the file, and warns of deprecated ones.
    fn with_file(self) -> Result<Self> {
        let file: Self = configuration::from_file(self.config.as_deref())?;
        configuration::ignored("renew_after", self.renew_after.or(file.renew_after), "services need no restart");
        Ok(Self {
            manager: non_empty_or(self.manager, file.manager),
            name: non_empty_or(self.name, file.name),
            listen: self.listen.or(file.listen),
            control: non_empty_or(self.control, file.control),
            parent: self.parent.or(file.parent),
            serves: self.serves.or(file.serves),
            seats: self.seats.or(file.seats),
            operations: self.operations.or(file.operations),
            memory: self.memory.or(file.memory),
            secret_file: secret_file(self.secret_file, file.secret_file),
            allow_unauthenticated: renamed(
                "allow_unauthenticated",
                self.allow_unauthenticated.or(file.allow_unauthenticated),
                "open",
                self.open.or(file.open),
            ),
            metrics: non_empty_or(self.metrics, file.metrics),
            faults: self.faults.or(file.faults),
            log: self.log.or(file.log),
            log_format: self.log_format.or(file.log_format),
            config: self.config,
            ..Self::default()
        })
    }

    fn card(&self, addresses: Vec<SocketAddr>, control: SocketAddr) -> Result<NodeDescriptor> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => host_name().context("this host has no name; use --name")?,
        };
        Ok(NodeDescriptor {
            name,
            addresses,
            control,
            parents: self.parent.clone().unwrap_or_default(),
            serves: self.serves.clone().unwrap_or_default(),
            capacity: Capacity {
                seats: self.seats.unwrap_or(1 << 10),
                operations: self.operations.unwrap_or(1 << 14),
                bytes: self.memory.unwrap_or(1 << 10).saturating_mul(1 << 20),
            },
        })
    }

    /// The addresses for packets. They are published, so an unspecified address is replaced by one that others can send to.
    fn addresses(&self, manager: SocketAddr) -> Result<Vec<SocketAddr>> {
        let requested = self.listen.iter().flatten().filter(|text| !text.is_empty());
        let mut addresses = requested.map(|text| resolve(text)).collect::<Result<Vec<_>>>()?;
        if addresses.is_empty() {
            addresses.push(SocketAddr::new(local_address(manager)?, 0));
        }
        for address in addresses.iter_mut().filter(|address| address.ip().is_unspecified()) {
            address.set_ip(local_address(manager)?);
        }
        Ok(addresses)
    }
}

pub(crate) fn run(arguments: NodeArgs) -> Result<CommandOutcome> {
    let arguments = arguments.with_file()?;
    let manager = configuration::manager(arguments.manager.as_deref())?;
    let addresses = arguments.addresses(manager)?;
    let faults = arguments.faults.as_deref().map(fault_file::read).transpose()?.unwrap_or_default();
    configuration::raise_descriptor_limit();
    let mut seats = NodeDataPlane::open(&addresses, faults)
        .with_context(|| format!("cannot open UDP sockets at {addresses:?}; are they addresses of this machine?"))?;
    let addresses = seats.addresses();
    let control = match &arguments.control {
        Some(text) => resolve(text)?,
        None => SocketAddr::new(addresses[0].ip(), 0),
    };
    let card = arguments.card(addresses, control)?;
    let secret = configuration::secret(arguments.secret_file.as_deref())?;
    let name = card.name.clone();
    let listed: Vec<String> = card.addresses.iter().map(ToString::to_string).collect();
    let mut control =
        NodeControl::bind(card, manager, control, secret, authentication(arguments.allow_unauthenticated))
            .with_context(|| format!("node {name} cannot listen for control connections at {control}"))?;
    let metrics = arguments.metrics.as_deref().map(resolve).transpose()?;
    let metrics = metrics
        .map(|at| control.serve_metrics(at).with_context(|| format!("cannot serve metrics at {at}")))
        .transpose()?;
    logging::start(arguments.log.unwrap_or_default(), arguments.log_format.unwrap_or_default());
    configuration::announce(&listed.join(" "));
    info!(target: "pleach::node", node = %name, control = %control.address(), version = env!("CARGO_PKG_VERSION"),
        "node {name} listens for packets at {} and for control connections at {}", listed.join(", "), control.address());
    if let Some(address) = metrics {
        info!(target: "pleach::node", metrics = %address, "metrics at http://{address}/metrics");
    }
    let (mut poll_window, mut service) = (PollWindow::default(), ServiceNotifier::ready());
    loop {
        serve(&mut seats, &mut control, &mut poll_window, &mut service)?;
    }
}

/// One round: control messages, then packets until there are control messages again or a timer is due.
fn serve(
    seats: &mut NodeDataPlane,
    control: &mut NodeControl,
    poll_window: &mut PollWindow,
    service: &mut ServiceNotifier,
) -> Result<()> {
    control.turn(seats);
    loop {
        service.turn();
        // Packets are frequent and control messages are rare, and to poll for control messages takes several system calls.
        let is_quiet = (0..PACKET_ROUNDS).any(|_| !seats.turn() && !poll_window.wait(|| seats.turn()));
        let max_wait = if is_quiet { MAX_WAIT } else { Duration::ZERO };
        if has_control_messages(seats, control, max_wait)? || control.patience().is_zero() {
            return Ok(());
        }
    }
}

/// Turns of the data plane between two polls of the control plane.
const PACKET_ROUNDS: usize = 64;
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Waits for packets or control messages; true if there are control messages.
fn has_control_messages(seats: &NodeDataPlane, control: &NodeControl, max_wait: Duration) -> Result<bool> {
    let mut fds = control.poll_fds();
    let control_fds = fds.len();
    fds.extend(seats.sockets().map(|socket| PollFd::new(socket, PollFlags::POLLIN)));
    let wait = seats.next_timeout().map_or(control.patience(), |patience| patience.min(control.patience()));
    let millis = wait.min(max_wait).as_micros().div_ceil(1_000) as u16;
    match poll(&mut fds, PollTimeout::from(millis)) {
        Ok(_) => Ok(fds[..control_fds].iter().any(|fd| fd.any() != Some(false))),
        Err(nix::errno::Errno::EINTR) => Ok(true),
        Err(error) => Err(error).context("cannot wait for packets"),
    }
}

/// The address of this machine from which another is reached.
fn local_address(other: SocketAddr) -> Result<IpAddr> {
    local_address_towards(other)
        .with_context(|| format!("no route to {other}; set --listen to an address of this machine"))
}

fn host_name() -> Result<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    let name = name.trim();
    anyhow::ensure!(!name.is_empty(), "the host name is empty");
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn flags_variables_and_file_settings_have_the_same_names() {
        crate::configuration::tests::names_agree::<super::NodeArgs>();
    }
}
