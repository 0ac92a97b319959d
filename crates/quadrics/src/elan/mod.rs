//! Elan adapters and their hosts: processors that do one thing after the other, and what the nodes run on them.
//!
//! In: what the network says ([`AdapterCallbacks`]) and alarms. Out: packets. Each adapter has a command, a DMA, an inputter and a
//! thread processor (QN-1), each with its costs, and a memory that all data to and from it shares; a host's word goes over
//! the PCI bus, and so does data to and from main memory. A node receives multicasts for one process (QN-6). Reading order: `costs`, `dma`, `collective_program` (collectives),
//! `remote_atomics` (operations on words elsewhere), `folded_barrier` (a barrier in the switches), `library` (processes, addresses, groups),
//! `events` and `tports`; `slab` keeps numbered things.

mod collective_program;
mod costs;
mod dma;
mod events;
mod folded_barrier;
mod library;
mod remote_atomics;
mod slab;
#[cfg(test)]
mod tests;
mod tports;

use std::collections::BTreeMap;

use protocol::collective::quadrics::{
    BroadcastSynchronization, CallNumber, PollBackoff, PolledBarrier, QuadricsAction, QuadricsMembers,
    SynchronizedBroadcast, TreeBarrier,
};
use units::{Rank, SimSpan, SimTime};

use self::collective_program::{CollectiveSignal, RankMachine, RunningCollective};
use self::dma::{ActiveDma, DmaCompletion, DmaDescriptor, DmaEngine, PacketAttempt};
use self::slab::Slab;
use super::packet::{AckStatus, CircuitDestination, QsnetParameters};
use super::quaternary_tree::{EliteSwitch, TreeLink};
use super::saturation::SaturationPattern;
use super::wormhole::{AdapterCallbacks, WormholeCounters, WormholeNetwork};
use faults::RandomStream;
use simulator::processor::HostProcessors;

pub use collective_program::{BroadcastBuffers, HostWakeup};
pub use costs::{ElanCosts, MemoryLocation};
pub use events::{DmaEvents, ElanEvent};
pub use folded_barrier::SwitchFoldCosts;
pub use library::{ElanAddress, ElanGroup, ElanLibrary, ElanLibraryError, Vpid};
pub use remote_atomics::{AtomicResult, FloodResult, RemoteAtomic};
pub use tports::{TportEnvelope, TportMatch, TportQueue, TportReceive};

/// Nobody.
const NONE: u32 = u32::MAX;
/// The port of a ping that is matched, and its tag.
const PING_PORT: u32 = u32::MAX;
const PING_TAG: u32 = 0;

/// Traffic besides: one sender and one receiver on every node, always busy (QN-11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ElanBackground {
    /// Who sends to whom, chosen anew for each message.
    pub pattern: SaturationPattern,
    /// Bytes of a message, from adapter memory to adapter memory.
    pub message_bytes: u32,
}

/// What a group does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElanCollective {
    /// *gsync*.
    TreeBarrier,
    /// *hgsync* and *hgsyncEvent*.
    TestBarrier {
        /// How hosts learn that it is over.
        wake: HostWakeup,
        /// How the root asks again.
        back_off: PollBackoff,
    },
    /// A barrier that the switches fold, among all nodes.
    FoldedBarrier(SwitchFoldCosts),
    /// *bcast* and *hbcast*.
    Broadcast {
        /// How it begins.
        synchronisation: BroadcastSynchronization,
        /// How much.
        bytes: u32,
        /// From and to where.
        memory: MemoryLocation,
        /// Which buffers.
        buffers: BroadcastBuffers,
    },
}

/// A group and how often it does what.
#[derive(Clone, Debug)]
pub struct ElanWorkload {
    /// What.
    pub operation: ElanCollective,
    /// Who: one process of each of these nodes receives.
    pub members: QuadricsMembers,
    /// Processes of each node, itself included.
    pub processes: u32,
    /// Which root its multicasts take.
    pub multicast_root: u32,
    /// How often, one right after the other.
    pub calls: u32,
    /// If it is not over by then it never ends.
    pub patience: SimSpan,
}

/// By which library a ping goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ElanTransport {
    /// A remote DMA and its events (Elan3lib).
    Rdma,
    /// Tagged ports, which the thread processor matches (Elanlib, MPI).
    Tports,
}

