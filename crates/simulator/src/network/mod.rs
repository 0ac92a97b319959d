//! The simulated network: channels, forwarding switches, credits and multicast.
//!
//! In: packets injected into a channel, and time. Out: packets delivered to the [`NetworkHandler`] at the nodes. The network
//! neither reads the packets nor decides their faults: the handler does the first, the fault rules (`crate::fault`) the second.
//!
//! A hop costs one event when the path is free: the sender computes at once when the head reaches the next device. Only a packet
//! that must wait costs a second event. This is exact, not an approximation: packets of one device become ready in the order in
//! which they arrived (its delay is the same for all), so a later packet cannot overtake. Where that does not hold (a slow link
//! feeds a fast one), the packet waits in the queue.

mod channel;
mod hop;
mod multicast;
mod switch_ports;
mod telemetry;
#[cfg(test)]
mod tests;
mod warm_up;

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

use topology::{Fabric, FabricPort, NodeId, NodePort};
use units::{AdapterLane, SimSpan, SimTime, Time};

pub(crate) use multicast::MulticastForwardingTable;
pub use switch_ports::{EcnMarking, EthernetParameters, PauseThresholds, RouteChoice};
pub use telemetry::{Telemetry, TelemetryBucket};

use crate::collective::LinkReport;
use crate::counters::{FabricCounters, LinkErrorCounters};
use crate::event_queue::EventQueue;
use crate::fault::{ChannelMap, FabricFaultInjector, FaultPlan, FaultPlanError};
use crate::link_rate::ByteTime;
use crate::packet::{ChannelId, DriverIndex, FLOW_DRIVER, PacketCorruption, PacketPool};
use crate::packet_body::PacketBody;
use crate::packet_check::SampleFrames;
use crate::residue::FabricResidue;
use channel::{Channel, ChannelFlags, CreditReturns, LinkClass, VirtualLaneState};

/// How switches forward a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forwarding {
    /// The head leaves while the tail is still arriving.
    CutThrough,
    /// The switch receives the whole packet first.
    StoreAndForward,
}

/// The constants of the fabric.
#[derive(Clone, Debug)]
pub struct LinkParameters {
    /// The time of a byte on a full port.
    pub byte_time: ByteTime,
    /// Time of flight of every cable.
    pub wire: SimSpan,
    /// From the head's arrival at a switch to its earliest departure; also the time of a reduction.
    pub switch_delay: SimSpan,
    /// The time that an adapter takes to send a packet, and to deliver one.
    pub adapter_delay: SimSpan,
    /// How switches forward packets.
    pub forwarding: Forwarding,
    /// Virtual lanes, at most 15 (IB specification 7.6.2).
    pub virtual_lanes: u8,
    /// Input buffer of each virtual lane of each port, in bytes.
    pub buffer_bytes: u32,
    /// The number of independent channels into which each adapter port is split (SE-8); 1 for an unsplit port.
    pub adapter_lanes: u8,
}

/// A packet delivered at a node.
pub(crate) struct DeliveredPacket {
    pub channel: ChannelId,
    pub bytes: u32,
    pub injected_at: SimTime,
    pub body: Option<Rc<PacketBody>>,
    pub corruption: Option<Box<PacketCorruption>>,
}

/// The devices at the nodes: receives the network's events.
pub(crate) trait NetworkHandler {
    /// Deliver at the head's arrival instead of the tail's. Saves an event per packet of pure background traffic, whose
    /// receivers do nothing.
    const DELIVER_AT_HEAD: bool = false;
    /// A packet has arrived whole.
    fn handle_packet(&mut self, network: &mut SimulatedNetwork, arrival: DeliveredPacket);
    /// A source channel has no packet left to send.
    fn handle_idle_source(&mut self, network: &mut SimulatedNetwork, channel: ChannelId);
    /// A timer set with [`SimulatedNetwork::set_timer`] expires.
    fn handle_timer(&mut self, network: &mut SimulatedNetwork, number: u32);
    /// The fault plan took these channels down or brought them up.
    fn handle_link_change(&mut self, _: &mut SimulatedNetwork, _: &[ChannelId]) {}
}

