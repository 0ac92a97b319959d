//! A queue pair with its buffers and the addresses of its paths.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;

use protocol::BufferSlice;
use protocol::connection::ConnectionPolicy;
use protocol::connection::path::{InvalidPathTransition, LoadPathError, MigrationRole, PathEvent, PathPolicy};
use protocol::queue_pair::{InvalidQpTransition, QpError, QpMemory, QpPostError, QueuePair};
use units::limits::{JUMBO_MTU_STEP, MAX_JUMBO_MTU, MAX_MTU, MAX_PATHS, MIN_MTU, is_valid_mtu};
use units::{PathId, Psn, QpNumber, Time};
use wire::{IcrcCoverage, PartitionKey, RemoteKey};

use super::port::{RECEIVE_BUFFER_BYTES, UdpPortIndex};
use super::send_batch::Coalescing;

/// A path of a queue pair, in terms of sockets: the counterparts of InfiniBand's port, DLID and path bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpRoute {
    /// Packets leave by this port.
    pub port: UdpPortIndex,
    /// To this address.
    pub to: SocketAddr,
    /// The other end's packets of this path come from this address. Its port may differ from that of `to`: networks
    /// spread flows by it.
    pub from: SocketAddr,
    /// And arrive at this port.
    pub at: UdpPortIndex,
}

impl UdpRoute {
    /// The plain case: out and in by one port, to and from one address.
    pub fn new(port: UdpPortIndex, remote: SocketAddr) -> Self {
        Self { port, to: remote, from: remote, at: port }
    }
}

/// What stands around the payload of a packet at most: IP and UDP (48), BTH, RETH and immediate data (32), ICRC (4), padding.
const MAX_HEADER_BYTES: u32 = 88;
/// Bytes under way on one connection with long packets.
const MAX_IN_FLIGHT_BYTES: u32 = 1 << 20;

/// What a queue pair must know of its connection.
#[derive(Clone, Debug)]
pub struct QueuePairSetup {
    /// The other end's queue pair.
    pub remote: QpNumber,
    /// The number of the first packet sent from here.
    pub send_psn: Psn,
    /// The number of the first packet sent from there.
    pub receive_psn: Psn,
    /// Most payload of a packet.
    pub mtu: u32,
    /// What the checks of packets cover that are longer than InfiniBand's (P-99).
    pub coverage: IcrcCoverage,
    /// How the connection behaves.
    pub policy: ConnectionPolicy,
    /// The paths, best first, numbered alike at both ends.
    pub routes: Vec<UdpRoute>,
    /// How they are watched.
    pub path_policy: PathPolicy,
    /// Which of the ends this is.
    pub role: MigrationRole,
    /// Whether several packets may go in one call: not to a verbs peer.
    pub verbs_peer: bool,
}

impl QueuePairSetup {
    /// Between two ends of ours.
    pub fn new(
        remote: QpNumber,
        send_psn: Psn,
        receive_psn: Psn,
        routes: Vec<UdpRoute>,
        role: MigrationRole,
    ) -> Self {
        Self {
            remote,
            send_psn,
            receive_psn,
            mtu: MAX_MTU,
            coverage: IcrcCoverage::Whole,
            policy: ConnectionPolicy::datagram(),
            routes,
            path_policy: PathPolicy::default(),
            role,
            verbs_peer: false,
        }
    }

    /// With packets as long as links that carry so many bytes allow ([`super::link_mtu_bytes`]). No more bytes are under way then: packets
    /// that are longer are fewer.
    pub fn with_long_packets(mut self, link: u32) -> Self {
        let most = link.saturating_sub(MAX_HEADER_BYTES).clamp(MIN_MTU, MAX_JUMBO_MTU);
        self.mtu = if most > MAX_MTU { most - most % JUMBO_MTU_STEP } else { 1 << most.ilog2() };
        let window = u32::from(self.policy.window);
        self.policy.window = window.min((MAX_IN_FLIGHT_BYTES / self.mtu).max(1)) as u16;
        self
    }
}

