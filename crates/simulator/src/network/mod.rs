//! The fabric in motion: channels, switches that forward, credits, multicast. A plain router.
//!
//! In: packets injected at a channel, and time. Out: arrivals handed to the [`NetworkHandler`] at the nodes. What the
//! packets mean is the parties' business; what befalls them is the fault rules' (`crate::fault`).
//!
//! A hop costs one event when the way is free: whoever sends decides at once when the head reaches the next
//! device. Only a packet that must wait costs a second one. This is exact, not an approximation: packets of one
//! device become ready in the order in which they came (its delay is the same for all), so a later one could not
//! have overtaken; where that does not hold (a slow link feeding a fast one), the packet takes the waiting path.

mod channel;
mod hop;
mod multicast;
mod packet;
mod packet_check;
#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;

use topology::{Fabric, FabricPort, NodeId, NodePort};
use units::{Lane as AdapterLane, SimSpan, SimTime};

pub(crate) use channel::ChannelId;
pub(crate) use multicast::MulticastForwardingTable;
pub(crate) use packet::{DeviceCorruption, PacketCorruption, PacketTarget, SimulatedPacket};
pub(crate) use packet_check::{EndToEndCheck, LinkCheck, check_end_to_end};

use crate::counters::FabricCounters;
use crate::event_queue::EventQueue;
use crate::fault::{ChannelMap, FabricFaultInjector, FaultPlan, FaultPlanError};
use crate::link_rate::ByteTime;
use crate::packet_body::PacketBody;
use channel::{Channel, ChannelFlags, CreditReturns, LinkClass, VirtualLaneState};
use packet::PacketPool;
use packet_check::SampleFrames;

/// How switches pass a packet on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forwarding {
    /// The head leaves while the tail is still coming in.
    CutThrough,
    /// The packet is received whole first.
    StoreAndForward,
}

/// The fabric's constants.
#[derive(Clone, Debug)]
pub struct LinkParameters {
    /// What a byte costs on a full port.
    pub byte_time: ByteTime,
    /// SimTime of flight of every cable.
    pub wire: SimSpan,
    /// From the head's arrival at a switch to its earliest departure; also what an aggregation takes.
    pub switch_delay: SimSpan,
    /// What an adapter takes to send, and to hand over what it received.
    pub adapter_delay: SimSpan,
    /// How switches pass packets on.
    pub forwarding: Forwarding,
    /// Virtual lanes, at most 15 (IB specification 7.6.2).
    pub virtual_lanes: u8,
    /// Input buffer of each virtual lane of each port, in bytes.
    pub buffer_bytes: u32,
    /// Into how many independent channels each adapter port is split (SE-8); 1: not at all.
    pub adapter_lanes: u8,
}

/// What happened at a node.
pub(crate) struct DeliveredPacket {
    pub channel: ChannelId,
    pub bytes: u32,
    pub born: SimTime,
    pub body: Option<Rc<PacketBody>>,
    pub harm: Option<Box<PacketCorruption>>,
}

/// Whoever sits at the nodes.
pub(crate) trait NetworkHandler {
    /// Hand over at the head's arrival instead of waiting for the tail: for pure background traffic, whose
    /// receivers do nothing, it saves an event per packet.
    const AT_THE_HEAD: bool = false;
    /// A packet has arrived whole.
    fn arrived(&mut self, network: &mut SimulatedNetwork, arrival: DeliveredPacket);
    /// A source channel has nothing left to send.
    fn refill(&mut self, network: &mut SimulatedNetwork, channel: ChannelId);
    /// An alarm set with [`SimulatedNetwork::set_alarm`] goes off.
    fn alarm(&mut self, network: &mut SimulatedNetwork, number: u32);
    /// The fault plan took these channels down or brought them up again.
    fn channels_changed(&mut self, _: &mut SimulatedNetwork, _: &[ChannelId]) {}
}

/// Kinds of events.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Kind {
    /// A fault plan's change of the world.
    Change = 0,
    /// The head of a packet reaches the end of its channel.
    Head = 1,
    /// A packet has arrived whole at its destination.
    Whole = 2,
    /// A channel may be able to send.
    Wake = 3,
    /// A party's alarm.
    Alarm = 4,
}

const KIND_SHIFT: u32 = 32;

/// Events whose memory is touched at once.
const BURST: usize = 64;

