//! What switches do beyond credits: Ethernet's queues, ECN marks and pauses, and adaptive routes.
//!
//! In: packets that join or leave a queue. Out: packets that are dropped or marked, pause frames, and the port that a packet takes.
//! Links with credits have none of this: their hops test one flag ([`SimulatedNetwork::is_extended`]).
//!
//! Egress queues drop what exceeds their limit (lossy) or never drop (lossless). With PFC each input counts the bytes that its
//! transmitter has sent and that have not left the switch; above the pause threshold it stops the transmitter, below the resume
//! threshold it lets it go on. Both take the time of flight of the cable. What arrives above the input's buffer is lost and counted
//! as an overrun, so headroom that is too small shows.

use std::rc::Rc;

use faults::{Probability, RandomStream};
use topology::NodeId;
use units::SimTime;

use super::telemetry::Telemetry;
use super::{NetworkEventKind, SimulatedNetwork};
use crate::packet::{BufferLocation, ChannelId, PacketIndex};
use crate::packet_body::PacketBody;

/// Bytes that Ethernet, IP and UDP need beyond InfiniBand's link header and VCRC: Ethernet header and FCS 18, preamble and gap 20,
/// IPv4 20, UDP 8, less LRH and VCRC 10.
pub(super) const ETHERNET_EXTRA_BYTES: u32 = 56;

/// How packets are distributed over equal routes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum RouteChoice {
    /// By destination alone, as the subnet manager's tables do; connections choose another route after a timeout.
    #[default]
    Static,
    /// By a hash of the flow: all packets of a flow take one route (ECMP).
    FlowHash,
    /// Each packet on its own (packet spraying).
    Spray,
    /// Each switch takes the up port with the shortest queue.
    Adaptive,
}

/// Marking of packets by the length of the queue that they join, as RED does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EcnMarking {
    /// No packet is marked below this length.
    pub min_bytes: u32,
    /// Every packet is marked above this length.
    pub max_bytes: u32,
    /// The probability of a mark just below `max_bytes`; from `min_bytes` it grows linearly.
    pub probability: f64,
}

/// When an input stops its transmitter, for each priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PauseThresholds {
    /// Above so many bytes it sends a pause frame.
    pub pause_bytes: u32,
    /// Below so many bytes it lets the transmitter go on.
    pub resume_bytes: u32,
    /// The input's whole buffer. What is above `pause_bytes` is headroom for what is under way.
    pub buffer_bytes: u32,
}

/// An Ethernet fabric.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EthernetParameters {
    /// The limit of each egress queue of each priority; lossless switches have none.
    pub queue_bytes: u32,
    /// Marking, if switches mark.
    pub ecn: Option<EcnMarking>,
    /// Priority flow control, if links are lossless.
    pub pause: Option<PauseThresholds>,
}

/// One virtual lane (priority) of one channel.
#[derive(Clone, Copy, Default, Debug)]
struct PortQueue {
    /// Bytes in the transmitter's queue.
    queued: u32,
    /// Bytes sent that have not left the receiver.
    outstanding: u32,
    /// The receiver has sent a pause frame.
    pause_sent: bool,
    /// The transmitter has received it.
    paused: bool,
}

/// What a receiver tells its transmitter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PauseFrame {
    Resume = 0,
    Stop = 1,
}

/// The state of all ports.
pub(crate) struct SwitchPorts {
    lanes: u32,
    queues: Vec<PortQueue>,
    pub(super) ethernet: Option<EthernetParameters>,
    pub(super) routing: RouteChoice,
    pub(super) telemetry: Option<Telemetry>,
    marks: RandomStream,
    draws: u64,
    sprayed: u64,
}

impl SwitchPorts {
    fn queue(&mut self, channel: ChannelId, lane: u8) -> &mut PortQueue {
        &mut self.queues[(channel * self.lanes + u32::from(lane)) as usize]
    }

    /// The label that selects the route of a packet between two hosts.
    fn label(&mut self, from: NodeId, to: u32, flow: u32) -> u32 {
        let hash = |what: u64| units::mix64(what) as u32 >> 1;
        match self.routing {
            RouteChoice::Static | RouteChoice::Adaptive => flow,
            RouteChoice::FlowHash => hash(u64::from(from.0) << 32 ^ u64::from(to) ^ u64::from(flow).rotate_left(17)),
            RouteChoice::Spray => {
                self.sprayed += 1;
                hash(self.sprayed)
            }
        }
    }

    /// Whether a packet that joins a queue of so many bytes is marked.
    fn draws_mark(&mut self, queued: u32) -> bool {
        let Some(ecn) = self.ethernet.and_then(|ethernet| ethernet.ecn) else { return false };
        if queued <= ecn.min_bytes {
            return false;
        }
        let span = f64::from(ecn.max_bytes.saturating_sub(ecn.min_bytes).max(1));
        let share = f64::from(queued - ecn.min_bytes) / span;
        let chance = if share >= 1.0 { 1.0 } else { share * ecn.probability };
        self.draws += 1;
        Probability::new(chance).hits(self.marks.at(self.draws))
    }
}

