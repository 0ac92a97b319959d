//! Elan adapters and their hosts: processors that do one thing after the other, and what the nodes run on them.
//!
//! In: what the network says ([`Adapters`]) and alarms. Out: packets. Each adapter has a command, a DMA, an inputter and a
//! thread processor (QN-1), each with its costs, and a memory that all data to and from it shares; a host's word goes over
//! the PCI bus, and so does data to and from main memory. A node receives multicasts for one process (QN-6). Reading order: `costs`, `dma`, `program` (collectives),
//! `remote` (operations on words elsewhere), `fold` (a barrier in the switches), `library` (processes, addresses, groups),
//! `events` and `tports`; `slab` keeps numbered things.

mod costs;
mod dma;
mod events;
mod fold;
mod library;
mod program;
mod remote;
mod slab;
#[cfg(test)]
mod tests;
mod tports;

use std::collections::BTreeMap;

use protocol::collective::quadrics::{
    BackOff, Broadcast, Call, Duty, Members, Synchronisation, TestBarrier, TreeBarrier,
};
use units::{Rank, Span, Time};

use self::dma::{Dma, Engine, Running, Then, Turn};
use self::program::{Job, Machine, Signal};
use self::slab::Slab;
use super::flood::FloodPattern;
use super::packet::{Answer, Destination, FabricParameters};
use super::tree::{Link, Switch};
use super::wormhole::{Adapters, Wormhole, WormholeCounters};
use simulator::processor::Processors;
use faults::Stream;

pub use costs::{ElanCosts, Memory};
pub use events::{Event, Events};
pub use fold::FoldCosts;
pub use library::{Address, Group, Library, LibraryError, Vpid};
pub use program::{Buffers, Wake};
pub use remote::{Atomic, Fetched, Flooded};
pub use tports::{Envelope, Match, Receive, TaggedPort};

/// Nobody.
const NONE: u32 = u32::MAX;
/// The port of a ping that is matched, and its tag.
const PING_PORT: u32 = u32::MAX;
const PING_TAG: u32 = 0;

/// Traffic besides: one sender and one receiver on every node, always busy (QN-11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Background {
    /// Who sends to whom, chosen anew for each message.
    pub pattern: FloodPattern,
    /// Bytes of a message, from adapter memory to adapter memory.
    pub message_bytes: u32,
}

/// What a group does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// *gsync*.
    TreeBarrier,
    /// *hgsync* and *hgsyncEvent*.
    TestBarrier {
        /// How hosts learn that it is over.
        wake: Wake,
        /// How the root asks again.
        back_off: BackOff,
    },
    /// A barrier that the switches fold, among all nodes.
    FoldedBarrier(FoldCosts),
    /// *bcast* and *hbcast*.
    Broadcast {
        /// How it begins.
        synchronisation: Synchronisation,
        /// How much.
        bytes: u32,
        /// From and to where.
        memory: Memory,
        /// Which buffers.
        buffers: Buffers,
    },
}

/// A group and how often it does what.
#[derive(Clone, Debug)]
pub struct Task {
    /// What.
    pub operation: Operation,
    /// Who: one process of each of these nodes receives.
    pub members: Members,
    /// Processes of each node, itself included.
    pub processes: u32,
    /// Which root its multicasts take.
    pub multicast_root: u32,
    /// How often, one right after the other.
    pub calls: u32,
    /// If it is not over by then it never ends.
    pub patience: Span,
}

/// By which library a ping goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Via {
    /// A remote DMA and its events (Elan3lib).
    Rdma,
    /// Tagged ports, which the thread processor matches (Elanlib, MPI).
    Tports,
}

/// Nodes, adapters and the network between them.
pub struct Cluster {
    network: Wormhole,
    elans: Elans,
}

#[derive(Debug, Default)]
struct Node {
    engine: Engine,
    command_free: Time,
    input_free: Time,
    thread_free: Time,
    memory_free: Time,
}

