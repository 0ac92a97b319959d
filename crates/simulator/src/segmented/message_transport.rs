//! The messages of segmented collectives: in parts into the network, and out of it to the executors.

use std::rc::Rc;

use protocol::Payload;
use protocol::connection::{AckRequest, OutgoingFrame};
use topology::NodePort;
use units::{AdapterLane, Rank, SimTime};

use super::driver::{PendingWork, SegmentedDriver};
use super::host_link::{EndIndex, MessagePart};
use super::rank_progress::OutgoingMessage;
use crate::arrival_check::{ArrivalCheck, check_arrival};
use crate::network::{DeliveredPacket, NetworkHandler, SimulatedNetwork};
use crate::packet::{ChannelId, PacketTarget, SimulatedPacket};
use crate::packet_body::PacketBody;

/// The purpose of a timer, in its two highest bits.
const END_TIMER: u32 = 0;
const RECEIVED: u32 = 1 << 30;
pub(super) const LATE_ENTRY: u32 = 2 << 30;
const TIMER_KIND: u32 = 3 << 30;

/// A message between two hosts.
pub(super) struct SegmentMessage {
    pub(super) segment: u32,
    from: Rank,
    pub(super) to: Rank,
    round: u32,
    payload: Payload,
    /// Parts that have not arrived.
    missing_parts: u32,
}

impl SegmentedDriver {
    /// Queues a message of an executor.
    pub(super) fn send(
        &mut self,
        network: &mut SimulatedNetwork,
        from: Rank,
        to: Rank,
        segment: u32,
        round: u32,
        payload: Payload,
    ) {
        let left = payload.len() * self.parameters.vector.scale();
        let missing_parts = left.div_ceil(self.parameters.mtu).max(1);
        let number = self.messages.insert(SegmentMessage { segment, from, to, round, payload, missing_parts });
        let end = self.links.end_towards(self.parameters.policy, from, to);
        let progress = &mut self.ranks[from.index()];
        if let Some(running) = progress.running.get_mut(&segment) {
            running.undelivered += 1;
        }
        progress.outgoing.push_back(OutgoingMessage { number, end, left });
        self.send_parts(network, from);
    }

    /// Sends the messages of a host, one after the other, as far as the windows of their connections allow.
    fn send_parts(&mut self, network: &mut SimulatedNetwork, host: Rank) {
        let (now, mtu) = (network.machine_time(), self.parameters.mtu);
        while let Some(message) = self.ranks[host.index()].outgoing.front_mut() {
            let (end, bytes) = (message.end, message.left.min(mtu));
            let is_last = bytes == message.left;
            let ask = if is_last { AckRequest::Immediate } else { AckRequest::Periodic };
            let part = MessagePart { message: message.number, bytes };
            let Some(link) = self.links.get_mut(end) else { return };
            if !link.send(now, part, ask, &mut self.frames) {
                return;
            }
            message.left -= bytes;
            if is_last {
                self.ranks[host.index()].outgoing.pop_front();
            }
            self.transmit(network, end);
        }
    }

    /// Injects the frames of a connection's end, then sets its timer.
    fn transmit(&mut self, network: &mut SimulatedNetwork, end: EndIndex) {
        let Some(link) = self.links.get_mut(end) else { return self.frames.clear() };
        if !self.frames.is_empty() {
            let ready = network.now() + network.parameters().adapter_delay;
            let (host, peer, route) = (self.hosts[link.host.index()], self.hosts[link.peer.index()], link.route);
            let flow = u32::from(route.0);
            let port = network.topology().next_hop(host, peer, flow).expect("two hosts differ").port;
            let channel = network.channel(NodePort { node: host, port }, AdapterLane(0));
            for OutgoingFrame { frame, copies, .. } in self.frames.drain(..) {
                let body = Rc::new(PacketBody::Host { to: end ^ 1, route, frame });
                let bytes = body.framed_bytes();
                for _ in 0..copies {
                    let packet = SimulatedPacket::new(PacketTarget::Node, peer.0, bytes, ready, Some(body.clone()));
                    network.inject(channel, SimulatedPacket { flow, ..packet });
                }
            }
        }
        if let Some(deadline) = link.deadline().filter(|deadline| *deadline < link.timer) {
            link.timer = deadline;
            network.set_timer(deadline.max(network.now()), END_TIMER | end);
        }
    }

