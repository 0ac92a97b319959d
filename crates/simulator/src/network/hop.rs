//! One hop: a head arrives, is routed, and waits for its channel or departs.

use topology::NodeId;
use units::SimTime;

use super::channel::{CreditReturns, VirtualLaneState, credit_blocks};
use super::{DeliveredPacket, Forwarding, NetworkEventKind, NetworkHandler, SimulatedNetwork};
use crate::fault::LinkOutcome;
use crate::packet::{
    BufferLocation, ChannelId, FLOW_DRIVER, NO_PACKET, PacketCorruption, PacketIndex, PacketTarget, SimulatedPacket,
};
use crate::packet_check::{LinkCheck, check_link};

impl SimulatedNetwork {
    /// Puts a packet into a channel's queue; it may leave at `packet.ready`.
    pub(crate) fn inject(&mut self, channel: ChannelId, packet: SimulatedPacket) {
        let mut packet = SimulatedPacket { driver: self.driver, ..packet };
        if self.is_extended {
            self.prepare_extended(channel, &mut packet);
        }
        let index = self.packets.add(packet);
        self.offer(channel, index);
    }

    /// The head of a packet has reached the end of the channel on which it was sent.
    #[inline]
    pub(super) fn handle_head<H: NetworkHandler>(&mut self, index: PacketIndex, handler: &mut H) {
        let packet = &self.packets[index];
        let channel = packet.arrival_channel;
        let node = self.channels[channel as usize].to;
        let class = self.classes[usize::from(self.channels[channel as usize].class)];
        let tail = self.now + class.byte_time.serialise(packet.bytes);
        if packet.corruption.is_some() || self.channels[channel as usize].flags.down {
            if !self.inspect(index, channel, tail) {
                return;
            }
        } else if packet.target == PacketTarget::Node && packet.to != node {
            return self.forward(index, node, tail);
        }
        self.finish_head(index, channel, node, tail, handler);
    }

    /// The less common cases: the packet is for this node or a multicast tree, or it is corrupted.
    fn finish_head<H: NetworkHandler>(
        &mut self,
        index: PacketIndex,
        channel: ChannelId,
        node: u32,
        tail: SimTime,
        handler: &mut H,
    ) {
        let packet = &self.packets[index];
        match packet.target {
            PacketTarget::Tree => self.copy_to_branches(index, channel, tail),
            PacketTarget::Node if packet.to != node => self.forward(index, node, tail),
            PacketTarget::Node if H::DELIVER_AT_HEAD => {
                self.release_buffer(index, tail);
                self.deliver(index, channel, handler);
            }
            PacketTarget::Node => self.push(tail, NetworkEventKind::Whole, index),
        }
    }

    /// Delivers a packet that has arrived whole to the handler.
    pub(super) fn deliver_whole<H: NetworkHandler>(&mut self, index: PacketIndex, handler: &mut H) {
        let channel = self.packets[index].arrival_channel;
        if self.channels[channel as usize].flags.down {
            self.counters.note_lost_on_down_link(channel);
            self.note_loss();
            return self.discard(index, self.now);
        }
        self.release_buffer(index, self.now);
        self.deliver(index, channel, handler);
    }

    #[inline]
    fn deliver<H: NetworkHandler>(&mut self, index: PacketIndex, channel: ChannelId, handler: &mut H) {
        let packet = &mut self.packets[index];
        let arrival = DeliveredPacket {
            channel,
            bytes: packet.bytes,
            injected_at: packet.injected_at,
            body: packet.body.take(),
            corruption: packet.corruption.take(),
        };
        self.driver = packet.driver;
        self.packets.remove(index);
        self.counters.delivered += 1;
        if self.is_extended
            && let Some(telemetry) = self.ports.as_mut().and_then(|ports| ports.telemetry.as_mut())
        {
            telemetry.note_delivery(self.now, arrival.bytes);
        }
        if self.driver == FLOW_DRIVER {
            return self.with_flows(|flows, network| flows.handle_packet(network, arrival));
        }
        handler.handle_packet(self, arrival);
    }