/// What the user of an endpoint hears.
#[derive(Debug)]
pub enum EndpointEvent {
    /// A send or a write is at the other end; here is its buffer.
    Sent {
        /// Of this queue pair.
        pair: QpNumber,
        /// As posted.
        id: u64,
        /// The bytes that were sent.
        buffer: Vec<u8>,
    },
    /// A message has come.
    Received {
        /// For this queue pair.
        pair: QpNumber,
        /// As posted.
        id: u64,
        /// A buffer as long as the one that was posted.
        buffer: Vec<u8>,
        /// Where in it the message lies.
        message: Range<usize>,
        /// The path over which the packet came that was missing last.
        path: PathId,
        /// What came with it.
        immediate: Option<u32>,
    },
    /// A send, a write or a receive that will not be done.
    Failed {
        /// Of this queue pair.
        pair: QpNumber,
        /// As posted.
        id: u64,
        /// The buffer that was posted.
        buffer: Vec<u8>,
        /// Why.
        failure: QpError,
    },
    /// A datagram has come.
    Datagram {
        /// For this queue pair.
        pair: QpNumber,
        /// From this address.
        from: SocketAddr,
        /// Sent by this queue pair there.
        speaker: QpNumber,
        /// The buffer that was posted.
        buffer: Vec<u8>,
        /// How much of it is the message.
        length: usize,
        /// What came with it.
        immediate: Option<u32>,
    },
    /// Something happened to a path.
    Path {
        /// Of this queue pair.
        pair: QpNumber,
        /// What.
        event: PathEvent,
    },
}

/// Why an order to a queue pair was not carried out.
#[derive(Debug)]
pub enum QueuePairError {
    /// There is none of that number.
    Unknown(QpNumber),
    /// The machine's own answer.
    Move(InvalidQpTransition),
    /// The machine's own answer.
    Post(QpPostError),
    /// The machine's own answer.
    Load(LoadPathError),
    /// The machine's own answer.
    Migrate(InvalidPathTransition),
    /// A set-up that cannot be.
    Setup(&'static str),
}

impl fmt::Display for QueuePairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(number) => write!(f, "there is no {number} here"),
            Self::Move(wrong) => wrong.fmt(f),
            Self::Post(wrong) => wrong.fmt(f),
            Self::Load(wrong) => wrong.fmt(f),
            Self::Migrate(wrong) => wrong.fmt(f),
            Self::Setup(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for QueuePairError {}

impl QueuePairSetup {
    pub(super) fn check(&self, ports: usize) -> Result<(), QueuePairError> {
        let most = if self.verbs_peer { MAX_MTU } else { MAX_JUMBO_MTU };
        if self.routes.is_empty() || self.routes.len() > MAX_PATHS {
            return Err(QueuePairError::Setup("a queue pair has 1 to 16 paths"));
        }
        if !is_valid_mtu(self.mtu) || self.mtu > most {
            return Err(QueuePairError::Setup(
                "a path MTU is a power of two, 256 to 4096 bytes, to an end of ours up to 62 KiB in steps of 64",
            ));
        }
        let known = |port: UdpPortIndex| port.index() < ports;
        if !self.routes.iter().all(|route| known(route.port) && known(route.at)) {
            return Err(QueuePairError::Setup("a route names a port that the endpoint does not have"));
        }
        Ok(())
    }
}

/// What is sent by one request: a buffer, and perhaps bytes that lie elsewhere.
#[derive(Debug)]
pub(super) struct PostedSend {
    pub head: Vec<u8>,
    pub body: Option<BufferSlice>,
}

impl PostedSend {
    pub(super) fn len(&self) -> usize {
        self.head.len() + self.body.as_ref().map_or(0, |body| body.bytes().len())
    }

    /// Some of its bytes.
    pub(super) fn part(&self, start: usize, length: usize) -> SendSlice<'_> {
        let (end, border) = (start + length, self.head.len());
        let head = &self.head[start.min(border)..end.min(border)];
        let body = self.body.as_ref().filter(|_| end > border);
        SendSlice { head, body: body.map(|body| body.part(start.saturating_sub(border)..end - border)) }
    }
}

/// Some bytes of a request: of its buffer, and behind them of what lies elsewhere.
#[derive(Default)]
pub(crate) struct SendSlice<'a> {
    pub head: &'a [u8],
    pub body: Option<BufferSlice>,
}

impl<'a> From<&'a [u8]> for SendSlice<'a> {
    fn from(head: &'a [u8]) -> Self {
        Self { head, body: None }
    }
}

impl SendSlice<'_> {
    pub(super) fn slices(&self) -> [&[u8]; 2] {
        [self.head, self.body.as_ref().map_or(&[][..], BufferSlice::bytes)]
    }

    pub(super) fn len(&self) -> usize {
        self.slices().iter().map(|bytes| bytes.len()).sum()
    }
}

/// Posted in order and completed in order; their ids count up.
#[derive(Debug)]
pub(super) struct PostedQueue<T> {
    first: u64,
    buffers: VecDeque<T>,
}

impl<T> Default for PostedQueue<T> {
    fn default() -> Self {
        Self { first: 0, buffers: VecDeque::new() }
    }
}

impl<T> PostedQueue<T> {
    pub(super) fn next_id(&self) -> u64 {
        self.first + self.buffers.len() as u64
    }

    pub(super) fn push(&mut self, buffer: T) {
        self.buffers.push_back(buffer);
    }

