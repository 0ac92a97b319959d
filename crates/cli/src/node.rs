//! `pleach node`: an aggregation node on this machine.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use control::NodeControl;
use engine::aggregation::NodeDataPlane;
use manager::message::{Capacity, NodeDescriptor};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::sched_yield;
use serde::Deserialize;
use tracing::info;

use crate::configuration::{self, openness, resolve, secret_file, words};
use crate::logging;
use lab::CommandOutcome;
use lab::local_fabric::fault_file;

/// Runs an aggregation node: folds what its children contribute and passes on the result.
#[derive(clap::Args, Deserialize, Default)]
#[command(after_help = HELP)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NodeArgs {
    /// The manager [default: 127.0.0.1:4797]
    #[arg(long, env = "PLEACH_MANAGER", value_name = "HOST:PORT")]
    manager: Option<String>,
    /// The node's name, one of its own [default: the host's name]
    #[arg(long, env = "PLEACH_NAME")]
    name: Option<String>,
    /// UDP addresses for packets, one per path [default: the one from which the manager is reached, any port]
    #[arg(long, env = "PLEACH_LISTEN", value_name = "ADDRESS:PORT", value_delimiter = ',')]
    listen: Option<Vec<String>>,
    /// TCP address at which other nodes call it [default: the first of --listen, any port]
    #[arg(long, env = "PLEACH_CONTROL", value_name = "ADDRESS:PORT")]
    control: Option<String>,
    /// A node above it; several if it may be in several trees
    #[arg(long, env = "PLEACH_PARENT", value_name = "NAME", value_delimiter = ',')]
    parent: Option<Vec<String>>,
    /// Hosts that it serves: names, patterns with *, addresses or networks [default: a share of all]
    #[arg(long, env = "PLEACH_SERVES", value_name = "HOSTS", value_delimiter = ',')]
    serves: Option<Vec<String>>,
    /// Groups that it serves at a time [default: 1024]
    #[arg(long, env = "PLEACH_SEATS", value_name = "NUMBER")]
    seats: Option<u32>,
    /// Operations in flight, of all groups [default: 16384]
    #[arg(long, env = "PLEACH_OPERATIONS", value_name = "NUMBER")]
    operations: Option<u32>,
    /// Memory for payloads that may be reserved, in MiB [default: 1024]
    #[arg(long, env = "PLEACH_MEMORY", value_name = "MIB")]
    memory: Option<u64>,
    /// A file with the secret of the cluster (PLEACH_SECRET_FILE); or the secret itself in PLEACH_SECRET
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Obey whoever can reach --control, although there is no secret
    #[arg(long, env = "PLEACH_OPEN", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    open: Option<bool>,
    /// Show metrics to Prometheus at this address
    #[arg(long, env = "PLEACH_METRICS", value_name = "ADDRESS:PORT")]
    metrics: Option<String>,
    /// Faults to inject into what it sends, for trials: a plan in TOML
    #[arg(long, env = "PLEACH_FAULTS", value_name = "FILE")]
    faults: Option<PathBuf>,
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
  pleach node                                        with a manager on this machine
  pleach node --name top; pleach node --name left --parent top; pleach node --name right --parent top
  PLEACH_SECRET='correct horse' pleach node --manager 10.0.0.1:4797 --serves '10.1.0.0/24'
  pleach node --manager 10.0.0.1:4797 --listen 10.0.0.7:4791 --listen 10.9.0.7:4791 --open

