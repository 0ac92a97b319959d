//! Connects to another `pleach pingpong`, over as many paths as both have addresses.

use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bootstrap::pair::{self, QueuePairInfo, initial_psn};
use protocol::connection::path::MigrationRole;
use transport::udp::{QueuePairSetup, UdpPortIndex, UdpRoute};

use super::PingpongArgs;
use super::pingpong_run::{EchoContents, PingpongPattern, PingpongReport, PingpongRun, PingpongSide};

pub(super) fn run(arguments: &PingpongArgs) -> Result<PingpongReport> {
    match &arguments.host {
        Some(host) => {
            let stream =
                pair::connect_with_retry(host, arguments.port, Duration::from_secs(5)).with_context(|| {
                    format!(
                        "cannot connect to {host}, TCP port {}; is pleach pingpong --listen running there?",
                        arguments.port
                    )
                })?;
            let peer = stream.peer_addr()?.ip();
            connect(arguments, stream, peer, PingpongSide::Client)
        }
        None => {
            let any: IpAddr = arguments.bind.first().copied().unwrap_or(IpAddr::from([0, 0, 0, 0]));
            let listener = TcpListener::bind((any, arguments.port))
                .with_context(|| format!("cannot listen at {any}, TCP port {}", arguments.port))?;
            eprintln!("listening at {}", listener.local_addr()?);
            let (stream, peer) = pair::accept(&listener)?;
            connect(arguments, stream, peer, PingpongSide::Server)
        }
    }
}

fn connect(
    arguments: &PingpongArgs,
    mut stream: TcpStream,
    peer: IpAddr,
    side: PingpongSide,
) -> Result<PingpongReport> {
    let mut endpoint = arguments.open(peer)?;
    let pair = endpoint.create();
    // The client determines the parameters of the run.
    let play = if arguments.stream { "stream" } else { "bounce" };
    let task = format!("{play} {} {} {}", arguments.size, arguments.iterations, arguments.mtu);
    let card =
        QueuePairInfo { first_pair: pair, pairs: 1, psn: initial_psn(), addresses: endpoint.addresses(), task };
    let other = card.exchange(&mut stream).context("the handshake failed")?;
    let task = if side == PingpongSide::Client { &card.task } else { &other.task };
    let numbers: Vec<u32> = task.split(' ').skip(1).filter_map(|word| word.parse().ok()).collect();
    let [size, iterations, mtu] = numbers[..] else {
        anyhow::bail!("the peer sent an unknown task {task:?}; use the same version of pleach on both hosts");
    };
    ensure!(
        size <= 1 << 30 && iterations > 0,
        "the peer requests {iterations} messages of {size} B, which is out of range"
    );
    let run = PingpongRun {
        pair,
        pattern: if task.starts_with("stream ") { PingpongPattern::Stream } else { PingpongPattern::Bounce },
        side,
        size,
        iterations,
        mtu,
        echo: EchoContents::Same,
        peer: format!("pleach at {peer}"),
        limit: arguments.limit(),
    };
    run.prepare(&mut endpoint)?;
    let paths = card.addresses.len().min(other.addresses.len());
    let routes = (0..paths).map(|path| UdpRoute::new(UdpPortIndex(path as u8), other.addresses[path])).collect();
    let role = if side == PingpongSide::Client { MigrationRole::Leader } else { MigrationRole::Follower };
    let mut setup = QueuePairSetup::new(other.first_pair, card.psn, other.psn, routes, role);
    setup.mtu = mtu;
    endpoint.connect(pair, setup)?;
    // Neither peer sends before both are connected.
    let ready = QueuePairInfo { task: "ready".to_owned(), ..card };
    ready.exchange(&mut stream).context("the peer closed the connection")?;
    run.run(&mut endpoint)
}
