//! The edges of trees over UDP: frames of connections become RoCEv2 packets, and packets frames.
//!
//! In: frames to transmit; datagrams and link changes from the kernel. Out: datagrams, and [`TreeEdgeEvent`]s for whoever owns the
//! machines. An edge is a queue pair number at each end, the addresses of its paths and the key of its group. A packet that
//! is malformed, foreign or not authentic is counted and forgotten.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use manager::AuthKey;
use protocol::aggregation::AggregationMessage;
use protocol::connection::{
    Frame, FramePath, FramePurpose, OutgoingFrame, control_frame, control_headers, migration_bit,
};
use protocol::{BufferPool, Payload};
use units::limits::MAX_PATHS;
use units::{GroupId, PathId, QpNumber, Time};
use wire::aggregation::AggregationHeader;
use wire::{Bth, Opcode, Packet, PacketHeaders, rocev2};

use super::message_mac::{MAC_BYTES, message_mac};
use super::multicast_group::{MULTICAST_QP, MulticastGroups, MulticastRole, MulticastSocket, ReceivedMulticast};
use crate::Clock;
use crate::udp::fault_injector::{DelayQueue, encode_datagram};
use crate::udp::link_monitor::{LinkMonitor, live_addresses};
use crate::udp::port::{IpIdentification, SocketBuffers, UdpPort};
use crate::udp::send_batch::{Coalescing, SendBatch, SocketSendError};
use crate::udp::{FaultInjector, ReceiveMode, UdpPortIndex, UdpRoute};

/// What came over an edge, or was learnt about it.
#[derive(Debug)]
pub enum TreeEdgeEvent {
    /// A sound frame.
    Frame {
        /// The edge, by its number here.
        edge: QpNumber,
        /// How it came.
        came: FramePath,
        /// What it says.
        frame: Frame<AggregationMessage>,
    },
    /// A sound message that came to everyone of a group.
    Multicast {
        /// The group.
        group: GroupId,
        /// What it says.
        message: AggregationMessage,
    },
    /// A packet that was beyond use, most likely for this edge.
    Damage {
        /// The edge.
        edge: QpNumber,
    },
    /// The kernel says that a path has lost its link or its address.
    PathDown {
        /// Of this edge.
        edge: QpNumber,
        /// The path.
        path: PathId,
    },
    /// And that it has it again.
    PathUp {
        /// Of this edge.
        edge: QpNumber,
        /// The path.
        path: PathId,
    },
}

/// What was seen, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TreeEdgeCounters {
    /// Packets given to the kernel.
    pub sent: u64,
    /// Of them repeats.
    pub repeated: u64,
    /// Sound packets for an edge that exists.
    pub received: u64,
    /// Packets whose ICRC was wrong.
    pub damaged: u64,
    /// Packets that are no packets, or no messages.
    pub malformed: u64,
    /// Packets for an edge that does not exist, or from an address that it does not know.
    pub foreign: u64,
    /// Messages whose tag does not fit the group's key.
    pub forged: u64,
    /// Calls that the kernel turned down.
    pub unsent: u64,
    /// Packets that a plan of faults has flipped bits of, on their way out.
    pub hurt_by_plan: u64,
    /// Packets that it has lost.
    pub lost_by_plan: u64,
}

/// One end of an edge.
#[derive(Clone, Debug)]
pub struct TreeEdge {
    /// The other end's number for it.
    pub remote: QpNumber,
    /// Its paths, best first, numbered alike at both ends.
    pub routes: Vec<UdpRoute>,
    /// Who may speak on it.
    pub key: AuthKey,
}

/// Which sockets to look at: asking one for nothing costs as much as taking a packet.
#[derive(Clone, Copy)]
pub enum ReadySockets<'a> {
    /// All of them.
    Any,
    /// Those that the kernel named.
    These(&'a [RawFd]),
    /// None: this has been taken already.
    Taken(&'a ReceivedMulticast<'a>),
}

impl ReadySockets<'_> {
    fn includes(self, socket: BorrowedFd<'_>) -> bool {
        match self {
            Self::Any => true,
            Self::These(named) => named.contains(&socket.as_raw_fd()),
            // Short results come one at a time, and whoever waits for one has nothing else to hear; of long ones there are more.
            Self::Taken(heard) => heard.socket() == socket.as_raw_fd() && is_long(&heard.buffers, heard.filled),
        }
    }
}