    pub(super) fn pop_back(&mut self) -> Option<T> {
        self.buffers.pop_back()
    }

    pub(super) fn get(&self, id: u64) -> Option<&T> {
        self.buffers.get(usize::try_from(id.checked_sub(self.first)?).ok()?)
    }

    fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        self.buffers.get_mut(usize::try_from(id.checked_sub(self.first)?).ok()?)
    }

    pub(super) fn pop(&mut self) -> T {
        self.first += 1;
        self.buffers.pop_front().expect("the machine completes what was posted, in order")
    }
}

/// A posted receive.
#[derive(Debug)]
pub(super) struct PostedReceive {
    pub buffer: Vec<u8>,
    /// Where the message begins, or will.
    pub start: usize,
}

/// Where packets may put bytes: the posted receives of one queue pair, and the regions that it may write to.
#[derive(Debug, Default)]
pub(super) struct EndpointMemory {
    pub receives: PostedQueue<PostedReceive>,
    pub regions: BTreeMap<u32, Vec<u8>>,
    /// Where the bytes of a packet lie that is a whole message, in a buffer that can be had for one that was posted.
    offered: Option<usize>,
    /// The receive for which it is.
    accepted: Option<u64>,
}

impl EndpointMemory {
    /// Posts a buffer. The one that was used last is used first: the processor's cache has it.
    pub(super) fn post(&mut self, buffer: Vec<u8>, is_receiving: bool) {
        self.receives.push(PostedReceive { buffer, start: 0 });
        let rooms = self.receives.buffers.make_contiguous();
        if let [first, .., last] = rooms
            && !is_receiving
            && first.buffer.len() == last.buffer.len()
        {
            std::mem::swap(first, last);
        }
    }

    /// Offers the buffer in which a packet's bytes lie.
    pub(super) fn offer(&mut self, payload: &[u8]) {
        self.offered = Some(payload.as_ptr().addr());
    }

    /// Puts a buffer with a whole message in the place of the one that was posted for it, if that was agreed.
    pub(super) fn exchange(&mut self, buffer: &mut Vec<u8>, start: usize) {
        self.offered = None;
        if let Some(id) = self.accepted.take()
            && let Some(room) = self.receives.get_mut(id)
        {
            std::mem::swap(&mut room.buffer, buffer);
            room.start = start;
        }
    }
}

impl QpMemory for EndpointMemory {
    fn receive(&mut self, id: u64, offset: u32, bytes: &[u8]) {
        let room = self.receives.get_mut(id).expect("the machine names what was posted");
        if self.offered == Some(bytes.as_ptr().addr()) && room.buffer.len() == RECEIVE_BUFFER_BYTES {
            (self.offered, self.accepted) = (None, Some(id));
            return;
        }
        let start = room.start + offset as usize;
        room.buffer[start..start + bytes.len()].copy_from_slice(bytes);
    }

    fn may_write(&self, key: RemoteKey, address: u64, length: u32) -> bool {
        let end = address.checked_add(u64::from(length));
        self.regions.get(&key.0).is_some_and(|region| end.is_some_and(|end| end <= region.len() as u64))
    }

    fn write(&mut self, key: RemoteKey, address: u64, bytes: &[u8]) {
        let region = self.regions.get_mut(&key.0).expect("asked before");
        region[address as usize..address as usize + bytes.len()].copy_from_slice(bytes);
    }
}

pub(super) struct UdpQueuePair {
    pub machine: QueuePair,
    pub routes: Vec<UdpRoute>,
    pub sends: PostedQueue<PostedSend>,
    pub stores: EndpointMemory,
    pub gathering: Coalescing,
    /// The path over which the last packet came.
    pub came_by: PathId,
    /// When its alarm goes off.
    pub alarm: Time,
}

impl UdpQueuePair {
    pub(super) fn new(number: QpNumber) -> Self {
        let mut machine = QueuePair::new(number);
        machine.initialise(PartitionKey::DEFAULT).expect("a new one is in RESET");
        Self {
            machine,
            routes: Vec::new(),
            sends: PostedQueue::default(),
            stores: EndpointMemory::default(),
            gathering: Coalescing::Allowed,
            came_by: PathId(0),
            alarm: Time::NEVER,
        }
    }

    /// The path of packets that come from an address at a port. A verbs peer may send from any port number.
    pub(super) fn path(&self, at: UdpPortIndex, from: SocketAddr) -> Option<PathId> {
        let exact = self.routes.iter().position(|route| route.at == at && route.from == from);
        let found = exact.or_else(|| {
            let lax = self.gathering == Coalescing::Forbidden;
            self.routes.iter().position(|route| lax && route.at == at && route.from.ip() == from.ip())
        });
        found.map(|index| PathId(index as u8))
    }
}
