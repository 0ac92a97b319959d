//! The wormhole network: circuits over virtual channels, one event a hop.
//!
//! In: packets, each with its destination. Out: calls of [`AdapterCallbacks`], in the order of time. A packet's head takes one
//! virtual channel of every link on its way and keeps it until the circuit closes (QN-4). Once the head is at its
//! destination, at all of them for a multicast, the data flows as fast as the most crowded link lets it. Flits are not
//! simulated: a circuit has one rate at any time, and it changes when another begins or ends on one of its links. With
//! two channels a link that is exact, because two fair halves are all that can happen (docs/decisions/0011).
//!
//! Reading order: this file holds what there is; `head` opens circuits, `stream` moves data, `close` takes them down;
//! `deadlock` tells who waits for whom in vain.

mod close;
#[cfg(test)]
mod deadlock;
mod head;
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

/// Nobody.
const NONE: u32 = u32::MAX;
/// The most virtual channels of a link. Every link has room for as many, so that a channel's number tells its link by a shift.
pub(crate) const MAX_CHANNELS: u32 = 4;

/// Who uses the network: the adapters of all nodes.
pub(crate) trait AdapterCallbacks {
    /// The last byte has left the source: it may send the next packet.
    fn drained(&mut self, network: &mut WormholeNetwork, tag: u32);
    /// A packet that closes by acknowledgement has come whole, or will have at `at`.
    fn arrived(&mut self, network: &mut WormholeNetwork, node: u32, tag: u32, at: SimTime);
    /// A packet that closes by end token has come whole: what does this node say, and when?
    fn test(&mut self, network: &mut WormholeNetwork, node: u32, tag: u32) -> (AckStatus, SimTime);
    /// The end token comes by at `at` and tells a destination what all have said together.
    fn ended(&mut self, network: &mut WormholeNetwork, node: u32, tag: u32, answer: AckStatus, at: SimTime);
    /// The source hears at `at` what the destinations say together.
    fn closed(&mut self, network: &mut WormholeNetwork, tag: u32, answer: AckStatus, at: SimTime);
    /// An alarm that an adapter has set.
    fn alarm(&mut self, network: &mut WormholeNetwork, number: u32);
}

/// A virtual channel of a link.
#[derive(Clone, Copy)]
struct VirtualChannel {
    holder: u32,
    /// When the last holder lets go, if nobody holds it.
    free_at: SimTime,
    /// Those who wait will be looked at when that is so.
    told: bool,
}

/// Heads that wait, first come first.
#[derive(Clone, Copy)]
struct WaitQueue {
    first: u32,
    last: u32,
}

impl WaitQueue {
    const EMPTY: Self = Self { first: NONE, last: NONE };
}

/// A head in a line.
#[derive(Clone, Copy)]
struct Waiter {
    circuit: u32,
    next: u32,
    /// When it came.
    since: SimTime,
    /// The only channel that it may take, if it may not take any.
    only: Option<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CircuitPhase {
    Unused,
    /// Heads are under way.
    Opening,
    /// All are there, data flows.
    Streaming,
    /// All data has left; destinations make up their answers.
    Answering,
}

struct Circuit {
    phase: CircuitPhase,
    packet: CircuitPacket,
    route: SourceRoute,
    /// What it holds.
    channels: Vec<u32>,
    /// Heads that are not at their destinations.
    heads: u32,
    /// Links from source to destination.
    links: u32,
    /// Data that has not left, as picoseconds on a link of its own.
    remaining: u64,
    /// When that was so.
    since: SimTime,
    /// From the last byte's departure to its arrival.
    lag: SimSpan,
    /// The most circuits with which it shares a link, itself included.
    crowd: u8,
    /// How much longer than on a link of its own a byte takes, in 1/1024.
    stretch: u64,
    /// Tells the newest drain event from older ones.
    generation: u16,
}

/// A root of multicasts.
struct MulticastRoot {
    holder: u32,
    free_at: SimTime,
    /// Who waits, and since when.
    waiting: VecDeque<(u32, SimTime)>,
}

/// What has happened.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct WormholeCounters {
    /// Links that heads have taken.
    pub hops: u64,
    /// Packets whose circuits have closed.
    pub packets: u64,
    /// Heads that had to wait for a channel.
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
    /// Circuits whose data flows, for each link.
    streaming: Vec<u8>,
    lines: Vec<WaitQueue>,
    /// Heads that take any port up, for each switch.
    groups: Vec<WaitQueue>,
    waiters: Vec<Waiter>,
    free_waiters: Vec<u32>,
    circuits: Vec<Circuit>,
    free_circuits: Vec<u32>,
    roots: Vec<MulticastRoot>,
    damage: RandomStream,
    damage_chance: Probability,
    pub(crate) counters: WormholeCounters,
    trace: u64,
}