A configuration file (--config):
  manager = \"10.0.0.1:4797\"
  name = \"rack1\"
  parent = [\"spine1\", \"spine2\"]
  serves = [\"10.1.0.0/24\"]
  secret_file = \"/etc/pleach/secret\"

The first line printed are the addresses for packets; what happens is logged to standard error. If the manager is lost,
groups that run go on, and the node calls it until it is back. docs/operations.md has more.";

impl NodeArgs {
    /// With the file's word where nothing else was said.
    fn with_file(self) -> Result<Self> {
        let file: Self = configuration::from_file(self.config.as_deref())?;
        Ok(Self {
            manager: words(self.manager, file.manager),
            name: words(self.name, file.name),
            listen: self.listen.or(file.listen),
            control: words(self.control, file.control),
            parent: self.parent.or(file.parent),
            serves: self.serves.or(file.serves),
            seats: self.seats.or(file.seats),
            operations: self.operations.or(file.operations),
            memory: self.memory.or(file.memory),
            secret_file: secret_file(self.secret_file, file.secret_file),
            open: self.open.or(file.open),
            metrics: words(self.metrics, file.metrics),
            faults: self.faults.or(file.faults),
            renew_after: self.renew_after.or(file.renew_after),
            log: self.log.or(file.log),
            log_format: self.log_format.or(file.log_format),
            config: self.config,
        })
    }

    fn card(&self, addresses: Vec<SocketAddr>, control: SocketAddr) -> Result<NodeDescriptor> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => host_name().context("this host has no name; give --name")?,
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

    /// Where packets come in. Others must be told addresses that they can send to.
    fn addresses(&self, manager: SocketAddr) -> Result<Vec<SocketAddr>> {
        let asked = self.listen.iter().flatten().filter(|text| !text.is_empty());
        let mut addresses = asked.map(|text| resolve(text)).collect::<Result<Vec<_>>>()?;
        if addresses.is_empty() {
            addresses.push(SocketAddr::new(own_address(manager)?, 0));
        }
        for address in addresses.iter_mut().filter(|address| address.ip().is_unspecified()) {
            address.set_ip(own_address(manager)?);
        }
        Ok(addresses)
    }
}

pub(crate) fn run(arguments: NodeArgs) -> Result<CommandOutcome> {
    let arguments = arguments.with_file()?;
    let manager = configuration::manager(arguments.manager.as_deref())?;
    let addresses = arguments.addresses(manager)?;
    let mischief = arguments.faults.as_deref().map(fault_file::read).transpose()?.unwrap_or_default();
    configuration::raise_descriptor_limit();
    let mut seats = NodeDataPlane::open(&addresses, mischief)
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
    let mut control = NodeControl::bind(card, manager, control, secret, openness(arguments.open))
        .with_context(|| format!("node {name} cannot take orders at {control}"))?;
    let metrics = arguments.metrics.as_deref().map(resolve).transpose()?;
    let metrics =
        metrics.map(|at| control.show_metrics(at).with_context(|| format!("no metrics at {at}"))).transpose()?;
    logging::start(arguments.log.unwrap_or_default(), arguments.log_format.unwrap_or_default());
    configuration::announce(&listed.join(" "));
    info!(target: "pleach::node", node = %name, control = %control.address(), version = env!("CARGO_PKG_VERSION"),
        "node {name} takes packets at {} and orders at {}", listed.join(", "), control.address());
    if let Some(address) = metrics {
        info!(target: "pleach::node", metrics = %address, "metrics are at http://{address}/metrics");
    }
    let mut vigil = PollWindow::default();
    loop {
        serve(&mut seats, &mut control, &mut vigil)?;
    }
}

/// One round: orders, then packets until there are orders again or something is due.
fn serve(seats: &mut NodeDataPlane, control: &mut NodeControl, vigil: &mut PollWindow) -> Result<()> {
    control.turn(seats);
    loop {
        // PacketCounters are many and orders are few, and asking for orders takes several system calls.
        let is_quiet = (0..PACKET_ROUNDS).any(|_| !seats.turn() && !vigil.brings(|| seats.turn()));
        let longest = if is_quiet { LONGEST_WAIT } else { Duration::ZERO };
        if has_orders(seats, control, longest)? || control.patience().is_zero() {
            return Ok(());
        }
    }
}

/// Turns of the data plane between two looks at the control side.
const PACKET_ROUNDS: usize = 64;
/// How long to sleep at most.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Staying awake for a while after packets have come. Whoever sends the next ones then need not wake the node; and ranks on the
/// node's own processor all have their turn before it looks again, so that it finds what they sent together.
struct PollWindow {
    /// How many are left out yet, and how many will be the next time.
    left_out: u32,
    next_left_out: u32,
    /// Vigils in a row in which nobody took the processor for long.
    calm: u32,
}

/// How long the node stays awake.
const AWAKE: Duration = Duration::from_micros(100);
/// Whoever takes the processor for so long is no rank that sends and waits: a node that sleeps gets it back sooner.
const TAKEN: Duration = Duration::from_micros(500);
/// How many vigils are left out then: few at first, for it may have been a pause of the machine; twice as many if it happens again soon.
const LEAST_LEFT_OUT: u32 = 8;
const MOST_LEFT_OUT: u32 = 256;
/// After so many without it, it was long ago.
const CALM: u32 = 64;

impl Default for PollWindow {
    fn default() -> Self {
        Self { left_out: 0, next_left_out: LEAST_LEFT_OUT, calm: 0 }
    }
}

impl PollWindow {
    /// Gives the processor to others again and again until something has come; false if nothing does for too long.
    fn brings(&mut self, look: impl FnMut() -> bool) -> bool {
        self.brings_by(Instant::now, look)
    }

    fn brings_by(&mut self, clock: impl Fn() -> Instant, mut look: impl FnMut() -> bool) -> bool {
        if self.left_out > 0 {
            self.left_out -= 1;
            return false;
        }
        let began = clock();
        let mut before = began;
        loop {
            let _ = sched_yield(); // It cannot fail on Linux.
            let now = clock();
            let is_taken = now - before > TAKEN;
            let has_come = look();
            if is_taken {
                self.leave_out();
                return has_come;
            }
            if has_come || now - began > AWAKE {
                self.note_calm();
                return has_come;
            }
            before = now;
        }
    }

    fn leave_out(&mut self) {
        (self.left_out, self.calm) = (self.next_left_out, 0);
        self.next_left_out = (2 * self.next_left_out).min(MOST_LEFT_OUT);
    }

    fn note_calm(&mut self) {
        self.calm += 1;
        if self.calm == CALM {
            (self.calm, self.next_left_out) = (0, (self.next_left_out / 2).max(LEAST_LEFT_OUT));
        }
    }
}

/// Waits for packets or orders, at most so long; true if there are orders.
fn has_orders(seats: &NodeDataPlane, control: &NodeControl, longest: Duration) -> Result<bool> {
    let mut fds = control.poll_fds();
    let orders = fds.len();
    fds.extend(seats.sockets().map(|socket| PollFd::new(socket, PollFlags::POLLIN)));
    let wait = seats.patience().map_or(control.patience(), |patience| patience.min(control.patience()));
    let millis = wait.min(longest).as_micros().div_ceil(1_000) as u16;
    match poll(&mut fds, PollTimeout::from(millis)) {
        Ok(_) => Ok(fds[..orders].iter().any(|fd| fd.any() != Some(false))),
        Err(nix::errno::Errno::EINTR) => Ok(true),
        Err(error) => Err(error).context("cannot wait for packets"),
    }
}

/// The address of this machine from which another is reached. Nothing is sent.
fn own_address(other: SocketAddr) -> Result<IpAddr> {
    let any: SocketAddr = if other.is_ipv4() { "0.0.0.0:0".parse()? } else { "[::]:0".parse()? };
    let socket = UdpSocket::bind(any)?;
    socket.connect(other).with_context(|| format!("no way to {other}; give --listen an address of this machine"))?;
    Ok(socket.local_addr()?.ip())
}

fn host_name() -> Result<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    let name = name.trim();
    anyhow::ensure!(!name.is_empty(), "an empty name");
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that goes on by this much each time that it is read.
    fn clock(step: Duration) -> impl Fn() -> Instant {
        let (began, reads) = (Instant::now(), std::cell::Cell::new(0));
        move || {
            reads.set(reads.get() + 1);
            began + step * reads.get()
        }
    }

    #[test]
    fn a_vigil_ends_with_what_comes_or_in_time() {
        let mut looks = 0;
        let third = || {
            looks += 1;
            looks == 3
        };
        assert!(PollWindow::default().brings_by(clock(AWAKE / 10), third));
        let mut looks = 0;
        let never = || {
            looks += 1;
            false
        };
        assert!(!PollWindow::default().brings_by(clock(AWAKE / 10), never));
        assert_eq!(looks, 11, "no sooner and no later");
    }

    #[test]
    fn whoever_loses_the_processor_for_long_sleeps_for_a_while() {
        let mut vigil = PollWindow::default();
        let late = clock(2 * TAKEN);
        assert!(vigil.brings_by(&late, || true), "what has come is not forgotten");
        for left_out in [8, 16, 32, 64, 128, 256, 256] {
            for _ in 0..left_out {
                assert!(!vigil.brings_by(&late, || true), "it is left out");
            }
            assert!(vigil.brings_by(&late, || true));
        }
    }

    #[test]
    fn what_happened_once_is_forgotten() {
        let mut vigil = PollWindow::default();
        let (late, early) = (clock(2 * TAKEN), clock(AWAKE / 10));
        let mut count_left_out = || {
            assert!(vigil.brings_by(&late, || true));
            let left_out = (0..).take_while(|_| !vigil.brings_by(&early, || true)).count();
            for _ in 0..2 * CALM {
                assert!(vigil.brings_by(&early, || true));
            }
            left_out
        };
        assert_eq!([count_left_out(), count_left_out(), count_left_out()], [8; 3]);
    }

    #[test]
    fn a_setting_has_one_name() {
        crate::configuration::tests::names_agree::<super::NodeArgs>();
    }
}
