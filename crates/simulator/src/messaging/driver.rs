//! The driver: gives ports and queue pairs what arrives, and carries out what they and the orders want.

use std::collections::BTreeMap;

use faults::RandomStream;
use protocol::messaging::{
    MESSAGE_HEADER_BYTES, MessageCompletion, MessagingAction, MessagingCounters as PortCounters, MessagingEndpoint,
    has_body,
};
use protocol::queue_pair::{QpState, Transmit, WorkCompletion as Ended};
use units::{PathId, Rank, SimTime};

use super::processor_schedule::{DeferredWork, ProcessorSchedule};
use super::rail::{RailEnd, RailPath};
use super::{
    CorruptionPoint, LinkNotification, MessagingCommand, MessagingObserver, MessagingOperation,
    MessagingRunParameters, TransportSetupError,
};
use crate::network::{ChannelId, DeliveredPacket, EndToEndCheck, NetworkHandler, SimulatedNetwork, check_end_to_end};
use crate::packet_body::PacketBody;

/// The alarm of the next order, and of the processors; others are those of rail ends.
const ORDERS: u32 = 1 << 31;
const WORK: u32 = 1 << 30;
/// Most of a message.
const MOST_BYTES: usize = 1 << 26;

pub(super) struct MessagingDriver<W> {
    ports: Vec<MessagingEndpoint>,
    ends: Vec<RailEnd>,
    /// The rail ends of each rank, and of each rank to each other by rail.
    of_rank: Vec<Vec<usize>>,
    by_line: BTreeMap<(Rank, Rank, u8), usize>,
    notice: LinkNotification,
    orders: Vec<MessagingCommand>,
    next_order: usize,
    /// Sends and receives that have not ended.
    open: usize,
    /// Parcels to be spoiled, from whom to whom.
    to_spoil: BTreeMap<(Rank, Rank), Vec<CorruptionPoint>>,
    luck: RandomStream,
    drawn: u64,
    contents: RandomStream,
    pub(super) spoiled: u64,
    work: ProcessorSchedule,
    outbox: Vec<Transmit>,
    pub(super) witness: W,
}

