//! The endpoint of a process: its sockets and its queue pairs.
//!
//! In: requests of the user; datagrams, link changes and time from the kernel. Out: datagrams, and [`EndpointEvent`]s for
//! the user. There are no threads: [`Endpoint::turn`] does all that can be done now, and waits if asked to.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use protocol::BufferSlice;
use protocol::connection::{AckRequest, Paths};
use protocol::datagram::MULTICAST_QP;
use protocol::queue_pair::{QpAttributes, QpOperation, QueuePair, Transmit};
use units::limits::MAX_PATHS;
use units::{PathId, QpNumber, Time};
use wire::packet_chunk::is_packet_chunk;
use wire::rocev2;
use wire::{IcrcCoverage, PartitionKey, RemoteKey};

use super::counters::EndpointCounters;
use super::datagram_queue_pairs::{DatagramDrop, DatagramQueuePairs};
use super::epoll_set::{EpollSet, WakeSource};
use super::event::{EndpointEvent, QueuePairError};
use super::fault_injector::DelayQueue;
use super::link_monitor::LinkMonitor;
use super::options::EndpointOptions;
use super::packet_protection::{PacketProtection, ProtectionError};
use super::port::{DatagramSpan, RECEIVE_BUFFER_BYTES, ReceiveBacklog, SocketBuffers, UdpPort, UdpPortIndex};
use super::posted_buffers::{PostedSend, ReceivePool};
use super::queue_pair::UdpQueuePair;
use super::queue_pair_setup::QueuePairSetup;
use super::send_batch::{Coalescing, SendBatch};
use crate::Clock;
use crate::timer_queue::TimerQueue;

/// Receive calls on one port in one turn: a busy port does not starve the others.
const RECEIVES_PER_TURN: usize = 16;
/// Timers that fire in one turn: peers get the packets of these before thousands more fire.
const TIMERS_PER_TURN: usize = 64;
/// Turns for which timers wait until all queued datagrams are read.
const MAX_BACKLOG_TURNS: u8 = 8;
/// A port without datagrams for this many turns, while another port had some, is polled only in every
/// `IDLE_CHECK_TURNS`-th turn, as is the link monitor, and no more often than every `IDLE_CHECK_INTERVAL`: the turns of a
/// spinning thread are short.
const IDLE_AFTER_TURNS: u16 = 64;
const IDLE_CHECK_TURNS: u32 = 128;
const IDLE_CHECK_INTERVAL: Duration = Duration::from_micros(500);

/// The sockets and queue pairs of a process.
pub struct Endpoint {
    pub(super) clock: Clock,
    pub(super) ports: Vec<UdpPort>,
    /// Boxed, because the map allocates about twice the entries that it holds.
    pub(super) pairs: BTreeMap<QpNumber, Box<UdpQueuePair>>,
    pub(super) datagrams: DatagramQueuePairs,
    /// The weakest ICRC that one of the queue pairs has agreed to; each of them rejects what is weaker than its own.
    weakest_coverage: IcrcCoverage,
    next_number: u32,
    next_key: u32,
    timers: TimerQueue<QpNumber>,
    link_monitor: Option<LinkMonitor>,
    pub(super) epoll_set: EpollSet,
    pub(super) batch: SendBatch,
    pool: ReceivePool,
    /// Moved out while a port receives.
    buffers: Option<Box<SocketBuffers>>,
    /// The packets that one queue pair's machine wants to send; empty between calls.
    pub(super) outbox: Vec<Transmit>,
    pub(super) events: VecDeque<EndpointEvent>,
    pub(super) options: EndpointOptions,
    pub(super) counters: EndpointCounters,
    turns: u32,
    /// The start of the last turn, or its last receive.
    now: Time,
    /// When the endpoint last polled all ports and the link monitor.
    checked_all_at: Instant,
    /// Turns in a row that left datagrams unread.
    backlog_turns: u8,
    /// Paths that a connection left after a timeout, and when the others last learned of such paths.
    pub(super) suspects: Vec<(UdpPortIndex, SocketAddr)>,
    pub(super) suspected_at: Time,
    /// Datagrams that the fault plan delays.
    pub(super) delayed: DelayQueue,
}

