//! The endpoint of a process: its sockets and its queue pairs, turned by whoever waits for something.
//!
//! In: orders from the user; datagrams, link changes and time from the kernel. Out: datagrams, and [`EndpointEvent`]s for the
//! user. There are no threads: [`Endpoint::turn`] does everything that can be done now, and waits if asked to.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use protocol::BufferSlice;
use protocol::connection::path::{MigrationCause, PathEvent, PathState};
use protocol::connection::{AckRequest, Paths};
use protocol::datagram::MULTICAST_QP;
use protocol::queue_pair::{QpAttributes, QpOperation, QueuePair, Transmit, WorkCompletion};
use units::limits::MAX_PATHS;
use units::{PathId, QpNumber, Span, Time};
use wire::rocev2;
use wire::{Packet, PacketHeaders, PartitionKey, RemoteKey};

use super::datagram_queue_pairs::{DatagramDrop, DatagramQueuePairs};
use super::epoll_set::{EpollSet, WakeSource};
use super::fault_injector::{DelayQueue, encode_datagram};
use super::link_monitor::{LinkMonitor, live_addresses};
use super::options::{EndpointCounters, EndpointOptions, LinkCut};
use super::port::{DatagramSpan, ReceiveBacklog, SocketBuffers, UdpPort, UdpPortIndex};
use super::queue_pair::{
    EndpointEvent, PostedReceive, PostedSend, QueuePairError, QueuePairSetup, SendSlice, UdpQueuePair,
};
use super::queue_pair_timers::QueuePairTimers;
use super::send_batch::{Coalescing, SendBatch, SocketSendError};
use crate::Clock;

/// Receive calls on one port in one turn, so that one busy port does not starve the others.
const RECEIVES_PER_TURN: usize = 16;
/// Alarms that go off in one turn, so that what they bring about is answered before thousands more go off.
const ALARMS_PER_TURN: usize = 64;
/// Turns for which alarms wait until everything that has come is read.
const READING_TURNS: u8 = 8;
/// A port that brought nothing in so many turns, while another did, is asked only in every `IDLE_TURNS`-th, as is the kernel's news of
/// links, and no oftener than every `IDLE_PAUSE`: turns are short where somebody waits awake.
const IDLE_AFTER: u16 = 64;
const IDLE_TURNS: u32 = 128;
const IDLE_PAUSE: Duration = Duration::from_micros(500);
/// Suspicions are spread no more often than this.
const SUSPICION: Span = Span::from_micros(50_000);
/// What is told of a path.
#[derive(Clone, Copy)]
enum PathObservation {
    Damaged,
    Down,
    Up,
    /// Another connection has left it because of silence.
    Suspect,
}

/// The endpoint of a process.
pub struct Endpoint {
    pub(super) clock: Clock,
    pub(super) ports: Vec<UdpPort>,
    /// Boxed, since the map has room for about twice as many as it holds.
    pairs: BTreeMap<QpNumber, Box<UdpQueuePair>>,
    pub(super) datagrams: DatagramQueuePairs,
    next_number: u32,
    next_key: u32,
    alarms: QueuePairTimers,
    watch: Option<LinkMonitor>,
    pub(super) bed: EpollSet,
    batch: SendBatch,
    /// Lent to whoever receives.
    buffers: Option<Box<SocketBuffers>>,
    /// What the machine of one queue pair asks to be transmitted, until it is.
    outbox: Vec<Transmit>,
    events: VecDeque<EndpointEvent>,
    pub(super) options: EndpointOptions,
    counters: EndpointCounters,
    turns: u32,
    /// When the last turn began.
    now: Time,
    /// When all ports and the kernel's news were last looked at.
    looked_at: Instant,
    /// Turns in a row in which not everything was read that had come.
    reading: u8,
    /// Paths that a connection has left because of silence, and when others were last told.
    suspects: Vec<(UdpPortIndex, SocketAddr)>,
    suspected_at: Time,
    /// Datagrams that the plan of faults delays.
    held_back: DelayQueue,
}