/// Nodes, adapters and the network between them.
pub struct ElanCluster {
    network: WormholeNetwork,
    elans: ElanAdapters,
}

#[derive(Debug, Default)]
struct ElanNode {
    engine: DmaEngine,
    command_free: SimTime,
    input_free: SimTime,
    thread_free: SimTime,
    memory_free: SimTime,
}

/// What an adapter waits for.
#[derive(Clone, Copy, Debug)]
enum AdapterEvent {
    Entered(Rank),
    DmaQueued(u32),
    DmaStarted(u32),
    SendAgain { number: u32, data: u32 },
    Given { number: u32, data: u32, is_last: bool },
    Background(u32),
    ThreadSees { node: u32, signal: CollectiveSignal },
    Seen { node: u32, signal: CollectiveSignal },
    Taken { node: u32, signal: CollectiveSignal },
    TestGoes { rank: Rank, call: CallNumber },
    Verdict { rank: Rank, call: CallNumber, answer: AckStatus },
    Again(Rank),
    AtomicGoes(u32),
    WordGoes(TreeLink),
    WordCounts(EliteSwitch),
    PassDown(EliteSwitch),
    Matched { owner: u32, envelope: TportEnvelope },
    Received { owner: u32, matched: TportMatch },
    Count { node: u32, word: u32 },
    Flooded(AckStatus),
    Pinged,
    Nothing,
}

/// A packet in the network, by its tag.
#[derive(Clone, Copy, Debug)]
enum InFlightPacket {
    Dma { number: u32, data: u32, turn: PacketAttempt },
    Test { rank: Rank, call: CallNumber },
    Atomic { number: u32 },
    Word(TreeLink),
}

struct ElanAdapters {
    costs: ElanCosts,
    nodes: Vec<ElanNode>,
    processors: HostProcessors,
    dmas: Slab<ActiveDma>,
    packets: Slab<InFlightPacket>,
    steps: Slab<AdapterEvent>,
    atomics: Slab<remote_atomics::PendingAtomic>,
    /// Words that have been written, by node and address.
    words: BTreeMap<(u32, u32), u64>,
    fetched: Option<AtomicResult>,
    flooded: Option<(AckStatus, SimTime)>,
    background: Option<ElanBackground>,
    stream: RandomStream,
    messages: u64,
    turns: Vec<u64>,
    job: Option<RunningCollective>,
    /// Ranks by node.
    ranks: Vec<u32>,
    duties: Vec<QuadricsAction>,
    fold: Option<folded_barrier::FoldedBarrier>,
    /// Ports by process.
    ports: BTreeMap<u32, TportQueue>,
    /// What processes have got and not yet looked at.
    received: Vec<(u32, TportMatch)>,
    pinged: Option<SimTime>,
}

impl ElanCluster {
    /// Every node at rest but for the background; none if the parameters make no network.
    pub fn new(
        fabric: QsnetParameters,
        costs: ElanCosts,
        background: Option<ElanBackground>,
        seed: u64,
    ) -> Option<Self> {
        let network = WormholeNetwork::new(fabric, seed)?;
        let nodes = network.nodes();
        let elans = ElanAdapters {
            costs,
            nodes: std::iter::repeat_with(ElanNode::default).take(nodes as usize).collect(),
            processors: HostProcessors::new(nodes, costs.noise, seed),
            dmas: Slab::default(),
            packets: Slab::default(),
            steps: Slab::default(),
            atomics: Slab::default(),
            words: BTreeMap::new(),
            fetched: None,
            flooded: None,
            background,
            stream: RandomStream::new(seed, 0xbac4),
            messages: 0,
            turns: vec![0; nodes as usize],
            job: None,
            ranks: vec![NONE; nodes as usize],
            duties: Vec::new(),
            fold: None,
            ports: BTreeMap::new(),
            received: Vec::new(),
            pinged: None,
        };
        let mut cluster = Self { network, elans };
        if background.is_some() {
            for node in 0..nodes {
                cluster.elans.send_background(&mut cluster.network, node);
            }
        }
        Some(cluster)
    }

    /// Lets time pass.
    pub fn pass(&mut self, span: SimSpan) {
        let until = self.network.now() + span;
        // Something must happen at that time, or nothing would stop the run before it.
        self.elans.schedule(&mut self.network, until, AdapterEvent::Nothing);
        self.network.run(&mut self.elans, |_, network| network.now() >= until);
    }

