//! The driver of messaging: delivers packets and timers to endpoints and queue pairs, performs their actions, and runs the commands.

use std::collections::BTreeMap;

use faults::RandomStream;
use protocol::messaging::{
    MESSAGE_HEADER_BYTES, MessageCompletion, MessagingAction, MessagingCounters, MessagingEndpoint, has_body,
};
use protocol::queue_pair::{QpState, Transmit, WorkCompletion as Ended};
use units::{PathId, Rank, SimTime, Time};
use wire::IcrcCoverage;

use super::observer::MessagingObserver;
use super::parameters::{CorruptionPoint, MessagingCommand, MessagingOperation, MessagingRunParameters};
use super::processor_schedule::{DeferredWork, ProcessorSchedule};
use super::rail::RailEnd;
use crate::network::{DeliveredPacket, NetworkHandler, SimulatedNetwork};
use crate::packet::ChannelId;
use crate::packet_body::{PacketBody, PacketFraming};
use crate::packet_check::{EndToEndCheck, check_end_to_end};
use crate::path_channels::PathChannels;
use crate::queue_pair::{LinkNotification, TransportSetupError};

/// The timers of the next command and of the processors; all others belong to rail ends.
const COMMAND_TIMER: u32 = 1 << 31;
const PROCESSOR_TIMER: u32 = 1 << 30;
/// The longest payload of a simulated datagram: as a jumbo frame has, and within what the link header can express.
const MAX_UDP_MTU: u32 = 8_000;
/// The longest message.
const MAX_MESSAGE_BYTES: usize = 1 << 26;

pub(super) struct MessagingDriver<W> {
    ports: Vec<MessagingEndpoint>,
    ends: Vec<RailEnd>,
    /// The rail ends of each rank, and of each pair of ranks by rail.
    of_rank: Vec<Vec<usize>>,
    by_pair: BTreeMap<(Rank, Rank, u8), usize>,
    notice: LinkNotification,
    orders: Vec<MessagingCommand>,
    next_command: usize,
    /// Sends and receives that have not ended.
    pending: usize,
    /// Packets to be corrupted, by sender and receiver.
    pending_corruptions: BTreeMap<(Rank, Rank), Vec<CorruptionPoint>>,
    corruption_bits: RandomStream,
    corruption_draws: u64,
    contents: RandomStream,
    pub(super) corrupted: u64,
    schedule: ProcessorSchedule,
    outbox: Vec<Transmit>,
    pub(super) observer: W,
}

