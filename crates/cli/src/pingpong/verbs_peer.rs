//! Connects to `ibv_rc_pingpong`, or to another program with its handshake.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::{Context, Result};
use bootstrap::pair::verbs_pingpong::VerbsQueuePairInfo;
use bootstrap::pair::{self, initial_psn};
use protocol::connection::ConnectionPolicy;
use protocol::connection::path::MigrationRole;
use transport::udp::{Endpoint, QueuePairSetup, UdpPortIndex, UdpRoute};
use wire::rocev2::UDP_PORT;

use super::PingpongArgs;
use super::pingpong_run::{EchoContents, PingpongPattern, PingpongReport, PingpongRun, PingpongSide};

pub(super) fn run(arguments: &PingpongArgs) -> Result<PingpongReport> {
    match &arguments.host {
        Some(host) => connect_to(arguments, host),
        None => accept(arguments),
    }
}

fn connect_to(arguments: &PingpongArgs, host: &str) -> Result<PingpongReport> {
    let mut stream = pair::connect_with_retry(host, arguments.port, Duration::from_secs(5)).with_context(|| {
        format!("cannot connect to {host}, TCP port {}; is ibv_rc_pingpong running there?", arguments.port)
    })?;
    let peer = stream.peer_addr()?.ip();
    let mut endpoint = arguments.open(peer)?;
    let run = prepare(arguments, &mut endpoint, PingpongSide::Client, peer)?;
    let card = card(&endpoint, &run);
    card.call(&mut stream, |other| connect(arguments, &mut endpoint, &run, card, other))
        .context("the handshake failed")?;
    run.run(&mut endpoint)
}

fn accept(arguments: &PingpongArgs) -> Result<PingpongReport> {
    let local = arguments.bind.first().copied();
    let any: IpAddr = local.unwrap_or(IpAddr::from([0, 0, 0, 0]));
    let listener = TcpListener::bind((any, arguments.port))
        .with_context(|| format!("cannot listen at {any}, TCP port {}", arguments.port))?;
    eprintln!("listening at {}", listener.local_addr()?);
    let (mut stream, peer) = pair::accept(&listener)?;
    let mut endpoint = arguments.open(peer)?;
    let run = prepare(arguments, &mut endpoint, PingpongSide::Server, peer)?;
    let card = card(&endpoint, &run);
    card.answer(&mut stream, |other| connect(arguments, &mut endpoint, &run, card, other))
        .context("the handshake failed")?;
    run.run(&mut endpoint)
}

fn prepare(
    arguments: &PingpongArgs,
    endpoint: &mut Endpoint,
    side: PingpongSide,
    peer: IpAddr,
) -> Result<PingpongRun> {
    let run = PingpongRun {
        pair: endpoint.create(),
        pattern: PingpongPattern::Bounce,
        side,
        size: arguments.size,
        iterations: arguments.iterations,
        mtu: arguments.mtu,
        // The peer sends and receives in one buffer: as a server it sends back what it received.
        echo: if side == PingpongSide::Client { EchoContents::AfterFirst } else { EchoContents::Unknown },
        peer: format!("a verbs peer at {peer}"),
        limit: arguments.limit(),
    };
    run.prepare(endpoint)?;
    Ok(run)
}

fn card(endpoint: &Endpoint, run: &PingpongRun) -> VerbsQueuePairInfo {
    VerbsQueuePairInfo { pair: run.pair, psn: initial_psn(), address: endpoint.addresses()[0].ip() }
}

fn connect(
    arguments: &PingpongArgs,
    endpoint: &mut Endpoint,
    run: &PingpongRun,
    card: VerbsQueuePairInfo,
    other: VerbsQueuePairInfo,
) -> io::Result<()> {
    let route = UdpRoute::new(UdpPortIndex(0), SocketAddr::new(other.address, UDP_PORT));
    let mut setup = QueuePairSetup::new(other.pair, card.psn, other.psn, vec![route], MigrationRole::Leader);
    setup.mtu = arguments.mtu;
    setup.policy = ConnectionPolicy::verbs();
    setup.verbs_peer = true;
    endpoint.connect(run.pair, setup).map_err(io::Error::other)
}