    /// From posting a DMA until the destination's host knows that all is there.
    pub fn ping(
        &mut self,
        from: u32,
        to: u32,
        bytes: u32,
        memory: MemoryLocation,
        via: ElanTransport,
    ) -> Option<SimSpan> {
        if from.max(to) >= self.network.nodes() {
            return None;
        }
        let begun = self.network.now();
        self.elans.pinged = None;
        let destination_event = match via {
            ElanTransport::Rdma => DmaCompletion::Ping,
            ElanTransport::Tports => {
                let mut port = TportQueue::new(1);
                let _ = port.post(TportReceive { from: Some(from), tag: Some(PING_TAG), number: 0 });
                self.elans.ports.insert(PING_PORT, port);
                DmaCompletion::Message { owner: PING_PORT, envelope: TportEnvelope { from, tag: PING_TAG, bytes } }
            }
        };
        let to = CircuitDestination::Node(to);
        let dma = DmaDescriptor { from, to, bytes, memory, source_event: DmaCompletion::Nothing, destination_event };
        let ready = self.elans.command(from, begun);
        self.elans.start_dma(&mut self.network, dma, ready);
        self.network.run(&mut self.elans, |elans, _| elans.pinged.is_some());
        Some(self.elans.pinged?.since(begun))
    }

    /// What each call took at the root of the group; none if the calls do not end, or the group does not fit.
    pub fn run(&mut self, task: &ElanWorkload) -> Option<Vec<SimSpan>> {
        let size = task.members.size();
        let nodes = (0..size).map(|rank| task.members.node(Rank(rank)));
        if !nodes.clone().all(|node| node.is_some_and(|node| node < self.network.nodes())) {
            return None;
        }
        if task.processes == 0 || task.multicast_root >= self.network.parameters().rule.roots() {
            return None;
        }
        for (rank, node) in nodes.enumerate() {
            self.elans.ranks[node? as usize] = rank as u32;
        }
        self.elans.job = Some(RunningCollective::new(task)?);
        self.elans.fold = match task.operation {
            ElanCollective::FoldedBarrier(costs) if size == self.network.nodes() => {
                Some(folded_barrier::FoldedBarrier::new(costs, self.network.tree().switches()))
            }
            ElanCollective::FoldedBarrier(_) => return None,
            _ => None,
        };
        let now = self.network.now();
        for rank in (0..size).map(Rank) {
            self.elans.call(&mut self.network, rank);
        }
        let end = now + task.patience;
        self.network.run(&mut self.elans, |elans, network| {
            network.now() >= end || elans.job.as_ref().is_none_or(|job| job.finished >= size)
        });
        self.elans.ranks.fill(NONE);
        let job = self.elans.job.take()?;
        (job.finished >= size).then_some(job.took)
    }

    /// What the network has done.
    pub fn counters(&self) -> WormholeCounters {
        self.network.counters
    }

    /// Virtual time since the start.
    pub fn elapsed(&self) -> SimSpan {
        self.network.now().since(SimTime::ZERO)
    }

    /// Messages of the background that have been acknowledged whole.
    pub fn background_messages(&self) -> u64 {
        self.elans.messages
    }

    /// The digest of all events.
    pub fn trace(&self) -> u64 {
        self.network.trace()
    }
}

impl RunningCollective {
    fn new(task: &ElanWorkload) -> Option<Self> {
        let members = &task.members;
        let size = members.size();
        let (mut bytes, mut memory, mut buffers, mut wake) =
            (0, MemoryLocation::Elan, BroadcastBuffers::Global, HostWakeup::Polling);
        let machines = (0..size).map(Rank).map(|rank| {
            Some(match task.operation {
                ElanCollective::TreeBarrier => RankMachine::Tree(TreeBarrier::new(members.clone(), rank)?),
                ElanCollective::FoldedBarrier(_) => RankMachine::Folded(CallNumber(0)),
                ElanCollective::TestBarrier { back_off, .. } => {
                    RankMachine::Test(PolledBarrier::new(members, rank, back_off)?)
                }
                ElanCollective::Broadcast { synchronisation, .. } => {
                    RankMachine::Broadcast(SynchronizedBroadcast::new(members.clone(), rank, synchronisation)?)
                }
            })
        });
        let machines = machines.collect::<Option<Vec<_>>>()?;
        match task.operation {
            ElanCollective::TreeBarrier | ElanCollective::FoldedBarrier(_) => {}
            ElanCollective::TestBarrier { wake: how, .. } => wake = how,
            ElanCollective::Broadcast { bytes: length, memory: place, buffers: which, .. } => {
                (bytes, memory, buffers) = (length, place, which);
            }
        }
        Some(Self {
            members: members.clone(),
            machines,
            wake,
            bytes,
            memory,
            buffers,
            processes: task.processes,
            multicast_root: task.multicast_root,
            calls: task.calls,
            started: vec![SimTime::ZERO; size as usize],
            done: vec![0; size as usize],
            took: Vec::with_capacity(task.calls as usize),
            finished: 0,
        })
    }
}

