//! `pleach bench-pingpong-rank`: one of the two processes that `pleach bench pingpong` measures.
//!
//! Rank 0 sends and waits for the answer; rank 1 sends back what comes until it hears that the batch is over. There is a port for
//! each cover, and batches of one size take turns among them. `peer.c` does the same with MPI.

use std::fmt;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use bootstrap::pair::{self, QueuePairInfo, initial_psn};
use checksum::Algorithm;
use checksum::tuning::ChecksumTuning;
use clap::Args;
use engine::messaging::{MessageTransport, Messenger, ShmTransport, UdpTransport};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use protocol::connection::ConnectionPolicy;
use protocol::connection::path::MigrationRole;
use protocol::messaging::{ChecksumPolicy, MessageCompletion, MessageSelector, MessagingSettings, RailIndex};
use transport::udp::{Endpoint, EndpointOptions, QueuePairSetup, UdpPortIndex, UdpRoute, link_mtu_bytes};
use units::{QpNumber, Rank};

use super::PingpongTransport;
use super::runner::PingpongTimes;
use crate::CommandOutcome;

const BATCHES: u32 = 7;
const WARM_UP: u32 = 20;
const GO_ON: u64 = 0;
const OVER: u64 = 1;
/// Nothing takes longer, unless it never ends.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Args)]
pub struct BenchPingpongRankArgs {
    /// 0 or 1.
    #[arg(long)]
    rank: u32,
    /// Where the two meet: a name of shared memory, or rank 0's address.
    #[arg(long)]
    meeting: String,
    #[arg(long, value_enum)]
    transport: PingpongTransport,
    #[arg(long)]
    paths: u8,
    /// Seconds that a batch should take.
    #[arg(long)]
    seconds: f64,
    /// What covers messages; several take turns.
    #[arg(long, required = true)]
    checksum: Vec<PingpongChecksum>,
    /// Bytes of messages.
    #[arg(required = true)]
    sizes: Vec<usize>,
}

/// What covers messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PingpongChecksum {
    Auto,
    Off,
    Named(Algorithm),
}

impl FromStr for PingpongChecksum {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            name => name.parse().map(Self::Named).map_err(|error| format!("{error}; or auto, off")),
        }
    }
}

impl fmt::Display for PingpongChecksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::Named(algorithm) => algorithm.fmt(f),
        }
    }
}

impl PingpongChecksum {
    fn settings(&self) -> MessagingSettings {
        let sealing = match self {
            Self::Auto => ChecksumPolicy::Tuned(*ChecksumTuning::of_this_machine()),
            Self::Off => ChecksumPolicy::Off,
            Self::Named(algorithm) => ChecksumPolicy::Named(*algorithm),
        };
        MessagingSettings { sealing, ..MessagingSettings::default() }
    }
}

pub fn run(arguments: &BenchPingpongRankArgs) -> Result<CommandOutcome> {
    take_processor(arguments.rank);
    match arguments.transport {
        PingpongTransport::Shm => {
            let meet = |(number, cover): (usize, &PingpongChecksum)| {
                let name = format!("{}-{number}", arguments.meeting);
                let carrier = ShmTransport::meet(&name, Rank(arguments.rank), 2, PATIENCE)?;
                let mut port = Messenger::new(carrier, ShmTransport::settings(cover.settings()));
                port.add_peer(Rank(1 - arguments.rank), 1);
                Ok(port)
            };
            play(arguments, arguments.checksum.iter().enumerate().map(meet).collect::<Result<Vec<_>>>()?)
        }
        PingpongTransport::Udp => play(arguments, meet_over_udp(arguments)?),
    }
}

/// Each rank has a processor of its own where there are enough, as Open MPI's have. Without it the two may share one for long.
fn take_processor(rank: u32) {
    let Ok(allowed) = sched_getaffinity(Pid::from_raw(0)) else { return };
    let mut processors = (0..CpuSet::count()).filter(|number| allowed.is_set(*number).unwrap_or(false));
    let (Some(first), second) = (processors.next(), processors.next()) else { return };
    let mut own = CpuSet::new();
    if let Some(second) = second
        && own.set(if rank == 0 { first } else { second }).is_ok()
    {
        // If it may not, the two are where the system puts them.
        let _ = sched_setaffinity(Pid::from_raw(0), &own);
    }
}