/// What shares the fabric with the handler and is part of the network: flows.
pub(crate) trait BesideHandler {
    /// Called once, before the first packet.
    fn start(&mut self, network: &mut SimulatedNetwork);
    /// A packet of its own has arrived whole.
    fn handle_packet(&mut self, network: &mut SimulatedNetwork, arrival: DeliveredPacket);
    /// A source channel has no packet left to send.
    fn handle_idle_source(&mut self, network: &mut SimulatedNetwork, channel: ChannelId);
    /// A timer of its own expires.
    fn handle_timer(&mut self, network: &mut SimulatedNetwork, number: u32);
    /// For its results.
    fn as_any(&self) -> &dyn Any;
}

/// The kinds of events in the queue.
#[derive(Clone, Copy)]
#[repr(u64)]
enum NetworkEventKind {
    /// The fault plan takes cables down or brings them up.
    Change = 0,
    /// The head of a packet reaches the end of its channel.
    Head = 1,
    /// A packet has arrived whole at its destination.
    Whole = 2,
    /// A channel may be able to send.
    Wake = 3,
    /// A timer of the handler.
    Alarm = 4,
    /// A pause or resume frame reaches a transmitter.
    Pause = 5,
}

const KIND_SHIFT: u32 = 32;
/// Above the kind of a timer's event: the driver that set it.
const DRIVER_SHIFT: u32 = 40;

/// The network and its state.
pub(crate) struct SimulatedNetwork {
    topology: Arc<Fabric>,
    parameters: LinkParameters,
    /// The link classes of full ports and, if adapters are split, of their lanes.
    classes: [LinkClass; 2],
    channels: Vec<Channel>,
    /// Virtual lanes from the second on, for each channel.
    extra_lanes: Vec<VirtualLaneState>,
    returns: CreditReturns,
    /// The first channel of each node; its port `p` sends on `first + p`.
    first: Vec<u32>,
    /// The first channel of the second and later adapter lanes.
    first_split: u32,
    /// The usual delay of a device: how far ahead of its departure a hop can be committed.
    look_ahead: SimSpan,
    packets: PacketPool,
    multicast_tables: Vec<MulticastForwardingTable>,
    shared_buffers: multicast::SharedBuffers,
    samples: SampleFrames,
    queue: EventQueue,
    now: SimTime,
    pub(crate) faults: FabricFaultInjector,
    pub(crate) counters: FabricCounters,
    trace: u64,
    /// The state does not fit into the caches.
    is_large: bool,
    /// Events ahead whose memory has been loaded.
    warm: u32,
    /// [`NetworkHandler::DELIVER_AT_HEAD`] of the present handler.
    deliver_at_head: bool,
    /// The driver whose packet or timer is being handled; what it sends and sets belongs to it.
    driver: DriverIndex,
    /// Switches do more than credits need: `ports` is there.
    is_extended: bool,
    /// Ethernet's queues and pauses, adaptive routes, records over time; none on plain links with credits.
    ports: Option<Box<switch_ports::SwitchPorts>>,
    /// Flows that share the fabric with the driver, if there are any.
    flows: Option<Box<dyn BesideHandler>>,
}