impl ElanAdapters {
    fn schedule(&mut self, network: &mut WormholeNetwork, at: SimTime, step: AdapterEvent) {
        let number = self.steps.insert(step);
        network.set_alarm(at, number);
    }

    /// A descriptor is handed to the DMA processor at `at`.
    fn start_dma(&mut self, network: &mut WormholeNetwork, dma: DmaDescriptor, at: SimTime) {
        let number = self.dmas.insert(ActiveDma::new(dma));
        self.schedule(network, at, AdapterEvent::DmaQueued(number));
    }

    /// The thread processor is at it from `from` on, once it is free.
    fn think(&mut self, node: u32, from: SimTime, span: SimSpan) -> SimTime {
        let free = &mut self.nodes[node as usize].thread_free;
        *free = from.max(*free) + span;
        *free
    }

    /// The command processor has a host's word, once it is through with those before.
    fn command(&mut self, node: u32, at: SimTime) -> SimTime {
        let free = &mut self.nodes[node as usize].command_free;
        *free = at.max(*free) + self.costs.command;
        *free
    }

    /// The adapter's memory gives or takes data from `from` on, after all that was there before.
    fn move_data(&mut self, node: u32, from: SimTime, bytes: u32) -> SimTime {
        let free = &mut self.nodes[node as usize].memory_free;
        *free = from.max(*free) + self.costs.moving(bytes);
        *free
    }

    /// The inputter takes a packet that is there at `at`.
    fn input(&mut self, node: u32, at: SimTime) -> SimTime {
        let free = &mut self.nodes[node as usize].input_free;
        *free = at.max(*free) + self.costs.input;
        *free
    }

    fn send_background(&mut self, network: &mut WormholeNetwork, from: u32) {
        let Some(ElanBackground { pattern, message_bytes: bytes }) = self.background else { return };
        let turn = &mut self.turns[from as usize];
        let to = pattern.destination(self.stream, from, network.nodes(), *turn);
        *turn += 1;
        let to = CircuitDestination::Node(to);
        let (source_event, destination_event) = (DmaCompletion::NextMessage, DmaCompletion::Nothing);
        let dma = DmaDescriptor { from, to, bytes, memory: MemoryLocation::Elan, source_event, destination_event };
        let ready = self.command(from, network.now());
        self.start_dma(network, dma, ready);
    }
}

impl AdapterCallbacks for ElanAdapters {
    fn drained(&mut self, network: &mut WormholeNetwork, tag: u32) {
        if let InFlightPacket::Dma { number, turn, .. } = *self.packets.get(tag) {
            self.packet_left(network, number, turn);
        }
    }

    fn arrived(&mut self, network: &mut WormholeNetwork, node: u32, tag: u32, at: SimTime) {
        let (number, data) = match *self.packets.get(tag) {
            InFlightPacket::Dma { number, data, .. } => (number, data),
            InFlightPacket::Word(link) => return self.word_arrived(network, link, at),
            InFlightPacket::Test { .. } | InFlightPacket::Atomic { .. } => return,
        };
        let stored = match self.dmas.get(number).dma.memory {
            MemoryLocation::Main => at,
            MemoryLocation::Elan => self.store(node, at, data),
        };
        let taken = self.input(node, stored);
        let running = self.dmas.get(number);
        if !running.lacks_one() {
            return;
        }
        match running.dma.destination_event {
            DmaCompletion::Nothing | DmaCompletion::NextMessage | DmaCompletion::Flooded { .. } => {}
            DmaCompletion::Signal(signal) => self.input_signal(network, node, signal, taken),
            DmaCompletion::Count(word) => self.set_event(network, node, word, taken),
            DmaCompletion::Ping => self.schedule(network, taken + self.costs.notify, AdapterEvent::Pinged),
            DmaCompletion::Message { owner, envelope } => {
                self.message_arrived(network, node, (owner, envelope), taken)
            }
        }
    }

