//! The wormhole network: circuits over virtual channels, one event per hop.
//!
//! In: packets, each with its destination. Out: calls of [`AdapterCallbacks`], in the order of time. A packet's head takes one
//! virtual channel of every link on its path and holds it until the circuit closes (QN-4). Once the head has reached its
//! destination, or all of them for a multicast, the data flows at the rate of the most shared link. Flits are not
//! simulated: a circuit has one rate at any time, which changes when another circuit starts or ends on one of its links. With
//! two channels per link that is exact, because two equal shares are the only case (docs/decisions/0011).
//!
//! Reading order: this file defines the state; `head` opens circuits, `stream` moves data, `close` closes them;
//! `link_state` has their faults and counters; `deadlock` finds circuits that wait for each other.

mod close;
#[cfg(test)]
mod deadlock;
mod head;
mod link_state;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use faults::{Probability, RandomStream};
use units::{SimSpan, SimTime};

use super::packet::{AckStatus, CircuitDestination, CircuitPacket, MulticastRule, QsnetParameters};
use super::quaternary_tree::{ARITY, QuaternaryTree, TreeLink};
use super::source_route::SourceRoute;
use simulator::event_queue::EventQueue;

pub(crate) use link_state::LinkTraffic;

/// No circuit, or no waiter.
const NONE: u32 = u32::MAX;
/// The most virtual channels of a link. Every link has room for this many, so that a shift converts a channel to its link.
pub(crate) const MAX_CHANNELS: u32 = 4;

/// The users of the network: the adapters of all nodes.
pub(crate) trait AdapterCallbacks {
    /// The last byte has left the source: it may send the next packet.
    fn drained(&mut self, network: &mut WormholeNetwork, tag: u32);
    /// A packet that closes by acknowledgement has arrived completely, or will have at `at`.
    fn arrived(&mut self, network: &mut WormholeNetwork, node: u32, tag: u32, at: SimTime);
    /// A packet that closes by end token has arrived completely: returns this node's status, and when it is known.
    fn test(&mut self, network: &mut WormholeNetwork, node: u32, tag: u32) -> (AckStatus, SimTime);
    /// The end token reaches a destination at `at` with the combined status.
    fn ended(&mut self, network: &mut WormholeNetwork, node: u32, tag: u32, answer: AckStatus, at: SimTime);
    /// The source learns the combined status at `at`.
    fn closed(&mut self, network: &mut WormholeNetwork, tag: u32, answer: AckStatus, at: SimTime);
    /// A timer that an adapter has set has expired.
    fn timer(&mut self, network: &mut WormholeNetwork, number: u32);
}

/// A virtual channel of a link.
#[derive(Clone, Copy)]
struct VirtualChannel {
    holder: u32,
    /// When the last holder releases it, if it has no holder.
    free_at: SimTime,
    /// A grant event is scheduled for that time.
    grant_scheduled: bool,
}

/// Waiting heads, in the order of arrival.
#[derive(Clone, Copy)]
struct WaitQueue {
    first: u32,
    last: u32,
}

impl WaitQueue {
    const EMPTY: Self = Self { first: NONE, last: NONE };
}

/// A waiting head.
#[derive(Clone, Copy)]
struct Waiter {
    circuit: u32,
    next: u32,
    /// When it arrived.
    since: SimTime,
    /// The only channel that it may take; any if none.
    only: Option<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CircuitPhase {
    Unused,
    /// Heads are on their way.
    Opening,
    /// All heads have arrived; data flows.
    Streaming,
    /// All data has left; the destinations determine their status.
    Answering,
}

struct Circuit {
    phase: CircuitPhase,
    packet: CircuitPacket,
    route: SourceRoute,
    /// The channels that it holds.
    channels: Vec<u32>,
    /// Heads that have not arrived.
    heads: u32,
    /// Links from source to destination.
    links: u32,
    /// The link, down, before which one of its heads ended.
    cut_at: Option<TreeLink>,
    /// When its data began to flow.
    streaming_since: SimTime,
    /// Data that has not left, as picoseconds on an unshared link.
    remaining: u64,
    /// When that was computed.
    since: SimTime,
    /// The time from the last byte's departure to its arrival.
    lag: SimSpan,
    /// The most circuits on any of its links, including itself.
    sharing: u8,
    /// The slowdown against an unshared link, in 1/1024.
    stretch: u64,
    /// Distinguishes the latest drain event from obsolete ones.
    generation: u16,
}

/// A root of multicasts.
struct MulticastRoot {
    holder: u32,
    free_at: SimTime,
    /// The waiting circuits, and since when they wait.
    waiting: VecDeque<(u32, SimTime)>,
}

/// Counters of the network.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct WormholeCounters {
    /// Links taken by heads.
    pub hops: u64,
    /// Packets whose circuits have closed.
    pub packets: u64,
    /// Heads that waited for a channel.
    pub waits: u64,
    /// Packets that were damaged.
    pub damaged: u64,
    /// Events handled.
    pub events: u64,
}