impl SimulatedNetwork {
    /// The network at time zero, without packets.
    pub(crate) fn new(topology: Arc<Fabric>, parameters: LinkParameters) -> Self {
        let (hosts, nodes) = (topology.hosts(), topology.nodes());
        let mut first = Vec::with_capacity(nodes as usize + 1);
        let mut total = 0u32;
        for node in 0..nodes {
            first.push(total);
            total += u32::from(topology.port_count(NodeId(node)));
        }
        first.push(total);
        let extra = u32::from(parameters.adapter_lanes) - 1;
        let full = LinkClass { byte_time: parameters.byte_time, wire: parameters.wire };
        let split = LinkClass { byte_time: parameters.byte_time.split(u64::from(parameters.adapter_lanes)), ..full };
        let credit = channel::credit_blocks(parameters.buffer_bytes);
        let channel = |to: u32, class: u8| Channel {
            lane: VirtualLaneState::new(credit),
            busy_until: SimTime::ZERO,
            wake_at: SimTime::NEVER,
            to,
            sent: 0,
            class,
            flags: ChannelFlags::default(),
            next_lane: 0,
        };
        let mut channels = Vec::with_capacity((total + 2 * hosts * extra) as usize);
        for node in 0..nodes {
            for port in 0..topology.port_count(NodeId(node)) {
                let to = topology.peer(NodeId(node), FabricPort(port)).map_or(u32::MAX, |peer| peer.node.0);
                let touches_host = node < hosts || to < hosts;
                channels.push(channel(to, u8::from(touches_host)));
            }
        }
        for host in 0..hosts {
            let switch = topology.peer(NodeId(host), FabricPort(0)).map_or(u32::MAX, |peer| peer.node.0);
            for _ in 0..extra {
                channels.extend([channel(switch, 1), channel(host, 1)]);
            }
        }
        let further = channels.len() * (usize::from(parameters.virtual_lanes) - 1);
        let extra_lanes = vec![VirtualLaneState::new(credit); further];
        let shift = warm_up::bucket_shift(nodes);
        Self {
            topology,
            classes: [full, split],
            channels,
            extra_lanes,
            returns: CreditReturns::default(),
            first,
            first_split: total,
            look_ahead: parameters.switch_delay.max(parameters.adapter_delay),
            packets: PacketPool::default(),
            multicast_tables: Vec::new(),
            shared_buffers: multicast::SharedBuffers::default(),
            samples: SampleFrames::default(),
            queue: EventQueue::new(shift),
            now: SimTime::ZERO,
            faults: FabricFaultInjector::none(),
            counters: FabricCounters::default(),
            trace: 0,
            is_large: nodes > 16_384,
            warm: 0,
            deliver_at_head: false,
            driver: 0,
            is_extended: false,
            ports: None,
            flows: None,
            parameters,
        }
    }

    /// Activates the rules of a plan. Called once, before the first packet.
    pub(crate) fn set_faults(&mut self, plan: &FaultPlan, seed: u64) -> Result<(), FaultPlanError> {
        let channels = (0..self.channel_count()).map(|channel| {
            let (from, lane) = self.origin(channel);
            (from.node, self.destination(channel), lane.0)
        });
        // A fabric of a million hosts has millions of channels: list them only for plans that have rules.
        let channels = if plan.rules.is_empty() { Vec::new() } else { channels.collect() };
        self.faults = FabricFaultInjector::new(plan, seed, &ChannelMap { fabric: &self.topology, channels })?;
        self.adopt_faults();
        Ok(())
    }

    /// Marks the channels that rules watch and schedules the plan's link changes.
    fn adopt_faults(&mut self) {
        for channel in 0..self.channels.len() {
            self.channels[channel].flags.watched = self.faults.watches(channel as ChannelId);
        }
        for (number, at) in self.faults.change_times().into_iter().enumerate() {
            self.push(at, NetworkEventKind::Change, number as u32);
        }
    }

    pub(crate) fn topology(&self) -> &Arc<Fabric> {
        &self.topology
    }

    pub(crate) fn parameters(&self) -> &LinkParameters {
        &self.parameters
    }

    pub(crate) fn now(&self) -> SimTime {
        self.now
    }

    /// The present time in the unit of the protocol machines, rounded down.
    pub(crate) fn machine_time(&self) -> Time {
        self.now.to_nanos()
    }

    /// Packets of drivers that exist now; packets of flows beside them do not count.
    pub(crate) fn packets_in_flight(&self) -> usize {
        self.packets.live_of_drivers()
    }

    /// What packets have left behind, and the packets themselves.
    pub(crate) fn residue(&self) -> FabricResidue {
        let full = u64::from(channel::credit_blocks(self.parameters.buffer_bytes));
        let lanes = self.channels.iter().map(|channel| &channel.lane).chain(&self.extra_lanes);
        FabricResidue {
            packets: self.packets.live() as u64,
            credit_blocks: lanes.map(|lane| full.abs_diff(self.returns.total(lane))).sum(),
            shared_buffers: self.shared_buffers.live() as u64,
            ..FabricResidue::default()
        }
    }

    /// A digest of all events so far: two runs are identical if and only if their digests are.
    pub(crate) fn trace(&self) -> u64 {
        self.trace
    }

    /// Bytes of the network's own state.
    pub(crate) fn memory(&self) -> usize {
        self.channels.capacity() * size_of::<Channel>()
            + self.extra_lanes.capacity() * size_of::<VirtualLaneState>()
            + self.first.capacity() * 4
            + self.returns.memory()
            + self.packets.memory()
    }