/// What an adapter waits for.
#[derive(Clone, Copy, Debug)]
enum Step {
    Entered(Rank),
    DmaQueued(u32),
    DmaStarted(u32),
    SendAgain { number: u32, data: u32 },
    Given { number: u32, data: u32, is_last: bool },
    Background(u32),
    ThreadSees { node: u32, signal: Signal },
    Seen { node: u32, signal: Signal },
    Taken { node: u32, signal: Signal },
    TestGoes { rank: Rank, call: Call },
    Verdict { rank: Rank, call: Call, answer: Answer },
    Again(Rank),
    AtomicGoes(u32),
    WordGoes(Link),
    WordCounts(Switch),
    PassDown(Switch),
    Matched { owner: u32, envelope: Envelope },
    Received { owner: u32, matched: Match },
    Count { node: u32, word: u32 },
    Flooded(Answer),
    Pinged,
    Nothing,
}

/// A packet in the network, by its tag.
#[derive(Clone, Copy, Debug)]
enum InFlight {
    Dma { number: u32, data: u32, turn: Turn },
    Test { rank: Rank, call: Call },
    Atomic { number: u32 },
    Word(Link),
}

struct Elans {
    costs: ElanCosts,
    nodes: Vec<Node>,
    processors: Processors,
    dmas: Slab<Running>,
    packets: Slab<InFlight>,
    steps: Slab<Step>,
    atomics: Slab<remote::Under>,
    /// Words that have been written, by node and address.
    words: BTreeMap<(u32, u32), u64>,
    fetched: Option<Fetched>,
    flooded: Option<(Answer, Time)>,
    background: Option<Background>,
    stream: Stream,
    messages: u64,
    turns: Vec<u64>,
    job: Option<Job>,
    /// Ranks by node.
    ranks: Vec<u32>,
    duties: Vec<Duty>,
    fold: Option<fold::Fold>,
    /// Ports by process.
    ports: BTreeMap<u32, TaggedPort>,
    /// What processes have got and not yet looked at.
    received: Vec<(u32, Match)>,
    pinged: Option<Time>,
}

