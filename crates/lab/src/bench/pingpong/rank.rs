//! `pleach bench-pingpong-rank`: one of the two processes that `pleach bench pingpong` measures.
//!
//! Rank 0 sends and waits for the reply; rank 1 echoes every message until one with the tag `TAG_STOP` ends the batch. Each
//! checksum has its own messenger, and batches of one size take turns among them. `peer.c` does the same with MPI.

use std::fmt;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use bootstrap::pair::{self, QueuePairInfo, initial_psn};
use checksum::Algorithm;
use checksum::tuning::ChecksumTuning;
use clap::Args;
use engine::messaging::{MessageTransport, Messenger, ShmTransport, UdpTransport};
use manager::AuthKey;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use protocol::connection::ConnectionPolicy;
use protocol::connection::path::MigrationRole;
use protocol::messaging::{ChecksumPolicy, MessageCompletion, MessageSelector, MessagingSettings, RailIndex};
use transport::SecurityMode;
use transport::udp::{
    Endpoint, EndpointOptions, PacketSecurity, QueuePairSetup, UdpPortIndex, UdpRoute, link_mtu_bytes,
};
use units::{QpNumber, Rank};

use super::PingpongTransport;
use super::runner::PingpongTimes;
use crate::CommandOutcome;

pub(super) const BATCHES: u32 = 7;
pub(super) const WARM_UP: u32 = 20;
/// Tag of a message that the peer echoes.
const TAG_CONTINUE: u64 = 0;
/// Tag of the last message of a batch.
const TAG_STOP: u64 = 1;
/// A wait that takes longer has hung.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Arguments of `pleach bench-pingpong-rank`.
#[derive(Args)]
pub struct BenchPingpongRankArgs {
    /// 0 or 1.
    #[arg(long)]
    rank: u32,
    /// Where the two ranks meet: a name of shared memory, or the address of rank 0.
    #[arg(long)]
    rendezvous: String,
    #[arg(long, value_enum)]
    transport: PingpongTransport,
    /// Address of this rank on the link to its peer; without it, loopback.
    #[arg(long)]
    address: Option<IpAddr>,
    #[arg(long)]
    paths: u8,
    /// Seconds that a batch should take.
    #[arg(long)]
    seconds: f64,
    /// Checksum of the messages; several take turns.
    #[arg(long, required = true)]
    checksum: Vec<PingpongChecksum>,
    /// Message sizes in bytes.
    #[arg(required = true)]
    sizes: Vec<usize>,
}

impl BenchPingpongRankArgs {
    /// The address of this rank on a path, counted from one. Loopback has an address for each.
    fn path_address(&self, path: u8) -> IpAddr {
        self.address.unwrap_or(IpAddr::V4(Ipv4Addr::new(127, 0, 0, path)))
    }
}

/// The checksum of the messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PingpongChecksum {
    Auto,
    /// None; over UDP the packets have their whole ICRC.
    Off,
    /// None, and packets without an ICRC: nothing is checked beyond UDP itself. Only a baseline; marked on the wire (P-103).
    PlainUdp,
    /// As `Auto`, in packets that are protected in this mode.
    Protected(SecurityMode),
    Named(Algorithm),
}

impl FromStr for PingpongChecksum {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            "plain-udp" => Ok(Self::PlainUdp),
            "authenticate" => Ok(Self::Protected(SecurityMode::Authenticate)),
            "encrypt" => Ok(Self::Protected(SecurityMode::Encrypt)),
            name => name
                .parse()
                .map(Self::Named)
                .map_err(|error| format!("{error}; or auto, off, plain-udp, authenticate, encrypt")),
        }
    }
}

impl fmt::Display for PingpongChecksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::PlainUdp => f.write_str("plain-udp"),
            Self::Protected(mode) => mode.fmt(f),
            Self::Named(algorithm) => algorithm.fmt(f),
        }
    }
}

impl PingpongChecksum {
    fn settings(&self) -> MessagingSettings {
        let policy = match self {
            Self::Auto | Self::Protected(_) => ChecksumPolicy::Tuned(*ChecksumTuning::for_this_machine()),
            Self::Off | Self::PlainUdp => ChecksumPolicy::Off,
            Self::Named(algorithm) => ChecksumPolicy::Fixed(*algorithm),
        };
        MessagingSettings { checksum: policy, ..MessagingSettings::default() }
    }

    /// The protection of packets; its key is secret to nobody.
    fn security(&self) -> PacketSecurity {
        match self {
            Self::Protected(mode) => mode.packets(AuthKey([7; 16])),
            _ => PacketSecurity::Off,
        }
    }