    /// The channel out of a node's port; for a split adapter's cable, of the given lane.
    pub(crate) fn channel(&self, from: NodePort, lane: AdapterLane) -> ChannelId {
        if lane.0 == 0 {
            return self.first[from.node.index()] + u32::from(from.port.0);
        }
        let per_host = 2 * (u32::from(self.parameters.adapter_lanes) - 1);
        let within = 2 * (u32::from(lane.0) - 1);
        if self.topology.is_host(from.node) {
            self.first_split + from.node.0 * per_host + within
        } else {
            let host = self.topology.peer(from.node, from.port).expect("a lane belongs to a cabled host port").node;
            self.first_split + host.0 * per_host + within + 1
        }
    }

    /// The port at which a channel starts, and its lane; the inverse of [`Self::channel`].
    pub(crate) fn origin(&self, channel: ChannelId) -> (NodePort, AdapterLane) {
        if channel < self.first_split {
            let node = self.first.partition_point(|first| *first <= channel) - 1;
            let port = FabricPort((channel - self.first[node]) as u16);
            return (NodePort { node: NodeId(node as u32), port }, AdapterLane(0));
        }
        let per_host = 2 * (u32::from(self.parameters.adapter_lanes) - 1);
        let offset = channel - self.first_split;
        let lane = AdapterLane((offset % per_host / 2 + 1) as u8);
        let host = NodePort { node: NodeId(offset / per_host), port: FabricPort(0) };
        if offset.is_multiple_of(2) {
            (host, lane)
        } else {
            (self.topology.peer(host.node, host.port).expect("a split host is cabled"), lane)
        }
    }

    /// The host whose adapter sends on a channel. Hosts have the lowest numbers, so one-port hosts need no search.
    pub(crate) fn host_of(&self, channel: ChannelId) -> NodeId {
        if channel < self.topology.hosts() && self.first[channel as usize] == channel {
            return NodeId(channel);
        }
        self.origin(channel).0.node
    }

    /// The channels on which hosts send: the first of all.
    pub(crate) fn host_channels(&self) -> u32 {
        self.first[self.topology.hosts() as usize]
    }

    /// The number of channels.
    pub(crate) fn channel_count(&self) -> u32 {
        self.channels.len() as u32
    }

    /// The node at the end of a channel.
    pub(crate) fn destination(&self, channel: ChannelId) -> NodeId {
        NodeId(self.channels[channel as usize].to)
    }

    /// Whether a channel's cable is down.
    pub(crate) fn is_down(&self, channel: ChannelId) -> bool {
        self.channels[channel as usize].flags.down
    }

    /// Packets sent so far on a channel.
    pub(crate) fn sent(&self, channel: ChannelId) -> u32 {
        self.channels[channel as usize].sent
    }

