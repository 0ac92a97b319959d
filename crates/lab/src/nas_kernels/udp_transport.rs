//! One rank on the network: its endpoint and a queue pair to every other rank.
//!
//! Messages of a rank are received in order; those that nobody has asked for yet wait in an inbox, in the buffers that
//! were posted for them. A rank that has to wait sleeps at once: there may be more ranks than processors.

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

/// A wait is looked at so often, to see whether another rank has failed.
const LOOK: Duration = Duration::from_millis(100);
/// Nobody waits longer than this for anything.
const PATIENCE: Duration = Duration::from_secs(30);
const SEND: QpOperation = QpOperation::Send { immediate: None };

/// Where ranks meet.
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

/// Traffic of one connection has moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObservedMigration {
    pub at: Instant,
    pub peer: usize,
}

pub(super) struct KernelUdpTransport<'m> {
    rank: usize,
    endpoint: Endpoint,
    /// By rank; none to itself.
    pairs: Vec<Option<QpNumber>>,
    peers: BTreeMap<QpNumber, usize>,
    /// Messages that came, each with where it lies in its buffer, by rank.
    inbox: Vec<VecDeque<(Vec<u8>, Range<usize>)>>,
    /// Buffers that were sent.
    spare: Vec<Vec<u8>>,
    unsent: usize,
    meeting: &'m KernelRendezvous,
    paths: PathCount,
    fault: Option<KernelFault>,
    due: Option<Instant>,
    pub cut_at: Option<Instant>,
    pub moves: Vec<ObservedMigration>,
    pub received: ReceiveDigests,
}

impl<'m> KernelUdpTransport<'m> {
    /// All ranks, connected with each other.
    pub(super) fn all(
        job: &KernelJob,
        room: KernelReceiveBuffers,
        meeting: &'m KernelRendezvous,
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
            Ok(Self::new(rank, endpoint, job, meeting))
        };
        let mut ranks = (0..RANKS).map(open).collect::<Result<Vec<_>>>()?;
        let psn = initial_psn();
        for one in 0..RANKS {
            for other in peers_of(one) {
                connect(&mut ranks, one, other, psn, room)?;
            }
        }
        Ok(ranks)
    }

    fn new(rank: usize, mut endpoint: Endpoint, job: &KernelJob, meeting: &'m KernelRendezvous) -> Self {
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
            meeting,
            paths: job.paths,
            fault: job.fault.filter(|fault| fault.rank == rank),
            due: None,
            cut_at: None,
            moves: Vec::new(),
            received: ReceiveDigests::default(),
        }
    }

    /// Waits until every rank can be reached, by every path, and all know it.
    pub(super) fn meet(&mut self) -> Result<()> {
        let meeting = self.meeting;
        let mut told = false;
        self.wait_for("the others", Duration::from_millis(1), |rank| {
            if !told && rank.is_armed() {
                told = true;
                meeting.ready.fetch_add(1, Ordering::Relaxed);
            }
            meeting.ready.load(Ordering::Relaxed) == RANKS
        })
    }

    fn is_armed(&self) -> bool {
        let armed = |pair: &QpNumber| matches!(self.endpoint.path_state(*pair), Some((PathState::Armed, _)));
        self.paths == PathCount::One || self.peers.keys().all(armed)
    }

    /// Waits until every rank is done: until then the others may need an acknowledgement.
    pub(super) fn part(&mut self) -> Result<()> {
        self.wait_for("acknowledgements", LOOK, |rank| rank.unsent == 0)?;
        let meeting = self.meeting;
        meeting.done.fetch_add(1, Ordering::Relaxed);
        self.wait_for("the others to end", Duration::from_millis(1), |_| {
            meeting.done.load(Ordering::Relaxed) == RANKS
        })
    }

    /// An iteration begins; perhaps the cable is to be cut in it.
    pub(super) fn begin(&mut self, iteration: u32) {
        if let Some(fault) = self.fault.filter(|fault| fault.iteration == iteration) {
            self.due = Some(Instant::now() + fault.pause);
        }
    }

    pub(super) fn counters(&self) -> EndpointCounters {
        self.endpoint.counters()
    }

    /// Turns the endpoint until something is so.
    fn wait_for(&mut self, what: &str, look: Duration, mut is_so: impl FnMut(&Self) -> bool) -> Result<()> {
        let began = Instant::now();
        while !is_so(self) {
            ensure!(!self.meeting.failed.load(Ordering::Relaxed), "rank {}: another rank has failed", self.rank);
            ensure!(began.elapsed() < PATIENCE, "rank {} waited {PATIENCE:?} for {what}", self.rank);
            self.turn(look)?;
        }
        Ok(())
    }

    fn turn(&mut self, wait: Duration) -> Result<()> {
        let mut wait = wait;
        if let (Some(due), Some(fault)) = (self.due, self.fault) {
            let now = Instant::now();
            if now >= due {
                self.due = None;
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
                bail!("rank {} lost rank {}: {failure}", self.rank, self.peers[&pair]);
            }
            EndpointEvent::Path { pair, event: PathEvent::Migrated { .. } } => {
                self.moves.push(ObservedMigration { at: Instant::now(), peer: self.peers[&pair] });
            }
            EndpointEvent::Path { .. } | EndpointEvent::Datagram { .. } => {}
        }
        Ok(())
    }

    fn pair(&self, peer: usize) -> QpNumber {
        self.pairs[peer].expect("a rank sends nothing to itself")
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
            self.wait_for("a message", LOOK, |rank| !rank.inbox[from].is_empty())?;
        }
        let (buffer, message) = self.inbox[from].pop_front().expect("just waited for");
        self.received.note(from, &buffer[message.clone()]);
        let taken = take(&buffer[message]);
        self.endpoint.post_receive(self.pair(from), buffer)?;
        Ok(taken)
    }

    fn progress(&mut self) -> Result<()> {
        self.turn(Duration::ZERO)
    }
}

/// Connects one end; the other end does the same.
fn connect(
    ranks: &mut [KernelUdpTransport<'_>],
    one: usize,
    other: usize,
    psn: Psn,
    room: KernelReceiveBuffers,
) -> Result<()> {
    let remote = ranks[other].pair(one);
    let routes = ranks[other].endpoint.addresses();
    let routes = routes.iter().enumerate().map(|(path, to)| UdpRoute::new(UdpPortIndex(path as u8), *to)).collect();
    let role = if one < other { MigrationRole::Leader } else { MigrationRole::Follower };
    let setup = QueuePairSetup::new(remote, psn, psn, routes, role);
    let rank = &mut ranks[one];
    let pair = rank.pair(other);
    for _ in 0..room.messages {
        rank.endpoint.post_receive(pair, vec![0; room.message_bytes])?;
    }
    Ok(rank.endpoint.connect(pair, setup)?)
}
