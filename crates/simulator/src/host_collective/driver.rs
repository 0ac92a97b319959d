//! The driver: hosts' processors, their players, and the messages between them.

use std::collections::VecDeque;
use std::rc::Rc;

use protocol::Payload;
use protocol::collective::{ScheduleAction, ScheduleExecutor};
use topology::{FabricPort, NodeId, NodePort};
use units::{Lane, PathId, Psn, QpNumber, Rank, SimSpan, SimTime};
use wire::{Bth, Deth, Opcode, link_frame};

use super::HostCollectiveParameters;
use crate::collective::{CallLatency, CallWorkload, OperationPacing};
use crate::network::{ChannelId, DeliveredPacket, NetworkHandler, PacketTarget, SimulatedNetwork, SimulatedPacket};
use crate::packet_body::PacketBody;
use crate::processor::HostProcessors;

/// One host's part.
struct Host {
    /// Calls that are over.
    calls: u32,
    started: SimTime,
    /// Of the present call, and of the next if somebody else has begun it already.
    players: VecDeque<ScheduleExecutor>,
}

/// A message between two hosts.
struct Message {
    call: u32,
    from: Rank,
    to: Rank,
    round: u32,
    payload: Payload,
    /// Packets that are still to come.
    missing: u32,
}

/// What an alarm is for, with the number of the message, or of the host.
#[derive(Clone, Copy)]
enum Event {
    /// A host's call has got so far that it can send.
    Begin(Rank),
    /// A message has been posted.
    Posted(u32),
    /// It can be seen by its receiver.
    Visible(u32),
    /// It has been taken.
    Taken(u32),
    /// A host's call is over.
    Over(Rank),
}

pub(super) struct HostCollectiveDriver {
    parameters: HostCollectiveParameters,
    calls: CallWorkload,
    hosts: Vec<Host>,
    processors: HostProcessors,
    messages: Vec<Option<Message>>,
    free_messages: Vec<u32>,
    events: Vec<Option<Event>>,
    free_events: Vec<u32>,
    out: Vec<ScheduleAction>,
    over: u32,
    failed: bool,
    sum_ps: u128,
    counted: u64,
    longest: SimSpan,
}

impl HostCollectiveDriver {
    pub(super) fn new(
        network: &SimulatedNetwork,
        parameters: HostCollectiveParameters,
        calls: CallWorkload,
        seed: u64,
    ) -> Self {
        let ranks = network.topology().hosts();
        let host = || Host { calls: 0, started: SimTime::ZERO, players: VecDeque::new() };
        Self {
            parameters,
            calls,
            hosts: std::iter::repeat_with(host).take(ranks as usize).collect(),
            processors: HostProcessors::new(ranks, parameters.costs.noise, seed),
            messages: Vec::new(),
            free_messages: Vec::new(),
            events: Vec::new(),
            free_events: Vec::new(),
            out: Vec::new(),
            over: 0,
            failed: false,
            sum_ps: 0,
            counted: 0,
            longest: SimSpan::ZERO,
        }
    }

    pub(super) fn run(mut self, network: &mut SimulatedNetwork) -> Option<CallLatency> {
        let ranks = self.hosts.len() as u32;
        let rounds = if self.calls.pace == OperationPacing::BackToBack { 1 } else { self.calls.count };
        for _ in 0..rounds {
            self.over = 0;
            let now = network.now();
            for rank in 0..ranks {
                self.begin(network, Rank(rank), now);
            }
            // Without faults everything that can happen does, and then the queue is empty.
            network.run(&mut self, |driver, _| driver.over >= ranks || driver.failed);
        }
        let whole = u64::from(ranks) * u64::from(self.calls.count);
        let expected = if self.calls.count > 1 { whole - u64::from(ranks) } else { whole };
        (self.counted == expected && !self.failed).then(|| CallLatency {
            calls: (expected / u64::from(ranks.max(1))) as u32,
            mean_ns: self.sum_ps as f64 / 1e3 / self.counted as f64,
            longest_ns: self.longest.as_nanos_f64(),
        })
    }

    fn schedule(&mut self, network: &mut SimulatedNetwork, at: SimTime, event: Event) {
        let number = match self.free_events.pop() {
            Some(number) => {
                self.events[number as usize] = Some(event);
                number
            }
            None => {
                self.events.push(Some(event));
                self.events.len() as u32 - 1
            }
        };
        network.set_alarm(at, number);
    }

    fn begin(&mut self, network: &mut SimulatedNetwork, rank: Rank, at: SimTime) {
        self.hosts[rank.index()].started = at;
        let ready = self.processors.work(rank.index(), at, self.parameters.costs.call);
        self.schedule(network, ready, Event::Begin(rank));
    }

    /// A host's player of a call; it is made when somebody first speaks of the call.
    fn player(&mut self, rank: Rank, call: u32) -> Option<&mut ScheduleExecutor> {
        let ranks = self.hosts.len() as u32;
        let host = &mut self.hosts[rank.index()];
        let ahead = call.checked_sub(host.calls)? as usize;
        while host.players.len() <= ahead {
            // What could be wrong with the plan was found when it was set up.
            host.players.push_back(self.parameters.player(rank, ranks).ok()?);
        }
        host.players.get_mut(ahead)
    }