    /// What its time is compared with: the same without MACs, or messages without checksums.
    pub(super) fn baseline(&self) -> Self {
        if matches!(self, Self::Protected(_)) { Self::Auto } else { Self::Off }
    }
}

/// Runs one rank of `pleach bench pingpong`.
///
/// # Errors
/// If the peer does not answer, or a message comes back altered.
pub fn run(arguments: &BenchPingpongRankArgs) -> Result<CommandOutcome> {
    pin_to_cpu(arguments.rank);
    match arguments.transport {
        PingpongTransport::Shm => {
            let connect = |(number, checksum): (usize, &PingpongChecksum)| {
                let name = format!("{}-{number}", arguments.rendezvous);
                let transport = ShmTransport::join(&name, Rank(arguments.rank), 2, TIMEOUT)?;
                let mut messenger = Messenger::new(transport, ShmTransport::settings(checksum.settings()));
                messenger.add_peer(Rank(1 - arguments.rank), 1);
                Ok(messenger)
            };
            run_batches(arguments, arguments.checksum.iter().enumerate().map(connect).collect::<Result<Vec<_>>>()?)
        }
        PingpongTransport::Udp => run_batches(arguments, connect_over_udp(arguments)?),
    }
}

/// Binds each rank to its own processor if there are two, as Open MPI does. Otherwise the two may share one for long.
pub(super) fn pin_to_cpu(rank: u32) {
    let Ok(allowed) = sched_getaffinity(Pid::from_raw(0)) else { return };
    let mut processors = (0..CpuSet::count()).filter(|number| allowed.is_set(*number).unwrap_or(false));
    let (Some(first), second) = (processors.next(), processors.next()) else { return };
    let mut own = CpuSet::new();
    if let Some(second) = second
        && own.set(if rank == 0 { first } else { second }).is_ok()
    {
        // Without permission the scheduler places the ranks.
        let _ = sched_setaffinity(Pid::from_raw(0), &own);
    }
}

/// One messenger for each checksum, each with a rail for each path.
fn connect_over_udp(arguments: &BenchPingpongRankArgs) -> Result<Vec<Messenger<UdpTransport>>> {
    let mut stream = if arguments.rank == 0 {
        let listener = TcpListener::bind((arguments.path_address(1), 0))?;
        print_line(&format!("meet {}", listener.local_addr()?))?;
        pair::accept(&listener)?.0
    } else {
        let at: SocketAddr = arguments.rendezvous.parse().context("--rendezvous is not an address")?;
        pair::connect_with_retry(&at.ip().to_string(), at.port(), TIMEOUT)?
    };
    let peer = Rank(1 - arguments.rank);
    let addresses: Vec<SocketAddr> =
        (1..=arguments.paths).map(|path| SocketAddr::from((arguments.path_address(path), 0))).collect();
    let mut messengers = Vec::new();
    for checksum in &arguments.checksum {
        let settings = checksum.settings();
        // Open MPI polls all the time too.
        let endpoint = Endpoint::open(
            &addresses,
            EndpointOptions { spin: Duration::from_millis(1), ..EndpointOptions::default() },
        )?;
        let mut transport = UdpTransport::new(endpoint, &settings);
        if *checksum == PingpongChecksum::PlainUdp {
            transport = transport.without_packet_checks();
        }
        let rails: Vec<RailIndex> = (0..arguments.paths).map(RailIndex).collect();
        let numbers: Vec<QpNumber> =
            rails.iter().map(|rail| transport.create(peer, *rail)).collect::<Result<_, _>>()?;
        let info = QueuePairInfo {
            first_pair: numbers[0],
            pairs: u32::from(arguments.paths),
            psn: initial_psn(),
            addresses: transport.endpoint().addresses(),
            task: checksum.to_string(),
        };
        let remote_info = info.exchange(&mut stream)?;
        ensure!(
            remote_info.pairs == info.pairs && remote_info.addresses.len() == numbers.len(),
            "the peer has {} paths, expected {}",
            remote_info.pairs,
            info.pairs
        );
        for (rail, number) in numbers.iter().enumerate() {
            // Each rail has its own primary path. The other paths are its alternates.
            let route = |path: usize| UdpRoute::new(UdpPortIndex(path as u8), remote_info.addresses[path]);
            let routes = (0..numbers.len()).map(|path| route((rail + path) % numbers.len())).collect();
            let role = if arguments.rank == 0 { MigrationRole::Leader } else { MigrationRole::Follower };
            let remote = QpNumber(remote_info.first_pair.0 + rail as u32);
            let setup = QueuePairSetup::new(remote, info.psn, remote_info.psn, routes, role);
            let link = addresses.iter().map(|address| link_mtu_bytes(address.ip())).min().unwrap_or(0);
            transport.connect(
                *number,
                QueuePairSetup { policy: ConnectionPolicy::conversation(), ..setup }
                    .with_security(checksum.security())
                    .with_long_packets(link),
            )?;
        }
        // Neither rank sends before both are connected.
        QueuePairInfo { task: "ready".to_owned(), ..info }.exchange(&mut stream)?;
        let mut messenger = Messenger::new(transport, settings);
        messenger.add_peer(peer, arguments.paths);
        messengers.push(messenger);
    }
    Ok(messengers)
}

