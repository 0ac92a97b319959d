//! The driver of collectives among hosts: their processors, their schedule executors, and the messages between them.
//!
//! In: packets and timers of the network. Out: packets, and the latency of the calls.

use std::collections::VecDeque;
use std::rc::Rc;

use protocol::Payload;
use protocol::collective::{ScheduleAction, ScheduleExecutor};
use topology::{FabricPort, NodeId, NodePort};
use units::{AdapterLane, PathId, Psn, QpNumber, Rank, SimTime};
use wire::{Bth, Deth, Opcode, link_frame};

use super::HostCollectiveParameters;
use crate::collective::{CallLatency, CallStatistics, CallWorkload, OperationPacing};
use crate::network::{DeliveredPacket, NetworkHandler, SimulatedNetwork};
use crate::packet::{ChannelId, PacketTarget, SimulatedPacket};
use crate::packet_body::{PacketBody, PacketFraming};
use crate::processor::HostProcessors;
use crate::slab::Slab;

/// The state of one host.
struct HostState {
    /// Completed calls.
    calls: u32,
    started: SimTime,
    /// Of the present call, and of the next if another host has started it already.
    executors: VecDeque<ScheduleExecutor>,
}

/// A message between two hosts.
struct HostMessage {
    call: u32,
    from: Rank,
    to: Rank,
    round: u32,
    payload: Payload,
    /// Packets that have not arrived.
    missing: u32,
}

/// What a timer is for.
#[derive(Clone, Copy)]
enum HostTimer {
    /// A host's processor has entered the call and can send.
    Start(Rank),
    /// A message has been posted.
    Posted(u32),
    /// The receiver's processor can see a message.
    Visible(u32),
    /// The receiver's processor has received a message.
    Received(u32),
    /// A host's call is complete.
    Complete(Rank),
}

pub(super) struct HostCollectiveDriver {
    parameters: HostCollectiveParameters,
    calls: CallWorkload,
    hosts: Vec<HostState>,
    processors: HostProcessors,
    messages: Slab<HostMessage>,
    timers: Slab<HostTimer>,
    out: Vec<ScheduleAction>,
    completed: u32,
    failed: bool,
    statistics: CallStatistics,
}

impl HostCollectiveDriver {
    pub(super) fn new(
        network: &SimulatedNetwork,
        parameters: HostCollectiveParameters,
        calls: CallWorkload,
        seed: u64,
    ) -> Self {
        let ranks = network.topology().hosts();
        let host = || HostState { calls: 0, started: SimTime::ZERO, executors: VecDeque::new() };
        Self {
            parameters,
            calls,
            hosts: std::iter::repeat_with(host).take(ranks as usize).collect(),
            processors: HostProcessors::new(ranks, parameters.costs.noise, seed),
            messages: Slab::default(),
            timers: Slab::default(),
            out: Vec::new(),
            completed: 0,
            failed: false,
            statistics: CallStatistics::default(),
        }
    }

    pub(super) fn run(mut self, network: &mut SimulatedNetwork) -> Option<CallLatency> {
        let ranks = self.hosts.len() as u32;
        let rounds = if self.calls.pace == OperationPacing::BackToBack { 1 } else { self.calls.count };
        for _ in 0..rounds {
            self.completed = 0;
            let now = network.now();
            for rank in 0..ranks {
                self.start_call(network, Rank(rank), now);
            }
            // Without faults every call completes, and then the queue is empty.
            network.run(&mut self, |driver, _| driver.completed >= ranks || driver.failed);
        }
        self.statistics.latency(&self.calls, ranks).filter(|_| !self.failed)
    }

    fn schedule(&mut self, network: &mut SimulatedNetwork, at: SimTime, timer: HostTimer) {
        let number = self.timers.insert(timer);
        network.set_timer(at, number);
    }

    fn start_call(&mut self, network: &mut SimulatedNetwork, rank: Rank, at: SimTime) {
        self.hosts[rank.index()].started = at;
        let ready = self.processors.work(rank.index(), at, self.parameters.costs.call);
        self.schedule(network, ready, HostTimer::Start(rank));
    }

    /// A host's executor of a call; created when the host starts the call or receives its first message.
    fn executor(&mut self, rank: Rank, call: u32) -> Option<&mut ScheduleExecutor> {
        let ranks = self.hosts.len() as u32;
        let host = &mut self.hosts[rank.index()];
        let ahead = call.checked_sub(host.calls)? as usize;
        while host.executors.len() <= ahead {
            // The schedule was validated at set-up.
            host.executors.push_back(self.parameters.executor(rank, ranks).ok()?);
        }
        host.executors.get_mut(ahead)
    }