impl Cluster {
    /// Every node at rest but for the background; none if the parameters make no network.
    pub fn new(
        fabric: FabricParameters,
        costs: ElanCosts,
        background: Option<Background>,
        seed: u64,
    ) -> Option<Self> {
        let network = Wormhole::new(fabric, seed)?;
        let nodes = network.nodes();
        let elans = Elans {
            costs,
            nodes: std::iter::repeat_with(Node::default).take(nodes as usize).collect(),
            processors: Processors::new(nodes, costs.noise, seed),
            dmas: Slab::default(),
            packets: Slab::default(),
            steps: Slab::default(),
            atomics: Slab::default(),
            words: BTreeMap::new(),
            fetched: None,
            flooded: None,
            background,
            stream: Stream::new(seed, 0xbac4),
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
    pub fn pass(&mut self, span: Span) {
        let until = self.network.now() + span;
        // Something must happen at that time, or nothing would stop the run before it.
        self.elans.schedule(&mut self.network, until, Step::Nothing);
        self.network.run(&mut self.elans, |_, network| network.now() >= until);
    }

    /// From posting a DMA until the destination's host knows that all is there.
    pub fn ping(&mut self, from: u32, to: u32, bytes: u32, memory: Memory, via: Via) -> Option<Span> {
        if from.max(to) >= self.network.nodes() {
            return None;
        }
        let begun = self.network.now();
        self.elans.pinged = None;
        let destination_event = match via {
            Via::Rdma => Then::Ping,
            Via::Tports => {
                let mut port = TaggedPort::new(1);
                let _ = port.post(Receive { from: Some(from), tag: Some(PING_TAG), number: 0 });
                self.elans.ports.insert(PING_PORT, port);
                Then::Message { owner: PING_PORT, envelope: Envelope { from, tag: PING_TAG, bytes } }
            }
        };
        let to = Destination::Node(to);
        let dma = Dma { from, to, bytes, memory, source_event: Then::Nothing, destination_event };
        let ready = self.elans.command(from, begun);
        self.elans.start_dma(&mut self.network, dma, ready);
        self.network.run(&mut self.elans, |elans, _| elans.pinged.is_some());
        Some(self.elans.pinged?.since(begun))
    }

    /// What each call took at the root of the group; none if the calls do not end, or the group does not fit.
    pub fn run(&mut self, task: &Task) -> Option<Vec<Span>> {
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
        self.elans.job = Some(Job::new(task)?);
        self.elans.fold = match task.operation {
            Operation::FoldedBarrier(costs) if size == self.network.nodes() => {
                Some(fold::Fold::new(costs, self.network.tree().switches()))
            }
            Operation::FoldedBarrier(_) => return None,
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
    pub fn elapsed(&self) -> Span {
        self.network.now().since(Time::ZERO)
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

impl Job {
    fn new(task: &Task) -> Option<Self> {
        let members = &task.members;
        let size = members.size();
        let (mut bytes, mut memory, mut buffers, mut wake) = (0, Memory::Elan, Buffers::Global, Wake::Polling);
        let machines = (0..size).map(Rank).map(|rank| {
            Some(match task.operation {
                Operation::TreeBarrier => Machine::Tree(TreeBarrier::new(members.clone(), rank)?),
                Operation::FoldedBarrier(_) => Machine::Folded(Call(0)),
                Operation::TestBarrier { back_off, .. } => Machine::Test(TestBarrier::new(members, rank, back_off)?),
                Operation::Broadcast { synchronisation, .. } => {
                    Machine::Broadcast(Broadcast::new(members.clone(), rank, synchronisation)?)
                }
            })
        });
        let machines = machines.collect::<Option<Vec<_>>>()?;
        match task.operation {
            Operation::TreeBarrier | Operation::FoldedBarrier(_) => {}
            Operation::TestBarrier { wake: how, .. } => wake = how,
            Operation::Broadcast { bytes: length, memory: place, buffers: which, .. } => {
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
            started: vec![Time::ZERO; size as usize],
            done: vec![0; size as usize],
            took: Vec::with_capacity(task.calls as usize),
            finished: 0,
        })
    }
}

impl Elans {
    fn schedule(&mut self, network: &mut Wormhole, at: Time, step: Step) {
        let number = self.steps.insert(step);
        network.set_alarm(at, number);
    }

    /// A descriptor is handed to the DMA processor at `at`.
    fn start_dma(&mut self, network: &mut Wormhole, dma: Dma, at: Time) {
        let number = self.dmas.insert(Running::new(dma));
        self.schedule(network, at, Step::DmaQueued(number));
    }

    /// The thread processor is at it from `from` on, once it is free.
    fn think(&mut self, node: u32, from: Time, span: Span) -> Time {
        let free = &mut self.nodes[node as usize].thread_free;
        *free = from.max(*free) + span;
        *free
    }

    /// The command processor has a host's word, once it is through with those before.
    fn command(&mut self, node: u32, at: Time) -> Time {
        let free = &mut self.nodes[node as usize].command_free;
        *free = at.max(*free) + self.costs.command;
        *free
    }

    /// The adapter's memory gives or takes data from `from` on, after all that was there before.
    fn move_data(&mut self, node: u32, from: Time, bytes: u32) -> Time {
        let free = &mut self.nodes[node as usize].memory_free;
        *free = from.max(*free) + self.costs.moving(bytes);
        *free
    }

    /// The inputter takes a packet that is there at `at`.
    fn input(&mut self, node: u32, at: Time) -> Time {
        let free = &mut self.nodes[node as usize].input_free;
        *free = at.max(*free) + self.costs.input;
        *free
    }

    fn send_background(&mut self, network: &mut Wormhole, from: u32) {
        let Some(Background { pattern, message_bytes: bytes }) = self.background else { return };
        let turn = &mut self.turns[from as usize];
        let to = pattern.destination(self.stream, from, network.nodes(), *turn);
        *turn += 1;
        let to = Destination::Node(to);
        let (source_event, destination_event) = (Then::NextMessage, Then::Nothing);
        let dma = Dma { from, to, bytes, memory: Memory::Elan, source_event, destination_event };
        let ready = self.command(from, network.now());
        self.start_dma(network, dma, ready);
    }
}

impl Adapters for Elans {
    fn drained(&mut self, network: &mut Wormhole, tag: u32) {
        if let InFlight::Dma { number, turn, .. } = *self.packets.get(tag) {
            self.packet_left(network, number, turn);
        }
    }

    fn arrived(&mut self, network: &mut Wormhole, node: u32, tag: u32, at: Time) {
        let (number, data) = match *self.packets.get(tag) {
            InFlight::Dma { number, data, .. } => (number, data),
            InFlight::Word(link) => return self.word_arrived(network, link, at),
            InFlight::Test { .. } | InFlight::Atomic { .. } => return,
        };
        let stored = match self.dmas.get(number).dma.memory {
            Memory::Main => at,
            Memory::Elan => self.store(node, at, data),
        };
        let taken = self.input(node, stored);
        let running = self.dmas.get(number);
        if !running.lacks_one() {
            return;
        }
        match running.dma.destination_event {
            Then::Nothing | Then::NextMessage | Then::Flooded { .. } => {}
            Then::Signal(signal) => self.input_signal(network, node, signal, taken),
            Then::Count(word) => self.set_event(network, node, word, taken),
            Then::Ping => self.schedule(network, taken + self.costs.notify, Step::Pinged),
            Then::Message { owner, envelope } => self.message_arrived(network, node, (owner, envelope), taken),
        }
    }

    fn test(&mut self, network: &mut Wormhole, node: u32, tag: u32) -> (Answer, Time) {
        let said = self.input(node, network.now());
        let holds = match *self.packets.get(tag) {
            InFlight::Dma { number, data, .. } => self.takes_flood(node, number, data, network.now()),
            InFlight::Word(_) => true,
            InFlight::Test { call, .. } => {
                let job = self.job.as_ref();
                self.rank_of(node)
                    .and_then(|rank| job?.machines.get(rank.index()))
                    .is_some_and(|machine| machine.has_come_to(call))
            }
            InFlight::Atomic { number } => self.perform(node, number),
        };
        (if holds { Answer::Success } else { Answer::Failed }, said)
    }

    fn ended(&mut self, network: &mut Wormhole, node: u32, tag: u32, answer: Answer, at: Time) {
        match *self.packets.get(tag) {
            _ if answer != Answer::Success => {}
            InFlight::Test { call, .. } => {
                let signal = Signal::Release { call };
                self.schedule(network, at + self.notification(), Step::Seen { node, signal });
            }
            InFlight::Atomic { number } => self.commit(node, number),
            InFlight::Dma { .. } | InFlight::Word(_) => {}
        }
    }

    fn closed(&mut self, network: &mut Wormhole, tag: u32, answer: Answer, at: Time) {
        match self.packets.remove(tag) {
            InFlight::Word(link) if answer != Answer::Success => self.schedule(network, at, Step::WordGoes(link)),
            InFlight::Word(_) => {}
            InFlight::Dma { number, data, .. } => self.packet_closed(network, number, data, answer, at),
            InFlight::Test { rank, call } => self.schedule(network, at, Step::Verdict { rank, call, answer }),
            InFlight::Atomic { number } => self.fetched(network, number, answer, at),
        }
    }

    fn alarm(&mut self, network: &mut Wormhole, number: u32) {
        match self.steps.remove(number) {
            Step::Entered(rank) => self.enter(network, rank),
            Step::DmaQueued(number) => self.queue_dma(network, number),
            Step::DmaStarted(node) => self.start_slice(network, node),
            Step::Given { number, data, is_last } => {
                self.transmit(network, number, data, Turn::First { is_last });
            }
            Step::SendAgain { number, data } => self.transmit(network, number, data, Turn::Again),
            Step::Background(node) => {
                self.messages += 1;
                self.send_background(network, node);
            }
            Step::ThreadSees { node, signal } => self.thread_sees(network, node, signal),
            Step::Seen { node, signal } => self.seen(network, node, signal),
            Step::Taken { node, signal } => self.taken(network, node, signal),
            Step::TestGoes { rank, call } => self.send_test(network, rank, call),
            Step::Verdict { rank, call, answer } => self.verdict(network, rank, call, answer),
            Step::Again(rank) => self.again(network, rank),
            Step::AtomicGoes(number) => self.send_atomic(network, number),
            Step::WordGoes(link) => self.send_word(network, link),
            Step::WordCounts(switch) => self.count_word(network, switch),
            Step::PassDown(switch) => self.pass_down(network, switch),
            Step::Matched { owner, envelope } => self.match_message(network, owner, envelope),
            Step::Received { owner: PING_PORT, .. } => self.pinged = Some(network.now()),
            Step::Received { owner, matched } => self.received.push((owner, matched)),
            Step::Flooded(answer) => self.flooded = Some((answer, network.now())),
            Step::Count { node, word } => self.count_event(node, word),
            Step::Pinged => self.pinged = Some(network.now()),
            Step::Nothing => {}
        }
    }
}
