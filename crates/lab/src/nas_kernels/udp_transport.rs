//! One rank on the network: its UDP endpoint and a queue pair to every other rank.
//!
//! Messages of a rank are received in order. Messages that the kernel has not asked for yet wait in an inbox, in the buffers
//! that were posted for them. A rank that waits sleeps at once: there may be more ranks than processors.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bootstrap::pair::initial_psn;
use protocol::connection::path::{MigrationRole, PathEvent, PathState};
use protocol::queue_pair::QpOperation;
use transport::udp::{
    Endpoint, EndpointCounters, EndpointEvent, EndpointOptions, QueuePairSetup, UdpPortIndex, UdpRoute,
};
use units::{Psn, QpNumber};

use super::KernelReceiveBuffers;
use super::run::{KernelFault, KernelJob, PathCount};
use super::transport::{KernelTransport, RANKS, ReceiveDigests, peers_of};

/// A waiting rank checks this often whether another rank has failed.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// A wait that takes longer has hung.
const TIMEOUT: Duration = Duration::from_secs(30);
const SEND: QpOperation = QpOperation::Send { immediate: None };

/// State that all ranks share: how many are ready and done, and whether one has failed.
#[derive(Default)]
pub(super) struct KernelRendezvous {
    ready: AtomicUsize,
    done: AtomicUsize,
    failed: AtomicBool,
}

impl KernelRendezvous {
    pub(super) fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }
}

/// A migration of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObservedMigration {
    pub at: Instant,
    pub peer: usize,
}

pub(super) struct KernelUdpTransport<'m> {
    rank: usize,
    endpoint: Endpoint,
    /// By rank; none for the own rank.
    pairs: Vec<Option<QpNumber>>,
    peers: BTreeMap<QpNumber, usize>,
    /// Received messages, each with its range in the buffer, by rank.
    inbox: Vec<VecDeque<(Vec<u8>, Range<usize>)>>,
    /// Buffers of completed sends.
    spare: Vec<Vec<u8>>,
    unsent: usize,
    rendezvous: &'m KernelRendezvous,
    paths: PathCount,
    fault: Option<KernelFault>,
    cut_due: Option<Instant>,
    pub cut_at: Option<Instant>,
    pub moves: Vec<ObservedMigration>,
    pub received: ReceiveDigests,
}

impl<'m> KernelUdpTransport<'m> {
    /// Opens and connects all ranks.
    pub(super) fn all(
        job: &KernelJob,
        buffers: KernelReceiveBuffers,
        rendezvous: &'m KernelRendezvous,
    ) -> Result<Vec<Self>> {
        let hosts = match job.paths {
            PathCount::One => &[1][..],
            PathCount::Two => &[1, 2][..],
        };
        let addresses: Vec<SocketAddr> =
            hosts.iter().map(|host| SocketAddr::from((Ipv4Addr::new(127, 0, 0, *host), 0))).collect();
        let options = EndpointOptions { spin: Duration::ZERO, ..EndpointOptions::default() };
        let open = |rank| {
            let endpoint = Endpoint::open(&addresses, options.clone())
                .with_context(|| format!("cannot open UDP sockets at {addresses:?}"))?;
            Ok(Self::new(rank, endpoint, job, rendezvous))
        };
        let mut ranks = (0..RANKS).map(open).collect::<Result<Vec<_>>>()?;
        let psn = initial_psn();
        for one in 0..RANKS {
            for other in peers_of(one) {
                connect(&mut ranks, one, other, psn, buffers)?;
            }
        }
        Ok(ranks)
    }

    fn new(rank: usize, mut endpoint: Endpoint, job: &KernelJob, rendezvous: &'m KernelRendezvous) -> Self {
        let pairs: Vec<Option<QpNumber>> = (0..RANKS).map(|peer| (peer != rank).then(|| endpoint.create())).collect();
        let peers = pairs.iter().enumerate().filter_map(|(peer, pair)| Some(((*pair)?, peer))).collect();
        Self {
            rank,
            endpoint,
            pairs,
            peers,
            inbox: vec![VecDeque::new(); RANKS],
            spare: Vec::new(),
            unsent: 0,
            rendezvous,
            paths: job.paths,
            fault: job.fault.filter(|fault| fault.rank == rank),
            cut_due: None,
            cut_at: None,
            moves: Vec::new(),
            received: ReceiveDigests::default(),
        }
    }

    /// Waits until every rank is connected and armed.
    pub(super) fn wait_until_ready(&mut self) -> Result<()> {
        let rendezvous = self.rendezvous;
        let mut is_counted = false;
        self.wait_for("the other ranks", Duration::from_millis(1), |rank| {
            if !is_counted && rank.is_armed() {
                is_counted = true;
                rendezvous.ready.fetch_add(1, Ordering::Relaxed);
            }
            rendezvous.ready.load(Ordering::Relaxed) == RANKS
        })
    }

    fn is_armed(&self) -> bool {
        let armed = |pair: &QpNumber| matches!(self.endpoint.path_state(*pair), Some((PathState::Armed, _)));
        self.paths == PathCount::One || self.peers.keys().all(armed)
    }