/// Sockets and the edges that use them.
pub struct TreeEdges {
    clock: Clock,
    /// When it was last looked at.
    now: Time,
    ports: Vec<UdpPort>,
    edges: BTreeMap<QpNumber, TreeEdge>,
    circles: MulticastGroups,
    batch: SendBatch,
    /// Lent to whoever receives.
    buffers: Option<Box<SocketBuffers>>,
    scratch: Vec<u8>,
    /// Room for what comes.
    shelf: BufferPool,
    watch: Option<LinkMonitor>,
    mischief: FaultInjector,
    delayed: DelayQueue,
    counters: TreeEdgeCounters,
}

/// Receive calls on one port in a row, so that one busy port does not starve timers.
const MAX_RECEIVES_PER_PORT: usize = 16;
/// The same at an ear, which gives one at a time.
const MAX_MULTICAST_RECEIVES: usize = 128;
/// Children whose contributions a node has in its hands at a time, as a rule.
const POOLED_CHILDREN: usize = 64;
/// A result of so many bytes is part of a long one.
const LONG_RESULT_BYTES: usize = 1024;

impl TreeEdges {
    /// Opens a socket at each address.
    ///
    /// # Errors
    /// If an address cannot be had.
    pub fn open(addresses: &[SocketAddr], mischief: FaultInjector) -> io::Result<Self> {
        if addresses.is_empty() || addresses.len() > MAX_PATHS {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("1 to {MAX_PATHS} addresses")));
        }
        let ports = addresses.iter().map(|address| UdpPort::open(*address, ReceiveMode::Plain));
        Ok(Self {
            clock: Clock::new(),
            now: Time::ZERO,
            ports: ports.collect::<io::Result<Vec<_>>>()?,
            edges: BTreeMap::new(),
            circles: MulticastGroups::default(),
            batch: SendBatch::new(),
            buffers: Some(Box::default()),
            scratch: Vec::new(),
            shelf: BufferPool::new(POOLED_CHILDREN),
            // Without it cuts are noticed by silence only.
            watch: if addresses.len() > 1 { LinkMonitor::new().ok() } else { None },
            mischief,
            delayed: DelayQueue::default(),
            counters: TreeEdgeCounters::default(),
        })
    }

    /// The addresses of its ports, as bound.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(|port| port.local).collect()
    }

    /// Its clock, by which machines live.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Looks at the clock. Reading it takes time too: whatever comes of one look at the sockets happens at one time.
    pub fn look_at_clock(&mut self) -> Time {
        self.now = self.clock.now();
        self.now
    }

    /// The time when the clock was last looked at.
    pub fn now(&self) -> Time {
        self.now
    }

    /// What was seen so far.
    pub fn counters(&self) -> TreeEdgeCounters {
        self.counters
    }

    /// The routes to a neighbour with these addresses: its first over our first port, and so on; a neighbour with fewer
    /// or more is reached over what both have.
    pub fn routes_to(&self, addresses: &[SocketAddr]) -> Vec<UdpRoute> {
        let pairs = addresses.iter().take(self.ports.len()).enumerate();
        pairs.map(|(index, address)| UdpRoute::new(UdpPortIndex(index as u8), *address)).collect()
    }

    /// Strings an edge under a number, in place of one that had it.
    pub fn string(&mut self, number: QpNumber, wire: TreeEdge) {
        self.edges.insert(number, wire);
    }

    /// Takes an edge down: what still comes for it is foreign.
    pub fn cut(&mut self, number: QpNumber) {
        self.edges.remove(&number);
    }

    /// Sends a frame over an edge as often as it says. It is on its way at the latest with the next [`Self::flush`].
    pub fn transmit(&mut self, edge: QpNumber, outgoing: &OutgoingFrame<AggregationMessage>) {
        let Some(wire) = self.edges.get(&edge) else { return };
        let Some(route) = wire.routes.get(outgoing.path.index()).copied() else { return };
        let headers = match &outgoing.frame {
            Frame::Data { psn, wants_ack, message } => {
                let mut bth = Bth::new(Opcode::SendOnly, wire.remote, *psn);
                bth.acknowledge = *wants_ack;
                bth.migrated = outgoing.migration == protocol::connection::MigrationBit::Migrated;
                write_message(&mut self.scratch, message, &bth, &wire.key);
                PacketHeaders::from(bth)
            }
            control => {
                self.scratch.clear();
                let Some(headers) = control_headers(control, wire.remote, outgoing.migration, 0) else { return };
                headers
            }
        };
        self.counters.repeated += u64::from(outgoing.purpose == FramePurpose::Repeat);
        for _ in 0..outgoing.copies {
            self.send((route.port, route.to), headers);
        }
    }

    /// From now on a group's results come or go by multicast to this address.
    ///
    /// # Errors
    /// If the address cannot be heard on the link of the first port.
    pub fn join_circle(
        &mut self,
        group: GroupId,
        to: SocketAddr,
        key: AuthKey,
        hearing: MulticastRole,
    ) -> io::Result<()> {
        self.circles.join(group, to, key, hearing, self.ports[0].local)
    }

    /// Where results that come to this address are heard.
    pub fn ear(&self, at: SocketAddr) -> Option<Arc<MulticastSocket>> {
        self.circles.ear(at)
    }

    /// No more.
    pub fn leave_circle(&mut self, group: GroupId) {
        self.circles.leave(group);
    }

    /// Sends a message to everyone of a group, so many times. Forgotten if the group has no address.
    pub fn multicast(&mut self, group: GroupId, message: &AggregationMessage, copies: u8) {
        let Some((to, headers, key)) = self.circles.next_packet(group) else { return };
        write_message(&mut self.scratch, message, &headers.bth, &key);
        for _ in 0..copies {
            self.send((UdpPortIndex(0), to), headers);
        }
    }

    fn send(&mut self, to: (UdpPortIndex, SocketAddr), headers: PacketHeaders) {
        self.counters.sent += 1;
        if !self.mischief.is_idle() && self.is_mishandled(to, headers) {
            return;
        }
        if let Err(unsent) =
            self.batch.add(&self.ports, to, &headers, self.scratch.as_slice().into(), Coalescing::Allowed)
        {
            self.note_unsent(&unsent);
        }
    }

    /// True if a plan of faults has had its way with a packet.
    #[cold]
    fn is_mishandled(&mut self, to: (UdpPortIndex, SocketAddr), headers: PacketHeaders) -> bool {
        let whole = Packet::new(headers, &self.scratch);
        let fate = self.mischief.judge(to.0, whole.size());
        if !fate.is_plain() {
            self.counters.lost_by_plan += u64::from(fate.lost);
            self.counters.hurt_by_plan += u64::from(!fate.lost && !fate.flips.is_empty());
            let datagram = encode_datagram(&whole, &self.ports[to.0.index()].outgoing(to.1, 0));
            self.delayed.mishandle(&self.ports, self.clock.now(), to, datagram, &fate);
        }
        !fate.is_plain()
    }

    /// Gives the kernel whatever has been gathered.
    pub fn flush(&mut self) {
        if let Err(unsent) = self.batch.flush(&self.ports) {
            self.note_unsent(&unsent);
        }
    }

    /// Silence will tell the machines, or the kernel's news of links.
    fn note_unsent(&mut self, _: &SocketSendError) {
        self.counters.unsent += 1;
    }

    /// Takes whatever has come by now; true if something has.
    pub fn receive(&mut self, inputs: &mut Vec<TreeEdgeEvent>) -> bool {
        self.receive_at(ReadySockets::Any, inputs)
    }

    /// The same, where something is known to have come.
    pub fn receive_at(&mut self, ready: ReadySockets<'_>, inputs: &mut Vec<TreeEdgeEvent>) -> bool {
        if !self.mischief.is_idle() {
            self.do_mischief();
        }
        let mut any = false;
        let mut buffers = self.buffers.take().expect("receiving does not nest");
        for port in 0..self.ports.len() {
            if !ready.includes(self.ports[port].as_fd()) {
                continue;
            }
            for _ in 0..MAX_RECEIVES_PER_PORT {
                // An error is that of an earlier datagram (a neighbour's port is closed): silence will tell.
                let filled = self.ports[port].receive(&mut buffers).unwrap_or(0);
                for index in 0..if self.ports[port].is_cut { 0 } else { filled } {
                    for (from, datagram, number) in buffers.datagrams(index) {
                        self.take(UdpPortIndex(port as u8), from, datagram, number, inputs);
                    }
                }
                any |= filled > 0;
                if filled < buffers.bytes.len() {
                    break;
                }
            }
        }
        if self.circles.has_ears() {
            any |= self.hear(ready, &mut buffers, inputs);
        }
        self.buffers = Some(buffers);
        self.look_at_clock();
        any
    }

    #[cold]
    fn do_mischief(&mut self) {
        let now = self.clock.now();
        self.mischief.cut_and_mend(&mut self.ports, now);
        self.delayed.release(&self.ports, now);
    }

    /// Receives what came to everyone.
    fn hear(
        &mut self,
        ready: ReadySockets<'_>,
        buffers: &mut SocketBuffers,
        inputs: &mut Vec<TreeEdgeEvent>,
    ) -> bool {
        let is_cut = self.ports[0].is_cut;
        let mut any = false;
        let mut take = |ear: &MulticastSocket, buffers: &SocketBuffers, filled: usize| {
            any |= filled > 0;
            for index in 0..if is_cut { 0 } else { filled } {
                for (from, datagram, number) in buffers.datagrams(index) {
                    let message = if ear.port().is_sound(from, datagram, number) {
                        read_multicast(&self.circles, ear.at(), datagram, &mut self.shelf)
                    } else {
                        // Whose it was cannot be known: its group asks when it misses the result.
                        Err(PacketDrop::Damaged)
                    };
                    match message {
                        Ok((group, message)) => {
                            self.counters.received += 1;
                            inputs.push(TreeEdgeEvent::Multicast { group, message });
                        }
                        Err(unfit) => self.counters.note(unfit),
                    }
                }
            }
        };
        if let ReadySockets::Taken(heard) = ready {
            take(heard.ear, &heard.buffers, heard.filled);
        }
        for ear in self.circles.ears().filter(|ear| ready.includes(ear.port().as_fd())) {
            for _ in 0..MAX_MULTICAST_RECEIVES {
                let filled = ear.look(buffers);
                take(ear, buffers, filled);
                if !is_long(buffers, filled) {
                    break;
                }
            }
        }
        any
    }

    #[inline(never)]
    fn take(
        &mut self,
        at: UdpPortIndex,
        from: SocketAddr,
        datagram: &[u8],
        number: IpIdentification,
        inputs: &mut Vec<TreeEdgeEvent>,
    ) {
        let packet = rocev2::parse(datagram);
        if !self.ports[at.index()].is_sound(from, datagram, number) {
            self.counters.damaged += 1;
            // The number of the queue pair may be what was hurt; then the report reaches another edge, or none.
            let edge = packet.ok().map(|packet| packet.headers.bth.destination);
            if let Some(edge) = edge.filter(|edge| self.path(*edge, at, from).is_some()) {
                inputs.push(TreeEdgeEvent::Damage { edge });
            }
            return;
        }
        let Ok(packet) = packet else {
            self.counters.malformed += 1;
            return;
        };
        let edge = packet.headers.bth.destination;
        let Some(path) = self.path(edge, at, from) else {
            self.counters.foreign += 1;
            return;
        };
        match self.read(edge, &packet) {
            Ok(frame) => {
                self.counters.received += 1;
                let came = FramePath { path, migration: migration_bit(&packet.headers) };
                inputs.push(TreeEdgeEvent::Frame { edge, came, frame });
            }
            Err(unfit) => self.counters.note(unfit),
        }
    }

    fn path(&self, edge: QpNumber, at: UdpPortIndex, from: SocketAddr) -> Option<PathId> {
        let routes = &self.edges.get(&edge)?.routes;
        let position = routes.iter().position(|route| (route.at, route.from) == (at, from))?;
        Some(PathId(position as u8))
    }

    fn read(&mut self, edge: QpNumber, packet: &Packet<'_>) -> Result<Frame<AggregationMessage>, PacketDrop> {
        let headers = &packet.headers;
        if headers.bth.opcode != Opcode::SendOnly {
            return control_frame(headers).ok_or(PacketDrop::Malformed);
        }
        let key = &self.edges.get(&edge).ok_or(PacketDrop::Malformed)?.key;
        let message = read_message(packet, |_| Some(key), &mut self.shelf)?;
        Ok(Frame::Data { psn: headers.bth.psn, wants_ack: headers.bth.acknowledge, message })
    }

    /// Looks at the kernel's view of links, if it says that something has changed.
    pub fn look_at_links(&mut self, inputs: &mut Vec<TreeEdgeEvent>) {
        if self.watch.is_some() {
            self.look_at_watch(inputs);
        }
    }

    /// Apart, because of the room that it needs on the stack: whoever has one path comes by here often and never goes in.
    #[inline(never)]
    fn look_at_watch(&mut self, inputs: &mut Vec<TreeEdgeEvent>) {
        if !self.watch.as_ref().is_some_and(LinkMonitor::has_changed) {
            return;
        }
        let Ok(live) = live_addresses() else { return };
        for index in 0..self.ports.len() {
            let address = self.ports[index].local.ip();
            let is_up = address.is_unspecified() || live.contains(&address);
            if std::mem::replace(&mut self.ports[index].is_up, is_up) == is_up {
                continue;
            }
            let port = UdpPortIndex(index as u8);
            for (edge, wire) in &self.edges {
                let Some(path) = wire.routes.iter().position(|route| route.port == port) else { continue };
                let (edge, path) = (*edge, PathId(path as u8));
                inputs.push(if is_up {
                    TreeEdgeEvent::PathUp { edge, path }
                } else {
                    TreeEdgeEvent::PathDown { edge, path }
                });
            }
        }
    }

    /// What to wait on.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ports
            .iter()
            .map(UdpPort::as_fd)
            .chain(self.watch.iter().map(LinkMonitor::as_fd))
            .chain(self.circles.sockets())
    }

    /// When something is to be done although nothing comes.
    pub fn due(&self) -> Option<Duration> {
        self.delayed.due().map(|at| self.clock.until(at))
    }
}