    /// Routes the packet and offers it to the next channel.
    #[inline]
    fn forward(&mut self, index: PacketIndex, node: u32, tail: SimTime) {
        let packet = &self.packets[index];
        let (mut channel, mut lane) =
            if packet.next == NO_PACKET { self.next_channel(packet, node) } else { (packet.next, packet.lane) };
        if self.is_extended {
            let Some(choice) = self.route_extended(index, node, (channel, lane)) else { return };
            (channel, lane) = choice;
        }
        let ready = self.ready_at(index, channel, tail);
        let packet = &mut self.packets[index];
        packet.ready = ready;
        // Its buffer belongs to the lane on which it arrived; it changes lanes only after that buffer is released.
        if packet.lane == lane {
            self.offer(channel, index);
        } else {
            self.offer_on_other_lane(channel, index, lane);
        }
    }

    /// The channel and the virtual lane on which a packet leaves a node.
    #[inline]
    fn next_channel(&self, packet: &SimulatedPacket, node: u32) -> (ChannelId, u8) {
        let Some(hop) = self.topology.next_hop(NodeId(node), NodeId(packet.to), packet.flow) else {
            unreachable!("a packet at its destination is not forwarded")
        };
        (self.first[node as usize] + u32::from(hop.port.0), hop.lane.min(self.parameters.virtual_lanes - 1))
    }

    /// Computes the next channel of a packet in flight and stores it in the packet.
    #[inline]
    pub(super) fn precompute_route(&mut self, index: PacketIndex) {
        let packet = &self.packets[index];
        let Some(node) = self.channels.get(packet.arrival_channel as usize).map(|channel| channel.to) else { return };
        // With several virtual lanes the lane would have to be stored as well.
        if self.parameters.virtual_lanes == 1 && packet.target == PacketTarget::Node && packet.to != node {
            self.packets[index].next = self.next_channel(packet, node).0;
        }
    }

    /// When a packet whose tail arrives at `tail` may start to leave on `channel`.
    #[inline]
    pub(super) fn ready_at(&self, index: PacketIndex, channel: ChannelId, tail: SimTime) -> SimTime {
        let whole = tail + self.parameters.switch_delay;
        match self.parameters.forwarding {
            Forwarding::StoreAndForward => whole,
            Forwarding::CutThrough => {
                let head = self.now + self.parameters.switch_delay;
                let class = self.classes[usize::from(self.channels[channel as usize].class)];
                let out = class.byte_time.serialise(self.packets[index].bytes);
                // A fast output fed by a slow input must not run dry.
                head.max(SimTime::from_picos(whole.as_picos().saturating_sub(out.as_picos())))
            }
        }
    }

    #[inline]
    fn lane(&self, channel: ChannelId, lane: u8) -> &VirtualLaneState {
        if lane == 0 {
            &self.channels[channel as usize].lane
        } else {
            &self.extra_lanes[self.extra_lane_index(channel, lane)]
        }
    }

    /// A lane, and the returning credits of all lanes.
    #[inline]
    pub(super) fn lane_mut(&mut self, channel: ChannelId, lane: u8) -> (&mut VirtualLaneState, &mut CreditReturns) {
        let index = if lane == 0 { 0 } else { self.extra_lane_index(channel, lane) };
        let place = if lane == 0 { &mut self.channels[channel as usize].lane } else { &mut self.extra_lanes[index] };
        (place, &mut self.returns)
    }

    fn extra_lane_index(&self, channel: ChannelId, lane: u8) -> usize {
        channel as usize * (usize::from(self.parameters.virtual_lanes) - 1) + usize::from(lane) - 1
    }