    /// Waits until every rank is done: until then other ranks may need an acknowledgement.
    pub(super) fn wait_until_done(&mut self) -> Result<()> {
        self.wait_for("acknowledgements", CHECK_INTERVAL, |rank| rank.unsent == 0)?;
        let rendezvous = self.rendezvous;
        rendezvous.done.fetch_add(1, Ordering::Relaxed);
        self.wait_for("the end of the other ranks", Duration::from_millis(1), |_| {
            rendezvous.done.load(Ordering::Relaxed) == RANKS
        })
    }

    /// Starts an iteration. If the cable is cut in this one, the time of the cut is set.
    pub(super) fn begin(&mut self, iteration: u32) {
        if let Some(fault) = self.fault.filter(|fault| fault.iteration == iteration) {
            self.cut_due = Some(Instant::now() + fault.pause);
        }
    }

    pub(super) fn counters(&self) -> EndpointCounters {
        self.endpoint.counters()
    }

    /// Drives the endpoint until a condition holds.
    fn wait_for(&mut self, what: &str, interval: Duration, mut condition: impl FnMut(&Self) -> bool) -> Result<()> {
        let began = Instant::now();
        while !condition(self) {
            ensure!(!self.rendezvous.failed.load(Ordering::Relaxed), "rank {}: another rank has failed", self.rank);
            ensure!(began.elapsed() < TIMEOUT, "rank {} waited {TIMEOUT:?} for {what}", self.rank);
            self.drive(interval)?;
        }
        Ok(())
    }

    fn drive(&mut self, wait: Duration) -> Result<()> {
        let mut wait = wait;
        if let (Some(due), Some(fault)) = (self.cut_due, self.fault) {
            let now = Instant::now();
            if now >= due {
                self.cut_due = None;
                self.cut_at = Some(now);
                self.endpoint.cut(UdpPortIndex(0), fault.cut);
            }
            wait = wait.min(due.saturating_duration_since(now));
        }
        self.endpoint.turn(wait)?;
        while let Some(event) = self.endpoint.next_event() {
            self.handle_event(event)?;
        }
        Ok(())
    }

    fn handle_event(&mut self, event: EndpointEvent) -> Result<()> {
        match event {
            EndpointEvent::Sent { buffer, .. } => {
                self.unsent -= 1;
                self.spare.push(buffer);
            }
            EndpointEvent::Received { pair, buffer, message, .. } => {
                self.inbox[self.peers[&pair]].push_back((buffer, message))
            }
            EndpointEvent::Failed { pair, failure, .. } => {
                bail!("rank {} lost its connection to rank {}: {failure}", self.rank, self.peers[&pair]);
            }
            EndpointEvent::Path { pair, event: PathEvent::Migrated { .. } } => {
                self.moves.push(ObservedMigration { at: Instant::now(), peer: self.peers[&pair] });
            }
            EndpointEvent::Path { .. } | EndpointEvent::Datagram { .. } => {}
        }
        Ok(())
    }

    fn pair(&self, peer: usize) -> QpNumber {
        self.pairs[peer].expect("a rank has no queue pair to itself")
    }
}

impl KernelTransport for KernelUdpTransport<'_> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn send(&mut self, to: usize, fill: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let mut message = self.spare.pop().unwrap_or_default();
        message.clear();
        fill(&mut message);
        self.endpoint.post_send(self.pair(to), message, SEND)?;
        self.unsent += 1;
        Ok(())
    }

    fn receive<R>(&mut self, from: usize, take: impl FnOnce(&[u8]) -> R) -> Result<R> {
        if self.inbox[from].is_empty() {
            self.wait_for("a message", CHECK_INTERVAL, |rank| !rank.inbox[from].is_empty())?;
        }
        let (buffer, message) = self.inbox[from].pop_front().expect("just waited for");
        self.received.add(from, &buffer[message.clone()]);
        let taken = take(&buffer[message]);
        self.endpoint.post_receive(self.pair(from), buffer)?;
        Ok(taken)
    }

    fn progress(&mut self) -> Result<()> {
        self.drive(Duration::ZERO)
    }
}

/// Connects one end of a queue pair.
fn connect(
    ranks: &mut [KernelUdpTransport<'_>],
    one: usize,
    other: usize,
    psn: Psn,
    buffers: KernelReceiveBuffers,
) -> Result<()> {
    let remote = ranks[other].pair(one);
    let routes = ranks[other].endpoint.addresses();
    let routes = routes.iter().enumerate().map(|(path, to)| UdpRoute::new(UdpPortIndex(path as u8), *to)).collect();
    let role = if one < other { MigrationRole::Leader } else { MigrationRole::Follower };
    let setup = QueuePairSetup::new(remote, psn, psn, routes, role);
    let rank = &mut ranks[one];
    let pair = rank.pair(other);
    for _ in 0..buffers.messages {
        rank.endpoint.post_receive(pair, vec![0; buffers.message_bytes])?;
    }
    Ok(rank.endpoint.connect(pair, setup)?)
}