/// True if what was received last is part of something long, of which there may be more.
fn is_long(buffers: &SocketBuffers, filled: usize) -> bool {
    buffers.meta[..filled].iter().any(|meta| meta.len >= LONG_RESULT_BYTES)
}

/// Why a packet is no frame.
#[derive(Clone, Copy)]
enum PacketDrop {
    Damaged,
    Malformed,
    Foreign,
    Forged,
}

impl TreeEdgeCounters {
    fn note(&mut self, unfit: PacketDrop) {
        let count = match unfit {
            PacketDrop::Damaged => &mut self.damaged,
            PacketDrop::Malformed => &mut self.malformed,
            PacketDrop::Foreign => &mut self.foreign,
            PacketDrop::Forged => &mut self.forged,
        };
        *count += 1;
    }
}

/// The message of a packet, if its tag fits the key of its group.
fn read_message<'k>(
    packet: &Packet<'_>,
    key: impl FnOnce(GroupId) -> Option<&'k AuthKey>,
    shelf: &mut BufferPool,
) -> Result<AggregationMessage, PacketDrop> {
    let (message, found) = packet.payload.split_last_chunk::<MAC_BYTES>().ok_or(PacketDrop::Malformed)?;
    let head = message.get(..AggregationHeader::SIZE).ok_or(PacketDrop::Malformed)?;
    let (header, seal, payload) = AggregationHeader::parse_sealed(message).map_err(|_| PacketDrop::Malformed)?;
    let bth = &packet.headers.bth;
    if message_mac(key(header.group).ok_or(PacketDrop::Foreign)?, bth.destination, bth.psn, head) != *found {
        return Err(PacketDrop::Forged);
    }
    // Questions and aborts have no payload and no seal; an operand of no elements has one.
    let payload = if payload.is_empty() && seal == 0 { Payload::EMPTY } else { Payload::Bytes(shelf.copy(payload)) };
    Ok(AggregationMessage { header, payload, seal })
}

fn read_multicast(
    circles: &MulticastGroups,
    at: SocketAddr,
    datagram: &[u8],
    shelf: &mut BufferPool,
) -> Result<(GroupId, AggregationMessage), PacketDrop> {
    let packet = rocev2::parse(datagram).map_err(|_| PacketDrop::Malformed)?;
    let bth = &packet.headers.bth;
    if bth.opcode != Opcode::DatagramSendOnly || bth.destination != MULTICAST_QP {
        return Err(PacketDrop::Malformed);
    }
    let message = read_message(&packet, |group| circles.key(group, at), shelf)?;
    Ok((message.header.group, message))
}

fn write_message(bytes: &mut Vec<u8>, message: &AggregationMessage, bth: &Bth, key: &AuthKey) {
    bytes.clear();
    bytes.resize(AggregationHeader::SIZE, 0);
    // The seal was made with the payload, in its maker's memory: whatever changed since then must show.
    message.header.emit_sealed(message.seal, bytes);
    let tag = message_mac(key, bth.destination, bth.psn, bytes);
    if let Some(payload) = message.payload.bytes() {
        bytes.extend_from_slice(payload);
    }
    bytes.extend_from_slice(&tag);
}