/// The network.
pub(crate) struct WormholeNetwork {
    parameters: QsnetParameters,
    tree: QuaternaryTree,
    now: SimTime,
    queue: EventQueue,
    channels: Vec<VirtualChannel>,
    /// For each link, the circuits whose data flows.
    streaming: Vec<u8>,
    link_queues: Vec<WaitQueue>,
    /// For each switch, the heads that can take any up port.
    switch_queues: Vec<WaitQueue>,
    waiters: Vec<Waiter>,
    free_waiters: Vec<u32>,
    circuits: Vec<Circuit>,
    free_circuits: Vec<u32>,
    roots: Vec<MulticastRoot>,
    damage: RandomStream,
    damage_chance: Probability,
    /// Faults and traffic of the links; none if there is no fault plan.
    links: Option<Box<link_state::LinkState>>,
    failed_link: Option<TreeLink>,
    pub(crate) counters: WormholeCounters,
    trace: u64,
}

/// A scheduled event. The top bits of a queue entry encode its kind.
enum WormholeEvent {
    Head { circuit: u32, link: TreeLink },
    Drained { circuit: u32, generation: u16 },
    Tested { circuit: u32 },
    Grant { link: TreeLink },
    RootFree { root: u32 },
    Timer { number: u32 },
}

impl WormholeEvent {
    #[inline]
    fn encode(self) -> u64 {
        let (kind, high, low) = match self {
            Self::Head { circuit, link } => (0, circuit, link.0),
            Self::Drained { circuit, generation } => (1, circuit, u32::from(generation)),
            Self::Tested { circuit } => (2, circuit, 0),
            Self::Grant { link } => (3, 0, link.0),
            Self::RootFree { root } => (4, 0, root),
            Self::Timer { number } => (5, 0, number),
        };
        (kind << 61) | (u64::from(high) << 32) | u64::from(low)
    }

    #[inline]
    fn decode(entry: u64) -> Self {
        let (circuit, low) = ((entry >> 32) as u32 & 0x1fff_ffff, entry as u32);
        match entry >> 61 {
            0 => Self::Head { circuit, link: TreeLink(low) },
            1 => Self::Drained { circuit, generation: low as u16 },
            2 => Self::Tested { circuit },
            3 => Self::Grant { link: TreeLink(low) },
            4 => Self::RootFree { root: low },
            _ => Self::Timer { number: low },
        }
    }
}

impl WormholeNetwork {
    /// An idle network; none if the parameters are invalid.
    pub(crate) fn new(parameters: QsnetParameters, seed: u64) -> Option<Self> {
        let tree = QuaternaryTree::new(parameters.dimension)?;
        let roots = parameters.rule.roots();
        let fits = (1..=MAX_CHANNELS).contains(&parameters.channels) && roots >= 1;
        // Roots differ in the up ports that the lowest switches use; with the rule each root owns a channel below it.
        let most = match parameters.rule {
            MulticastRule::Serialised { .. } => parameters.channels,
            MulticastRule::Unrestricted { .. } => ARITY,
        };
        if !fits || roots > most || (tree.dimension() == 1 && roots > 1) {
            return None;
        }
        let links = tree.links() as usize;
        let idle = VirtualChannel { holder: NONE, free_at: SimTime::ZERO, grant_scheduled: false };
        let root = || MulticastRoot { holder: NONE, free_at: SimTime::ZERO, waiting: VecDeque::new() };
        Some(Self {
            parameters,
            tree,
            now: SimTime::ZERO,
            queue: EventQueue::new(12),
            channels: vec![idle; links * MAX_CHANNELS as usize],
            streaming: vec![0; links],
            link_queues: vec![WaitQueue::EMPTY; links],
            switch_queues: vec![WaitQueue::EMPTY; tree.switches() as usize],
            waiters: Vec::new(),
            free_waiters: Vec::new(),
            circuits: Vec::new(),
            free_circuits: Vec::new(),
            roots: std::iter::repeat_with(root).take(roots as usize).collect(),
            damage: RandomStream::new(seed, 0xc4c),
            damage_chance: Probability::new(parameters.damage),
            links: None,
            failed_link: None,
            counters: WormholeCounters::default(),
            trace: 0,
        })
    }