impl SimulatedNetwork {
    /// Gives the switches what credits do not need. Called once, before the first packet.
    pub(crate) fn extend(
        &mut self,
        ethernet: Option<EthernetParameters>,
        routing: RouteChoice,
        telemetry: Option<Telemetry>,
        seed: u64,
    ) {
        let lanes = u32::from(self.parameters.virtual_lanes);
        self.ports = Some(Box::new(SwitchPorts {
            lanes,
            queues: vec![PortQueue::default(); self.channels.len() * lanes as usize],
            ethernet,
            routing,
            telemetry,
            marks: RandomStream::new(seed, 0xec17),
            draws: 0,
            sprayed: 0,
        }));
        self.is_extended = true;
        if ethernet.is_some() {
            // Ethernet has no credits: pauses and queue limits take their place.
            let plenty = u32::MAX / 2;
            self.channels.iter_mut().for_each(|channel| channel.lane.credit = plenty);
            self.extra_lanes.iter_mut().for_each(|lane| lane.credit = plenty);
        }
    }

    pub(crate) fn is_ethernet(&self) -> bool {
        self.ports.as_ref().is_some_and(|ports| ports.ethernet.is_some())
    }

    /// Bytes of a framed packet on the links of this network.
    pub(crate) fn link_bytes(&self, framed_bytes: u32) -> u32 {
        framed_bytes + if self.is_ethernet() { ETHERNET_EXTRA_BYTES } else { 0 }
    }

    /// What selects the route of a flow's packets: the flow itself only where routes are chosen by flow, and otherwise the number of
    /// the route that its sender has come to after timeouts, so that static routes depend on the destination alone.
    pub(crate) fn flow_label(&self, id: u32, route: u32) -> u32 {
        match self.ports.as_ref().map(|ports| ports.routing) {
            Some(RouteChoice::FlowHash) => id.wrapping_add(route),
            _ => route,
        }
    }

    /// What was recorded over time.
    pub(crate) fn telemetry(&self) -> Option<&Telemetry> {
        self.ports.as_ref()?.telemetry.as_ref()
    }

    pub(crate) fn telemetry_mut(&mut self) -> Option<&mut Telemetry> {
        self.ports.as_mut()?.telemetry.as_mut()
    }

    /// Adapts a packet that a host sends: its size on Ethernet, and its route.
    pub(super) fn prepare_extended(&mut self, channel: ChannelId, packet: &mut crate::packet::SimulatedPacket) {
        let is_between_hosts = matches!(packet.body.as_deref(), Some(PacketBody::Host { .. } | PacketBody::Flow(_)));
        let from = if is_between_hosts { self.host_of(channel) } else { NodeId(0) };
        packet.bytes = self.link_bytes(packet.bytes);
        let Some(ports) = &mut self.ports else { return };
        if is_between_hosts {
            packet.flow = ports.label(from, packet.to, packet.flow);
        }
    }

    /// The channel of a packet that arrives at a switch; none if the switch has no room for it.
    pub(super) fn route_extended(
        &mut self,
        index: PacketIndex,
        node: u32,
        usual: (ChannelId, u8),
    ) -> Option<(ChannelId, u8)> {
        let now = self.now;
        let packet = &self.packets[index];
        let (arrival, own_lane, to) = (packet.arrival_channel, packet.lane, packet.to);
        let ports = self.ports.as_mut()?;
        let choice = match ports.routing {
            RouteChoice::Adaptive => self.topology.up_ports(NodeId(node), NodeId(to)).map(|range| {
                let first = self.first[node as usize];
                let candidates = range.map(|port| first + u32::from(port));
                let backlog = |channel: &ChannelId| {
                    let state = &self.channels[*channel as usize];
                    let busy = state.busy_until.as_picos().saturating_sub(now.as_picos());
                    let waits: u32 = (0..ports.lanes)
                        .map(|lane| ports.queues[(channel * ports.lanes + lane) as usize].queued)
                        .sum();
                    // The usual port wins a tie, so that flows spread before any queue has grown.
                    (state.flags.down, waits, busy, *channel != usual.0)
                };
                candidates.min_by_key(backlog).unwrap_or(usual.0)
            }),
            _ => None,
        };
        let (channel, lane) = (choice.unwrap_or(usual.0), if ports.ethernet.is_some() { own_lane } else { usual.1 });
        if let Some(pause) = ports.ethernet.and_then(|ethernet| ethernet.pause) {
            let queue = ports.queue(arrival, own_lane);
            if queue.outstanding > pause.buffer_bytes {
                self.counters.note_queue_drop(arrival);
                self.counters.overrun += 1;
                self.note_loss();
                self.discard(index, now);
                return None;
            }
            if queue.outstanding > pause.pause_bytes && !queue.pause_sent {
                queue.pause_sent = true;
                self.send_pause(arrival, own_lane, PauseFrame::Stop, now);
            }
        }
        Some((channel, lane))
    }