    /// Sends the packet if the channel is free when the packet is ready; queues it otherwise.
    #[inline]
    pub(super) fn offer(&mut self, channel: ChannelId, index: PacketIndex) {
        let packet = &self.packets[index];
        let (ready, needed) = (packet.ready, credit_blocks(packet.bytes));
        if packet.corruption.is_some() && self.is_known_bad_by(index, ready) {
            return self.discard(index, ready);
        }
        let lane_number = packet.lane;
        let state = &self.channels[channel as usize];
        // Committing ahead of time is exact only if no packet can still arrive that becomes ready earlier. The usual device delay is
        // the look-ahead, so a packet that needs longer takes the queue.
        let soon = ready <= self.now + self.look_ahead;
        let usable = !state.flags.down && !state.flags.paused;
        let free = state.busy_until <= ready && self.lane(channel, lane_number).is_empty() && usable;
        if soon && free && (self.parameters.virtual_lanes == 1 || self.other_lanes_are_empty(channel)) {
            let (lane, returns) = self.lane_mut(channel, lane_number);
            if lane.credit < needed {
                returns.collect(lane, ready);
            }
            if lane.credit >= needed {
                return self.depart(channel, index, ready);
            }
        }
        self.enqueue(channel, lane_number, index);
    }

    #[cold]
    fn other_lanes_are_empty(&self, channel: ChannelId) -> bool {
        (0..self.parameters.virtual_lanes).all(|lane| self.lane(channel, lane).is_empty())
    }

    /// The packet changes to another virtual lane as it leaves (the dateline of a torus). Its old buffer is released on the old
    /// lane, so the change takes effect when it departs; until then it waits in the new lane's queue.
    #[cold]
    fn offer_on_other_lane(&mut self, channel: ChannelId, index: PacketIndex, lane: u8) {
        let packet = &mut self.packets[index];
        let (buffer, old) = (packet.buffer, packet.lane);
        packet.lane = lane;
        packet.buffer =
            BufferLocation::Shared(self.shared_buffers.share(buffer, old, credit_blocks(packet.bytes), 1));
        self.offer(channel, index);
    }

    fn enqueue(&mut self, channel: ChannelId, lane: u8, index: PacketIndex) {
        if self.is_extended && !self.admit_extended(channel, lane, index) {
            return;
        }
        let (lane, _) = self.lane_mut(channel, lane);
        let last = std::mem::replace(&mut lane.tail, index);
        let first = lane.is_empty();
        if first {
            lane.head = index;
        } else {
            self.packets[last].next = index;
        }
        self.packets[index].next = NO_PACKET;
        if first {
            let at = self.channels[channel as usize].busy_until.max(self.packets[index].ready);
            self.wake_by(channel, at);
        }
    }

    /// Schedules a wake-up of the channel no later than `at`.
    pub(super) fn wake_by(&mut self, channel: ChannelId, at: SimTime) {
        let at = at.max(self.now);
        let state = &mut self.channels[channel as usize];
        if at < state.wake_at {
            state.wake_at = at;
            self.push(at, NetworkEventKind::Wake, channel);
        }
    }

    /// Sends the first packet that can leave now, lane by lane from `next_lane` on.
    pub(super) fn wake<H: NetworkHandler>(&mut self, channel: ChannelId, handler: &mut H) {
        let state = &mut self.channels[channel as usize];
        if state.wake_at != self.now {
            return; // Stale: an earlier wake-up was scheduled since.
        }
        state.wake_at = SimTime::NEVER;
        if state.busy_until > self.now {
            let at = state.busy_until;
            return self.wake_by(channel, at);
        }
        let (count, next_lane) = (self.parameters.virtual_lanes, state.next_lane);
        let mut sent = false;
        for step in 0..count {
            let lane = if count == 1 { 0 } else { (next_lane + step) % count };
            if self.lane(channel, lane).is_empty() {
                continue;
            }
            if !sent && self.send_head_of(channel, lane) {
                sent = true;
                self.channels[channel as usize].next_lane = (lane + 1) % count;
            }
        }
        let state = self.channels[channel as usize];
        let waiting = (0..count).any(|lane| !self.lane(channel, lane).is_empty());
        if sent && (waiting || state.flags.source) {
            self.wake_by(channel, state.busy_until);
        } else if state.flags.source && (!waiting || state.flags.paused) {
            // While a pause stops data, answers of flows may still pass in their own priority.
            if self.flows.is_some() {
                return self.with_flows(|flows, network| flows.handle_idle_source(network, channel));
            }
            handler.handle_idle_source(self, channel);
        }
    }