impl Endpoint {
    /// Opens a socket at each address.
    ///
    /// # Errors
    /// If the kernel does not bind an address, or there are more than [`MAX_PATHS`].
    pub fn open(addresses: &[SocketAddr], options: EndpointOptions) -> io::Result<Self> {
        if addresses.len() > MAX_PATHS {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("an endpoint has at most {MAX_PATHS} addresses"),
            ));
        }
        let ports = addresses
            .iter()
            .map(|address| UdpPort::open(*address, options.receive_mode))
            .collect::<io::Result<Vec<_>>>()?;
        // Without the monitor, only timeouts reveal a lost link.
        let link_monitor = LinkMonitor::new().ok();
        let epoll_set = EpollSet::new()?;
        for (index, port) in ports.iter().enumerate() {
            epoll_set.add_port(index, port.as_fd())?;
        }
        if let Some(link_monitor) = &link_monitor {
            epoll_set.add_links(link_monitor.as_fd())?;
        }
        Ok(Self {
            clock: Clock::new(),
            ports,
            pairs: BTreeMap::new(),
            datagrams: DatagramQueuePairs::default(),
            weakest_coverage: IcrcCoverage::Full,
            next_number: 0x10,
            next_key: 1,
            timers: TimerQueue::default(),
            link_monitor,
            epoll_set,
            batch: SendBatch::new(),
            pool: ReceivePool::default(),
            buffers: Some(Box::default()),
            outbox: Vec::new(),
            events: VecDeque::new(),
            options,
            counters: EndpointCounters::default(),
            turns: 0,
            now: Time::ZERO,
            checked_all_at: Instant::now(),
            backlog_turns: 0,
            suspects: Vec::new(),
            suspected_at: Time::ZERO,
            delayed: DelayQueue::default(),
        })
    }

    /// The bound addresses of its ports.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(|port| port.local).collect()
    }

    /// What it has counted so far.
    pub fn counters(&self) -> EndpointCounters {
        self.counters
    }

    /// The start of the last turn, or its last receive.
    pub fn now(&self) -> Time {
        self.now
    }

    /// A descriptor that is readable while a datagram or a change of links waits.
    pub fn wait_descriptor(&self) -> BorrowedFd<'_> {
        self.epoll_set.as_fd()
    }

    /// The clock of its machines.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Creates a queue pair in state INIT: receives may be posted.
    pub fn create(&mut self) -> QpNumber {
        let number = self.next_number();
        self.pairs.insert(number, Box::new(UdpQueuePair::new(number)));
        number
    }

    pub(super) fn next_number(&mut self) -> QpNumber {
        // Numbers wrap after sixteen million; zero and one belong to management, the last to multicast.
        loop {
            self.next_number = (self.next_number + 1) % MULTICAST_QP.0;
            let number = QpNumber(self.next_number);
            if number.0 > 1 && !self.pairs.contains_key(&number) && !self.datagrams.contains(number) {
                return number;
            }
        }
    }

    /// Connects a queue pair: it then receives and sends.
    ///
    /// # Errors
    /// If the attributes are invalid, or it is already connected.
    pub fn connect(&mut self, number: QpNumber, setup: QueuePairSetup) -> Result<(), QueuePairError> {
        setup.check(self.ports.len())?;
        let now = self.clock.now();
        let local_ports: Vec<u16> = self.ports.iter().map(|port| port.local.port()).collect();
        let coverage = setup.effective_coverage(&local_ports);
        let pair = self.pairs.get_mut(&number).ok_or(QueuePairError::Unknown(number))?;
        let paths =
            (setup.routes.len() > 1).then(|| Paths::new(setup.path_policy, setup.role, setup.routes.len(), now));
        let contract = QpAttributes {
            remote: setup.remote,
            send_psn: setup.send_psn,
            receive_psn: setup.receive_psn,
            mtu: setup.mtu,
            coverage,
            partition: PartitionKey::DEFAULT,
            policy: setup.policy,
        };
        pair.machine.connect(contract, paths).map_err(QueuePairError::Move)?;
        pair.machine.open().map_err(QueuePairError::Move)?;
        if !coverage.covers_at_least(self.weakest_coverage) {
            self.weakest_coverage = coverage;
        }
        pair.protection = PacketProtection::new(&setup.security, (number, setup.remote), setup.role).map(Box::new);
        pair.long_packets = setup.may_be_cut(&local_ports).then(Box::default);
        pair.routes = setup.routes;
        pair.coalescing = if setup.verbs_peer { Coalescing::Forbidden } else { Coalescing::Allowed };
        self.update_timer(number);
        Ok(())
    }

    /// Destroys a queue pair. Its posted buffers are dropped.
    pub fn destroy(&mut self, number: QpNumber) {
        if self.pairs.remove(&number).is_some() {
            self.timers.cancel(number);
        }
    }

    /// Registers a region that the peer of a queue pair may write to; returns the key for the peer.
    pub fn register(&mut self, number: QpNumber, region: Vec<u8>) -> Result<RemoteKey, QueuePairError> {
        let key = self.next_key;
        let pair = self.pairs.get_mut(&number).ok_or(QueuePairError::Unknown(number))?;
        pair.memory.regions.insert(key, region);
        self.next_key += 1;
        Ok(RemoteKey(key))
    }

    /// The contents of a region.
    pub fn region(&self, number: QpNumber, key: RemoteKey) -> Option<&[u8]> {
        Some(self.pairs.get(&number)?.memory.regions.get(&key.0)?)
    }

    /// The protocol machine of a queue pair, for queries.
    pub fn machine(&self, number: QpNumber) -> Option<&QueuePair> {
        self.pairs.get(&number).map(|pair| &pair.machine)
    }

    /// Posts a buffer for the next message; returns the id that the event carries. A buffer of [`RECEIVE_BUFFER_BYTES`]
    /// saves a copy where a message fits into one packet: a buffer of the same length returns.
    ///
    /// [`RECEIVE_BUFFER_BYTES`]: super::RECEIVE_BUFFER_BYTES
    pub fn post_receive(&mut self, number: QpNumber, buffer: Vec<u8>) -> Result<u64, QueuePairError> {
        let pair = self.pairs.get_mut(&number).ok_or(QueuePairError::Unknown(number))?;
        let id = pair.memory.receives.next_id();
        let length = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        pair.machine.post_receive(id, length).map_err(QueuePairError::Post)?;
        pair.memory.post(buffer, pair.machine.is_receiving());
        Ok(id)
    }

    /// As [`Self::post_receive`], for [`RECEIVE_BUFFER_BYTES`] that come from a pool of the endpoint when a message arrives:
    /// [`Self::release`] returns them. A queue pair on which nothing arrives needs no memory for them.
    ///
    /// [`RECEIVE_BUFFER_BYTES`]: super::RECEIVE_BUFFER_BYTES
    pub fn post_pooled_receive(&mut self, number: QpNumber) -> Result<u64, QueuePairError> {
        let pair = self.pairs.get_mut(&number).ok_or(QueuePairError::Unknown(number))?;
        let id = pair.memory.receives.next_id();
        pair.machine.post_receive(id, RECEIVE_BUFFER_BYTES as u32).map_err(QueuePairError::Post)?;
        pair.memory.post_pooled();
        Ok(id)
    }

    /// Takes back the buffer of a message that [`Self::post_pooled_receive`] received.
    pub fn release(&mut self, buffer: Vec<u8>) {
        self.pool.give_back(buffer);
    }

    /// Posts a send or a write; returns the id that the event carries, together with the buffer.
    pub fn post_send(
        &mut self,
        number: QpNumber,
        buffer: Vec<u8>,
        operation: QpOperation,
    ) -> Result<u64, QueuePairError> {
        self.post(number, PostedSend { head: buffer, body: None }, operation, AckRequest::Periodic)
    }

    /// As [`Self::post_send`], with a borrowed slice behind the buffer. The endpoint holds the slice until the event; `ask`
    /// says how soon the peer acknowledges.
    pub fn post_send_borrowed(
        &mut self,
        number: QpNumber,
        (buffer, body): (Vec<u8>, BufferSlice),
        operation: QpOperation,
        ask: AckRequest,
    ) -> Result<u64, QueuePairError> {
        self.post(number, PostedSend { head: buffer, body: Some(body) }, operation, ask)
    }

    fn post(
        &mut self,
        number: QpNumber,
        sending: PostedSend,
        operation: QpOperation,
        ask: AckRequest,
    ) -> Result<u64, QueuePairError> {
        let now = self.clock.now();
        let pair = self.pairs.get_mut(&number).ok_or(QueuePairError::Unknown(number))?;
        let id = pair.sends.next_id();
        let length = u32::try_from(sending.len()).unwrap_or(u32::MAX);
        pair.sends.push(sending);
        let mut outbox = std::mem::take(&mut self.outbox);
        let out = &mut |packet| outbox.push(packet);
        if let Err(error) = pair.machine.post_send_with_ack(now, (id, length, operation), ask, out) {
            pair.sends.pop_back();
            self.outbox = outbox;
            return Err(QueuePairError::Post(error));
        }
        self.carry_out(number, outbox);
        self.flush();
        Ok(id)
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<EndpointEvent> {
        self.events.pop_front()
    }

    /// Does all that can be done now. With no event to report, waits for at most `wait`: spins first, then sleeps.
    ///
    /// # Errors
    /// If the system call that waits fails.
    pub fn turn(&mut self, wait: Duration) -> io::Result<()> {
        let busy = self.turn_once();
        if busy || !self.events.is_empty() || wait.is_zero() {
            return Ok(());
        }
        let began = self.now;
        let waited = |now: Time| Duration::from_nanos(now.since(began).as_nanos());
        while waited(self.now) < self.options.spin.min(wait) {
            if self.turn_once() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.sleep(wait.saturating_sub(waited(self.now)))?;
        self.turn_once();
        Ok(())
    }

    /// True if a packet arrived or a timer fired.
    fn turn_once(&mut self) -> bool {
        let mut busy = false;
        self.turns = self.turns.wrapping_add(1);
        if !self.options.fault_injector.is_idle() {
            let now = self.clock.now();
            self.options.fault_injector.apply_outages(&mut self.ports, now);
            self.delayed.release(&self.ports, now);
        }
        let check_all =
            self.turns.is_multiple_of(IDLE_CHECK_TURNS) && self.checked_all_at.elapsed() >= IDLE_CHECK_INTERVAL;
        if check_all {
            self.checked_all_at = Instant::now();
        }
        // Read all queued datagrams before a timer fires: the reply may already be in the socket.
        self.now = self.clock.now();
        let is_due = self.timers.earliest() <= self.now;
        let mut all_read = true;
        // An empty receive call costs a tenth of a round trip: poll idle ports seldom, unless all are idle.
        let ask_all = check_all || is_due || self.ports.iter().all(|port| port.idle_turns >= IDLE_AFTER_TURNS);
        for index in 0..self.ports.len() {
            if ask_all || self.ports[index].idle_turns < IDLE_AFTER_TURNS {
                let (came, read) = self.receive(UdpPortIndex(index as u8));
                let idle_turns = &mut self.ports[index].idle_turns;
                *idle_turns = if came { 0 } else { idle_turns.saturating_add(1) };
                busy |= came;
                all_read &= read;
            }
        }
        self.backlog_turns = if all_read { 0 } else { self.backlog_turns.saturating_add(1) };
        if is_due {
            let waits = (1..MAX_BACKLOG_TURNS).contains(&self.backlog_turns);
            busy |= waits || self.fire_timers();
        }
        self.share_suspicions();
        if check_all && self.link_monitor.as_ref().is_some_and(LinkMonitor::has_changed) {
            self.poll_links();
            busy = true;
        }
        self.flush();
        busy
    }

    /// Sleeps until a datagram arrives, a timer is due or the time is up.
    fn sleep(&mut self, wait: Duration) -> io::Result<()> {
        let timer = self.clock.until(self.timers.earliest());
        let timer = self.delayed.due().map_or(timer, |at| timer.min(self.clock.until(at)));
        let Self { epoll_set, ports, turns, .. } = self;
        // The next turn polls only the ports that ended the sleep.
        epoll_set.sleep(timer.min(wait), |woken| match woken {
            WakeSource::Port(index) => ports[index].idle_turns = 0,
            WakeSource::Links => *turns = u32::MAX,
        })
    }

    /// Whether anything arrived, and whether the port is drained.
    fn receive(&mut self, port: UdpPortIndex) -> (bool, bool) {
        let (mut any, mut all) = (false, false);
        let mut buffers = self.buffers.take().expect("receiving does not nest");
        for _ in 0..RECEIVES_PER_TURN {
            let (filled, more) = self.ports[port.index()].receive_likely(&mut buffers);
            if filled > 0 {
                self.now = self.clock.now(); // Of all packets that arrived together: reading the clock for each costs a tenth of handling it.
            }
            for index in 0..if self.ports[port.index()].is_cut { 0 } else { filled } {
                let from = buffers.meta[index].addr;
                for span in buffers.spans(index) {
                    self.handle_datagram((port, from), &mut buffers.bytes[index], &span);
                }
            }
            any |= filled > 0;
            // The user may answer these events with receives: peers should not get a receiver-not-ready reply meanwhile.
            if more != ReceiveBacklog::Likely || !self.events.is_empty() {
                all = more == ReceiveBacklog::No;
                break;
            }
            self.flush();
        }
        self.buffers = Some(buffers);
        (any, all)
    }

    fn handle_datagram(&mut self, from: (UdpPortIndex, SocketAddr), bytes: &mut Vec<u8>, span: &DatagramSpan) {
        let datagram = &bytes[span.bytes.clone()];
        if is_packet_chunk(datagram) {
            self.handle_chunk(from, datagram);
        } else {
            self.handle_packet(from, bytes, span);
        }
    }

    /// Verifies a packet and passes it to its queue pair.
    pub(super) fn handle_packet(
        &mut self,
        (at, from): (UdpPortIndex, SocketAddr),
        bytes: &mut Vec<u8>,
        span: &DatagramSpan,
    ) {
        let datagram = &bytes[span.bytes.clone()];
        let weakest = self.weakest_coverage;
        if !self.ports[at.index()].has_valid_icrc(from, datagram, span.number, weakest) {
            self.counters.damaged += 1;
            return self.report_damage(at, from);
        }
        let Ok(packet) = rocev2::parse_at_least(datagram, weakest) else {
            self.counters.malformed += 1;
            return;
        };
        if packet.headers.deth.is_some() {
            match self.datagrams.deliver(at, from, &packet, &mut self.events) {
                Ok(()) => self.counters.received += 1,
                Err(DatagramDrop::Foreign) => self.counters.foreign += 1,
                Err(DatagramDrop::NoBuffer) => self.counters.no_buffer += 1,
            }
            return;
        }
        let number = packet.headers.bth.destination;
        let found = self.pairs.get_mut(&number).and_then(|pair| pair.path(at, from).map(|path| (pair, path)));
        let Some((pair, path)) = found else {
            self.counters.foreign += 1;
            return;
        };
        let UdpQueuePair { machine, memory, last_path, protection, .. } = &mut **pair;
        let (outer, start) = (packet.headers, span.bytes.start + packet.headers.size());
        let carried = start..start + packet.payload.len();
        let (headers, payload) = match protection {
            None => (outer, carried),
            Some(protection) => match protection.open_carried(&outer, &mut bytes[carried.clone()]) {
                Ok((headers, length)) => (headers, carried.end - length..carried.end),
                Err(error) => return self.note_protection_error(error, (number, path), outer.bth.coverage),
            },
        };
        self.counters.received += 1;
        let now = self.now;
        let mut outbox = std::mem::take(&mut self.outbox);
        *last_path = path;
        // A long message is not copied, unless other datagrams follow in the same buffer.
        let opcode = headers.bth.opcode;
        let is_whole = opcode.begins_message() && opcode.ends_message();
        if is_whole && span.is_last && span.bytes.len() > bytes.len() / 2 {
            memory.offer(&bytes[payload.clone()]);
        }
        let start = payload.start;
        memory.swap_pool(&mut self.pool);
        machine.handle_packet(now, path, &headers, &bytes[payload], memory, &mut |packet| outbox.push(packet));
        memory.exchange(bytes, start);
        memory.swap_pool(&mut self.pool);
        self.carry_out(number, outbox);
    }

    /// A packet without a right MAC may be a damaged one: where the ICRC covers its beginning alone, nothing else finds that out.
    #[cold]
    fn note_protection_error(
        &mut self,
        error: ProtectionError,
        (number, path): (QpNumber, PathId),
        coverage: IcrcCoverage,
    ) {
        match error {
            ProtectionError::Forged => {
                self.counters.forged += 1;
                if coverage != IcrcCoverage::Full {
                    self.report_corruption(number, path);
                }
            }
            ProtectionError::Unprotected => self.counters.forged += 1,
            ProtectionError::Replayed => self.counters.replayed += 1,
            ProtectionError::Malformed => self.counters.malformed += 1,
        }
    }

    fn fire_timers(&mut self) -> bool {
        let began = self.clock.now();
        let mut fired = 0;
        while fired < TIMERS_PER_TURN
            && let Some(number) = self.timers.pop_expired(began)
        {
            let Some(pair) = self.pairs.get_mut(&number) else { continue };
            pair.timer = Time::NEVER;
            fired += 1;
            // Handling the timers takes time: read the clock for each, so that the last one does not send with an old time.
            let now = self.clock.now();
            let mut outbox = std::mem::take(&mut self.outbox);
            pair.machine.handle_timeout(now, &mut |packet| outbox.push(packet));
            if let Some(long) = &mut pair.long_packets {
                long.note_timeouts(now, pair.machine.connection().timeouts());
            }
            self.carry_out(number, outbox);
        }
        fired > 0
    }

    /// Arms the timer of a queue pair if its deadline is earlier than the armed one.
    pub(super) fn update_timer(&mut self, number: QpNumber) {
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        if let Some(deadline) = pair.machine.deadline()
            && deadline < pair.timer
        {
            self.timers.set(number, deadline);
            pair.timer = deadline;
        }
    }
}