impl<W: MessagingObserver> MessagingDriver<W> {
    pub(super) fn new(
        network: &SimulatedNetwork,
        parameters: &MessagingRunParameters,
        seed: u64,
        witness: W,
    ) -> Result<Self, TransportSetupError> {
        let ranks = parameters.hosts.len();
        check(network, parameters)?;
        let mut ports: Vec<MessagingEndpoint> =
            (0..ranks).map(|_| MessagingEndpoint::new(parameters.settings)).collect();
        let (mut ends, mut of_rank, mut by_line) = (Vec::new(), vec![Vec::new(); ranks], BTreeMap::new());
        for (one, other) in (0..ranks).flat_map(|one| (one + 1..ranks).map(move |other| (one, other))) {
            for rail in 0..parameters.rails {
                for (here, peer) in [(one, other), (other, one)] {
                    let line = [Rank(here as u32), Rank(peer as u32)];
                    let rail = protocol::messaging::RailIndex(rail);
                    of_rank[here].push(ends.len());
                    by_line.insert((line[0], line[1], rail.0), ends.len());
                    ends.push(RailEnd::new(network, parameters, ends.len(), line, rail)?);
                }
            }
            ports[one].add_peer(Rank(other as u32), parameters.rails);
            ports[other].add_peer(Rank(one as u32), parameters.rails);
        }
        Ok(Self {
            ports,
            ends,
            of_rank,
            by_line,
            notice: parameters.notice,
            orders: parameters.orders.clone(),
            next_order: 0,
            open: 0,
            to_spoil: BTreeMap::new(),
            luck: RandomStream::new(seed, 0x5370_6f69),
            drawn: 0,
            contents: RandomStream::new(seed, 0x5465_7874),
            spoiled: 0,
            work: ProcessorSchedule::new(parameters.costs, ranks),
            outbox: Vec::new(),
            witness,
        })
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = PortCounters> {
        self.ports.iter().map(MessagingEndpoint::counters)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.next_order == self.orders.len() && self.open == 0
    }

    pub(super) fn start(&mut self, network: &mut SimulatedNetwork) {
        for end in 0..self.ends.len() {
            self.look_at_alarm(network, end);
        }
        self.follow_orders(network);
    }

    /// Carries out all orders whose time has come.
    fn follow_orders(&mut self, network: &mut SimulatedNetwork) {
        while let Some(order) = self.orders.get(self.next_order).copied() {
            if order.at > network.now() {
                network.set_alarm(order.at, ORDERS);
                return;
            }
            let number = self.next_order;
            self.next_order += 1;
            self.open += 1;
            if let MessagingOperation::Send { length, .. } = order.action
                && let Some(at) = self.work.look_at_whole(network.now(), order.rank, length)
            {
                self.put_off(network, at, DeferredWork::Order(number));
                continue;
            }
            self.carry_out(network.now(), number as u64, order);
            self.attend(network, order.rank);
        }
    }

    fn put_off(&mut self, network: &mut SimulatedNetwork, at: SimTime, later: DeferredWork) {
        self.work.put_off(at, later);
        network.set_alarm(at, WORK);
    }

    /// Does what processors are done with.
    fn go_on(&mut self, network: &mut SimulatedNetwork) {
        let now = network.now();
        while let Some(later) = self.work.next(now) {
            let rank = match later {
                DeferredWork::Order(number) => {
                    let order = self.orders[number];
                    self.carry_out(now, number as u64, order);
                    order.rank
                }
                DeferredWork::Post(end, bytes) => {
                    self.post(network, end, bytes);
                    self.ends[end].here
                }
                DeferredWork::Take(end, bytes) => {
                    let RailEnd { here, peer, rail, .. } = self.ends[end];
                    self.ports[here.index()].handle_parcel(now, peer, rail, &bytes);
                    here
                }
                DeferredWork::Tell(rank, completion) => {
                    self.tell(network.now(), rank, completion);
                    rank
                }
            };
            self.attend(network, rank);
        }
    }

    fn carry_out(&mut self, now: SimTime, number: u64, order: MessagingCommand) {
        let port = &mut self.ports[order.rank.index()];
        let refused = match order.action {
            MessagingOperation::Send { to, tag, length, spoil } => {
                let words = (0..length.div_ceil(8) as u64).map(|word| self.contents.at(number << 32 | word));
                let mut message: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
                message.truncate(length);
                self.witness.sent(order.rank, to, tag, &message);
                if spoil != CorruptionPoint::Nowhere {
                    self.to_spoil.entry((order.rank, to)).or_default().push(spoil);
                }
                port.send(now, to, tag, message).err()
            }
            MessagingOperation::Receive { wanted, room } => port.receive(now, wanted, vec![0; room]).err(),
        };
        if let Some(refused) = refused {
            self.open -= 1;
            self.witness.failed(order.rank, &refused.error.to_string());
        }
    }

    /// Does what a rank's port and queue pairs want, until they want nothing.
    fn attend(&mut self, network: &mut SimulatedNetwork, rank: Rank) {
        loop {
            let mut any = false;
            while let Some(duty) = self.ports[rank.index()].poll_duty() {
                any = true;
                if let MessagingAction::Transmit { to, rail, bytes, copied } = duty {
                    let end = self.by_line[&(rank, to, rail.0)];
                    match self.work.hand_over(network.now(), rank, copied) {
                        Some(at) => self.put_off(network, at, DeferredWork::Post(end, bytes)),
                        None => self.post(network, end, bytes),
                    }
                }
            }
            self.work.note_prepared(network.now(), rank, self.ports[rank.index()].counters().prepared_bytes);
            for index in 0..self.of_rank[rank.index()].len() {
                any |= self.look_at_end(network, self.of_rank[rank.index()][index]);
            }
            if !any {
                break;
            }
        }
        while let Some(completion) = self.ports[rank.index()].poll_completion() {
            if let MessageCompletion::Received { length, .. } = completion
                && let Some(at) = self.work.look_at_whole(network.now(), rank, length)
            {
                self.put_off(network, at, DeferredWork::Tell(rank, completion));
            } else {
                self.tell(network.now(), rank, completion);
            }
        }
        for index in 0..self.of_rank[rank.index()].len() {
            self.look_at_alarm(network, self.of_rank[rank.index()][index]);
        }
    }

    fn tell(&mut self, now: SimTime, rank: Rank, completion: MessageCompletion) {
        self.open -= 1;
        match completion {
            MessageCompletion::Sent { .. } => {}
            MessageCompletion::Received { id, source, tag, length, buffer } => {
                self.witness.received(now, rank, id.0, source, tag, &buffer[..length]);
            }
            MessageCompletion::SendFailed { failure, .. } | MessageCompletion::ReceiveFailed { failure, .. } => {
                self.witness.failed(rank, &failure.to_string());
            }
        }
    }

    fn post(&mut self, network: &mut SimulatedNetwork, end: usize, bytes: Vec<u8>) {
        let line = (self.ends[end].here, self.ends[end].peer);
        let mut read = bytes.clone();
        if has_body(&bytes) && self.next_spoil(line) == Some(CorruptionPoint::BeforeTheCheck) {
            self.spoil(line, &mut read);
        }
        self.ends[end].post(network.now(), bytes, read.into(), &mut self.outbox);
        self.ends[end].transmit(network, self.outbox.drain(..));
    }

    fn next_spoil(&self, line: (Rank, Rank)) -> Option<CorruptionPoint> {
        self.to_spoil.get(&line)?.first().copied()
    }

    fn spoil(&mut self, line: (Rank, Rank), bytes: &mut [u8]) {
        self.drawn += 1;
        self.spoiled += 1;
        let bit = self.luck.below(self.drawn, bytes.len() as u64 * 8) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Some(list) = self.to_spoil.get_mut(&line) {
            list.remove(0);
        }
    }

    /// Passes on what has ended at a queue pair. True if anything has.
    fn look_at_end(&mut self, network: &mut SimulatedNetwork, end: usize) -> bool {
        let mut any = false;
        let now = network.now();
        while let Some(ended) = self.ends[end].pair.poll_completion() {
            any = true;
            let (here, peer, rail) = (self.ends[end].here, self.ends[end].peer, self.ends[end].rail);
            match ended {
                Ended::Sent { .. } => {
                    let bytes = self.ends[end].take_back().expect("it was posted");
                    self.ports[here.index()].handle_sent(now, peer, rail, bytes);
                }
                Ended::Received { id, length, .. } => {
                    let mut bytes = self.ends[end].take_received(id, length);
                    let line = (peer, here);
                    if has_body(&bytes) && self.next_spoil(line) == Some(CorruptionPoint::AfterTheCheck) {
                        self.spoil(line, &mut bytes);
                    }
                    match self.work.take_over(now, here, bytes.len() - MESSAGE_HEADER_BYTES.min(bytes.len())) {
                        Some(at) => self.put_off(network, at, DeferredWork::Take(end, bytes)),
                        None => {
                            self.ports[here.index()].handle_parcel(now, peer, rail, &bytes);
                        }
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
                port.handle_rail_lost(now, this.peer, this.rail);
            }
            while let Some(bytes) = this.take_back() {
                any = true;
                port.handle_sent(now, this.peer, this.rail, bytes);
            }
        }
        any
    }

    fn look_at_alarm(&mut self, network: &mut SimulatedNetwork, end: usize) {
        let this = &mut self.ends[end];
        while this.pair.poll_path_event().is_some() {}
        if let Some(deadline) = this.pair.deadline().filter(|deadline| *deadline < this.timer) {
            this.timer = deadline;
            network.set_alarm(deadline.max(network.now()), end as u32);
        }
    }

    /// Lets a queue pair do something, then carries out what comes of it.
    fn act(
        &mut self,
        network: &mut SimulatedNetwork,
        end: usize,
        act: impl FnOnce(&mut RailEnd, SimTime, &mut dyn FnMut(Transmit)),
    ) {
        let outbox = &mut self.outbox;
        act(&mut self.ends[end], network.now(), &mut |transmit| outbox.push(transmit));
        self.ends[end].transmit(network, self.outbox.drain(..));
        let rank = self.ends[end].here;
        self.attend(network, rank);
    }

    fn hand_in(&mut self, network: &mut SimulatedNetwork, channel: ChannelId, body: &PacketBody) {
        let PacketBody::Transport { to, path, headers, payload } = body else {
            unreachable!("a conversation has only queue pairs")
        };
        let (here, end) = (network.destination(channel), *to as usize);
        if self.ends.get(end ^ 1).is_some_and(|far| far.far == here) {
            self.act(network, end, |end, now, mut out| {
                end.pair.handle_packet(now, *path, headers, payload, &mut end.store, &mut out);
            });
        }
    }

    /// Tells every rail end with a way that a channel belongs to.
    fn tell_ends(
        &mut self,
        network: &mut SimulatedNetwork,
        concerns: impl Fn(&RailPath) -> bool,
        act: impl Fn(&mut RailEnd, SimTime, PathId, &mut dyn FnMut(Transmit)),
    ) {
        for end in 0..self.ends.len() {
            for path in 0..self.ends[end].ways.len() {
                if concerns(&self.ends[end].ways[path]) {
                    self.act(network, end, |end, now, out| act(end, now, PathId(path as u8), out));
                }
            }
        }
    }
}

impl<W: MessagingObserver> NetworkHandler for MessagingDriver<W> {
    fn arrived(&mut self, network: &mut SimulatedNetwork, arrival: DeliveredPacket) {
        let Some(body) = arrival.body else { return };
        let Some(harm) = arrival.harm else {
            return self.hand_in(network, arrival.channel, &body);
        };
        if harm.known_at == SimTime::NEVER {
            match check_end_to_end(&body, arrival.bytes, &harm) {
                EndToEndCheck::Passed(body) => return self.hand_in(network, arrival.channel, &body),
                EndToEndCheck::Bad => network.counters.end_to_end += 1,
            }
        }
        let channel = arrival.channel;
        self.tell_ends(
            network,
            |way| way.enters == channel,
            |end, now, path, mut out| {
                end.pair.handle_damage(now, path, &mut out);
            },
        );
    }

    fn refill(&mut self, _: &mut SimulatedNetwork, _: ChannelId) {
        unreachable!("a conversation has no sources")
    }

    fn alarm(&mut self, network: &mut SimulatedNetwork, number: u32) {
        match number {
            ORDERS => return self.follow_orders(network),
            WORK => return self.go_on(network),
            _ => {}
        }
        let end = number as usize;
        // An alarm that was since set earlier goes off twice; the second time there is nothing to do.
        if self.ends[end].timer > network.now() {
            return;
        }
        self.ends[end].timer = SimTime::NEVER;
        self.act(network, end, |end, now, mut out| end.pair.handle_timeout(now, &mut out));
    }

    fn channels_changed(&mut self, network: &mut SimulatedNetwork, channels: &[ChannelId]) {
        if self.notice == LinkNotification::Silent {
            return;
        }
        for channel in channels {
            let is_down = network.is_down(*channel);
            self.tell_ends(
                network,
                |way| way.leaves == *channel || way.reverse == *channel,
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

fn check(network: &SimulatedNetwork, parameters: &MessagingRunParameters) -> Result<(), TransportSetupError> {
    let fabric = network.topology();
    let distinct: std::collections::BTreeSet<_> = parameters.hosts.iter().map(|host| host.0).collect();
    if distinct.len() != parameters.hosts.len() || !parameters.hosts.iter().all(|host| fabric.is_host(*host)) {
        return Err(TransportSetupError::OutOfRange("hosts: different hosts of the fabric"));
    }
    let ways = usize::from(parameters.rails) + usize::from(parameters.paths);
    if parameters.rails == 0 || parameters.paths == 0 || ways > units::limits::MAX_PATHS {
        return Err(TransportSetupError::OutOfRange("rails and paths: at least 1 each, together at most 16"));
    }
    let mtus = units::limits::MIN_MTU..=units::limits::MAX_MTU;
    if !parameters.mtu.is_power_of_two() || !mtus.contains(&parameters.mtu) {
        return Err(TransportSetupError::OutOfRange("mtu: 256, 512, 1024, 2048 or 4096"));
    }
    let known = |rank: Rank| rank.index() < parameters.hosts.len();
    for order in &parameters.orders {
        let fits = match order.action {
            MessagingOperation::Send { to, length, .. } => known(to) && to != order.rank && length <= MOST_BYTES,
            MessagingOperation::Receive { room, .. } => room <= MOST_BYTES,
        };
        if !fits || !known(order.rank) {
            return Err(TransportSetupError::OutOfRange("orders: of ranks to other ranks, at most 64 MiB"));
        }
    }
    if !parameters.orders.is_sorted_by_key(|order| order.at) {
        return Err(TransportSetupError::OutOfRange("orders: sorted by time"));
    }
    Ok(())
}
