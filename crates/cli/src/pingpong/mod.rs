//! `pleach pingpong`: two ends bounce a message, over UDP as RoCEv2.
//!
//! With `--verbs` the other end is `ibv_rc_pingpong` on any verbs device, otherwise another `pleach pingpong`.

mod pingpong_run;
mod pleach_peer;
mod verbs_peer;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bootstrap::pair;
use clap::Args;
use faults::FaultPlan;
use transport::udp::{Endpoint, EndpointOptions, FaultInjector, ReceiveMode};
use wire::rocev2::UDP_PORT;

use lab::CommandOutcome;
use lab::report::ReportFormat;
use lab::report::write_report;

/// Two ends bounce a message, over UDP as RoCEv2.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach pingpong --listen                                        on one host
  pleach pingpong 10.0.0.1                                        on another
  pleach pingpong --listen --bind 10.0.0.1 --bind 10.0.1.1        two paths: cut one while it runs
  pleach pingpong 10.0.0.1 --bind 10.0.0.2 --bind 10.0.1.2
  pleach pingpong 10.0.0.1 --stream --size 65536 -n 16384         a gigabyte, one way
  pleach pingpong --verbs 10.0.0.9 --bind 10.0.0.2                the other host runs ibv_rc_pingpong -g 1
  pleach pingpong --verbs --listen --bind 10.0.0.2                the other host runs ibv_rc_pingpong -g 1 10.0.0.2

Exit status: 0 if no message that could be compared was altered, 1 if one was, 2 if the ends did not find each other.")]
pub(crate) struct PingpongArgs {
    /// The host on which the other end listens.
    #[arg(required_unless_present = "listen", conflicts_with = "listen")]
    host: Option<String>,
    /// Waits for the other end.
    #[arg(long)]
    listen: bool,
    /// The other end is ibv_rc_pingpong, or another program with its handshake.
    #[arg(long)]
    verbs: bool,
    /// A local address to use; several for several paths, best first. Without it, the address that leads to the host.
    #[arg(long)]
    bind: Vec<IpAddr>,
    /// The UDP port of the packets. Two ends on one host need two addresses or two ports.
    #[arg(long, default_value_t = UDP_PORT)]
    udp_port: u16,
    /// The TCP port on which the ends find each other.
    #[arg(long, default_value_t = pair::verbs_pingpong::DEFAULT_PORT)]
    port: u16,
    /// Bytes of a message.
    #[arg(long, short, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(0..=1 << 30))]
    size: u32,
    /// Sends one way, as much as the connection takes, instead of there and back. Not with a verbs peer.
    #[arg(long, conflicts_with = "verbs")]
    stream: bool,
    /// How often it goes there and back. Both ends must say the same to a verbs peer.
    #[arg(long, short = 'n', default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// Most payload of a packet: 256, 512, 1024, 2048 or 4096.
    #[arg(long, short, default_value_t = 1024)]
    mtu: u32,
    /// Loses one in so many of the packets that are sent from here (a test of the repair).
    #[arg(long, default_value_t = 0)]
    drop: u32,
    /// Flips a bit in one in so many of them.
    #[arg(long, default_value_t = 0)]
    corrupt: u32,
    /// Commits the faults of a plan on what is sent from here: the same TOML that scenarios use, with links "*" or "port 0".
    #[arg(long, conflicts_with_all = ["drop", "corrupt"])]
    fault: Option<PathBuf>,
    /// Gives up after so many seconds.
    #[arg(long, default_value_t = 60)]
    limit: u64,
    /// How to report: table or json.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
    /// Where to write the report; the standard output if not said.
    #[arg(long)]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: &PingpongArgs) -> Result<CommandOutcome> {
    ensure!(arguments.format != ReportFormat::Html, "pingpong writes table or json");
    let mtus = [256, 512, 1024, 2048, 4096];
    ensure!(mtus.contains(&arguments.mtu), "--mtu {} is not one of {mtus:?}", arguments.mtu);
    // A mistake in the plan is told before the other end is bothered.
    arguments.mischief()?;
    let score = if arguments.verbs { verbs_peer::play(arguments)? } else { pleach_peer::play(arguments)? };
    let text = match arguments.format {
        ReportFormat::Json => serde_json::to_string_pretty(&score)? + "\n",
        _ => score.table(),
    };
    write_report(&text, arguments.output.as_deref())?;
    Ok(if score.altered == 0 { CommandOutcome::Right } else { CommandOutcome::Wrong })
}

impl PingpongArgs {
    /// The faults to commit.
    fn mischief(&self) -> Result<FaultInjector> {
        let Some(path) = &self.fault else { return Ok(FaultInjector::new(self.drop, self.corrupt)) };
        let file = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {file}"))?;
        let read = FaultPlan::parse(&text).and_then(|plan| FaultInjector::from_plan(&plan, 1));
        read.map_err(|error| {
            let line = text[..error.span.start.min(text.len())].matches('\n').count() + 1;
            anyhow::anyhow!("{file}, line {line}: {error}")
        })
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(self.limit)
    }

    /// Opens sockets at the addresses asked for, or at the one that leads to the other end.
    fn open(&self, toward: IpAddr) -> Result<Endpoint> {
        let addresses = if self.bind.is_empty() { vec![local_address(toward)?] } else { self.bind.clone() };
        let sockets: Vec<SocketAddr> =
            addresses.iter().map(|address| SocketAddr::new(*address, self.udp_port)).collect();
        let reception = if self.verbs { ReceiveMode::WithHeader } else { ReceiveMode::Plain };
        let options = EndpointOptions { reception, mischief: self.mischief()?, ..EndpointOptions::default() };
        Endpoint::open(&sockets, options).with_context(|| {
            let list: Vec<String> = sockets.iter().map(ToString::to_string).collect();
            format!("cannot open UDP sockets at {} (another end there? try --udp-port or --bind)", list.join(", "))
        })
    }
}

/// The address of this host from which packets to `toward` leave: a connected socket knows, without sending anything.
fn local_address(toward: IpAddr) -> Result<IpAddr> {
    let any: SocketAddr = if toward.is_ipv4() { "0.0.0.0:0".parse()? } else { "[::]:0".parse()? };
    let socket = std::net::UdpSocket::bind(any)?;
    socket.connect((toward, UDP_PORT)).with_context(|| format!("no way leads to {toward}"))?;
    Ok(socket.local_addr()?.ip())
}