    /// A machine has duties: messages are posted one after the other.
    fn carry_out(&mut self, network: &mut SimulatedNetwork, rank: Rank, call: u32) {
        let mut out = std::mem::take(&mut self.out);
        for duty in out.drain(..) {
            match duty {
                ScheduleAction::Send { to, round, payload } => {
                    let missing = payload.len().div_ceil(self.parameters.mtu).max(1);
                    let message = Message { call, from: rank, to, round, payload, missing };
                    let number = self.keep(message);
                    let at = self.processors.work(rank.index(), network.now(), self.parameters.costs.post);
                    self.schedule(network, at, Event::Posted(number));
                }
                ScheduleAction::Complete { .. } => self.schedule(network, network.now(), Event::Over(rank)),
                ScheduleAction::Failed { .. } => self.failed = true,
            }
        }
        self.out = out;
    }

    fn keep(&mut self, message: Message) -> u32 {
        match self.free_messages.pop() {
            Some(number) => {
                self.messages[number as usize] = Some(message);
                number
            }
            None => {
                self.messages.push(Some(message));
                self.messages.len() as u32 - 1
            }
        }
    }

    /// Puts a posted message on the wire, packet by packet.
    fn transmit(&mut self, network: &mut SimulatedNetwork, number: u32) {
        let Some(message) = &self.messages[number as usize] else { return };
        let (costs, mtu) = (&self.parameters.costs, self.parameters.mtu);
        let ready = network.now() + network.parameters().adapter_delay + costs.sending(message.payload.len());
        let from = NodePort { node: NodeId(message.from.0), port: FabricPort(0) };
        let channel = network.channel(from, Lane(0));
        let headers = Bth::new(Opcode::DatagramSendOnly, QpNumber(1), Psn::new(0)).into();
        let body = Rc::new(PacketBody::Transport { to: number, path: PathId(0), headers, payload: Box::default() });
        let mut left = message.payload.len();
        for _ in 0..message.missing {
            let payload = left.min(mtu);
            left -= payload;
            let bytes = (link_frame::OVERHEAD + Bth::SIZE + Deth::SIZE) as u32 + payload.next_multiple_of(4);
            let packet = SimulatedPacket::new(PacketTarget::Node, message.to.0, bytes, ready, Some(body.clone()));
            // Flows of a pair stay on one way, so that packets of a message arrive in order.
            let flow = message.from.0.wrapping_mul(0x9e37_79b1) ^ message.to.0;
            network.inject(channel, SimulatedPacket { flow, ..packet });
        }
    }

    fn take(&mut self, network: &mut SimulatedNetwork, number: u32) {
        let Some(message) = self.messages[number as usize].take() else { return };
        self.free_messages.push(number);
        let Message { call, from, to, round, payload, .. } = message;
        let mut out = std::mem::take(&mut self.out);
        if let Some(player) = self.player(to, call) {
            player.handle_message(from, round, payload, &mut out);
        }
        self.out = out;
        self.carry_out(network, to, call);
    }

    fn end(&mut self, network: &mut SimulatedNetwork, rank: Rank) {
        let host = &mut self.hosts[rank.index()];
        host.players.pop_front();
        host.calls += 1;
        let took = network.now().since(host.started);
        // As for aggregation, the first of several is not counted.
        if host.calls > 1 || self.calls.count == 1 {
            self.sum_ps += u128::from(took.as_picos());
            self.counted += 1;
            self.longest = self.longest.max(took);
        }
        if self.calls.pace == OperationPacing::BackToBack && host.calls < self.calls.count {
            return self.begin(network, rank, network.now());
        }
        self.over += 1;
    }
}

impl NetworkHandler for HostCollectiveDriver {
    fn arrived(&mut self, network: &mut SimulatedNetwork, arrival: DeliveredPacket) {
        let Some(PacketBody::Transport { to: number, .. }) = arrival.body.as_deref() else { return };
        let Some(message) = &mut self.messages[*number as usize] else { return };
        message.missing -= 1;
        if message.missing == 0 {
            let seen = self.parameters.costs.receiving(message.payload.len(), self.parameters.way);
            let at = network.now() + network.parameters().adapter_delay + seen;
            self.schedule(network, at, Event::Visible(*number));
        }
    }

    fn refill(&mut self, _: &mut SimulatedNetwork, _: ChannelId) {
        unreachable!("hosts send when they have something to say")
    }

    fn alarm(&mut self, network: &mut SimulatedNetwork, number: u32) {
        let event = self.events[number as usize].take().expect("an alarm has an event");
        self.free_events.push(number);
        match event {
            Event::Begin(rank) => {
                let call = self.hosts[rank.index()].calls;
                let mut out = std::mem::take(&mut self.out);
                if let Some(player) = self.player(rank, call) {
                    player.start(&mut out);
                }
                self.out = out;
                self.carry_out(network, rank, call);
            }
            Event::Posted(message) => self.transmit(network, message),
            Event::Visible(message) => {
                let Some(to) = self.messages[message as usize].as_ref().map(|message| message.to.index()) else {
                    return;
                };
                let at = self.processors.work(to, network.now(), self.parameters.costs.poll);
                self.schedule(network, at, Event::Taken(message));
            }
            Event::Taken(message) => self.take(network, message),
            Event::Over(rank) => self.end(network, rank),
        }
    }
}
