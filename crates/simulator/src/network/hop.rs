//! One hop: a head arrives, finds its way, waits or goes.

use topology::NodeId;
use units::SimTime;

use super::channel::{CreditReturns, VirtualLaneState, credit_blocks};
use super::packet::{BufferLocation, NO_PACKET, PacketCorruption, PacketIndex, PacketTarget, SimulatedPacket};
use super::packet_check::{LinkCheck, check_link};
use super::{ChannelId, DeliveredPacket, Forwarding, Kind, NetworkHandler, SimulatedNetwork};
use crate::fault::LinkOutcome;

impl SimulatedNetwork {
    /// Puts a packet into a channel's queue; it may leave at `packet.ready`.
    pub(crate) fn inject(&mut self, channel: ChannelId, packet: SimulatedPacket) {
        let index = self.packets.add(packet);
        self.offer(channel, index);
    }

    /// The head of a packet has reached the end of the channel on which it was sent.
    #[inline]
    pub(super) fn head<P: NetworkHandler>(&mut self, index: PacketIndex, parties: &mut P) {
        let packet = &self.packets[index];
        let channel = packet.came_on;
        let node = self.channels[channel as usize].to;
        let class = self.classes[usize::from(self.channels[channel as usize].class)];
        let tail = self.now + class.byte_time.serialise(packet.bytes);
        if packet.harm.is_some() || self.channels[channel as usize].flags.down {
            if !self.inspect(index, channel, tail) {
                return;
            }
        } else if packet.target == PacketTarget::Node && packet.to != node {
            return self.forward(index, node, tail);
        }
        self.settle(index, channel, node, tail, parties);
    }

    /// The packet is for this node, or for a tree, or has been hurt: the less common ways on.
    fn settle<P: NetworkHandler>(
        &mut self,
        index: PacketIndex,
        channel: ChannelId,
        node: u32,
        tail: SimTime,
        parties: &mut P,
    ) {
        let packet = &self.packets[index];
        match packet.target {
            PacketTarget::Tree => self.branch_out(index, channel, tail),
            PacketTarget::Node if packet.to != node => self.forward(index, node, tail),
            PacketTarget::Node if P::AT_THE_HEAD => {
                self.vacate(index, tail);
                self.give(index, channel, parties);
            }
            PacketTarget::Node => self.push(tail, Kind::Whole, index),
        }
    }

    /// A whole packet goes to the party at this node.
    pub(super) fn hand_over<P: NetworkHandler>(&mut self, index: PacketIndex, parties: &mut P) {
        let channel = self.packets[index].came_on;
        if self.channels[channel as usize].flags.down {
            self.counters.note_lost_on_down_link(channel);
            return self.discard(index, self.now);
        }
        self.vacate(index, self.now);
        self.give(index, channel, parties);
    }

    #[inline]
    fn give<P: NetworkHandler>(&mut self, index: PacketIndex, channel: ChannelId, parties: &mut P) {
        let packet = &mut self.packets[index];
        let arrival = DeliveredPacket {
            channel,
            bytes: packet.bytes,
            born: packet.born,
            body: packet.body.take(),
            harm: packet.harm.take(),
        };
        self.packets.remove(index);
        self.counters.delivered += 1;
        parties.arrived(self, arrival);
    }

    /// Finds the way on and offers the packet to it.
    #[inline]
    fn forward(&mut self, index: PacketIndex, node: u32, tail: SimTime) {
        let packet = &self.packets[index];
        let (channel, lane) =
            if packet.next == NO_PACKET { self.way_on(packet, node) } else { (packet.next, packet.lane) };
        let ready = self.ready_at(index, channel, tail);
        let packet = &mut self.packets[index];
        packet.ready = ready;
        // The room it takes is on the lane it came on; it changes lanes only once that is given back.
        if packet.lane == lane {
            self.offer(channel, index);
        } else {
            self.offer_on_lane(channel, index, lane);
        }
    }