    /// Performs the actions of an executor: posts messages one after another.
    fn perform_actions(&mut self, network: &mut SimulatedNetwork, rank: Rank, call: u32) {
        let mut out = std::mem::take(&mut self.out);
        for action in out.drain(..) {
            match action {
                ScheduleAction::Send { to, round, payload } => {
                    let missing = payload.len().div_ceil(self.parameters.mtu).max(1);
                    let message = HostMessage { call, from: rank, to, round, payload, missing };
                    let number = self.messages.insert(message);
                    let at = self.processors.work(rank.index(), network.now(), self.parameters.costs.post);
                    self.schedule(network, at, HostTimer::Posted(number));
                }
                ScheduleAction::Complete { .. } => self.schedule(network, network.now(), HostTimer::Complete(rank)),
                ScheduleAction::Failed { .. } => self.failed = true,
            }
        }
        self.out = out;
    }

    /// Sends a posted message, packet by packet.
    fn transmit(&mut self, network: &mut SimulatedNetwork, number: u32) {
        let Some(message) = self.messages.get(number) else { return };
        let (costs, mtu) = (&self.parameters.costs, self.parameters.mtu);
        let ready = network.now() + network.parameters().adapter_delay + costs.sending(message.payload.len());
        let from = NodePort { node: NodeId(message.from.0), port: FabricPort(0) };
        let channel = network.channel(from, AdapterLane(0));
        let headers = Bth::new(Opcode::DatagramSendOnly, QpNumber(1), Psn::new(0)).into();
        let body = Rc::new(PacketBody::Transport {
            to: number,
            path: PathId(0),
            framing: PacketFraming::InfiniBand,
            headers,
            payload: Box::default(),
        });
        let mut left = message.payload.len();
        for _ in 0..message.missing {
            let payload = left.min(mtu);
            left -= payload;
            let bytes = (link_frame::OVERHEAD + Bth::SIZE + Deth::SIZE) as u32 + payload.next_multiple_of(4);
            let packet = SimulatedPacket::new(PacketTarget::Node, message.to.0, bytes, ready, Some(body.clone()));
            // Packets between two hosts stay on one route, so that a message arrives in order.
            let flow = message.from.0.wrapping_mul(0x9e37_79b1) ^ message.to.0;
            network.inject(channel, SimulatedPacket { flow, ..packet });
        }
    }

    fn receive(&mut self, network: &mut SimulatedNetwork, number: u32) {
        let Some(message) = self.messages.remove(number) else { return };
        let HostMessage { call, from, to, round, payload, .. } = message;
        let mut out = std::mem::take(&mut self.out);
        if let Some(executor) = self.executor(to, call) {
            executor.handle_message(from, round, payload, &mut out);
        }
        self.out = out;
        self.perform_actions(network, to, call);
    }

    fn complete_call(&mut self, network: &mut SimulatedNetwork, rank: Rank) {
        let host = &mut self.hosts[rank.index()];
        host.executors.pop_front();
        host.calls += 1;
        self.statistics.record(&self.calls, host.calls, network.now().since(host.started));
        if self.calls.pace == OperationPacing::BackToBack && host.calls < self.calls.count {
            return self.start_call(network, rank, network.now());
        }
        self.completed += 1;
    }
}

impl NetworkHandler for HostCollectiveDriver {
    fn handle_packet(&mut self, network: &mut SimulatedNetwork, arrival: DeliveredPacket) {
        let Some(PacketBody::Transport { to: number, .. }) = arrival.body.as_deref() else { return };
        let Some(message) = self.messages.get_mut(*number) else { return };
        message.missing -= 1;
        if message.missing == 0 {
            let delay = self.parameters.costs.receiving(message.payload.len(), self.parameters.service);
            let at = network.now() + network.parameters().adapter_delay + delay;
            self.schedule(network, at, HostTimer::Visible(*number));
        }
    }

    fn handle_idle_source(&mut self, _: &mut SimulatedNetwork, _: ChannelId) {
        unreachable!("hosts have no source channels")
    }

    fn handle_timer(&mut self, network: &mut SimulatedNetwork, number: u32) {
        match self.timers.remove(number).expect("a timer expires once") {
            HostTimer::Start(rank) => {
                let call = self.hosts[rank.index()].calls;
                let mut out = std::mem::take(&mut self.out);
                if let Some(executor) = self.executor(rank, call) {
                    executor.start(&mut out);
                }
                self.out = out;
                self.perform_actions(network, rank, call);
            }
            HostTimer::Posted(message) => self.transmit(network, message),
            HostTimer::Visible(message) => {
                let Some(to) = self.messages.get(message).map(|message| message.to.index()) else {
                    return;
                };
                let at = self.processors.work(to, network.now(), self.parameters.costs.poll);
                self.schedule(network, at, HostTimer::Received(message));
            }
            HostTimer::Received(message) => self.receive(network, message),
            HostTimer::Complete(rank) => self.complete_call(network, rank),
        }
    }
}
