//! `pleach node`: an aggregation node on this machine.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use protocol::manager::message::{Capacity, NodeCard};
use runtime::aggregation::NodeSeats;
use runtime::control::{NodeControl, Openness};
use runtime::udp::Mischief;
use serde::Deserialize;

use crate::Outcome;
use crate::manager::{DEFAULT_ADDRESS, configuration, or_environment, resolve, secret};

/// Runs an aggregation node: folds what its children contribute and passes on the result.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// The manager (PLEACH_MANAGER) [default: 127.0.0.1:4797]
    #[arg(long, value_name = "HOST:PORT")]
    manager: Option<String>,
    /// The node's name, one of its own (PLEACH_NODE_NAME) [default: the host's name]
    #[arg(long)]
    name: Option<String>,
    /// UDP addresses for packets, one per path [default: the one from which the manager is reached, any port]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<String>,
    /// TCP address at which other nodes call it [default: the first of --listen, any port]
    #[arg(long, value_name = "ADDRESS:PORT")]
    control: Option<String>,
    /// A node above it; several if it may be in several trees
    #[arg(long, value_name = "NAME")]
    parent: Vec<String>,
    /// Hosts that it serves: names, patterns with *, addresses or networks [default: a share of all]
    #[arg(long, value_name = "HOSTS")]
    serves: Vec<String>,
    /// Groups that it serves at a time [default: 1024]
    #[arg(long, value_name = "NUMBER")]
    seats: Option<u32>,
    /// Operations in flight, of all groups [default: 16384]
    #[arg(long, value_name = "NUMBER")]
    operations: Option<u32>,
    /// Memory for payloads that may be reserved, in MiB [default: 1024]
    #[arg(long, value_name = "MIB")]
    memory: Option<u64>,
    /// A file with the secret of the cluster (PLEACH_SECRET_FILE); or the secret itself in PLEACH_SECRET
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Obey whoever can reach --control, although there is no secret
    #[arg(long)]
    open: bool,
    /// All of this in TOML (PLEACH_CONFIG); flags and the environment count more
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

const HELP: &str = "\
Examples:
  pleach node                                        with a manager on this machine
  pleach node --name top; pleach node --name left --parent top; pleach node --name right --parent top
  PLEACH_SECRET='correct horse' pleach node --manager 10.0.0.1:4797 --serves '10.1.0.0/24'
  pleach node --manager 10.0.0.1:4797 --listen 10.0.0.7:4791 --listen 10.9.0.7:4791 --open

The first line printed are the addresses for packets; what happens is logged to standard error. If the manager is lost,
groups that run go on, and the node calls it until it is back.";

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct File {
    manager: Option<String>,
    name: Option<String>,
    listen: Vec<String>,
    control: Option<String>,
    parent: Vec<String>,
    serves: Vec<String>,
    seats: Option<u32>,
    operations: Option<u32>,
    memory: Option<u64>,
    secret_file: Option<PathBuf>,
    open: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let file: File = configuration(arguments.config.as_deref())?;
    let manager = or_environment(arguments.manager.clone(), "PLEACH_MANAGER").or(file.manager.clone());
    let manager = resolve(manager.as_deref().unwrap_or(DEFAULT_ADDRESS))?;
    let mut seats = data_plane(&listen(arguments, &file, manager)?)?;
    let addresses = seats.addresses();
    let control = match arguments.control.as_ref().or(file.control.as_ref()) {
        Some(text) => resolve(text)?,
        None => SocketAddr::new(addresses[0].ip(), 0),
    };
    let card = card(arguments, &file, addresses, control)?;
    let secret = secret(arguments.secret_file.as_deref(), file.secret_file.as_deref())?;
    let openness = if arguments.open || file.open { Openness::Open } else { Openness::Guarded };
    let name = card.name.clone();
    let listed: Vec<String> = card.addresses.iter().map(ToString::to_string).collect();
    let mut control = NodeControl::bind(card, manager, control, secret, openness)
        .with_context(|| format!("node {name} cannot take orders at {control}"))?;
    println!("{}", listed.join(" "));
    loop {
        serve(&mut seats, &mut control, &name)?;
    }
}