    /// The channel and the virtual lane on which a packet leaves a node.
    #[inline]
    fn way_on(&self, packet: &SimulatedPacket, node: u32) -> (ChannelId, u8) {
        let Some(hop) = self.topology.next_hop(NodeId(node), NodeId(packet.to), packet.flow) else {
            unreachable!("a packet that is where it belongs is not forwarded")
        };
        (self.first[node as usize] + u32::from(hop.port.0), hop.lane.min(self.parameters.virtual_lanes - 1))
    }

    /// Works out ahead of time how a packet that is under way will go on, and notes it on the packet.
    #[inline]
    pub(super) fn find_way(&mut self, index: PacketIndex) {
        let packet = &self.packets[index];
        let Some(node) = self.channels.get(packet.came_on as usize).map(|channel| channel.to) else { return };
        // With several virtual lanes the lane would have to be noted as well.
        if self.parameters.virtual_lanes == 1 && packet.target == PacketTarget::Node && packet.to != node {
            self.packets[index].next = self.way_on(packet, node).0;
        }
    }

    /// When a packet whose tail comes in at `tail` may start to leave on `channel`.
    #[inline]
    pub(super) fn ready_at(&self, index: PacketIndex, channel: ChannelId, tail: SimTime) -> SimTime {
        let whole = tail + self.parameters.switch_delay;
        match self.parameters.forwarding {
            Forwarding::StoreAndForward => whole,
            Forwarding::CutThrough => {
                let head = self.now + self.parameters.switch_delay;
                let class = self.classes[usize::from(self.channels[channel as usize].class)];
                let out = class.byte_time.serialise(self.packets[index].bytes);
                // A fast way out of a slow way in must not run dry.
                head.max(SimTime::from_picos(whole.as_picos().saturating_sub(out.as_picos())))
            }
        }
    }

    #[inline]
    fn lane(&self, channel: ChannelId, lane: u8) -> &VirtualLaneState {
        if lane == 0 {
            &self.channels[channel as usize].lane
        } else {
            &self.further_lanes[self.further(channel, lane)]
        }
    }

    /// A lane, and the credits that are coming back to lanes.
    #[inline]
    pub(super) fn lane_mut(&mut self, channel: ChannelId, lane: u8) -> (&mut VirtualLaneState, &mut CreditReturns) {
        let further = if lane == 0 { 0 } else { self.further(channel, lane) };
        let place =
            if lane == 0 { &mut self.channels[channel as usize].lane } else { &mut self.further_lanes[further] };
        (place, &mut self.returns)
    }

    fn further(&self, channel: ChannelId, lane: u8) -> usize {
        channel as usize * (usize::from(self.parameters.virtual_lanes) - 1) + usize::from(lane) - 1
    }