    fn test(&mut self, network: &mut WormholeNetwork, node: u32, tag: u32) -> (AckStatus, SimTime) {
        let said = self.input(node, network.now());
        let holds = match *self.packets.get(tag) {
            InFlightPacket::Dma { number, data, .. } => self.takes_flood(node, number, data, network.now()),
            InFlightPacket::Word(_) => true,
            InFlightPacket::Test { call, .. } => {
                let job = self.job.as_ref();
                self.rank_of(node)
                    .and_then(|rank| job?.machines.get(rank.index()))
                    .is_some_and(|machine| machine.has_come_to(call))
            }
            InFlightPacket::Atomic { number } => self.perform(node, number),
        };
        (if holds { AckStatus::Success } else { AckStatus::Failed }, said)
    }

    fn ended(&mut self, network: &mut WormholeNetwork, node: u32, tag: u32, answer: AckStatus, at: SimTime) {
        match *self.packets.get(tag) {
            _ if answer != AckStatus::Success => {}
            InFlightPacket::Test { call, .. } => {
                let signal = CollectiveSignal::Release { call };
                self.schedule(network, at + self.notification(), AdapterEvent::Seen { node, signal });
            }
            InFlightPacket::Atomic { number } => self.commit(node, number),
            InFlightPacket::Dma { .. } | InFlightPacket::Word(_) => {}
        }
    }

    fn closed(&mut self, network: &mut WormholeNetwork, tag: u32, answer: AckStatus, at: SimTime) {
        match self.packets.remove(tag) {
            InFlightPacket::Word(link) if answer != AckStatus::Success => {
                self.schedule(network, at, AdapterEvent::WordGoes(link))
            }
            InFlightPacket::Word(_) => {}
            InFlightPacket::Dma { number, data, .. } => self.packet_closed(network, number, data, answer, at),
            InFlightPacket::Test { rank, call } => {
                self.schedule(network, at, AdapterEvent::Verdict { rank, call, answer })
            }
            InFlightPacket::Atomic { number } => self.fetched(network, number, answer, at),
        }
    }

    fn alarm(&mut self, network: &mut WormholeNetwork, number: u32) {
        match self.steps.remove(number) {
            AdapterEvent::Entered(rank) => self.enter(network, rank),
            AdapterEvent::DmaQueued(number) => self.queue_dma(network, number),
            AdapterEvent::DmaStarted(node) => self.start_slice(network, node),
            AdapterEvent::Given { number, data, is_last } => {
                self.transmit(network, number, data, PacketAttempt::First { is_last });
            }
            AdapterEvent::SendAgain { number, data } => self.transmit(network, number, data, PacketAttempt::Again),
            AdapterEvent::Background(node) => {
                self.messages += 1;
                self.send_background(network, node);
            }
            AdapterEvent::ThreadSees { node, signal } => self.thread_sees(network, node, signal),
            AdapterEvent::Seen { node, signal } => self.seen(network, node, signal),
            AdapterEvent::Taken { node, signal } => self.taken(network, node, signal),
            AdapterEvent::TestGoes { rank, call } => self.send_test(network, rank, call),
            AdapterEvent::Verdict { rank, call, answer } => self.verdict(network, rank, call, answer),
            AdapterEvent::Again(rank) => self.again(network, rank),
            AdapterEvent::AtomicGoes(number) => self.send_atomic(network, number),
            AdapterEvent::WordGoes(link) => self.send_word(network, link),
            AdapterEvent::WordCounts(switch) => self.count_word(network, switch),
            AdapterEvent::PassDown(switch) => self.pass_down(network, switch),
            AdapterEvent::Matched { owner, envelope } => self.match_message(network, owner, envelope),
            AdapterEvent::Received { owner: PING_PORT, .. } => self.pinged = Some(network.now()),
            AdapterEvent::Received { owner, matched } => self.received.push((owner, matched)),
            AdapterEvent::Flooded(answer) => self.flooded = Some((answer, network.now())),
            AdapterEvent::Count { node, word } => self.count_event(node, word),
            AdapterEvent::Pinged => self.pinged = Some(network.now()),
            AdapterEvent::Nothing => {}
        }
    }
}
