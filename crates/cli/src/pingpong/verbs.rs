//! With `ibv_rc_pingpong`, or whoever speaks its handshake.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::{Context, Result};
use protocol::connection::Policy;
use protocol::connection::path::Role;
use bootstrap::pair::verbs::VerbsCard;
use bootstrap::pair::{self, fresh_psn};
use transport::udp::{Endpoint, PortIndex, Route, Setup};
use wire::rocev2::UDP_PORT;

use super::Arguments;
use super::game::{Echo, Game, Play, Score, Side};

pub(super) fn play(arguments: &Arguments) -> Result<Score> {
    match &arguments.host {
        Some(host) => call(arguments, host),
        None => answer(arguments),
    }
}

fn call(arguments: &Arguments, host: &str) -> Result<Score> {
    let mut stream = pair::reach(host, arguments.port, Duration::from_secs(5))
        .with_context(|| format!("nobody listens at {host}, TCP port {}", arguments.port))?;
    let peer = stream.peer_addr()?.ip();
    let mut endpoint = arguments.open(peer)?;
    let game = prepare(arguments, &mut endpoint, Side::Client, peer)?;
    let card = card(&endpoint, &game);
    card.call(&mut stream, |other| connect(arguments, &mut endpoint, &game, card, other))
        .context("the handshake failed")?;
    game.play(&mut endpoint)
}

fn answer(arguments: &Arguments) -> Result<Score> {
    let local = arguments.bind.first().copied();
    let any: IpAddr = local.unwrap_or(IpAddr::from([0, 0, 0, 0]));
    let listener = TcpListener::bind((any, arguments.port))
        .with_context(|| format!("cannot listen at {any}, TCP port {}", arguments.port))?;
    eprintln!("listening at {}", listener.local_addr()?);
    let (mut stream, peer) = pair::accept(&listener)?;
    let mut endpoint = arguments.open(peer)?;
    let game = prepare(arguments, &mut endpoint, Side::Server, peer)?;
    let card = card(&endpoint, &game);
    card.answer(&mut stream, |other| connect(arguments, &mut endpoint, &game, card, other))
        .context("the handshake failed")?;
    game.play(&mut endpoint)
}

fn prepare(arguments: &Arguments, endpoint: &mut Endpoint, side: Side, peer: IpAddr) -> Result<Game> {
    let game = Game {
        pair: endpoint.create(),
        play: Play::Bounce,
        side,
        size: arguments.size,
        iterations: arguments.iterations,
        mtu: arguments.mtu,
        // It sends and receives in one buffer: what it has received it sends back, if it is the one that answers.
        echo: if side == Side::Client { Echo::AfterFirst } else { Echo::Unknown },
        peer: format!("a verbs peer at {peer}"),
        limit: arguments.limit(),
    };
    game.prepare(endpoint)?;
    Ok(game)
}

fn card(endpoint: &Endpoint, game: &Game) -> VerbsCard {
    VerbsCard { pair: game.pair, psn: fresh_psn(), address: endpoint.addresses()[0].ip() }
}

fn connect(
    arguments: &Arguments,
    endpoint: &mut Endpoint,
    game: &Game,
    card: VerbsCard,
    other: VerbsCard,
) -> io::Result<()> {
    let route = Route::new(PortIndex(0), SocketAddr::new(other.address, UDP_PORT));
    let mut setup = Setup::new(other.pair, card.psn, other.psn, vec![route], Role::Leader);
    setup.mtu = arguments.mtu;
    setup.policy = Policy::verbs();
    setup.verbs_peer = true;
    endpoint.connect(game.pair, setup).map_err(io::Error::other)
}