/// One port for each cover, each with a rail for each path.
fn meet_over_udp(arguments: &BenchPingpongRankArgs) -> Result<Vec<Messenger<UdpTransport>>> {
    let mut stream = if arguments.rank == 0 {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        say(&format!("meet {}", listener.local_addr()?))?;
        pair::accept(&listener)?.0
    } else {
        let at: SocketAddr = arguments.meeting.parse().context("the meeting is no address")?;
        pair::connect_with_retry(&at.ip().to_string(), at.port(), PATIENCE)?
    };
    let peer = Rank(1 - arguments.rank);
    let addresses: Vec<SocketAddr> =
        (1..=arguments.paths).map(|host| SocketAddr::from(([127, 0, 0, host], 0))).collect();
    let mut ports = Vec::new();
    for cover in &arguments.checksum {
        let settings = cover.settings();
        // Open MPI looks without end too.
        let endpoint = Endpoint::open(
            &addresses,
            EndpointOptions { spin: Duration::from_millis(1), ..EndpointOptions::default() },
        )?;
        let mut carrier = UdpTransport::new(endpoint, &settings);
        let rails: Vec<RailIndex> = (0..arguments.paths).map(RailIndex).collect();
        let numbers: Vec<QpNumber> =
            rails.iter().map(|rail| carrier.create(peer, *rail)).collect::<Result<_, _>>()?;
        let card = QueuePairInfo {
            first_pair: numbers[0],
            pairs: u32::from(arguments.paths),
            psn: initial_psn(),
            addresses: carrier.endpoint().addresses(),
            task: cover.to_string(),
        };
        let other = card.exchange(&mut stream)?;
        ensure!(other.pairs == card.pairs && other.addresses.len() == numbers.len(), "the other has other paths");
        for (rail, number) in numbers.iter().enumerate() {
            // Each rail is at home on a path of its own; the others are there if that one fails.
            let route = |path: usize| UdpRoute::new(UdpPortIndex(path as u8), other.addresses[path]);
            let routes = (0..numbers.len()).map(|path| route((rail + path) % numbers.len())).collect();
            let role = if arguments.rank == 0 { MigrationRole::Leader } else { MigrationRole::Follower };
            let remote = QpNumber(other.first_pair.0 + rail as u32);
            let setup = QueuePairSetup::new(remote, card.psn, other.psn, routes, role);
            let link = addresses.iter().map(|address| link_mtu_bytes(address.ip())).min().unwrap_or(0);
            carrier.connect(
                *number,
                QueuePairSetup { policy: ConnectionPolicy::conversation(), ..setup }.with_long_packets(link),
            )?;
        }
        // Nobody sends before both are connected.
        QueuePairInfo { task: "ready".to_owned(), ..card }.exchange(&mut stream)?;
        let mut port = Messenger::new(carrier, settings);
        port.add_peer(peer, arguments.paths);
        ports.push(port);
    }
    Ok(ports)
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

fn play<C: MessageTransport>(arguments: &BenchPingpongRankArgs, ports: Vec<Messenger<C>>) -> Result<CommandOutcome> {
    let mut ends: Vec<PingpongEnd<C>> =
        ports.into_iter().map(|port| PingpongEnd { port, buffer: Vec::new() }).collect();
    for bytes in &arguments.sizes {
        let mut micros = vec![Vec::new(); ends.len()];
        let mut times = vec![WARM_UP; ends.len()];
        for batch in 0..=BATCHES {
            for (number, end) in ends.iter_mut().enumerate() {
                end.prepare(*bytes);
                if arguments.rank == 1 {
                    end.echo()?;
                    continue;
                }
                let seconds = end.bounce(times[number])? / f64::from(times[number]);
                match batch {
                    0 => times[number] = ((arguments.seconds / seconds) as u32).max(2),
                    _ => micros[number].push(seconds / 2.0 * 1e6),
                }
            }
        }
        for (cover, micros) in arguments.checksum.iter().zip(micros) {
            if arguments.rank == 0 {
                say(&serde_json::to_string(&PingpongTimes { bytes: *bytes, cover: cover.to_string(), micros })?)?;
            }
        }
    }
    for end in &mut ends {
        end.port.drain(Duration::from_secs(5))?;
    }
    Ok(CommandOutcome::Right)
}

/// As in the program for MPI, there is one buffer, for what is sent and for what comes.
struct PingpongEnd<C> {
    port: Messenger<C>,
    /// Empty while the port has it.
    buffer: Vec<u8>,
}

impl<C: MessageTransport> PingpongEnd<C> {
    fn prepare(&mut self, bytes: usize) {
        self.buffer.clear();
        self.buffer.extend((0..bytes).map(|position| (position * 31 + bytes) as u8));
    }

    /// Sends the buffer, and waits until it may be used again.
    fn send(&mut self, to: Rank, tag: u64) -> Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        self.port.send(to, tag, buffer).map_err(|refused| anyhow!("{}", refused.error))?;
        self.wait().map(|_| ())
    }

    /// Receives into the buffer; the tag of what came.
    fn receive(&mut self, from: Rank) -> Result<u64> {
        let wanted = MessageSelector { source: Some(from), tag: 0, mask: 0 };
        let buffer = std::mem::take(&mut self.buffer);
        self.port.receive(wanted, buffer).map_err(|refused| anyhow!("{}", refused.error))?;
        self.wait()
    }

    /// Waits until the buffer is back; the tag of what came in it.
    fn wait(&mut self) -> Result<u64> {
        let mut began = None;
        loop {
            match self.port.next_completion() {
                Some(MessageCompletion::Sent { buffer, .. }) => {
                    self.buffer = buffer;
                    return Ok(GO_ON);
                }
                Some(MessageCompletion::Received { tag, buffer, .. }) => {
                    self.buffer = buffer;
                    return Ok(tag);
                }
                Some(
                    MessageCompletion::SendFailed { failure, .. } | MessageCompletion::ReceiveFailed { failure, .. },
                ) => {
                    bail!(failure)
                }
                None => {}
            }
            self.port.turn(Duration::from_millis(100))?;
            if !self.port.has_completions() {
                let waited = began.get_or_insert_with(Instant::now).elapsed();
                ensure!(waited < PATIENCE, "the other end does not answer");
            }
        }
    }

    /// Sends and waits for the answer, so many times; the seconds that it took.
    fn bounce(&mut self, times: u32) -> Result<f64> {
        let (peer, expected) = (Rank(1), self.buffer.clone());
        let began = Instant::now();
        for _ in 0..times {
            self.send(peer, GO_ON)?;
            self.receive(peer)?;
        }
        let seconds = began.elapsed().as_secs_f64();
        ensure!(self.buffer == expected, "a message came back with other bytes than it had");
        self.send(peer, OVER)?;
        Ok(seconds)
    }

    fn echo(&mut self) -> Result<()> {
        let peer = Rank(0);
        while self.receive(peer)? != OVER {
            self.send(peer, GO_ON)?;
        }
        Ok(())
    }
}