/// The data plane behind the control side.
fn data_plane(addresses: &[SocketAddr]) -> Result<NodeSeats> {
    NodeSeats::open(addresses, Mischief::default())
        .with_context(|| format!("cannot open UDP sockets at {addresses:?}; are they addresses of this machine?"))
}

/// One round: orders, then packets until there are orders again or something is due.
fn serve(seats: &mut NodeSeats, control: &mut NodeControl, name: &str) -> Result<()> {
    for note in control.turn(seats) {
        eprintln!("node {name}: {note}");
    }
    loop {
        // Packets are many and orders are few, and asking for orders takes several system calls.
        for _ in 0..PACKET_ROUNDS {
            if !seats.turn() {
                break;
            }
        }
        if has_orders(seats, control)? || control.patience().is_zero() {
            return Ok(());
        }
    }
}

/// Turns of the data plane between two looks at the control side.
const PACKET_ROUNDS: usize = 64;

/// Waits for packets or orders; true if there are orders.
fn has_orders(seats: &NodeSeats, control: &NodeControl) -> Result<bool> {
    let mut fds = control.poll_fds();
    let orders = fds.len();
    fds.extend(seats.sockets().map(|socket| PollFd::new(socket, PollFlags::POLLIN)));
    let wait = seats.patience().map_or(control.patience(), |patience| patience.min(control.patience()));
    let millis = wait.min(Duration::from_secs(1)).as_micros().div_ceil(1_000) as u16;
    match poll(&mut fds, PollTimeout::from(millis)) {
        Ok(_) => Ok(fds[..orders].iter().any(|fd| fd.any() != Some(false))),
        Err(nix::errno::Errno::EINTR) => Ok(true),
        Err(error) => Err(error).context("cannot wait for packets"),
    }
}

fn listen(arguments: &Arguments, file: &File, manager: SocketAddr) -> Result<Vec<SocketAddr>> {
    let asked = if arguments.listen.is_empty() { &file.listen } else { &arguments.listen };
    let mut addresses = asked.iter().map(|text| resolve(text)).collect::<Result<Vec<_>>>()?;
    if addresses.is_empty() {
        addresses.push(SocketAddr::new(own_address(manager)?, 0));
    }
    for address in &mut addresses {
        if address.ip().is_unspecified() {
            // Others must be told an address that they can send to.
            address.set_ip(own_address(manager)?);
        }
    }
    Ok(addresses)
}

/// The address of this machine from which another is reached. Nothing is sent.
fn own_address(other: SocketAddr) -> Result<IpAddr> {
    let any: SocketAddr = if other.is_ipv4() { "0.0.0.0:0".parse()? } else { "[::]:0".parse()? };
    let socket = UdpSocket::bind(any)?;
    socket.connect(other).with_context(|| format!("no way to {other}; give --listen an address of this machine"))?;
    Ok(socket.local_addr()?.ip())
}

fn card(arguments: &Arguments, file: &File, addresses: Vec<SocketAddr>, control: SocketAddr) -> Result<NodeCard> {
    let name = or_environment(arguments.name.clone(), "PLEACH_NODE_NAME").or(file.name.clone());
    let name = match name {
        Some(name) => name,
        None => host_name().context("this host has no name; give --name")?,
    };
    let or_file = |flag: &[String], file: &[String]| if flag.is_empty() { file.to_vec() } else { flag.to_vec() };
    Ok(NodeCard {
        name,
        addresses,
        control,
        parents: or_file(&arguments.parent, &file.parent),
        serves: or_file(&arguments.serves, &file.serves),
        capacity: Capacity {
            seats: arguments.seats.or(file.seats).unwrap_or(1 << 10),
            operations: arguments.operations.or(file.operations).unwrap_or(1 << 14),
            bytes: arguments.memory.or(file.memory).unwrap_or(1 << 10).saturating_mul(1 << 20),
        },
    })
}

fn host_name() -> Result<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    let name = name.trim();
    anyhow::ensure!(!name.is_empty(), "an empty name");
    Ok(name.to_owned())
}