impl<W: MessagingObserver> MessagingDriver<W> {
    pub(super) fn new(
        network: &SimulatedNetwork,
        parameters: &MessagingRunParameters,
        seed: u64,
        observer: W,
    ) -> Result<Self, TransportSetupError> {
        let ranks = parameters.hosts.len();
        check(network, parameters)?;
        let mut ports: Vec<MessagingEndpoint> =
            (0..ranks).map(|_| MessagingEndpoint::new(parameters.settings)).collect();
        let (mut ends, mut of_rank, mut by_pair) = (Vec::new(), vec![Vec::new(); ranks], BTreeMap::new());
        for (one, other) in (0..ranks).flat_map(|one| (one + 1..ranks).map(move |other| (one, other))) {
            for rail in 0..parameters.rails {
                for (here, peer) in [(one, other), (other, one)] {
                    let pair = [Rank(here as u32), Rank(peer as u32)];
                    let rail = protocol::messaging::RailIndex(rail);
                    of_rank[here].push(ends.len());
                    by_pair.insert((pair[0], pair[1], rail.0), ends.len());
                    ends.push(RailEnd::new(network, parameters, ends.len(), pair, rail)?);
                }
            }
            ports[one].add_peer(Rank(other as u32), parameters.rails);
            ports[other].add_peer(Rank(one as u32), parameters.rails);
        }
        Ok(Self {
            ports,
            ends,
            of_rank,
            by_pair,
            notice: parameters.notice,
            orders: parameters.orders.clone(),
            next_command: 0,
            pending: 0,
            pending_corruptions: BTreeMap::new(),
            corruption_bits: RandomStream::new(seed, 0x5370_6f69),
            corruption_draws: 0,
            contents: RandomStream::new(seed, 0x5465_7874),
            corrupted: 0,
            schedule: ProcessorSchedule::new(parameters.costs, ranks),
            outbox: Vec::new(),
            observer,
        })
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = MessagingCounters> {
        self.ports.iter().map(MessagingEndpoint::counters)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.next_command == self.orders.len() && self.pending == 0
    }

    pub(super) fn start(&mut self, network: &mut SimulatedNetwork) {
        for end in 0..self.ends.len() {
            self.arm_timer(network, end);
        }
        self.run_commands(network);
    }

    /// Runs all commands whose time has come.
    fn run_commands(&mut self, network: &mut SimulatedNetwork) {
        while let Some(order) = self.orders.get(self.next_command).copied() {
            if order.at > network.now() {
                network.set_timer(order.at, COMMAND_TIMER);
                return;
            }
            let number = self.next_command;
            self.next_command += 1;
            self.pending += 1;
            if let MessagingOperation::Send { length, .. } = order.action
                && let Some(at) = self.schedule.scan_message(network.now(), order.rank, length)
            {
                self.defer(network, at, DeferredWork::Command(number));
                continue;
            }
            self.run_command(network.now(), number as u64, order);
            self.drive_rank(network, order.rank);
        }
    }

    fn defer(&mut self, network: &mut SimulatedNetwork, at: SimTime, later: DeferredWork) {
        self.schedule.defer(at, later);
        network.set_timer(at, PROCESSOR_TIMER);
    }

    /// Runs the work that processors have finished.
    fn run_deferred(&mut self, network: &mut SimulatedNetwork) {
        let now = network.now();
        while let Some(later) = self.schedule.next(now) {
            let rank = match later {
                DeferredWork::Command(number) => {
                    let order = self.orders[number];
                    self.run_command(now, number as u64, order);
                    order.rank
                }
                DeferredWork::Post(end, bytes) => {
                    self.post(network, end, bytes);
                    self.ends[end].here
                }
                DeferredWork::Receive(end, bytes) => {
                    self.take_packet(network, end, &bytes);
                    self.ends[end].here
                }
                DeferredWork::Report(rank, completion) => {
                    self.report_completion(network.now(), rank, completion);
                    rank
                }
            };
            self.drive_rank(network, rank);
        }
    }

    fn run_command(&mut self, now: SimTime, number: u64, order: MessagingCommand) {
        let port = &mut self.ports[order.rank.index()];
        let rejected = match order.action {
            MessagingOperation::Send { to, tag, length, corruption } => {
                let words = (0..length.div_ceil(8) as u64).map(|word| self.contents.at(number << 32 | word));
                let mut message: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
                message.truncate(length);
                self.observer.sent(order.rank, to, tag, &message);
                if corruption != CorruptionPoint::None {
                    self.pending_corruptions.entry((order.rank, to)).or_default().push(corruption);
                }
                port.send(now.to_nanos(), to, tag, message).err()
            }
            MessagingOperation::Receive { wanted, room } => port.receive(now.to_nanos(), wanted, vec![0; room]).err(),
        };
        if let Some(rejected) = rejected {
            self.pending -= 1;
            self.observer.failed(order.rank, &rejected.error.to_string());
        }
    }

    /// Performs the actions of a rank's endpoint and queue pairs until there are none.
    fn drive_rank(&mut self, network: &mut SimulatedNetwork, rank: Rank) {
        loop {
            let mut any = false;
            while let Some(duty) = self.ports[rank.index()].poll_action() {
                any = true;
                if let MessagingAction::Transmit { to, rail, bytes, copied } = duty {
                    let end = self.by_pair[&(rank, to, rail.0)];
                    match self.schedule.post_packet(network.now(), rank, copied) {
                        Some(at) => self.defer(network, at, DeferredWork::Post(end, bytes)),
                        None => self.post(network, end, bytes),
                    }
                }
            }
            self.schedule.charge_prepared(network.now(), rank, self.ports[rank.index()].counters().prepared_bytes);
            for index in 0..self.of_rank[rank.index()].len() {
                any |= self.drain_completions(network, self.of_rank[rank.index()][index]);
            }
            if !any {
                break;
            }
        }
        while let Some(completion) = self.ports[rank.index()].poll_completion() {
            if let MessageCompletion::Received { length, .. } = completion
                && let Some(at) = self.schedule.scan_message(network.now(), rank, length)
            {
                self.defer(network, at, DeferredWork::Report(rank, completion));
            } else {
                self.report_completion(network.now(), rank, completion);
            }
        }
        for index in 0..self.of_rank[rank.index()].len() {
            self.arm_timer(network, self.of_rank[rank.index()][index]);
        }
    }

    fn report_completion(&mut self, now: SimTime, rank: Rank, completion: MessageCompletion) {
        self.pending -= 1;
        match completion {
            MessageCompletion::Sent { .. } => {}
            MessageCompletion::Received { id, source, tag, length, buffer } => {
                self.observer.received(now, rank, id.0, source, tag, &buffer[..length]);
            }
            MessageCompletion::SendFailed { failure, .. } | MessageCompletion::ReceiveFailed { failure, .. } => {
                self.observer.failed(rank, &failure.to_string());
            }
        }
    }

    fn post(&mut self, network: &mut SimulatedNetwork, end: usize, bytes: Vec<u8>) {
        let pair = (self.ends[end].here, self.ends[end].peer);
        let mut read = bytes.clone();
        if has_body(&bytes) && self.next_corruption(pair) == Some(CorruptionPoint::BeforePacketCheck) {
            self.corrupt(pair, &mut read);
        }
        self.ends[end].post(network.machine_time(), bytes, read.into(), &mut self.outbox);
        self.ends[end].transmit(network, self.outbox.drain(..));
    }

    fn next_corruption(&self, pair: (Rank, Rank)) -> Option<CorruptionPoint> {
        self.pending_corruptions.get(&pair)?.first().copied()
    }

    fn corrupt(&mut self, pair: (Rank, Rank), bytes: &mut [u8]) {
        self.corruption_draws += 1;
        self.corrupted += 1;
        let bit = self.corruption_bits.below(self.corruption_draws, bytes.len() as u64 * 8) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Some(list) = self.pending_corruptions.get_mut(&pair) {
            list.remove(0);
        }
    }

    /// Handles the completions of a queue pair; true if there were any.
    fn drain_completions(&mut self, network: &mut SimulatedNetwork, end: usize) -> bool {
        let mut any = false;
        let (now, machine_now) = (network.now(), network.machine_time());
        while let Some(ended) = self.ends[end].pair.poll_completion() {
            any = true;
            let (here, peer, rail) = (self.ends[end].here, self.ends[end].peer, self.ends[end].rail);
            match ended {
                Ended::Sent { .. } => {
                    let bytes = self.ends[end].take_oldest().expect("a completed send was posted");
                    self.ports[here.index()].handle_sent(machine_now, peer, rail, bytes);
                }
                Ended::Received { id, length, .. } => {
                    let mut bytes = self.ends[end].take_received(id, length);
                    let pair = (peer, here);
                    if has_body(&bytes) && self.next_corruption(pair) == Some(CorruptionPoint::AfterPacketCheck) {
                        self.corrupt(pair, &mut bytes);
                    }
                    match self.schedule.copy_received(now, here, bytes.len() - MESSAGE_HEADER_BYTES.min(bytes.len()))
                    {
                        Some(at) => self.defer(network, at, DeferredWork::Receive(end, bytes)),
                        None => self.take_packet(network, end, &bytes),
                    }
                }
                Ended::SendFailed { .. } | Ended::ReceiveFailed { .. } => {}
            }
        }
        let this = &mut self.ends[end];
        if this.pair.state() == QpState::Error {
            let port = &mut self.ports[this.here.index()];
            if !std::mem::replace(&mut this.is_lost, true) {
                any = true;
                port.handle_rail_lost(machine_now, this.peer, this.rail);
            }
            while let Some(bytes) = this.take_oldest() {
                any = true;
                port.handle_sent(machine_now, this.peer, this.rail, bytes);
            }
        }
        any
    }

    /// Passes a packet to the endpoint. Corruption that its checksum finds counts as damage of the path (P-28).
    fn take_packet(&mut self, network: &mut SimulatedNetwork, end: usize, bytes: &[u8]) {
        let now = network.machine_time();
        let RailEnd { here, peer, rail, last_path, .. } = self.ends[end];
        if !self.ports[here.index()].handle_packet(now, peer, rail, bytes) {
            let Self { ends, outbox, .. } = self;
            ends[end].pair.handle_damage(now, last_path, &mut |transmit| outbox.push(transmit));
            ends[end].transmit(network, outbox.drain(..));
        }
    }

    fn arm_timer(&mut self, network: &mut SimulatedNetwork, end: usize) {
        let this = &mut self.ends[end];
        while this.pair.poll_path_event().is_some() {}
        if let Some(deadline) = this.pair.deadline().map(SimTime::from).filter(|deadline| *deadline < this.timer) {
            this.timer = deadline;
            network.set_timer(deadline.max(network.now()), end as u32);
        }
    }

    /// Calls a queue pair, then handles the consequences.
    fn act(
        &mut self,
        network: &mut SimulatedNetwork,
        end: usize,
        act: impl FnOnce(&mut RailEnd, Time, &mut dyn FnMut(Transmit)),
    ) {
        let outbox = &mut self.outbox;
        act(&mut self.ends[end], network.machine_time(), &mut |transmit| outbox.push(transmit));
        self.ends[end].transmit(network, self.outbox.drain(..));
        let rank = self.ends[end].here;
        self.drive_rank(network, rank);
    }

    fn deliver_body(&mut self, network: &mut SimulatedNetwork, channel: ChannelId, body: &PacketBody) {
        let PacketBody::Transport { to, path, headers, payload, .. } = body else {
            unreachable!("messaging exchanges only transport packets")
        };
        let (here, end) = (network.destination(channel), *to as usize);
        if self.ends.get(end ^ 1).is_some_and(|far| far.far == here) {
            self.act(network, end, |end, now, mut out| {
                end.last_path = *path;
                end.pair.handle_packet(now, *path, headers, payload, &mut end.store, &mut out);
            });
        }
    }

    /// Calls every rail end for each of its paths that satisfies a condition.
    fn for_each_path(
        &mut self,
        network: &mut SimulatedNetwork,
        concerns: impl Fn(&PathChannels) -> bool,
        act: impl Fn(&mut RailEnd, Time, PathId, &mut dyn FnMut(Transmit)),
    ) {
        for end in 0..self.ends.len() {
            for path in 0..self.ends[end].paths.len() {
                if concerns(&self.ends[end].paths[path]) {
                    self.act(network, end, |end, now, out| act(end, now, PathId(path as u8), out));
                }
            }
        }
    }
}

impl<W: MessagingObserver> NetworkHandler for MessagingDriver<W> {
    fn handle_packet(&mut self, network: &mut SimulatedNetwork, arrival: DeliveredPacket) {
        let Some(body) = arrival.body else { return };
        let Some(corruption) = arrival.corruption else {
            return self.deliver_body(network, arrival.channel, &body);
        };
        if corruption.detected_at == SimTime::NEVER {
            match check_end_to_end(&body, arrival.bytes, &corruption) {
                EndToEndCheck::Passed(body) => return self.deliver_body(network, arrival.channel, &body),
                EndToEndCheck::Bad => network.counters.end_to_end += 1,
            }
        }
        let channel = arrival.channel;
        self.for_each_path(
            network,
            |path| path.enters == channel,
            |end, now, path, mut out| {
                end.pair.handle_damage(now, path, &mut out);
            },
        );
    }