    /// The pause or resume frame reaches the transmitter one time of flight later.
    fn send_pause(&mut self, channel: ChannelId, lane: u8, frame: PauseFrame, at: SimTime) {
        let class = self.classes[usize::from(self.channels[channel as usize].class)];
        let lanes = u32::from(self.parameters.virtual_lanes);
        let number = (channel * lanes + u32::from(lane)) << 1 | frame as u32;
        self.push(at + class.wire, NetworkEventKind::Pause, number);
    }

    /// A pause or resume frame has arrived at a transmitter.
    pub(super) fn handle_pause(&mut self, number: u32) {
        let (index, stop) = (number >> 1, number & 1 == PauseFrame::Stop as u32);
        let lanes = u32::from(self.parameters.virtual_lanes);
        let channel = index / lanes;
        let Some(ports) = &mut self.ports else { return };
        ports.queues[index as usize].paused = stop;
        let first = (channel * lanes) as usize;
        let any = ports.queues[first..first + lanes as usize].iter().any(|queue| queue.paused);
        self.channels[channel as usize].flags.paused = any;
        if stop {
            self.counters.pauses += 1;
            if let Some(telemetry) = self.telemetry_mut() {
                telemetry.note_pause();
            }
        } else {
            self.wake_by(channel, self.now);
        }
    }

    /// Whether a lane of a channel must not send now.
    pub(super) fn is_paused(&self, channel: ChannelId, lane: u8) -> bool {
        self.channels[channel as usize].flags.paused
            && self
                .ports
                .as_ref()
                .is_some_and(|ports| ports.queues[(channel * ports.lanes + u32::from(lane)) as usize].paused)
    }

    /// Whether a pause stops some lane of a channel.
    pub(crate) fn has_pause(&self, channel: ChannelId) -> bool {
        self.channels[channel as usize].flags.paused
    }

    /// A packet joins a queue. False if it was dropped instead.
    pub(super) fn admit_extended(&mut self, channel: ChannelId, lane: u8, index: PacketIndex) -> bool {
        let Some(ports) = &mut self.ports else { return true };
        let packet = &mut self.packets[index];
        let (bytes, is_own) = (packet.bytes, packet.buffer == BufferLocation::Origin);
        let queued = ports.queue(channel, lane).queued;
        if let Some(ethernet) = ports.ethernet.filter(|_| !is_own) {
            if ethernet.pause.is_none() && queued.saturating_add(bytes) > ethernet.queue_bytes {
                self.counters.note_queue_drop(channel);
                self.note_loss();
                self.discard(index, self.now);
                return false;
            }
            if let Some(body) = packet.body.as_mut()
                && matches!(**body, PacketBody::Flow(_))
                && ports.draws_mark(queued)
                && let PacketBody::Flow(flow) = Rc::make_mut(body)
            {
                flow.is_marked = true;
                self.counters.ecn_marks += 1;
                if let Some(telemetry) = &mut ports.telemetry {
                    telemetry.note_mark();
                }
            }
        }
        let queue = ports.queue(channel, lane);
        queue.queued += bytes;
        let depth = queue.queued;
        if !is_own && let Some(telemetry) = &mut ports.telemetry {
            telemetry.note_queue(depth);
        }
        true
    }

    /// A packet leaves a queue.
    pub(super) fn leave_queue_extended(&mut self, channel: ChannelId, lane: u8, bytes: u32) {
        if let Some(ports) = &mut self.ports {
            let queue = ports.queue(channel, lane);
            queue.queued = queue.queued.saturating_sub(bytes);
        }
    }

    /// A packet starts to leave on a channel.
    pub(super) fn depart_extended(&mut self, channel: ChannelId, lane: u8, bytes: u32) {
        let now = self.now;
        let Some(ports) = &mut self.ports else { return };
        ports.queue(channel, lane).outstanding += super::channel::credit_blocks(bytes) * 64;
        if let Some(telemetry) = &mut ports.telemetry {
            telemetry.note_departure(now, channel, bytes);
        }
    }

    /// A packet has left the receiver's buffer.
    pub(super) fn release_extended(&mut self, channel: ChannelId, lane: u8, blocks: u32, freed_at: SimTime) {
        let Some(ports) = &mut self.ports else { return };
        let pause = ports.ethernet.and_then(|ethernet| ethernet.pause);
        let queue = ports.queue(channel, lane);
        queue.outstanding = queue.outstanding.saturating_sub(blocks * 64);
        if let Some(pause) = pause
            && queue.pause_sent
            && queue.outstanding < pause.resume_bytes
        {
            queue.pause_sent = false;
            self.send_pause(channel, lane, PauseFrame::Resume, freed_at);
        }
    }

    /// A packet was lost.
    pub(super) fn note_loss(&mut self) {
        if let Some(telemetry) = self.telemetry_mut() {
            telemetry.note_loss();
        }
    }

    /// Channels that a pause frame has stopped.
    pub(crate) fn paused_channels(&self) -> usize {
        self.channels.iter().filter(|channel| channel.flags.paused).count()
    }
}