/// What is due. The number of the kind is in the top bits of a queue entry.
enum WormholeEvent {
    Head { circuit: u32, link: TreeLink },
    Drained { circuit: u32, generation: u16 },
    Tested { circuit: u32 },
    Grant { link: TreeLink },
    RootFree { root: u32 },
    Alarm { number: u32 },
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
            Self::Alarm { number } => (5, 0, number),
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
            _ => Self::Alarm { number: low },
        }
    }
}

impl WormholeNetwork {
    /// The network at rest; none if the parameters make no network.
    pub(crate) fn new(parameters: QsnetParameters, seed: u64) -> Option<Self> {
        let tree = QuaternaryTree::new(parameters.dimension)?;
        let roots = parameters.rule.roots();
        let fits = (1..=MAX_CHANNELS).contains(&parameters.channels) && roots >= 1;
        // Roots differ in the ports that lowest switches take up; with the rule each owns a channel below.
        let most = match parameters.rule {
            MulticastRule::Serialised { .. } => parameters.channels,
            MulticastRule::Unruled { .. } => ARITY,
        };
        if !fits || roots > most || (tree.dimension() == 1 && roots > 1) {
            return None;
        }
        let links = tree.links() as usize;
        let idle = VirtualChannel { holder: NONE, free_at: SimTime::ZERO, told: false };
        let root = || MulticastRoot { holder: NONE, free_at: SimTime::ZERO, waiting: VecDeque::new() };
        Some(Self {
            parameters,
            tree,
            now: SimTime::ZERO,
            queue: EventQueue::new(12),
            channels: vec![idle; links * MAX_CHANNELS as usize],
            streaming: vec![0; links],
            lines: vec![WaitQueue::EMPTY; links],
            groups: vec![WaitQueue::EMPTY; tree.switches() as usize],
            waiters: Vec::new(),
            free_waiters: Vec::new(),
            circuits: Vec::new(),
            free_circuits: Vec::new(),
            roots: std::iter::repeat_with(root).take(roots as usize).collect(),
            damage: RandomStream::new(seed, 0xc4c),
            damage_chance: Probability::new(parameters.damage),
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

    /// The digest of all events so far.
    pub(crate) fn trace(&self) -> u64 {
        self.trace
    }

    /// Calls [`AdapterCallbacks::alarm`] at a time not before now.
    pub(crate) fn set_alarm(&mut self, at: SimTime, number: u32) {
        self.queue.push(at.max(self.now), WormholeEvent::Alarm { number }.encode());
    }

    /// Handles events until `done` says so or nothing is left to happen.
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
                WormholeEvent::Alarm { number } => adapters.alarm(self, number),
            }
        }
    }

    /// From the first bit's departure to its arrival over so many links, if nothing is in the way.
    pub(crate) fn way(&self, links: u32) -> SimSpan {
        let QsnetParameters { switch_delay, wire, .. } = self.parameters;
        SimSpan::from_picos(
            wire.as_picos() * u64::from(links) + switch_delay.as_picos() * u64::from(links.max(1) - 1),
        )
    }

    #[inline]
    fn link_of(&self, channel: u32) -> TreeLink {
        TreeLink(channel / MAX_CHANNELS)
    }

    /// How many links lie between source and this one, on a way of so many.
    #[inline]
    fn depth(&self, link: TreeLink, links: u32) -> u32 {
        let level = self.tree.level_of(link).min(links - 1);
        if self.tree.leads_up(link) { level } else { links - 1 - level }
    }

    /// Nodes that a circuit leads to, or the number of its only link.
    fn destinations(packet: &CircuitPacket) -> std::ops::RangeInclusive<u32> {
        match packet.to {
            CircuitDestination::Node(node) => node..=node,
            CircuitDestination::Range { first, last, .. } => first..=last,
            CircuitDestination::Link(link) => link.0..=link.0,
        }
    }
}
