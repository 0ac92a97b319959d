//! Tree edges over UDP: frames become RoCEv2 packets, and packets become frames.
//!
//! In: frames to transmit; datagrams and link changes from the kernel. Out: datagrams, and [`TreeEdgeEvent`]s for the owner
//! of the machines. An edge is a queue pair number at each end, the addresses of its paths and the key of its group. A
//! packet that is malformed, for an unknown edge or not authentic is counted and dropped.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use manager::AuthKey;
use protocol::BufferPool;
use protocol::aggregation::AggregationMessage;
use protocol::connection::{
    Frame, FramePath, FramePurpose, OutgoingFrame, control_frame, control_headers, migration_bit,
};
use protocol::transfer::BASE_PACKET_BYTES;
use units::limits::MAX_PATHS;
use units::{GroupId, PathId, QpNumber, Time};
use wire::transfer::{self, TransferHeader, TransferPacketKind};
use wire::{Bth, IcrcCoverage, Opcode, Packet, PacketHeaders, rocev2};

use super::edge_event::{PacketDrop, TreeEdgeCounters, TreeEdgeEvent};
use super::message_codec::{read_control, read_message, read_multicast, write_control, write_message};
use super::multicast_group::{MulticastGroups, MulticastRole, MulticastSocket};
use super::peer_responses::{EdgeResponses, PeerResponses};
use super::ready_sockets::{ReadySockets, is_long};
use super::transfer_packets::{self, KnownTransfer, NoTransfers, TransferPackets, TransferSender, TransferSink};
use crate::Clock;
use crate::macs::{EdgeDirection, EdgeSide, KeyedMacs};
use crate::udp::connected_socket::ConnectedSocket;
use crate::udp::fault_injector::{DelayQueue, encode_datagram};
use crate::udp::link_monitor::{LinkMonitor, live_addresses};
use crate::udp::port::{IpIdentification, ReceiveBacklog, SocketBuffers, UdpPort};
use crate::udp::send_batch::{Coalescing, SendBatch, SocketSendError};
use crate::udp::{FaultInjector, ReceiveMode, UdpPortIndex, UdpRoute};

/// One end of an edge.
#[derive(Clone, Debug)]
pub struct TreeEdge {
    /// The number of the edge at the other end.
    pub remote: QpNumber,
    /// The paths, best first, numbered alike at both ends.
    pub routes: Vec<UdpRoute>,
    /// The key that authenticates its messages.
    pub key: AuthKey,
    /// Which end of it this process is.
    pub end: EdgeSide,
}

/// An edge with the MACs of its key.
struct OpenEdge {
    remote: QpNumber,
    routes: Vec<UdpRoute>,
    macs: Arc<KeyedMacs>,
    outgoing: EdgeDirection,
    incoming: EdgeDirection,
    responses: EdgeResponses,
}

/// The sockets of a process and the edges that use them.
pub struct TreeEdges {
    clock: Clock,
    /// The last clock reading.
    now: Time,
    ports: Vec<UdpPort>,
    edges: BTreeMap<QpNumber, OpenEdge>,
    peer_responses: PeerResponses,
    /// The MACs by key: the edges of one group share a key.
    macs: BTreeMap<[u8; 16], Arc<KeyedMacs>>,
    /// Sockets for the transfers of edges that use them: few, because each costs a descriptor.
    connected: BTreeMap<(QpNumber, PathId), ConnectedSocket>,
    multicast_groups: MulticastGroups,
    batch: SendBatch,
    /// Moved out while a port receives.
    buffers: Option<Box<SocketBuffers>>,
    scratch: Vec<u8>,
    /// The plain text of the packet that is read.
    decrypted: Vec<u8>,
    encrypts: bool,
    /// Buffers for the payloads that arrive.
    pool: BufferPool,
    link_monitor: Option<LinkMonitor>,
    fault_injector: FaultInjector,
    delayed: DelayQueue,
    counters: TreeEdgeCounters,
    /// The most bytes of a transfer in one packet.
    part_bytes: usize,
    /// The most bytes of a part in a packet that passes every path.
    base_part_bytes: usize,
    /// The transfer of the last packet.
    known_transfer: Option<KnownTransfer>,
    /// Space for the packets of a transfer.
    transfer_batch: Vec<u8>,
}