    /// Every direction of every cable with a packet, an error or a loss.
    pub(crate) fn link_reports(&self) -> impl Iterator<Item = LinkReport> + '_ {
        (0..self.channel_count()).filter_map(|channel| {
            let tally = self.counters.links.get(&channel).copied().unwrap_or_default();
            let packets = self.sent(channel);
            let (from, lane) = self.origin(channel);
            let bytes = self.telemetry().map_or(0, |telemetry| telemetry.total(channel));
            let report = LinkReport { from: from.node, to: self.destination(channel), lane, packets, bytes, tally };
            (packets > 0 || tally != LinkErrorCounters::default()).then_some(report)
        })
    }

    /// Calls [`NetworkHandler::handle_idle_source`] whenever the channel has no packet to send.
    pub(crate) fn make_source(&mut self, channel: ChannelId) {
        self.channels[channel as usize].flags.source = true;
    }

    /// Sets a timer. The handler chooses the number and gets it back.
    pub(crate) fn set_timer(&mut self, at: SimTime, number: u32) {
        let what = u64::from(self.driver) << DRIVER_SHIFT | (NetworkEventKind::Alarm as u64) << KIND_SHIFT;
        self.queue.push(at, what | u64::from(number));
    }

    /// The driver to which the packet or timer that is being handled belongs.
    pub(crate) fn driver(&self) -> DriverIndex {
        self.driver
    }

    /// Another driver acts from now on, until the next packet or timer.
    pub(crate) fn set_driver(&mut self, driver: DriverIndex) {
        self.driver = driver;
    }

    /// Advances the clock to `at`, if nothing happens before.
    pub(crate) fn skip_to(&mut self, at: SimTime) {
        if self.queue.is_empty() {
            self.now = self.now.max(at);
        }
    }

    /// Runs until `done` returns true after an event, or until no event is left.
    pub(crate) fn run<H: NetworkHandler>(&mut self, handler: &mut H, mut done: impl FnMut(&H, &Self) -> bool) {
        self.deliver_at_head = H::DELIVER_AT_HEAD;
        while !done(handler, self) {
            if !self.step(handler) {
                return;
            }
        }
    }

    /// Handles one event; false if none is left.
    #[inline]
    fn step<H: NetworkHandler>(&mut self, handler: &mut H) -> bool {
        self.warm_up();
        let Some((at, what)) = self.queue.pop() else {
            return false;
        };
        self.now = at;
        self.trace =
            (self.trace ^ at.as_picos() ^ what.rotate_left(40)).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(23);
        let number = what as u32;
        self.driver = (what >> DRIVER_SHIFT) as DriverIndex; // Of a timer; the delivery of a packet sets its own.
        match what >> KIND_SHIFT & 0xff {
            k if k == NetworkEventKind::Head as u64 => self.handle_head(number, handler),
            k if k == NetworkEventKind::Wake as u64 => self.wake(number, handler),
            k if k == NetworkEventKind::Whole as u64 => self.deliver_whole(number, handler),
            k if k == NetworkEventKind::Alarm as u64 => {
                if self.driver == FLOW_DRIVER {
                    self.with_flows(|flows, network| flows.handle_timer(network, number));
                } else {
                    handler.handle_timer(self, number);
                }
            }
            k if k == NetworkEventKind::Pause as u64 => self.handle_pause(number),
            _ => self.change(number, handler),
        }
        true
    }

    #[inline]
    fn push(&mut self, at: SimTime, kind: NetworkEventKind, number: u32) {
        self.queue.push(at, (kind as u64) << KIND_SHIFT | u64::from(number));
    }

    /// Lets flows share the fabric with the driver. Called once, before the first packet.
    pub(crate) fn attach_flows(&mut self, flows: Box<dyn BesideHandler>) {
        self.flows = Some(flows);
        self.with_flows(|flows, network| flows.start(network));
    }

    /// What was attached, if it is of this type.
    pub(crate) fn flows<T: BesideHandler + 'static>(&self) -> Option<&T> {
        self.flows.as_ref()?.as_any().downcast_ref()
    }

    /// Calls the flow engine as the driver of what it sends and sets.
    fn with_flows(&mut self, act: impl FnOnce(&mut dyn BesideHandler, &mut Self)) {
        let Some(mut flows) = self.flows.take() else { return };
        let driver = std::mem::replace(&mut self.driver, FLOW_DRIVER);
        act(&mut *flows, self);
        // What a driver does next, after an event of a flow, is its own.
        self.driver = if driver == FLOW_DRIVER { 0 } else { driver };
        self.flows = Some(flows);
    }

    /// Asks for a call of [`NetworkHandler::handle_idle_source`], or of the flow engine, at `at` or as soon as the channel is free.
    pub(crate) fn wake_source(&mut self, channel: ChannelId, at: SimTime) {
        self.wake_by(channel, at);
    }

    /// Takes the cables of a plan's link change down or brings them up.
    fn change<H: NetworkHandler>(&mut self, number: u32, handler: &mut H) {
        let change = self.faults.change(number);
        for channel in &change.channels {
            self.channels[*channel as usize].flags.down = change.down;
            if !change.down {
                self.wake_by(*channel, self.now);
            }
        }
        handler.handle_link_change(self, &change.channels);
    }
}

#[cfg(test)]
impl LinkParameters {
    /// Four lanes and one virtual lane, with the delays that most tests use.
    pub(crate) fn of_test(rate: crate::link_rate::LinkRate, buffer_bytes: u32) -> Self {
        use crate::link_rate::{ByteTime, LinkWidth};
        Self {
            byte_time: ByteTime::of(LinkWidth::X4, rate),
            wire: SimSpan::from_nanos(10),
            switch_delay: SimSpan::from_nanos(100),
            adapter_delay: SimSpan::from_nanos(200),
            forwarding: Forwarding::CutThrough,
            virtual_lanes: 1,
            buffer_bytes,
            adapter_lanes: 1,
        }
    }
}