    /// Sends the packet if the way is free when it is ready; queues it otherwise.
    #[inline]
    pub(super) fn offer(&mut self, channel: ChannelId, index: PacketIndex) {
        let packet = &self.packets[index];
        let (ready, needed) = (packet.ready, credit_blocks(packet.bytes));
        if packet.harm.is_some() && self.is_known_bad_by(index, ready) {
            return self.discard(index, ready);
        }
        let lane_number = packet.lane;
        let state = &self.channels[channel as usize];
        // Committing ahead of time is exact only if nothing that becomes ready earlier can still come: the usual
        // device delay is the look-ahead, so a packet that needs longer takes the queue.
        let soon = ready <= self.now + self.look_ahead;
        let free = state.busy_until <= ready && self.lane(channel, lane_number).is_empty() && !state.flags.down;
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

    /// The packet moves to another virtual lane as it leaves (a torus' dateline): its old room is given back on
    /// the old lane, so the change is made when it departs; it waits in the new lane's queue meanwhile.
    #[cold]
    fn offer_on_lane(&mut self, channel: ChannelId, index: PacketIndex, lane: u8) {
        let packet = &mut self.packets[index];
        let (seat, old) = (packet.seat, packet.lane);
        packet.lane = lane;
        packet.seat = BufferLocation::Shared(self.holdings.open(seat, old, credit_blocks(packet.bytes), 1));
        self.offer(channel, index);
    }

    fn enqueue(&mut self, channel: ChannelId, lane: u8, index: PacketIndex) {
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

    /// Makes sure that the channel is looked at no later than `at`.
    pub(super) fn wake_by(&mut self, channel: ChannelId, at: SimTime) {
        let at = at.max(self.now);
        let state = &mut self.channels[channel as usize];
        if at < state.wake_at {
            state.wake_at = at;
            self.push(at, Kind::Wake, channel);
        }
    }

    /// Looks for a packet that the channel can send now, lane by lane from the one whose turn it is.
    pub(super) fn wake<P: NetworkHandler>(&mut self, channel: ChannelId, parties: &mut P) {
        let state = &mut self.channels[channel as usize];
        if state.wake_at != self.now {
            return; // Stale: an earlier wake-up was asked for since.
        }
        state.wake_at = SimTime::NEVER;
        if state.busy_until > self.now {
            let at = state.busy_until;
            return self.wake_by(channel, at);
        }
        let (count, turn) = (self.parameters.virtual_lanes, state.turn);
        let mut sent = false;
        for step in 0..count {
            let lane = if count == 1 { 0 } else { (turn + step) % count };
            if self.lane(channel, lane).is_empty() {
                continue;
            }
            if !sent && self.send_head_of(channel, lane) {
                sent = true;
                self.channels[channel as usize].turn = (lane + 1) % count;
            }
        }
        let state = self.channels[channel as usize];
        let waiting = (0..count).any(|lane| !self.lane(channel, lane).is_empty());
        if sent && (waiting || state.flags.source) {
            self.wake_by(channel, state.busy_until);
        } else if !waiting && state.flags.source {
            parties.refill(self, channel);
        }
    }

    /// Sends the first packet of a lane if it is ready and has credits; otherwise arranges to be woken.
    fn send_head_of(&mut self, channel: ChannelId, lane: u8) -> bool {
        let index = self.lane(channel, lane).head;
        let (ready, needed) = (self.packets[index].ready, credit_blocks(self.packets[index].bytes));
        if ready > self.now {
            self.wake_by(channel, ready);
            return false;
        }
        let (now, next) = (self.now, self.packets[index].next);
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
        if self.packets[index].harm.is_some() && self.is_known_bad_by(index, self.now) {
            self.discard(index, self.now);
            return true;
        }
        self.depart(channel, index, self.now);
        true
    }

    /// The packet starts on its way at `start`; from then on the future of this hop is known.
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
        self.vacate(index, end);
        let packet = &mut self.packets[index];
        packet.seat = BufferLocation::Behind(channel);
        packet.came_on = channel;
        packet.next = NO_PACKET;
        self.counters.hops += 1;
        if source {
            self.wake_by(channel, end);
        }
        let at = start + class.wire;
        if watched || self.packets[index].harm.is_some() {
            return self.depart_with_care(channel, index, start, end, at);
        }
        self.set_out(channel, index, at, end + class.wire);
    }

    /// Schedules the arrival of a packet to which nothing happens on the way: of its head if it goes on from there,
    /// of the whole if it ends there. Most hops of a collective end at a party, and this saves each an event.
    #[inline]
    fn set_out(&mut self, channel: ChannelId, index: PacketIndex, head: SimTime, tail: SimTime) {
        let packet = &self.packets[index];
        let ends = match packet.target {
            PacketTarget::Node => packet.to == self.channels[channel as usize].to,
            PacketTarget::Tree => self.branches[packet.to as usize].ends_with(channel),
        };
        if ends && !self.parties_at_the_head {
            self.push(tail, Kind::Whole, index);
        } else {
            self.push(head, Kind::Head, index);
        }
    }

    /// Gives back the room that a packet takes where it sits: it will be gone by `gone`.
    #[inline]
    pub(super) fn vacate(&mut self, index: PacketIndex, gone: SimTime) {
        let packet = &self.packets[index];
        match packet.seat {
            BufferLocation::Origin => {}
            BufferLocation::Behind(channel) => {
                self.return_credit(channel, packet.lane, credit_blocks(packet.bytes), gone)
            }
            BufferLocation::Shared(holding) => {
                if let Some(freed) = self.holdings.leave(holding, gone)
                    && let BufferLocation::Behind(channel) = freed.seat
                {
                    self.return_credit(channel, freed.lane, freed.blocks, freed.gone);
                }
            }
        }
    }

    /// The receiver's buffer is free at `gone`; the sender hears of it one flight later.
    #[inline]
    fn return_credit(&mut self, channel: ChannelId, lane: u8, blocks: u32, gone: SimTime) {
        let class = self.classes[usize::from(self.channels[channel as usize].class)];
        let (now, at) = (self.now, gone + class.wire);
        let (lane, returns) = self.lane_mut(channel, lane);
        returns.promise(lane, now, at, blocks);
        if lane.starved {
            lane.starved = false;
            self.wake_by(channel, at);
        }
    }

    /// Removes a packet that will not go on.
    pub(super) fn discard(&mut self, index: PacketIndex, gone: SimTime) {
        self.vacate(index, gone);
        self.packets.remove(index);
    }

    /// A packet that may have been hurt reaches a device, or its cable has gone down. False: it ends here.
    #[cold]
    fn inspect(&mut self, index: PacketIndex, channel: ChannelId, tail: SimTime) -> bool {
        if self.channels[channel as usize].flags.down {
            self.counters.note_lost_on_down_link(channel);
            self.discard(index, tail);
            return false;
        }
        let packet = &mut self.packets[index];
        let harm = packet.harm.as_mut().expect("only the hurt are inspected");
        let inspection = check_link(packet.body.as_deref(), packet.bytes, harm, &mut self.samples);
        self.counters.note(inspection, channel);
        harm.known_at = if inspection.is_bad() { tail } else { SimTime::NEVER };
        if inspection == LinkCheck::Misrouted {
            self.discard(index, tail);
            return false;
        }
        true
    }

    /// A switch that has not yet begun to pass on a packet which it knows to be bad drops it.
    fn is_known_bad_by(&self, index: PacketIndex, time: SimTime) -> bool {
        self.packets[index].harm.as_ref().is_some_and(|harm| harm.known_at <= time)
    }

    /// A departure that fault rules watch, or of a packet that is hurt already.
    #[cold]
    fn depart_with_care(
        &mut self,
        channel: ChannelId,
        index: PacketIndex,
        start: SimTime,
        end: SimTime,
        at: SimTime,
    ) {
        if let Some(harm) = &mut self.packets[index].harm {
            // Found bad after its head had left (SE-5): a bad CRC and the end-bad-packet delimiter go with it.
            if harm.known_at != SimTime::NEVER {
                **harm = PacketCorruption::marked();
            }
        }
        if !self.channels[channel as usize].flags.watched {
            return self.push(at, Kind::Head, index);
        }
        let unhurt = self.packets[index].harm.is_none();
        let fate = self.faults.judge(channel, &self.packets[index], start, end);
        if let Some(harm) = fate.harm {
            match &mut self.packets[index].harm {
                Some(present) => present.add(harm),
                absent => *absent = Some(Box::new(harm)),
            }
        }
        if fate.ending != LinkOutcome::Arrives {
            self.counters.note_ending(fate.ending, channel);
            return self.discard(index, end);
        }
        if fate.doubled {
            let mut twin = self.packets[index].twin();
            twin.seat = BufferLocation::Origin; // The link's own doing: it takes no credit.
            let twin = self.packets.add(twin);
            self.counters.doubled_by_plan += 1;
            self.push(at + end.since(start) + fate.delay, Kind::Head, twin);
        }
        if unhurt && self.packets[index].harm.is_none() {
            return self.set_out(channel, index, at + fate.delay, at + end.since(start) + fate.delay);
        }
        self.push(at + fate.delay, Kind::Head, index);
    }
}