    /// Sends the first packet of a lane if it is ready and has credits; otherwise schedules a wake-up.
    fn send_head_of(&mut self, channel: ChannelId, lane: u8) -> bool {
        let index = self.lane(channel, lane).head;
        let (ready, needed) = (self.packets[index].ready, credit_blocks(self.packets[index].bytes));
        if ready > self.now {
            self.wake_by(channel, ready);
            return false;
        }
        if self.is_paused(channel, lane) {
            return false; // The resume frame wakes the channel.
        }
        let (now, next, lane_number) = (self.now, self.packets[index].next, lane);
        let (lane, returns) = self.lane_mut(channel, lane);
        if lane.credit < needed {
            returns.collect(lane, now);
        }
        if lane.credit < needed {
            match returns.sufficient_at(lane, needed) {
                Some(at) => self.wake_by(channel, at),
                None => lane.starved = true,
            }
            return false;
        }
        lane.head = next;
        if self.is_extended {
            self.leave_queue_extended(channel, lane_number, self.packets[index].bytes);
        }
        if self.packets[index].corruption.is_some() && self.is_known_bad_by(index, self.now) {
            self.discard(index, self.now);
            return true;
        }
        self.depart(channel, index, self.now);
        true
    }

    /// The packet starts to leave at `start`; from then on the outcome of this hop is known.
    #[inline]
    fn depart(&mut self, channel: ChannelId, index: PacketIndex, start: SimTime) {
        let state = &mut self.channels[channel as usize];
        let class = self.classes[usize::from(state.class)];
        let packet = &mut self.packets[index];
        let end = start + class.byte_time.serialise(packet.bytes);
        state.busy_until = end;
        state.sent = state.sent.wrapping_add(1);
        let (watched, source, bytes, lane) = (state.flags.watched, state.flags.source, packet.bytes, packet.lane);
        self.lane_mut(channel, lane).0.credit -= credit_blocks(bytes);
        if self.is_extended {
            self.depart_extended(channel, lane, bytes);
        }
        self.release_buffer(index, end);
        let packet = &mut self.packets[index];
        packet.buffer = BufferLocation::Behind(channel);
        packet.arrival_channel = channel;
        packet.next = NO_PACKET;
        self.counters.hops += 1;
        if source {
            self.wake_by(channel, end);
        }
        let at = start + class.wire;
        if watched || self.packets[index].corruption.is_some() {
            return self.depart_watched(channel, index, start, end, at);
        }
        self.schedule_arrival(channel, index, at, end + class.wire);
    }

    /// Schedules the arrival of an intact packet: of its head if it continues from there, of the whole packet if it ends there.
    /// Most hops of a collective end at a node, and this saves each an event.
    #[inline]
    fn schedule_arrival(&mut self, channel: ChannelId, index: PacketIndex, head: SimTime, tail: SimTime) {
        let packet = &self.packets[index];
        let ends = match packet.target {
            PacketTarget::Node => packet.to == self.channels[channel as usize].to,
            PacketTarget::Tree => self.multicast_tables[packet.to as usize].ends_with(channel),
        };
        if ends && !self.deliver_at_head {
            self.push(tail, NetworkEventKind::Whole, index);
        } else {
            self.push(head, NetworkEventKind::Head, index);
        }
    }

    /// Releases the buffer that a packet occupies: it is free at `freed_at`.
    #[inline]
    pub(super) fn release_buffer(&mut self, index: PacketIndex, freed_at: SimTime) {
        let packet = &self.packets[index];
        match packet.buffer {
            BufferLocation::Origin => {}
            BufferLocation::Behind(channel) => {
                self.return_credit(channel, packet.lane, credit_blocks(packet.bytes), freed_at)
            }
            BufferLocation::Shared(number) => {
                if let Some(freed) = self.shared_buffers.release(number, freed_at)
                    && let BufferLocation::Behind(channel) = freed.buffer
                {
                    self.return_credit(channel, freed.lane, freed.blocks, freed.freed_at);
                }
            }
        }
    }