    pub(crate) fn now(&self) -> SimTime {
        self.now
    }

    pub(crate) fn nodes(&self) -> u32 {
        self.tree.nodes()
    }

    pub(crate) fn tree(&self) -> QuaternaryTree {
        self.tree
    }

    pub(crate) fn parameters(&self) -> &QsnetParameters {
        &self.parameters
    }

    /// Bytes of channels, queues and circuits.
    pub(crate) fn memory(&self) -> usize {
        let queues = self.link_queues.len() + self.switch_queues.len();
        self.channels.len() * size_of::<VirtualChannel>()
            + queues * size_of::<WaitQueue>()
            + self.waiters.capacity() * size_of::<Waiter>()
            + self.circuits.capacity() * size_of::<Circuit>()
    }

    /// The digest of all events so far.
    pub(crate) fn trace(&self) -> u64 {
        self.trace
    }

    /// Schedules [`AdapterCallbacks::timer`], not before now.
    pub(crate) fn set_timer(&mut self, at: SimTime, number: u32) {
        self.queue.push(at.max(self.now), WormholeEvent::Timer { number }.encode());
    }

    /// Handles events until `done` returns true or no event is left.
    pub(crate) fn run<A: AdapterCallbacks>(&mut self, adapters: &mut A, mut done: impl FnMut(&A, &Self) -> bool) {
        while !done(adapters, self) {
            let Some((at, entry)) = self.queue.pop() else { return };
            self.now = at;
            self.counters.events += 1;
            self.trace = (self.trace ^ at.as_picos().rotate_left(32) ^ entry).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            match WormholeEvent::decode(entry) {
                WormholeEvent::Head { circuit, link } => self.handle_head(circuit, link),
                WormholeEvent::Drained { circuit, generation } => self.handle_drained(adapters, circuit, generation),
                WormholeEvent::Tested { circuit } => self.handle_tested(adapters, circuit),
                WormholeEvent::Grant { link } => self.grant(link),
                WormholeEvent::RootFree { root } => self.handle_root_free(root),
                WormholeEvent::Timer { number } => adapters.timer(self, number),
            }
        }
    }

    /// The latency of the first bit over this many links, without contention.
    pub(crate) fn latency(&self, links: u32) -> SimSpan {
        let QsnetParameters { switch_delay, wire, .. } = self.parameters;
        SimSpan::from_picos(
            wire.as_picos() * u64::from(links) + switch_delay.as_picos() * u64::from(links.max(1) - 1),
        )
    }

    #[inline]
    fn link_of(&self, channel: u32) -> TreeLink {
        TreeLink(channel / MAX_CHANNELS)
    }

    /// The number of links between the source and this link, on a path of `links` links.
    #[inline]
    fn depth(&self, link: TreeLink, links: u32) -> u32 {
        let level = self.tree.level_of(link).min(links - 1);
        if self.tree.leads_up(link) { level } else { links - 1 - level }
    }

    /// The nodes that a circuit leads to, or the number of its only link.
    fn destinations(packet: &CircuitPacket) -> std::ops::RangeInclusive<u32> {
        match packet.to {
            CircuitDestination::Node(node) => node..=node,
            CircuitDestination::Range { first, last, .. } => first..=last,
            CircuitDestination::Link(link) => link.0..=link.0,
        }
    }
}