/// The fabric in motion.
pub(crate) struct SimulatedNetwork {
    topology: Arc<Fabric>,
    parameters: LinkParameters,
    /// Full ports and, if adapters are split, their lanes.
    classes: [LinkClass; 2],
    channels: Vec<Channel>,
    /// Virtual lanes from the second on, for each channel.
    further_lanes: Vec<VirtualLaneState>,
    returns: CreditReturns,
    /// The first channel of each node; its port `p` sends on `first + p`.
    first: Vec<u32>,
    /// The first channel of the second and further adapter lanes.
    first_split: u32,
    /// The usual delay of a device: how far ahead of its departure a packet's fate can be settled.
    look_ahead: SimSpan,
    packets: PacketPool,
    branches: Vec<MulticastForwardingTable>,
    holdings: multicast::SharedBuffers,
    samples: SampleFrames,
    queue: EventQueue,
    now: SimTime,
    pub(crate) faults: FabricFaultInjector,
    pub(crate) counters: FabricCounters,
    trace: u64,
    /// Its state does not fit the caches.
    is_large: bool,
    /// Events ahead whose memory has been touched.
    warm: u32,
    /// What [`NetworkHandler::AT_THE_HEAD`] says.
    parties_at_the_head: bool,
}

impl SimulatedNetwork {
    /// The fabric at rest.
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
            turn: 0,
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
        let further_lanes = vec![VirtualLaneState::new(credit); further];
        let shift = bucket_shift(nodes);
        Self {
            topology,
            classes: [full, split],
            channels,
            further_lanes,
            returns: CreditReturns::default(),
            first,
            first_split: total,
            look_ahead: parameters.switch_delay.max(parameters.adapter_delay),
            packets: PacketPool::default(),
            branches: Vec::new(),
            holdings: multicast::SharedBuffers::default(),
            samples: SampleFrames::default(),
            queue: EventQueue::new(shift),
            now: SimTime::ZERO,
            faults: FabricFaultInjector::none(),
            counters: FabricCounters::default(),
            trace: 0,
            is_large: nodes > 16_384,
            warm: 0,
            parties_at_the_head: false,
            parameters,
        }
    }

    /// Puts a plan's rules in force. Done once, before anything moves.
    pub(crate) fn set_faults(&mut self, plan: &FaultPlan, seed: u64) -> Result<(), FaultPlanError> {
        let channels = (0..self.channel_count()).map(|channel| {
            let (from, lane) = self.origin(channel);
            (from.node, self.destination(channel), lane.0)
        });
        // A million hosts have millions of channels: they are listed only for plans that name some.
        let channels = if plan.rules.is_empty() { Vec::new() } else { channels.collect() };
        self.faults = FabricFaultInjector::new(plan, seed, &ChannelMap { fabric: &self.topology, channels })?;
        self.adopt_faults();
        Ok(())
    }

    /// Marks the channels that rules watch and schedules the plan's changes.
    fn adopt_faults(&mut self) {
        for channel in 0..self.channels.len() {
            self.channels[channel].flags.watched = self.faults.watches(channel as ChannelId);
        }
        for (number, at) in self.faults.change_times().into_iter().enumerate() {
            self.push(at, Kind::Change, number as u32);
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

    /// Packets that exist now.
    pub(crate) fn packets_in_flight(&self) -> usize {
        self.packets.live()
    }

    /// A digest of every event so far: two runs are the same run if and only if it is the same.
    pub(crate) fn trace(&self) -> u64 {
        self.trace
    }

    /// Bytes of the fabric's own state.
    pub(crate) fn memory(&self) -> usize {
        self.channels.capacity() * size_of::<Channel>()
            + self.further_lanes.capacity() * size_of::<VirtualLaneState>()
            + self.first.capacity() * 4
            + self.returns.memory()
            + self.packets.memory()
    }

    /// The channel out of a node's port; of a split adapter's cable, the given lane.
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

    /// Where a channel starts, and which lane it is; the inverse of [`Self::channel`].
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

    /// The host whose adapter sends on a channel. Hosts come first, so one-port hosts need no search.
    pub(crate) fn host_of(&self, channel: ChannelId) -> NodeId {
        if channel < self.topology.hosts() && self.first[channel as usize] == channel {
            return NodeId(channel);
        }
        self.origin(channel).0.node
    }

    /// How many channels there are.
    pub(crate) fn channel_count(&self) -> u32 {
        self.channels.len() as u32
    }

    /// The node at the end of a channel.
    pub(crate) fn destination(&self, channel: ChannelId) -> NodeId {
        NodeId(self.channels[channel as usize].to)
    }

    /// Whether a channel's cable is down now.
    pub(crate) fn is_down(&self, channel: ChannelId) -> bool {
        self.channels[channel as usize].flags.down
    }

    /// Packets sent so far on a channel.
    pub(crate) fn sent(&self, channel: ChannelId) -> u32 {
        self.channels[channel as usize].sent
    }

    /// Asks for [`NetworkHandler::refill`] whenever the channel has nothing to send.
    pub(crate) fn make_source(&mut self, channel: ChannelId) {
        self.channels[channel as usize].flags.source = true;
    }

    /// Sets an alarm. The party that gets it must know what it is for.
    pub(crate) fn set_alarm(&mut self, at: SimTime, number: u32) {
        self.push(at, Kind::Alarm, number);
    }

    /// Runs until `done` says so after an event, or nothing is left to happen.
    pub(crate) fn run<P: NetworkHandler>(&mut self, parties: &mut P, mut done: impl FnMut(&P, &Self) -> bool) {
        self.parties_at_the_head = P::AT_THE_HEAD;
        while !done(parties, self) {
            if !self.step(parties) {
                return;
            }
        }
    }

    /// One event; false if none is left.
    #[inline]
    fn step<P: NetworkHandler>(&mut self, parties: &mut P) -> bool {
        self.warm_up();
        let Some((at, what)) = self.queue.pop() else {
            return false;
        };
        self.now = at;
        self.trace =
            (self.trace ^ at.as_picos() ^ what.rotate_left(40)).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(23);
        let number = what as u32;
        match what >> KIND_SHIFT {
            k if k == Kind::Head as u64 => self.head(number, parties),
            k if k == Kind::Wake as u64 => self.wake(number, parties),
            k if k == Kind::Whole as u64 => self.hand_over(number, parties),
            k if k == Kind::Alarm as u64 => parties.alarm(self, number),
            _ => self.change(number, parties),
        }
        true
    }

    /// Touches what the next few events will need. On large fabrics a hop is mostly waiting for memory; in a burst the
    /// waits overlap, because no load of it depends on another. First the packets, then the channels they came on,
    /// then, with the routes worked out and noted on the packets, the channels on which they will leave.
    #[inline]
    fn warm_up(&mut self) {
        if !self.is_large {
            return;
        }
        if self.warm > 0 {
            self.warm -= 1;
            return;
        }
        self.warm_up_burst();
    }

    fn warm_up_burst(&mut self) {
        self.queue.look_ahead();
        let mut soon = [(0u64, 0u32); BURST];
        let mut count = 0;
        while let Some(what) = self.queue.peek(count).filter(|_| count < BURST) {
            soon[count] = (what >> KIND_SHIFT, what as u32);
            count += 1;
        }
        self.warm = count as u32;
        let is_wake = |kind: u64| kind == Kind::Wake as u64;
        let packets = soon[..count].iter().filter(|(kind, _)| !is_wake(*kind));
        let touched =
            packets.fold(0, |sum, (_, index)| sum ^ self.packets.peek(*index).map_or(0, |packet| packet.to));
        std::hint::black_box(touched);
        let came_on = |(kind, number): &(u64, u32)| {
            if is_wake(*kind) { *number } else { self.packets.peek(*number).map_or(0, |packet| packet.came_on) }
        };
        let channels = soon[..count].iter().filter_map(|event| self.channels.get(came_on(event) as usize));
        std::hint::black_box(channels.fold(0, |sum, channel| sum ^ channel.to));
        // What each event leads to: for a head the channel it leaves on, for a wake the packet that waits there. The
        // routes are worked out before any of it is touched: a long computation between two loads would keep them apart.
        let mut next = [u32::MAX; BURST];
        for ((kind, number), next) in soon[..count].iter().zip(&mut next) {
            if *kind == Kind::Head as u64 {
                self.find_way(*number);
                *next = self.packets[*number].next;
            } else if is_wake(*kind) {
                *next = self.channels[*number as usize].lane.head;
            }
        }
        let mut touched = 0;
        for ((kind, _), next) in soon[..count].iter().zip(&next) {
            touched ^= if is_wake(*kind) {
                self.packets.peek(*next).map_or(0, |packet| packet.bytes)
            } else {
                self.channels.get(*next as usize).map_or(0, |channel| channel.to)
            };
        }
        // And one step further: behind whom a head would have to queue, and whose buffer a waiting packet leaves.
        for ((kind, _), next) in soon[..count].iter().zip(&next) {
            if *kind == Kind::Head as u64 {
                let last = self.channels.get(*next as usize).map_or(u32::MAX, |channel| channel.lane.tail);
                touched ^= self.packets.peek(last).map_or(0, |packet| packet.bytes);
            } else if is_wake(*kind) {
                let left = self.packets.peek(*next).map_or(u32::MAX, |packet| packet.came_on);
                touched ^= self.channels.get(left as usize).map_or(0, |channel| channel.to);
            }
        }
        std::hint::black_box(touched);
    }

    #[inline]
    fn push(&mut self, at: SimTime, kind: Kind, number: u32) {
        self.queue.push(at, (kind as u64) << KIND_SHIFT | u64::from(number));
    }

    /// A cable goes down or comes up, as the plan says.
    fn change<P: NetworkHandler>(&mut self, number: u32, parties: &mut P) {
        let change = self.faults.change(number);
        for channel in &change.channels {
            self.channels[*channel as usize].flags.down = change.down;
            if !change.down {
                self.wake_by(*channel, self.now);
            }
        }
        parties.channels_changed(self, &change.channels);
    }
}

/// The width of the queue's fine buckets, as a power of two of picoseconds: a bucket should hold enough events for a
/// whole burst of warm-up, and few enough to be sorted in the nearest caches.
fn bucket_shift(nodes: u32) -> u32 {
    if nodes < 262_144 { 10 } else { 8 }
}