    /// The receiver's buffer is free at `freed_at`; the sender gets the credit one time of flight later.
    #[inline]
    fn return_credit(&mut self, channel: ChannelId, lane: u8, blocks: u32, freed_at: SimTime) {
        let class = self.classes[usize::from(self.channels[channel as usize].class)];
        let (now, at) = (self.now, freed_at + class.wire);
        if self.is_extended {
            self.release_extended(channel, lane, blocks, freed_at);
        }
        let (lane, returns) = self.lane_mut(channel, lane);
        returns.promise(lane, now, at, blocks);
        if lane.starved {
            lane.starved = false;
            self.wake_by(channel, at);
        }
    }

    /// Removes a packet that ends here.
    pub(super) fn discard(&mut self, index: PacketIndex, freed_at: SimTime) {
        self.release_buffer(index, freed_at);
        self.packets.remove(index);
    }

    /// A packet that may be corrupted reaches a device, or its cable is down. False if the packet ends here.
    #[cold]
    fn inspect(&mut self, index: PacketIndex, channel: ChannelId, tail: SimTime) -> bool {
        if self.channels[channel as usize].flags.down {
            self.counters.note_lost_on_down_link(channel);
            self.note_loss();
            self.discard(index, tail);
            return false;
        }
        let packet = &mut self.packets[index];
        let corruption = packet.corruption.as_mut().expect("the caller found a corruption");
        let check = check_link(packet.body.as_deref(), packet.bytes, corruption, &mut self.samples);
        self.counters.note(check, channel);
        corruption.detected_at = if check.is_bad() { tail } else { SimTime::NEVER };
        if check.is_bad() {
            self.note_loss();
        }
        if check == LinkCheck::Misrouted {
            self.discard(index, tail);
            return false;
        }
        true
    }

    /// A switch drops a packet that it knows to be bad before it starts to forward it.
    fn is_known_bad_by(&self, index: PacketIndex, time: SimTime) -> bool {
        self.packets[index].corruption.as_ref().is_some_and(|corruption| corruption.detected_at <= time)
    }

    /// The departure of a packet that a fault rule watches or that is already corrupted.
    #[cold]
    fn depart_watched(&mut self, channel: ChannelId, index: PacketIndex, start: SimTime, end: SimTime, at: SimTime) {
        if let Some(corruption) = &mut self.packets[index].corruption {
            // Detected after its head had left (SE-5): the packet carries a bad CRC and the end-bad-packet delimiter.
            if corruption.detected_at != SimTime::NEVER {
                **corruption = PacketCorruption::marked();
            }
        }
        if !self.channels[channel as usize].flags.watched {
            return self.push(at, NetworkEventKind::Head, index);
        }
        let was_intact = self.packets[index].corruption.is_none();
        let effect = self.faults.apply_rules(channel, &self.packets[index], start, end);
        if let Some(corruption) = effect.corruption {
            match &mut self.packets[index].corruption {
                Some(present) => present.add(corruption),
                absent => *absent = Some(Box::new(corruption)),
            }
        }
        if effect.outcome != LinkOutcome::Arrives {
            self.counters.note_outcome(effect.outcome, channel);
            self.note_loss();
            return self.discard(index, end);
        }
        if effect.duplicated {
            let mut duplicate = self.packets[index].duplicate();
            duplicate.buffer = BufferLocation::Origin; // The link duplicates it: the copy takes no credit.
            let duplicate = self.packets.add(duplicate);
            self.counters.doubled_by_plan += 1;
            self.push(at + end.since(start) + effect.delay, NetworkEventKind::Head, duplicate);
        }
        if was_intact && self.packets[index].corruption.is_none() {
            return self.schedule_arrival(channel, index, at + effect.delay, at + end.since(start) + effect.delay);
        }
        self.push(at + effect.delay, NetworkEventKind::Head, index);
    }
}