fn print_line(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

fn run_batches<C: MessageTransport>(
    arguments: &BenchPingpongRankArgs,
    messengers: Vec<Messenger<C>>,
) -> Result<CommandOutcome> {
    let mut ends: Vec<PingpongEnd<C>> =
        messengers.into_iter().map(|messenger| PingpongEnd { messenger, buffer: Vec::new() }).collect();
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
                let seconds = end.round_trips(times[number])? / f64::from(times[number]);
                match batch {
                    0 => times[number] = ((arguments.seconds / seconds) as u32).max(2),
                    _ => micros[number].push(seconds / 2.0 * 1e6),
                }
            }
        }
        for (checksum, micros) in arguments.checksum.iter().zip(micros) {
            if arguments.rank == 0 {
                print_line(&serde_json::to_string(&PingpongTimes {
                    bytes: *bytes,
                    checksum: checksum.to_string(),
                    micros,
                })?)?;
            }
        }
    }
    for end in &mut ends {
        end.messenger.drain(Duration::from_secs(5))?;
    }
    Ok(CommandOutcome::Passed)
}

/// One end of the ping-pong. As in the program for MPI, one buffer serves for sending and for receiving.
struct PingpongEnd<C> {
    messenger: Messenger<C>,
    /// Empty while the messenger owns it.
    buffer: Vec<u8>,
}

impl<C: MessageTransport> PingpongEnd<C> {
    fn prepare(&mut self, bytes: usize) {
        self.buffer.clear();
        self.buffer.extend((0..bytes).map(|position| (position * 31 + bytes) as u8));
    }

    /// Sends the buffer and waits until it can be reused.
    fn send(&mut self, to: Rank, tag: u64) -> Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        self.messenger.send(to, tag, buffer).map_err(|rejected| anyhow!("{}", rejected.error))?;
        self.wait().map(|_| ())
    }

    /// Receives into the buffer. Returns the tag of the message.
    fn receive(&mut self, from: Rank) -> Result<u64> {
        let selector = MessageSelector { source: Some(from), tag: 0, mask: 0 };
        let buffer = std::mem::take(&mut self.buffer);
        self.messenger.receive(selector, buffer).map_err(|rejected| anyhow!("{}", rejected.error))?;
        self.wait()
    }

    /// Waits until the messenger returns the buffer. Returns the tag of the received message.
    fn wait(&mut self) -> Result<u64> {
        let mut began = None;
        loop {
            match self.messenger.next_completion() {
                Some(MessageCompletion::Sent { buffer, .. }) => {
                    self.buffer = buffer;
                    return Ok(TAG_CONTINUE);
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
            self.messenger.turn(Duration::from_millis(100))?;
            if !self.messenger.has_completions() {
                let waited = began.get_or_insert_with(Instant::now).elapsed();
                ensure!(waited < TIMEOUT, "the peer does not answer within {TIMEOUT:?}");
            }
        }
    }

    /// Sends a message and waits for the reply, so many times. Returns the seconds.
    fn round_trips(&mut self, times: u32) -> Result<f64> {
        let (peer, expected) = (Rank(1), self.buffer.clone());
        let began = Instant::now();
        for _ in 0..times {
            self.send(peer, TAG_CONTINUE)?;
            self.receive(peer)?;
        }
        let seconds = began.elapsed().as_secs_f64();
        ensure!(self.buffer == expected, "a message came back altered");
        self.send(peer, TAG_STOP)?;
        Ok(seconds)
    }

    fn echo(&mut self) -> Result<()> {
        let peer = Rank(0);
        while self.receive(peer)? != TAG_STOP {
            self.send(peer, TAG_CONTINUE)?;
        }
        Ok(())
    }
}