    fn handle_idle_source(&mut self, _: &mut SimulatedNetwork, _: ChannelId) {
        unreachable!("messaging has no source channels")
    }

    fn handle_timer(&mut self, network: &mut SimulatedNetwork, number: u32) {
        match number {
            COMMAND_TIMER => return self.run_commands(network),
            PROCESSOR_TIMER => return self.run_deferred(network),
            _ => {}
        }
        let end = number as usize;
        // A timer that was later set to an earlier time expires twice; ignore the second time.
        if self.ends[end].timer > network.now() {
            return;
        }
        self.ends[end].timer = SimTime::NEVER;
        self.act(network, end, |end, now, mut out| end.pair.handle_timeout(now, &mut out));
    }

    fn handle_link_change(&mut self, network: &mut SimulatedNetwork, channels: &[ChannelId]) {
        if self.notice == LinkNotification::Silent {
            return;
        }
        for channel in channels {
            let is_down = network.is_down(*channel);
            self.for_each_path(
                network,
                |path| path.uses_cable_of(*channel),
                |end, now, path, mut out| {
                    if is_down {
                        end.pair.handle_path_down(now, path, &mut out);
                    } else {
                        end.pair.handle_path_up(now, path);
                    }
                },
            );
        }
    }
}

/// Only a strong checksum may replace the ICRC of the bytes behind the first (P-28).
fn check_framing(parameters: &MessagingRunParameters) -> Result<(), TransportSetupError> {
    use units::limits::{is_infiniband_mtu, is_valid_mtu};
    let MessagingRunParameters { mtu, framing, settings, .. } = parameters;
    let (is_valid, mtus) = match framing {
        PacketFraming::InfiniBand => (is_infiniband_mtu(*mtu), "mtu: 256, 512, 1024, 2048 or 4096"),
        PacketFraming::Udp { .. } => (is_valid_mtu(*mtu) && *mtu <= MAX_UDP_MTU, "mtu: 256 to 8000 in steps of 64"),
    };
    if !is_valid {
        return Err(TransportSetupError::OutOfRange(mtus));
    }
    match framing.coverage() {
        IcrcCoverage::Full => Ok(()),
        IcrcCoverage::Prefix if settings.checksum.is_strong() => Ok(()),
        IcrcCoverage::Prefix | IcrcCoverage::Nothing => {
            Err(TransportSetupError::OutOfRange("framing: a shortened ICRC needs messages with a strong checksum"))
        }
    }
}

fn check(network: &SimulatedNetwork, parameters: &MessagingRunParameters) -> Result<(), TransportSetupError> {
    let fabric = network.topology();
    let distinct: std::collections::BTreeSet<_> = parameters.hosts.iter().map(|host| host.0).collect();
    if distinct.len() != parameters.hosts.len() || !parameters.hosts.iter().all(|host| fabric.is_host(*host)) {
        return Err(TransportSetupError::OutOfRange("hosts: must be distinct hosts of the fabric"));
    }
    let ways = usize::from(parameters.rails) + usize::from(parameters.paths);
    if parameters.rails == 0 || parameters.paths == 0 || ways > units::limits::MAX_PATHS {
        return Err(TransportSetupError::OutOfRange("rails and paths: at least 1 each, together at most 16"));
    }
    check_framing(parameters)?;
    let known = |rank: Rank| rank.index() < parameters.hosts.len();
    for order in &parameters.orders {
        let fits = match order.action {
            MessagingOperation::Send { to, length, .. } => {
                known(to) && to != order.rank && length <= MAX_MESSAGE_BYTES
            }
            MessagingOperation::Receive { room, .. } => room <= MAX_MESSAGE_BYTES,
        };
        if !fits || !known(order.rank) {
            return Err(TransportSetupError::OutOfRange(
                "commands: ranks must exist, and messages have at most 64 MiB",
            ));
        }
    }
    if !parameters.orders.is_sorted_by_key(|order| order.at) {
        return Err(TransportSetupError::OutOfRange("commands: must be sorted by time"));
    }
    Ok(())
}
