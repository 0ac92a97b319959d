//! `pleach pingpong`: two peers exchange messages over UDP as RoCEv2.
//!
//! With `--verbs` the peer is `ibv_rc_pingpong` on any verbs device, otherwise another `pleach pingpong`.

mod pingpong_run;
mod pleach_peer;
mod verbs_peer;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bootstrap::pair;
use clap::Args;
use transport::udp::{Endpoint, EndpointOptions, FaultInjector, ReceiveMode, local_address_towards};
use wire::rocev2::UDP_PORT;

use lab::CommandOutcome;
use lab::report::ReportFormat;
use lab::report::write_report;

/// Exchange messages over UDP as RoCEv2 with another pleach or with ibv_rc_pingpong.
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

Exit status: 0 if every compared message was intact, 1 if one was altered, 2 if the peers could not connect.")]
pub(crate) struct PingpongArgs {
    /// Host on which the peer listens.
    #[arg(required_unless_present = "listen", conflicts_with = "listen")]
    host: Option<String>,
    /// Wait for the peer.
    #[arg(long)]
    listen: bool,
    /// The peer is ibv_rc_pingpong, or another program with its handshake.
    #[arg(long)]
    verbs: bool,
    /// Local address to use; several for several paths, best first [default: the address from which the host is reached]
    #[arg(long)]
    bind: Vec<IpAddr>,
    /// UDP port of the packets. Two peers on one host need two addresses or two ports.
    #[arg(long, default_value_t = UDP_PORT)]
    udp_port: u16,
    /// TCP port of the handshake.
    #[arg(long, default_value_t = pair::verbs_pingpong::DEFAULT_PORT)]
    port: u16,
    /// Bytes per message.
    #[arg(long, short, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(0..=1 << 30))]
    size: u32,
    /// Send in one direction, as fast as the connection allows, instead of back and forth. Not with a verbs peer.
    #[arg(long, conflicts_with = "verbs")]
    stream: bool,
    /// Number of messages. With a verbs peer, both must use the same number.
    #[arg(long, short = 'n', default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// Maximum payload of a packet: 256, 512, 1024, 2048 or 4096.
    #[arg(long, short, default_value_t = 1024)]
    mtu: u32,
    /// Drop one in this many packets sent from here (to test retransmission).
    #[arg(long, default_value_t = 0)]
    drop: u32,
    /// Flip a bit in one of this many packets.
    #[arg(long, default_value_t = 0)]
    corrupt: u32,
    /// Inject the faults of a plan into packets sent from here: the same TOML as in scenarios, with links "*" or "port 0".
    #[arg(long, conflicts_with_all = ["drop", "corrupt"])]
    fault: Option<PathBuf>,
    /// Give up after this many seconds.
    #[arg(long, default_value_t = 60)]
    limit: u64,
    /// Format of the report: table or json.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
    /// File for the report [default: stdout]
    #[arg(long)]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: &PingpongArgs) -> Result<CommandOutcome> {
    ensure!(arguments.format != ReportFormat::Html, "pingpong writes table or json");
    let mtus = [256, 512, 1024, 2048, 4096];
    ensure!(mtus.contains(&arguments.mtu), "--mtu {} is not one of {mtus:?}", arguments.mtu);
    // Report an invalid plan before connecting to the peer.
    arguments.faults()?;
    let report = if arguments.verbs { verbs_peer::run(arguments)? } else { pleach_peer::run(arguments)? };
    let text = match arguments.format {
        ReportFormat::Json => serde_json::to_string_pretty(&report)? + "\n",
        _ => report.table(),
    };
    write_report(&text, arguments.output.as_deref())?;
    Ok(if report.altered == 0 { CommandOutcome::Passed } else { CommandOutcome::Failed })
}

impl PingpongArgs {
    /// The faults to inject.
    fn faults(&self) -> Result<FaultInjector> {
        let Some(path) = &self.fault else { return Ok(FaultInjector::new(self.drop, self.corrupt)) };
        Ok(faults::read_plan(path, |plan| FaultInjector::from_plan(plan, 1))?)
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(self.limit)
    }

    /// Opens sockets at the requested addresses, or at the one from which the peer is reached.
    fn open(&self, toward: IpAddr) -> Result<Endpoint> {
        let addresses = if self.bind.is_empty() { vec![local_address(toward)?] } else { self.bind.clone() };
        let sockets: Vec<SocketAddr> =
            addresses.iter().map(|address| SocketAddr::new(*address, self.udp_port)).collect();
        let reception = if self.verbs { ReceiveMode::WithHeader } else { ReceiveMode::Plain };
        let options =
            EndpointOptions { receive_mode: reception, fault_injector: self.faults()?, ..EndpointOptions::default() };
        Endpoint::open(&sockets, options).with_context(|| {
            let list: Vec<String> = sockets.iter().map(ToString::to_string).collect();
            format!(
                "cannot open UDP sockets at {}; if another process uses them, set --udp-port or --bind",
                list.join(", ")
            )
        })
    }
}

/// The address of this host from which `toward` is reached.
fn local_address(toward: IpAddr) -> Result<IpAddr> {
    local_address_towards((toward, UDP_PORT).into()).with_context(|| format!("no route to {toward}"))
}