/// Receive calls on one port in a row: a busy port does not starve the timers.
const MAX_RECEIVES_PER_PORT: usize = 16;
/// Receive calls on one multicast socket in a row, of one datagram each.
const MAX_MULTICAST_RECEIVES: usize = 128;
/// Children whose contributions a node holds at a time, as a rule.
const POOLED_CHILDREN: usize = 64;
/// Sockets that are connected to one peer each.
const MAX_CONNECTED_SOCKETS: usize = 64;
/// What every link carries, until the owner knows more.
const DEFAULT_LINK_BYTES: usize = 1500;

impl TreeEdges {
    /// Opens a socket at each address.
    ///
    /// # Errors
    /// If the kernel does not bind an address.
    pub fn open(addresses: &[SocketAddr], fault_injector: FaultInjector) -> io::Result<Self> {
        if addresses.is_empty() || addresses.len() > MAX_PATHS {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("1 to {MAX_PATHS} addresses")));
        }
        let ports = addresses.iter().map(|address| UdpPort::open(*address, ReceiveMode::Plain));
        let ports = ports.collect::<io::Result<Vec<_>>>()?;
        Ok(Self {
            clock: Clock::new(),
            now: Time::ZERO,
            part_bytes: transfer_packets::max_part_bytes(DEFAULT_LINK_BYTES, &ports),
            base_part_bytes: transfer_packets::max_part_bytes(BASE_PACKET_BYTES, &ports),
            known_transfer: None,
            transfer_batch: transfer_packets::batch_buffer(),
            ports,
            edges: BTreeMap::new(),
            peer_responses: PeerResponses::default(),
            macs: BTreeMap::new(),
            connected: BTreeMap::new(),
            multicast_groups: MulticastGroups::default(),
            batch: SendBatch::new(),
            buffers: Some(Box::default()),
            scratch: Vec::new(),
            decrypted: Vec::new(),
            encrypts: false,
            pool: BufferPool::new(POOLED_CHILDREN),
            // Without the monitor, only timeouts reveal a lost link.
            link_monitor: if addresses.len() > 1 { LinkMonitor::new().ok() } else { None },
            fault_injector,
            delayed: DelayQueue::default(),
            counters: TreeEdgeCounters::default(),
        })
    }

    /// Payloads are encrypted: call this before the first edge. Otherwise those of groups are in which others encrypt them.
    pub fn encrypt_payloads(&mut self) {
        self.encrypts = true;
    }

    /// The bound addresses of the ports.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(|port| port.local).collect()
    }

    /// The clock of the machines.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Reads the clock. Reading it takes time too: all that one receive returns happens at one time.
    pub fn update_clock(&mut self) -> Time {
        self.now = self.clock.now();
        self.now
    }

    /// The last clock reading.
    pub fn now(&self) -> Time {
        self.now
    }

    /// What was counted so far.
    pub fn counters(&self) -> TreeEdgeCounters {
        self.counters
    }

    /// The routes to a neighbour with these addresses: its first over the first local port, and so on, as many as both have.
    pub fn routes_to(&self, addresses: &[SocketAddr]) -> Vec<UdpRoute> {
        let pairs = addresses.iter().take(self.ports.len()).enumerate();
        pairs.map(|(index, address)| UdpRoute::new(UdpPortIndex(index as u8), *address)).collect()
    }

    /// Adds an edge under a number; replaces the edge that had it.
    pub fn add_edge(&mut self, number: QpNumber, tree_edge: TreeEdge) {
        self.remove_edge(number);
        let TreeEdge { remote, routes, key, end } = tree_edge;
        let macs = self.macs_of(key);
        let outgoing = EdgeDirection::outgoing(number, remote, end);
        let incoming = EdgeDirection::incoming(number, remote, end);
        let responses = self.peer_responses.add(&routes);
        self.edges.insert(number, OpenEdge { remote, routes, macs, outgoing, incoming, responses });
    }

    /// The MACs under a key.
    fn macs_of(&mut self, key: AuthKey) -> Arc<KeyedMacs> {
        let macs = self.macs.entry(key.0).or_insert_with(|| Arc::new(KeyedMacs::new(key)));
        if self.encrypts {
            macs.encrypt();
        }
        macs.clone()
    }

    /// Forgets MACs that nothing uses any more.
    fn release_macs(&mut self, key: &AuthKey) {
        if self.macs.get(&key.0).is_some_and(|macs| Arc::strong_count(macs) == 1) {
            self.macs.remove(&key.0);
        }
    }

    /// Removes an edge: packets that still arrive for it count as foreign.
    pub fn remove_edge(&mut self, number: QpNumber) {
        self.known_transfer = None;
        if let Some(OpenEdge { macs, routes, responses, .. }) = self.edges.remove(&number) {
            self.peer_responses.remove(&routes, responses);
            self.connected.retain(|(edge, _), _| *edge != number);
            let key = *macs.key();
            drop(macs);
            self.release_macs(&key);
        }
    }

    /// Whether a remote socket of this edge responded since then, over whichever edge: what was sent to it arrived, and its response too.
    pub fn has_responded(&self, edge: QpNumber, since: Time) -> bool {
        self.edges.get(&edge).is_some_and(|tree_edge| tree_edge.responses.is_any_since(since))
    }

    /// Sends the copies of a frame over an edge. They leave at the latest with the next [`Self::flush`].
    pub fn transmit(&mut self, edge: QpNumber, outgoing: &OutgoingFrame<AggregationMessage>) {
        let Some(tree_edge) = self.edges.get(&edge) else { return };
        let Some(route) = tree_edge.routes.get(outgoing.path.index()).copied() else { return };
        let headers = match &outgoing.frame {
            Frame::Data { psn, wants_ack, message } => {
                let mut bth = Bth::new(Opcode::SendOnly, tree_edge.remote, *psn);
                bth.acknowledge = *wants_ack;
                bth.migrated = outgoing.migration == protocol::connection::MigrationBit::Migrated;
                write_message(&mut self.scratch, message, &bth, (&tree_edge.macs, tree_edge.outgoing));
                PacketHeaders::from(bth)
            }
            control => {
                let Some(headers) = control_headers(control, tree_edge.remote, outgoing.migration, 0) else { return };
                write_control(&mut self.scratch, &headers, (&tree_edge.macs, tree_edge.outgoing))
            }
        };
        self.counters.repeated += u64::from(outgoing.purpose == FramePurpose::Retransmission);
        for _ in 0..outgoing.copies {
            self.send((route.port, route.to), headers);
        }
    }

    /// How many paths an edge has.
    pub fn paths(&self, edge: QpNumber) -> usize {
        self.edges.get(&edge).map_or(0, |tree_edge| tree_edge.routes.len())
    }

    /// The largest packet that the links of all peers carry.
    pub fn set_link_bytes(&mut self, bytes: usize) {
        self.part_bytes = transfer_packets::max_part_bytes(bytes, &self.ports);
    }

    /// The most bytes of a transfer in one packet, in whole elements.
    pub fn part_bytes(&self, packets: TransferPackets) -> usize {
        let element = packets.element.max(1);
        let bytes = if packets.are_short { self.part_bytes.min(self.base_part_bytes) } else { self.part_bytes };
        (bytes / element).max(1) * element
    }

    /// Sends a range of a transfer over an edge and path, in parts of whole elements. Returns how many bytes were sent: fewer than
    /// asked if the kernel cannot take more now.
    pub fn send_transfer(
        &mut self,
        edge: QpNumber,
        path: PathId,
        header: &TransferHeader,
        range: &[u8],
        packets: TransferPackets,
    ) -> usize {
        let part_bytes = self.part_bytes(packets);
        let is_faulty = !self.fault_injector.is_idle();
        if !is_faulty {
            self.connect(edge, path);
        }
        let Some(tree_edge) = self.edges.get(&edge) else { return range.len() };
        let Some(route) = tree_edge.routes.get(path.index()).copied() else { return range.len() };
        let header = TransferHeader { destination: tree_edge.remote, ..*header };
        let port = &self.ports[route.port.index()];
        let connected = self.connected.get(&(edge, path));
        let (macs, direction) = (&*tree_edge.macs, tree_edge.outgoing);
        let sender = TransferSender { port, to: route.to, connected, macs, direction, part_bytes };
        self.counters.sent += range.len().div_ceil(part_bytes).max(1) as u64;
        if is_faulty {
            let faults = (&mut self.fault_injector, &mut self.delayed, self.clock.now());
            let (lost, hurt) =
                transfer_packets::send_with_faults(&sender, &header, range, (&self.ports, route.port), faults);
            self.counters.lost_by_plan += lost;
            self.counters.hurt_by_plan += hurt;
            return range.len();
        }
        match sender.send(&header, range, &mut self.transfer_batch) {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            // The link is down or refuses the packets: they are lost, and a timeout or the link monitor reveals it.
            Err(_) => {
                self.counters.unsent += 1;
                range.len()
            }
        }
    }

    /// Opens a connected socket for an edge and path, unless there is one or there are too many.
    fn connect(&mut self, edge: QpNumber, path: PathId) {
        if self.connected.len() >= MAX_CONNECTED_SOCKETS || self.connected.contains_key(&(edge, path)) {
            return;
        }
        let Some(route) = self.edges.get(&edge).and_then(|edge| edge.routes.get(path.index())) else { return };
        // Without it, the port's own socket serves.
        if let Ok(socket) = ConnectedSocket::open(self.ports[route.port.index()].local, route.to) {
            self.connected.insert((edge, path), socket);
        }
    }

    /// Sends an acknowledgement of a transfer over an edge and path.
    pub fn send_transfer_acknowledgement(
        &mut self,
        edge: QpNumber,
        path: PathId,
        header: &TransferHeader,
        missing: &[(u32, u32)],
    ) {
        let Some(tree_edge) = self.edges.get(&edge) else { return };
        let Some(route) = tree_edge.routes.get(path.index()).copied() else { return };
        let header = TransferHeader { destination: tree_edge.remote, ..*header };
        self.scratch.clear();
        transfer::emit_missing(missing, &mut self.scratch);
        let datagram = transfer_packets::encode(&header, &self.scratch, &tree_edge.macs, tree_edge.outgoing);
        self.counters.sent += 1;
        let faults = match self.fault_injector.is_idle() {
            true => None,
            false => Some(self.fault_injector.faults_for(route.port, datagram.len())),
        };
        match faults {
            Some(faults) => {
                self.counters.lost_by_plan += u64::from(faults.lost);
                let to = (route.port, route.to);
                self.delayed.apply(&self.ports, self.clock.now(), to, datagram, &faults);
            }
            None => {
                let (port, connected) = (&self.ports[route.port.index()], self.connected.get(&(edge, path)));
                let (to, macs, direction) = (route.to, &*tree_edge.macs, tree_edge.outgoing);
                let sender = TransferSender { port, to, connected, macs, direction, part_bytes: 0 };
                let sent = sender.send_packets(&datagram, datagram.len());
                self.counters.unsent += u64::from(sent.is_err());
            }
        }
    }

    /// The socket's receive buffer in bytes, the smallest of all ports.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.ports.iter().map(UdpPort::receive_buffer_bytes).min().unwrap_or(0)
    }

    /// From now on, the results of a group arrive at or leave for this multicast address.
    ///
    /// # Errors
    /// If the kernel cannot join the address on the link of the first port.
    pub fn join_multicast(
        &mut self,
        group: GroupId,
        to: SocketAddr,
        key: AuthKey,
        role: MulticastRole,
    ) -> io::Result<()> {
        let macs = self.macs_of(key);
        let joined = self.multicast_groups.join(group, to, macs, role, self.ports[0].local);
        self.release_macs(&key);
        joined
    }

    /// The socket that receives from a multicast address.
    pub fn multicast_socket(&self, at: SocketAddr) -> Option<Arc<MulticastSocket>> {
        self.multicast_groups.multicast_socket(at)
    }

    /// Leaves the multicast address of a group.
    pub fn leave_multicast(&mut self, group: GroupId) {
        if let Some(key) = self.multicast_groups.leave(group) {
            self.release_macs(&key);
        }
    }

    /// Multicasts a message to a group. Drops it if the group has no multicast address.
    pub fn multicast(&mut self, group: GroupId, message: &AggregationMessage, copies: u8) {
        let Some((to, headers, macs)) = self.multicast_groups.next_packet(group) else { return };
        write_message(&mut self.scratch, message, &headers.bth, (&macs, EdgeDirection::MULTICAST));
        for _ in 0..copies {
            self.send((UdpPortIndex(0), to), headers);
        }
    }

    fn send(&mut self, to: (UdpPortIndex, SocketAddr), headers: PacketHeaders) {
        self.counters.sent += 1;
        if !self.fault_injector.is_idle() && self.inject_faults(to, headers) {
            return;
        }
        if let Err(unsent) =
            self.batch.add(&self.ports, to, &headers, self.scratch.as_slice().into(), Coalescing::Allowed)
        {
            self.record_send_error(&unsent);
        }
    }

    /// Applies the fault plan to a packet; true if the plan has disposed of it.
    #[cold]
    fn inject_faults(&mut self, to: (UdpPortIndex, SocketAddr), headers: PacketHeaders) -> bool {
        let whole = Packet::new(headers, &self.scratch);
        let faults = self.fault_injector.faults_for(to.0, whole.size());
        if !faults.is_none() {
            self.counters.lost_by_plan += u64::from(faults.lost);
            self.counters.hurt_by_plan += u64::from(!faults.lost && !faults.flips.is_empty());
            let datagram = encode_datagram(&whole, &self.ports[to.0.index()].outgoing(to.1, 0));
            self.delayed.apply(&self.ports, self.clock.now(), to, datagram, &faults);
        }
        !faults.is_none()
    }

    /// Passes the batch to the kernel.
    pub fn flush(&mut self) {
        if let Err(unsent) = self.batch.flush(&self.ports) {
            self.record_send_error(&unsent);
        }
    }

    /// The machines learn of the loss from their timers or from the link monitor.
    fn record_send_error(&mut self, _: &SocketSendError) {
        self.counters.unsent += 1;
    }

    /// Receives all queued datagrams; true if there were any.
    pub fn receive(&mut self, inputs: &mut Vec<TreeEdgeEvent>) -> bool {
        self.receive_from(ReadySockets::Any, inputs, &mut NoTransfers)
    }

    /// As [`Self::receive`], from the sockets that are known to be ready. Parts of transfers go to `sink` at once.
    pub fn receive_from(
        &mut self,
        ready: ReadySockets<'_>,
        inputs: &mut Vec<TreeEdgeEvent>,
        sink: &mut dyn TransferSink,
    ) -> bool {
        if !self.fault_injector.is_idle() {
            self.apply_faults();
        }
        let mut any = false;
        let mut buffers = self.buffers.take().expect("receiving does not nest");
        // Reading the clock takes time too: most turns of a thread that waits receive nothing, and read it once.
        sink.set_time(self.update_clock());
        for port in 0..self.ports.len() {
            if !ready.includes(self.ports[port].as_fd()) {
                continue;
            }
            for _ in 0..MAX_RECEIVES_PER_PORT {
                let (filled, more) = self.ports[port].receive_likely(&mut buffers);
                let at = UdpPortIndex(port as u8);
                for index in 0..if self.ports[port].is_cut { 0 } else { filled } {
                    self.known_transfer.take_if(|known| !known.comes_from(at, buffers.meta[index].addr));
                    for (from, datagram, number) in buffers.datagrams(index) {
                        if transfer::is_transfer_packet(datagram) {
                            self.handle_transfer(at, from, datagram, sink);
                        } else {
                            self.handle_datagram(at, from, datagram, number, inputs);
                        }
                    }
                }
                any |= filled > 0;
                // What is still queued can wait until this is handled.
                if more != ReceiveBacklog::Likely {
                    break;
                }
            }
        }
        if self.multicast_groups.has_receivers() {
            any |= self.receive_multicast(ready, &mut buffers, inputs);
        }
        self.buffers = Some(buffers);
        if any {
            self.update_clock();
        }
        any
    }

    #[cold]
    fn apply_faults(&mut self) {
        let now = self.clock.now();
        self.fault_injector.apply_outages(&mut self.ports, now);
        self.delayed.release(&self.ports, now);
    }

    /// Receives multicast results.
    fn receive_multicast(
        &mut self,
        ready: ReadySockets<'_>,
        buffers: &mut SocketBuffers,
        inputs: &mut Vec<TreeEdgeEvent>,
    ) -> bool {
        let is_cut = self.ports[0].is_cut;
        let mut any = false;
        let mut take = |multicast_socket: &MulticastSocket, buffers: &SocketBuffers, filled: usize| {
            any |= filled > 0;
            for index in 0..if is_cut { 0 } else { filled } {
                for (from, datagram, number) in buffers.datagrams(index) {
                    let message =
                        if multicast_socket.port().has_valid_icrc(from, datagram, number, IcrcCoverage::Full) {
                            let space = (&mut self.pool, &mut self.decrypted);
                            read_multicast(&self.multicast_groups, multicast_socket.at(), datagram, space)
                        } else {
                            // A damaged packet does not reveal its group. The group requests the result when it is overdue.
                            Err(PacketDrop::Damaged)
                        };
                    match message {
                        Ok((group, message)) => {
                            self.counters.received += 1;
                            inputs.push(TreeEdgeEvent::Multicast { group, message });
                        }
                        Err(reason) => self.counters.note(reason),
                    }
                }
            }
        };
        if let ReadySockets::Taken(received) = ready {
            take(received.multicast_socket, &received.buffers, received.filled);
        }
        for multicast_socket in self
            .multicast_groups
            .receivers()
            .filter(|multicast_socket| ready.includes(multicast_socket.port().as_fd()))
        {
            for _ in 0..MAX_MULTICAST_RECEIVES {
                let filled = multicast_socket.try_receive(buffers);
                take(multicast_socket, buffers, filled);
                if !is_long(buffers, filled) {
                    break;
                }
            }
        }
        any
    }

    #[inline(never)]
    fn handle_datagram(
        &mut self,
        at: UdpPortIndex,
        from: SocketAddr,
        datagram: &[u8],
        number: IpIdentification,
        inputs: &mut Vec<TreeEdgeEvent>,
    ) {
        let packet = rocev2::parse(datagram);
        if !self.ports[at.index()].has_valid_icrc(from, datagram, number, IcrcCoverage::Full) {
            self.counters.damaged += 1;
            // The queue pair number itself may be damaged; then the report reaches another edge, or none.
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
        match self.read(edge, path, &packet) {
            Ok(frame) => {
                self.counters.received += 1;
                let frame_path = FramePath { path, migration: migration_bit(&packet.headers) };
                inputs.push(TreeEdgeEvent::Frame { edge, frame_path, frame });
            }
            Err(reason) => self.counters.note(reason),
        }
    }

    fn handle_transfer(&mut self, at: UdpPortIndex, from: SocketAddr, datagram: &[u8], sink: &mut dyn TransferSink) {
        if !self.known_transfer.as_ref().is_some_and(|known| known.includes(datagram)) {
            self.known_transfer = self.identify_transfer(at, from, datagram);
        }
        let Some(known) = &self.known_transfer else {
            self.counters.foreign += 1;
            return;
        };
        match known.open(datagram, &mut self.decrypted) {
            Ok((header, body)) => {
                let is_intact = match header.kind {
                    TransferPacketKind::Data { .. } => sink.handle_part(known.edge, known.path, &header, body),
                    TransferPacketKind::Acknowledgement { .. } => body.verify().is_some_and(|missing| {
                        sink.handle_acknowledgement(known.edge, known.path, &header, missing);
                        true
                    }),
                };
                if is_intact {
                    self.counters.received += 1;
                } else {
                    self.counters.note(PacketDrop::Damaged);
                }
            }
            Err(reason) => self.counters.note(reason),
        }
    }

    fn identify_transfer(&self, at: UdpPortIndex, from: SocketAddr, datagram: &[u8]) -> Option<KnownTransfer> {
        let edge = transfer::destination_of(datagram)?;
        // Transfers come from connected sockets, whose port number is not known.
        let open = self.edges.get(&edge)?;
        let path = open.routes.iter().position(|route| route.at == at && route.from.ip() == from.ip())?;
        KnownTransfer::new(datagram, (at, from), (edge, PathId(path as u8)), (open.macs.clone(), open.incoming))
    }

    fn path(&self, edge: QpNumber, at: UdpPortIndex, from: SocketAddr) -> Option<PathId> {
        let routes = &self.edges.get(&edge)?.routes;
        let position = routes.iter().position(|route| (route.at, route.from) == (at, from))?;
        Some(PathId(position as u8))
    }

    fn read(
        &mut self,
        edge: QpNumber,
        path: PathId,
        packet: &Packet<'_>,
    ) -> Result<Frame<AggregationMessage>, PacketDrop> {
        let headers = &packet.headers;
        let open = self.edges.get(&edge).ok_or(PacketDrop::Malformed)?;
        let (macs, direction) = (&*open.macs, open.incoming);
        if headers.bth.opcode != Opcode::SendOnly {
            let frame = control_frame(&read_control(packet, (macs, direction))?).ok_or(PacketDrop::Malformed)?;
            if !matches!(frame, Frame::Probe { .. }) {
                open.responses.note(path, self.now);
            }
            return Ok(frame);
        }
        let message = read_message(packet, (|_| Some(macs), direction), (&mut self.pool, &mut self.decrypted))?;
        Ok(Frame::Data { psn: headers.bth.psn, wants_ack: headers.bth.acknowledge, message })
    }

    /// Reads the kernel's list of addresses if the link monitor reports a change.
    pub fn poll_links(&mut self, inputs: &mut Vec<TreeEdgeEvent>) {
        if self.link_monitor.is_some() {
            self.check_link_monitor(inputs);
        }
    }

    /// Not inlined, because of its stack frame: a process with one path calls `poll_links` often and never gets here.
    #[inline(never)]
    fn check_link_monitor(&mut self, inputs: &mut Vec<TreeEdgeEvent>) {
        if !self.link_monitor.as_ref().is_some_and(LinkMonitor::has_changed) {
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
            for (edge, tree_edge) in &self.edges {
                let Some(path) = tree_edge.routes.iter().position(|route| route.port == port) else { continue };
                let (edge, path) = (*edge, PathId(path as u8));
                inputs.push(if is_up {
                    TreeEdgeEvent::PathUp { edge, path }
                } else {
                    TreeEdgeEvent::PathDown { edge, path }
                });
            }
        }
    }

    /// The descriptors to wait on.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ports
            .iter()
            .map(UdpPort::as_fd)
            .chain(self.link_monitor.iter().map(LinkMonitor::as_fd))
            .chain(self.multicast_groups.sockets())
    }

    /// The time until a delayed datagram must be sent.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.delayed.due().map(|at| self.clock.until(at))
    }
}