impl Endpoint {
    /// Opens a socket at each address.
    ///
    /// # Errors
    /// If an address cannot be had.
    pub fn open(addresses: &[SocketAddr], options: EndpointOptions) -> io::Result<Self> {
        if addresses.len() > MAX_PATHS {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("at most {MAX_PATHS} addresses")));
        }
        let ports = addresses
            .iter()
            .map(|address| UdpPort::open(*address, options.reception))
            .collect::<io::Result<Vec<_>>>()?;
        // Without it cuts are noticed by silence only.
        let watch = LinkMonitor::new().ok();
        let bed = EpollSet::new()?;
        for (index, port) in ports.iter().enumerate() {
            bed.add_port(index, port.as_fd())?;
        }
        if let Some(watch) = &watch {
            bed.add_links(watch.as_fd())?;
        }
        Ok(Self {
            clock: Clock::new(),
            ports,
            pairs: BTreeMap::new(),
            datagrams: DatagramQueuePairs::default(),
            next_number: 0x10,
            next_key: 1,
            alarms: QueuePairTimers::default(),
            watch,
            bed,
            batch: SendBatch::new(),
            buffers: Some(Box::default()),
            outbox: Vec::new(),
            events: VecDeque::new(),
            options,
            counters: EndpointCounters::default(),
            turns: 0,
            now: Time::ZERO,
            looked_at: Instant::now(),
            reading: 0,
            suspects: Vec::new(),
            suspected_at: Time::ZERO,
            held_back: DelayQueue::default(),
        })
    }

    /// The addresses of its ports, as bound.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(|port| port.local).collect()
    }

    /// What it has seen so far.
    pub fn counters(&self) -> EndpointCounters {
        self.counters
    }

    /// About what time it is: when the last turn began.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Its clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Makes a queue pair in state INIT: receives may be posted.
    pub fn create(&mut self) -> QpNumber {
        let number = self.next_number();
        self.pairs.insert(number, Box::new(UdpQueuePair::new(number)));
        number
    }

    pub(super) fn next_number(&mut self) -> QpNumber {
        // Numbers come round after sixteen million; zero and one belong to management, the last to multicast.
        loop {
            self.next_number = (self.next_number + 1) % MULTICAST_QP.0;
            let number = QpNumber(self.next_number);
            if number.0 > 1 && !self.pairs.contains_key(&number) && !self.datagrams.contains(number) {
                return number;
            }
        }
    }

    /// Connects it: from now on it takes packets and may send.
    ///
    /// # Errors
    /// If the set-up cannot be, or it is connected already.
    pub fn connect(&mut self, number: QpNumber, setup: QueuePairSetup) -> Result<(), QueuePairError> {
        setup.check(self.ports.len())?;
        let now = self.clock.now();
        let pair = self.pairs.get_mut(&number).ok_or(QueuePairError::Unknown(number))?;
        let paths =
            (setup.routes.len() > 1).then(|| Paths::new(setup.path_policy, setup.role, setup.routes.len(), now));
        let contract = QpAttributes {
            remote: setup.remote,
            send_psn: setup.send_psn,
            receive_psn: setup.receive_psn,
            mtu: setup.mtu,
            coverage: setup.coverage,
            partition: PartitionKey::DEFAULT,
            policy: setup.policy,
        };
        pair.machine.connect(contract, paths).map_err(QueuePairError::Move)?;
        pair.machine.open().map_err(QueuePairError::Move)?;
        pair.routes = setup.routes;
        pair.gathering = if setup.verbs_peer { Coalescing::Forbidden } else { Coalescing::Allowed };
        self.look_at_alarm(number);
        Ok(())
    }

    /// Removes a queue pair. Nothing that was posted comes back.
    pub fn destroy(&mut self, number: QpNumber) {
        if let Some(pair) = self.pairs.remove(&number) {
            self.alarms.clear(number, pair.alarm);
        }
    }

    /// Lets the other end of a queue pair write to a region; the key to give to it.
    pub fn register(&mut self, number: QpNumber, region: Vec<u8>) -> Result<RemoteKey, QueuePairError> {
        let key = self.next_key;
        let pair = self.pairs.get_mut(&number).ok_or(QueuePairError::Unknown(number))?;
        pair.stores.regions.insert(key, region);
        self.next_key += 1;
        Ok(RemoteKey(key))
    }

    /// A region, to read.
    pub fn region(&self, number: QpNumber, key: RemoteKey) -> Option<&[u8]> {
        Some(self.pairs.get(&number)?.stores.regions.get(&key.0)?)
    }

    /// The machine of a queue pair, to ask it things.
    pub fn machine(&self, number: QpNumber) -> Option<&QueuePair> {
        self.pairs.get(&number).map(|pair| &pair.machine)
    }

    /// The state of a queue pair's paths; none if it has but one.
    pub fn path_state(&self, number: QpNumber) -> Option<(PathState, PathId)> {
        let paths = self.pairs.get(&number)?.machine.connection().paths()?;
        Some((paths.state(), paths.current()))
    }

    /// Posts a buffer for the next message; its number comes back with the event. Those of [`RECEIVE_BYTES`] cost no copy where a
    /// message comes in one packet: a buffer like it comes back.
    ///
    /// [`RECEIVE_BYTES`]: super::RECEIVE_BYTES
    pub fn post_receive(&mut self, number: QpNumber, buffer: Vec<u8>) -> Result<u64, QueuePairError> {
        let pair = self.pairs.get_mut(&number).ok_or(QueuePairError::Unknown(number))?;
        let id = pair.stores.receives.next_id();
        let length = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        pair.machine.post_receive(id, length).map_err(QueuePairError::Post)?;
        pair.stores.post(buffer, pair.machine.is_receiving());
        Ok(id)
    }

    /// Posts a send or a write; its number comes back with the event, and the buffer with it.
    pub fn post_send(
        &mut self,
        number: QpNumber,
        buffer: Vec<u8>,
        operation: QpOperation,
    ) -> Result<u64, QueuePairError> {
        self.post(number, PostedSend { head: buffer, body: None }, operation, AckRequest::InTurn)
    }

    /// The same with bytes that are lent behind those of the buffer; they are held until the event. Whoever wants that soon, asks now.
    pub fn post_send_lent(
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
        if let Err(error) = pair.machine.post_send_asking(now, (id, length, operation), ask, out) {
            pair.sends.pop_back();
            self.outbox = outbox;
            return Err(QueuePairError::Post(error));
        }
        self.carry_out(number, outbox);
        self.flush();
        Ok(id)
    }

    /// Loads an alternate path; [`EndpointEvent::Path`] tells when it is armed.
    pub fn load_path(&mut self, number: QpNumber, path: PathId) -> Result<(), QueuePairError> {
        let now = self.clock.now();
        let pair = self.pairs.get_mut(&number).ok_or(QueuePairError::Unknown(number))?;
        pair.machine.load_path(now, path).map_err(QueuePairError::Load)?;
        self.look_at_alarm(number);
        Ok(())
    }

    /// Loads an alternate path of each of several queue pairs (PM-2). Each tells by an event of its own when it is armed;
    /// those that cannot load it come back with the reason, and the others are under way.
    pub fn load_paths(&mut self, numbers: &[QpNumber], path: PathId) -> Vec<(QpNumber, QueuePairError)> {
        let refused = |number: &QpNumber| Some((*number, self.load_path(*number, path).err()?));
        numbers.iter().filter_map(refused).collect()
    }

    /// Moves traffic to the armed alternate.
    pub fn migrate(&mut self, number: QpNumber) -> Result<(), QueuePairError> {
        let now = self.clock.now();
        let pair = self.pairs.get_mut(&number).ok_or(QueuePairError::Unknown(number))?;
        let mut outbox = std::mem::take(&mut self.outbox);
        let migrated = pair.machine.migrate(now, &mut |packet| outbox.push(packet)).map_err(QueuePairError::Migrate);
        self.carry_out(number, outbox);
        self.flush();
        migrated
    }

    /// Cuts a port as a pulled cable would, for tests and benchmarks: nothing goes out or comes in by it. Whether the kernel
    /// would notice is up to `cut`.
    pub fn cut(&mut self, port: UdpPortIndex, cut: LinkCut) {
        self.ports[port.index()].is_cut = true;
        if cut == LinkCut::Noticed {
            self.tell_users_of(port, PathObservation::Down);
            self.flush();
        }
    }

    /// Mends a port that was cut.
    pub fn mend(&mut self, port: UdpPortIndex, cut: LinkCut) {
        self.ports[port.index()].is_cut = false;
        if cut == LinkCut::Noticed {
            self.tell_users_of(port, PathObservation::Up);
            self.flush();
        }
    }

    /// What has happened, one thing at a time.
    pub fn next_event(&mut self) -> Option<EndpointEvent> {
        self.events.pop_front()
    }

    /// Does everything that can be done now. With nothing to tell, waits for at most `wait`: first awake, then asleep.
    ///
    /// # Errors
    /// If the kernel cannot wait on the sockets.
    pub fn turn(&mut self, wait: Duration) -> io::Result<()> {
        let busy = self.turn_once();
        if busy || !self.events.is_empty() || wait.is_zero() {
            return Ok(());
        }
        let began = self.now;
        let waited = |now: Time| Duration::from_nanos(now.since(began).as_picos() / 1_000);
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

    /// True if a packet came or an alarm went off.
    fn turn_once(&mut self) -> bool {
        let mut busy = false;
        self.turns = self.turns.wrapping_add(1);
        if !self.options.mischief.is_idle() {
            let now = self.clock.now();
            self.options.mischief.cut_and_mend(&mut self.ports, now);
            self.held_back.release(&self.ports, now);
        }
        let look_at_all = self.turns.is_multiple_of(IDLE_TURNS) && self.looked_at.elapsed() >= IDLE_PAUSE;
        if look_at_all {
            self.looked_at = Instant::now();
        }
        // Whatever has come is read before an alarm goes off: a late look at the answer makes no late answer.
        self.now = self.clock.now();
        let is_due = self.alarms.earliest() <= self.now;
        let mut all_read = true;
        // A call for nothing costs a tenth of a round trip: ports that were silent of late are asked now and then, unless all were.
        let ask_all = look_at_all || is_due || self.ports.iter().all(|port| port.silence >= IDLE_AFTER);
        for index in 0..self.ports.len() {
            if ask_all || self.ports[index].silence < IDLE_AFTER {
                let (came, read) = self.receive(UdpPortIndex(index as u8));
                let silence = &mut self.ports[index].silence;
                *silence = if came { 0 } else { silence.saturating_add(1) };
                busy |= came;
                all_read &= read;
            }
        }
        self.reading = if all_read { 0 } else { self.reading.saturating_add(1) };
        if is_due {
            let waits = (1..READING_TURNS).contains(&self.reading);
            busy |= waits || self.ring_alarms();
        }
        self.spread_suspicion();
        if look_at_all && self.watch.as_ref().is_some_and(LinkMonitor::has_changed) {
            self.look_at_links();
            busy = true;
        }
        self.flush();
        busy
    }

    /// Sleeps until something comes, an alarm goes off or the time is up.
    fn sleep(&mut self, wait: Duration) -> io::Result<()> {
        let alarm = self.clock.until(self.alarms.earliest());
        let alarm = self.held_back.due().map_or(alarm, |at| alarm.min(self.clock.until(at)));
        let Self { bed, ports, turns, .. } = self;
        // Whatever woke us is asked in the next turn; the others need not be.
        bed.sleep(alarm.min(wait), |woken| match woken {
            WakeSource::Port(index) => ports[index].silence = 0,
            WakeSource::Links => *turns = u32::MAX,
        })
    }

    /// Whether anything came, and whether that was all.
    fn receive(&mut self, port: UdpPortIndex) -> (bool, bool) {
        let (mut any, mut all) = (false, false);
        let mut buffers = self.buffers.take().expect("receiving does not nest");
        for _ in 0..RECEIVES_PER_TURN {
            let (filled, more) = self.ports[port.index()].receive_likely(&mut buffers);
            for index in 0..if self.ports[port.index()].is_cut { 0 } else { filled } {
                let from = buffers.meta[index].addr;
                for place in buffers.places(index) {
                    self.take((port, from), &mut buffers.bytes[index], &place);
                }
            }
            any |= filled > 0;
            // Who has something to hear may have receives to post: nobody should be told that there are none.
            if more != ReceiveBacklog::Likely || !self.events.is_empty() {
                all = more == ReceiveBacklog::No;
                break;
            }
            self.flush();
        }
        self.buffers = Some(buffers);
        (any, all)
    }

    /// Checks a datagram and gives it to its queue pair.
    fn take(&mut self, (at, from): (UdpPortIndex, SocketAddr), bytes: &mut Vec<u8>, place: &DatagramSpan) {
        let datagram = &bytes[place.bytes.clone()];
        if !self.ports[at.index()].is_sound(from, datagram, place.number) {
            self.counters.damaged += 1;
            return self.report_damage(at, from);
        }
        let Ok(packet) = rocev2::parse(datagram) else {
            self.counters.malformed += 1;
            return;
        };
        if packet.headers.deth.is_some() {
            match self.datagrams.take(at, from, &packet, &mut self.events) {
                Ok(()) => self.counters.received += 1,
                Err(DatagramDrop::Foreign) => self.counters.foreign += 1,
                Err(DatagramDrop::Unbuffered) => self.counters.unbuffered += 1,
            }
            return;
        }
        let number = packet.headers.bth.destination;
        let found = self.pairs.get_mut(&number).and_then(|pair| pair.path(at, from).map(|path| (pair, path)));
        let Some((pair, path)) = found else {
            self.counters.foreign += 1;
            return;
        };
        self.counters.received += 1;
        let now = self.clock.now();
        let mut outbox = std::mem::take(&mut self.outbox);
        let UdpQueuePair { machine, stores, came_by, .. } = &mut **pair;
        *came_by = path;
        // A long one is not copied, unless others are to be read behind it.
        let opcode = packet.headers.bth.opcode;
        let is_whole = opcode.begins_message() && opcode.ends_message();
        if is_whole && place.is_last && datagram.len() > bytes.len() / 2 {
            stores.offer(packet.payload);
        }
        let start = place.bytes.start + packet.headers.size();
        machine.handle_packet(now, path, &packet.headers, packet.payload, stores, &mut |packet| outbox.push(packet));
        stores.exchange(bytes, start);
        self.carry_out(number, outbox);
    }

    /// Nothing in a damaged packet can be believed but where it came from.
    fn report_damage(&mut self, at: UdpPortIndex, from: SocketAddr) {
        self.tell_paths(PathObservation::Damaged, |pair| pair.path(at, from));
    }

    /// What came over a path of a queue pair was beyond use, as its user has found out (P-99). It counts as damage of that path.
    pub fn note_spoiled(&mut self, number: QpNumber, path: PathId) {
        let now = self.clock.now();
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        let mut outbox = std::mem::take(&mut self.outbox);
        pair.machine.handle_damage(now, path, &mut |packet| outbox.push(packet));
        self.carry_out(number, outbox);
        self.flush();
    }

    /// Tells every queue pair that has such a path something about it.
    fn tell_paths(&mut self, news: PathObservation, which: impl Fn(&UdpQueuePair) -> Option<PathId>) {
        let now = self.clock.now();
        let concerned: Vec<(QpNumber, PathId)> =
            self.pairs.iter().filter_map(|(number, pair)| Some((*number, which(pair)?))).collect();
        for (number, path) in concerned {
            let mut outbox = std::mem::take(&mut self.outbox);
            let pair = self.pairs.get_mut(&number).expect("just seen");
            let out = &mut |packet| outbox.push(packet);
            match news {
                PathObservation::Damaged => pair.machine.handle_damage(now, path, out),
                PathObservation::Down => pair.machine.handle_path_down(now, path, out),
                PathObservation::Up => pair.machine.handle_path_up(now, path),
                PathObservation::Suspect => pair.machine.suspect_path(now, path),
            }
            self.carry_out(number, outbox);
        }
    }

    /// P-42: what one connection has found out, the others on the same path need not find out again. Once in a while:
    /// those that follow its lead would only say the same.
    fn spread_suspicion(&mut self) {
        if self.suspects.is_empty() || self.clock.now() < self.suspected_at + SUSPICION {
            return;
        }
        self.suspected_at = self.clock.now();
        for (port, to) in std::mem::take(&mut self.suspects) {
            self.tell_paths(PathObservation::Suspect, |pair| {
                let current = pair.machine.connection().paths()?.current();
                let route = pair.routes.get(current.index())?;
                ((route.port, route.to) == (port, to)).then_some(current)
            });
        }
    }

    /// The kernel's view of links or addresses has changed.
    fn look_at_links(&mut self) {
        let Ok(live) = live_addresses() else { return };
        for index in 0..self.ports.len() {
            let port = UdpPortIndex(index as u8);
            let address = self.ports[index].local.ip();
            // A group is no address of any link.
            let is_up = address.is_unspecified() || address.is_multicast() || live.contains(&address);
            if std::mem::replace(&mut self.ports[index].is_up, is_up) == is_up {
                continue;
            }
            self.tell_users_of(port, if is_up { PathObservation::Up } else { PathObservation::Down });
        }
    }

    /// Tells every queue pair with a path by this port.
    fn tell_users_of(&mut self, port: UdpPortIndex, news: PathObservation) {
        for path in 0..MAX_PATHS as u8 {
            self.tell_paths(news, |pair| {
                let route = pair.routes.get(usize::from(path))?;
                (route.port == port || route.at == port).then_some(PathId(path))
            });
        }
    }

    fn ring_alarms(&mut self) -> bool {
        let began = self.clock.now();
        let mut rung = 0;
        while rung < ALARMS_PER_TURN
            && let Some(number) = self.alarms.pop(began)
        {
            let Some(pair) = self.pairs.get_mut(&number) else { continue };
            pair.alarm = Time::NEVER;
            rung += 1;
            // They take their time: what the last of them sends is not older than it is.
            let now = self.clock.now();
            let mut outbox = std::mem::take(&mut self.outbox);
            pair.machine.handle_timeout(now, &mut |packet| outbox.push(packet));
            self.carry_out(number, outbox);
        }
        rung > 0
    }

    /// Sets the alarm of a queue pair if it wants one earlier than it has.
    fn look_at_alarm(&mut self, number: QpNumber) {
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        if let Some(deadline) = pair.machine.deadline()
            && deadline < pair.alarm
        {
            self.alarms.set(number, pair.alarm, deadline);
            pair.alarm = deadline;
        }
    }

    /// Transmits what a queue pair asks for, and passes on what it has to tell.
    fn carry_out(&mut self, number: QpNumber, mut outbox: Vec<Transmit>) {
        for packet in outbox.drain(..) {
            self.transmit(number, &packet);
        }
        self.outbox = outbox;
        self.collect(number);
        self.look_at_alarm(number);
    }

    fn transmit(&mut self, number: QpNumber, packet: &Transmit) {
        let Some(pair) = self.pairs.get(&number) else { return };
        let Some(route) = pair.routes.get(packet.path.index()) else { return };
        let payload = match &packet.segment {
            None => SendSlice::default(),
            Some(segment) => {
                let Some(sending) = pair.sends.get(segment.id) else { return };
                sending.part(segment.offset as usize, usize::from(segment.length))
            }
        };
        self.counters.sent += 1;
        self.counters.repeated += u64::from(packet.purpose == protocol::connection::FramePurpose::Repeat);
        let to = (route.port, route.to);
        // Whoever speaks by a port expects an answer there.
        self.ports[route.at.index()].silence = 0;
        if !self.options.mischief.is_idle() {
            let payload = payload.slices().concat();
            let whole = Packet::new(packet.headers, &payload);
            let fate = self.options.mischief.judge(to.0, whole.size());
            if !fate.is_plain() {
                let datagram = encode_datagram(&whole, &self.ports[to.0.index()].outgoing(to.1, 0));
                return self.held_back.mishandle(&self.ports, self.clock.now(), to, datagram, &fate);
            }
        }
        if let Err(unsent) = self.batch.add(&self.ports, to, &packet.headers, payload, pair.gathering) {
            self.note_unsent(&unsent);
        }
    }

    /// Sends one packet at once.
    pub(super) fn send_one(
        &mut self,
        to: (UdpPortIndex, SocketAddr),
        headers: PacketHeaders,
        payload: &[u8],
        gathering: Coalescing,
    ) {
        self.counters.sent += 1;
        if let Err(unsent) = self.batch.add(&self.ports, to, &headers, payload.into(), gathering) {
            self.note_unsent(&unsent);
        }
        self.flush();
    }

    fn flush(&mut self) {
        if let Err(unsent) = self.batch.flush(&self.ports) {
            self.note_unsent(&unsent);
        }
    }

    /// The kernel did not take packets. If it has no way at all, the path is down; the machines are told in the next turn
    /// by their own timers at the latest.
    fn note_unsent(&mut self, unsent: &SocketSendError) {
        self.counters.unsent += 1;
        let no_way = !matches!(unsent.error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory);
        if no_way && self.ports[unsent.port.index()].is_up {
            let (port, to) = (unsent.port, unsent.to);
            let uses = |pair: &UdpQueuePair| {
                let found = pair.routes.iter().position(|route| route.port == port && route.to == to);
                found.map(|index| PathId(index as u8))
            };
            self.tell_paths(PathObservation::Down, uses);
        }
    }

    /// Passes on completions and path events.
    fn collect(&mut self, number: QpNumber) {
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        while let Some(completion) = pair.machine.poll_completion() {
            self.events.push_back(match completion {
                WorkCompletion::Sent { id } => {
                    EndpointEvent::Sent { pair: number, id, buffer: pair.sends.pop().head }
                }
                WorkCompletion::SendFailed { id, failure } => {
                    EndpointEvent::Failed { pair: number, id, buffer: pair.sends.pop().head, failure }
                }
                WorkCompletion::Received { id, length, immediate } => {
                    let PostedReceive { buffer, start } = pair.stores.receives.pop();
                    // Of a write with immediate data, the length is that of what was written elsewhere.
                    let message = start..buffer.len().min(start + length as usize);
                    EndpointEvent::Received { pair: number, id, buffer, message, path: pair.came_by, immediate }
                }
                WorkCompletion::ReceiveFailed { id, failure } => {
                    EndpointEvent::Failed { pair: number, id, buffer: pair.stores.receives.pop().buffer, failure }
                }
            });
        }
        while let Some(event) = pair.machine.poll_path_event() {
            if let PathEvent::Migrated { from, cause: MigrationCause::Silence, .. } = event
                && let Some(route) = pair.routes.get(from.index())
                && !self.suspects.contains(&(route.port, route.to))
            {
                self.suspects.push((route.port, route.to));
            }
            self.events.push_back(EndpointEvent::Path { pair: number, event });
        }
    }
}