    /// The software of a host has a whole message.
    pub(super) fn receive(&mut self, network: &mut SimulatedNetwork, number: u32) {
        let Some(message) = self.messages.get(number) else { return };
        let (to, segment) = (message.to, message.segment);
        if !self.ranks[to.index()].running.contains_key(&segment) {
            return self.pending.push(PendingWork::Early(number));
        }
        let message = self.messages.remove(number).expect("the message is there");
        let mut actions = std::mem::take(&mut self.actions);
        if let Some(running) = self.ranks[to.index()].running.get_mut(&segment) {
            running.executor.handle_message(message.from, message.round, message.payload, &mut actions);
        }
        self.perform(network, to, segment, actions);
        let sender = &mut self.ranks[message.from.index()];
        if let Some(running) = sender.running.get_mut(&segment) {
            running.undelivered -= 1;
        }
        if sender.settle(segment) {
            self.pending.push(PendingWork::StartNext(message.from));
        }
    }

    fn handle_end_timer(&mut self, network: &mut SimulatedNetwork, end: EndIndex) {
        let Some(link) = self.links.get_mut(end).filter(|link| link.timer <= network.now()) else { return };
        link.timer = SimTime::NEVER;
        if link.handle_timeout(network.machine_time(), &mut self.frames).is_err() {
            let (host, peer) = (link.host, link.peer);
            self.frames.clear();
            return self.pending.push(PendingWork::Unreachable(host, peer));
        }
        let host = link.host;
        if !self.frames.is_empty() {
            self.ranks[host.index()].postpone(end);
        }
        self.transmit(network, end);
        self.send_parts(network, host);
    }
}

impl NetworkHandler for SegmentedDriver {
    fn handle_packet(&mut self, network: &mut SimulatedNetwork, arrival: DeliveredPacket) {
        // A damaged packet is dropped: its number is unknown, and the next one shows the gap.
        if let Some(ArrivalCheck::Intact(body)) = check_arrival(network, arrival) {
            self.handle_body(network, &body);
        }
    }

    fn handle_idle_source(&mut self, _: &mut SimulatedNetwork, _: ChannelId) {
        unreachable!("hosts have no source channels")
    }

    fn handle_timer(&mut self, network: &mut SimulatedNetwork, number: u32) {
        let index = number & !TIMER_KIND;
        match number & TIMER_KIND {
            RECEIVED => {
                self.timers -= 1;
                self.receive(network, index);
            }
            LATE_ENTRY => {
                self.timers -= 1;
                self.pending.push(PendingWork::Enter(Rank(index)));
            }
            _ => self.handle_end_timer(network, index),
        }
    }
}

impl SegmentedDriver {
    /// Handles an intact packet.
    pub(crate) fn handle_body(&mut self, network: &mut SimulatedNetwork, body: &PacketBody) {
        let PacketBody::Host { to: end, route, frame } = body else { return };
        let Some(link) = self.links.get_mut(*end) else { return };
        let host = link.host;
        let part = link.handle_frame(network.machine_time(), *route, frame, &mut self.frames);
        if let Some(MessagePart { message: number, .. }) = part
            && let Some(message) = self.messages.get_mut(number)
        {
            message.missing_parts -= 1;
            if message.missing_parts == 0 {
                self.timers += 1;
                network.set_timer(network.now() + network.parameters().adapter_delay, RECEIVED | number);
            }
        }
        self.transmit(network, *end);
        self.send_parts(network, host);
    }
}
