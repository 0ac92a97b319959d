//! What the nodes run: a collective's machines, and how their duties become commands, DMAs and tests.

use protocol::collective::quadrics::{Broadcast, Call, Duty, Members, TestBarrier, TreeBarrier, Verdict};
use units::{Rank, Span, Time};

use super::super::packet::{Answer, Closing, Combining, Destination, Packet, Priority, wire_bytes};
use super::super::wormhole::Wormhole;
use super::costs::Memory;
use super::dma::{Dma, Then};
use super::{Elans, InFlight, NONE, Step};

/// A word that goes from one rank to another, or to all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Signal {
    Ready { from: Rank, call: Call },
    Release { call: Call },
    Data { call: Call },
}

/// A rank's machine.
pub(super) enum Machine {
    Tree(TreeBarrier),
    Test(TestBarrier),
    Broadcast(Broadcast),
    /// The switches count; a node only knows which call it is in.
    Folded(Call),
}

impl Machine {
    pub(super) fn enter(&mut self, out: &mut Vec<Duty>) {
        match self {
            Self::Tree(machine) => machine.enter(out),
            Self::Test(machine) => machine.enter(out),
            Self::Broadcast(machine) => machine.enter(out),
            Self::Folded(_) => {}
        }
    }

    pub(super) fn handle_signal(&mut self, signal: Signal, out: &mut Vec<Duty>) {
        match (self, signal) {
            (Self::Tree(machine), Signal::Ready { from, call }) => machine.handle_ready(from, call, out),
            (Self::Tree(machine), Signal::Release { call }) => machine.handle_release(call, out),
            (Self::Test(machine), Signal::Release { call }) => machine.handle_release(call, out),
            (Self::Broadcast(machine), Signal::Ready { from, call }) => machine.handle_ready(from, call, out),
            (Self::Broadcast(machine), Signal::Release { call }) => machine.handle_release(call, out),
            (Self::Broadcast(machine), Signal::Data { call }) => machine.handle_data(call, out),
            (Self::Folded(call), Signal::Release { .. }) => {
                out.push(Duty::Complete { call: *call });
                call.0 += 1;
            }
            (Self::Tree(_) | Self::Test(_) | Self::Folded(_), _) => {}
        }
    }

    pub(super) fn has_come_to(&self, call: Call) -> bool {
        match self {
            Self::Tree(_) | Self::Folded(_) => false,
            Self::Test(machine) => machine.has_come_to(call),
            Self::Broadcast(machine) => machine.has_come_to(call),
        }
    }

    pub(super) fn handle_verdict(&mut self, call: Call, verdict: Verdict, out: &mut Vec<Duty>) {
        match self {
            Self::Tree(_) | Self::Folded(_) => {}
            Self::Test(machine) => machine.handle_verdict(call, verdict, out),
            Self::Broadcast(machine) => machine.handle_verdict(call, verdict, out),
        }
    }

    pub(super) fn handle_alarm(&mut self, out: &mut Vec<Duty>) {
        match self {
            Self::Tree(_) | Self::Folded(_) => {}
            Self::Test(machine) => machine.handle_alarm(out),
            Self::Broadcast(machine) => machine.handle_alarm(out),
        }
    }
}

/// How a host learns that it may go on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Wake {
    /// It polls a word (*hgsync*).
    Polling,
    /// It waits for an event (*hgsyncEvent*).
    Event,
}

/// Where broadcasts put the data (QN-10).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Buffers {
    /// At the same address everywhere: nobody copies.
    Global,
    /// Through the system's buffers: one copy at each end.
    System,
}

/// What a group does, over and over.
pub(super) struct Job {
    pub(super) members: Members,
    pub(super) machines: Vec<Machine>,
    pub(super) wake: Wake,
    pub(super) bytes: u32,
    pub(super) memory: Memory,
    pub(super) buffers: Buffers,
    /// Processes of each node; one of them speaks for the others.
    pub(super) processes: u32,
    pub(super) multicast_root: u32,
    pub(super) calls: u32,
    pub(super) started: Vec<Time>,
    pub(super) done: Vec<u32>,
    /// What each call took at the root.
    pub(super) took: Vec<Span>,
    /// Ranks that are through with all calls.
    pub(super) finished: u32,
}

/// Who carries out a duty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Actor {
    Host,
    Thread,
}

impl Elans {
    /// A rank calls: its software takes a while, and the copies before the call.
    pub(super) fn call(&mut self, network: &mut Wormhole, rank: Rank) {
        let Some(job) = &mut self.job else { return };
        let Some(node) = job.members.node(rank) else { return };
        job.started[rank.index()] = network.now();
        let mut work = self.costs.call + self.costs.flag.times(u64::from(job.processes - 1));
        if job.bytes > 0 && job.buffers == Buffers::System && rank == job.members.root() {
            work = work + self.costs.copy(job.bytes);
        }
        let ready = self.processors.work(node as usize, network.now(), work);
        self.schedule(network, ready, Step::Entered(rank));
    }

    pub(super) fn enter(&mut self, network: &mut Wormhole, rank: Rank) {
        if self.fold.is_some() {
            return self.contribute(network, rank);
        }
        self.play(network, rank, Actor::Host, |machine, out| machine.enter(out));
    }

    /// The inputter has a signal. 'Ready' is for the thread processor, everything else for the host.
    pub(super) fn input_signal(&mut self, network: &mut Wormhole, node: u32, signal: Signal, at: Time) {
        match signal {
            Signal::Ready { .. } => self.schedule(network, at, Step::ThreadSees { node, signal }),
            _ => self.schedule(network, at + self.notification(), Step::Seen { node, signal }),
        }
    }

    pub(super) fn notification(&self) -> Span {
        let is_event = self.job.as_ref().is_some_and(|job| job.wake == Wake::Event);
        if is_event { self.costs.notify + self.costs.event } else { self.costs.notify }
    }

    pub(super) fn thread_sees(&mut self, network: &mut Wormhole, node: u32, signal: Signal) {
        if let Some(rank) = self.rank_of(node) {
            self.play(network, rank, Actor::Thread, |machine, out| machine.handle_signal(signal, out));
        }
    }

    /// A word is in the host's memory: it sees it when it runs, and copies what there is to copy.
    pub(super) fn seen(&mut self, network: &mut Wormhole, node: u32, signal: Signal) {
        let Some(job) = &self.job else { return };
        let mut work = self.costs.flag.times(u64::from(job.processes - 1));
        if let Signal::Data { .. } = signal {
            let copied = match (job.buffers, job.processes) {
                (Buffers::System, _) => job.bytes,
                // The others copy slot by slot while the data comes; only the last slot is still to be copied.
                (Buffers::Global, 2..) => job.bytes.min(self.costs.fifo_bytes),
                (Buffers::Global, _) => 0,
            };
            work = work + self.costs.copy(copied);
        }
        let at = self.processors.work(node as usize, network.now(), work);
        self.schedule(network, at, Step::Taken { node, signal });
    }

    pub(super) fn taken(&mut self, network: &mut Wormhole, node: u32, signal: Signal) {
        if let Some(rank) = self.rank_of(node) {
            self.play(network, rank, Actor::Host, |machine, out| machine.handle_signal(signal, out));
        }
    }

    pub(super) fn again(&mut self, network: &mut Wormhole, rank: Rank) {
        self.play(network, rank, Actor::Thread, |machine, out| machine.handle_alarm(out));
    }

    /// The thread that sent a test hears what came of it.
    pub(super) fn verdict(&mut self, network: &mut Wormhole, rank: Rank, call: Call, answer: Answer) {
        let verdict = match answer {
            Answer::Success => Verdict::All,
            Answer::Failed => Verdict::NotAll,
            Answer::NetworkError => Verdict::Damaged,
        };
        self.play(network, rank, Actor::Thread, |machine, out| machine.handle_verdict(call, verdict, out));
    }

    pub(super) fn rank_of(&self, node: u32) -> Option<Rank> {
        let rank = *self.ranks.get(node as usize)?;
        (rank != NONE).then_some(Rank(rank))
    }

    /// Gives a machine its input and carries out what it wants.
    fn play(
        &mut self,
        network: &mut Wormhole,
        rank: Rank,
        actor: Actor,
        input: impl FnOnce(&mut Machine, &mut Vec<Duty>),
    ) {
        let Some(job) = &mut self.job else { return };
        let Some(machine) = job.machines.get_mut(rank.index()) else { return };
        let mut out = std::mem::take(&mut self.duties);
        input(machine, &mut out);
        for duty in out.drain(..) {
            self.carry_out(network, rank, actor, duty);
        }
        self.duties = out;
    }

    fn carry_out(&mut self, network: &mut Wormhole, rank: Rank, actor: Actor, duty: Duty) {
        let Some(job) = &self.job else { return };
        let (bytes, memory) = (job.bytes, job.memory);
        let signal = |signal| (0, Memory::Elan, signal);
        let one = |rank| job.members.node(rank).map(Destination::Node);
        let all = || {
            let (first, last) = job.members.contiguous()?;
            Some(Destination::Range { first, last, root: job.multicast_root })
        };
        let (to, (bytes, memory, signal)) = match duty {
            Duty::Ready { to, call } => (one(to), signal(Signal::Ready { from: rank, call })),
            Duty::Release { to, call } => (one(to), signal(Signal::Release { call })),
            Duty::ReleaseAll { call } => (all(), signal(Signal::Release { call })),
            Duty::Data { to, call } => (one(to), (bytes, memory, Signal::Data { call })),
            Duty::DataToAll { call } => (all(), (bytes, memory, Signal::Data { call })),
            Duty::Test { call } => return self.test_all(network, rank, actor, call),
            Duty::Wait { span } => return self.schedule(network, network.now() + span, Step::Again(rank)),
            Duty::Complete { .. } => return self.complete(network, rank),
        };
        let (Some(from), Some(to)) = (job.members.node(rank), to) else { return };
        // The root of a tree hears that its data has gone by the source event of the last DMA.
        let children = job.members.children(rank);
        let is_last_child = matches!(duty, Duty::Data { to, .. }
            if rank == job.members.root() && children > 0 && job.members.child(rank, children - 1) == Some(to));
        let source_event = if is_last_child { Then::Signal(signal) } else { Then::Nothing };
        let is_leaf = children == 0;
        let ready = self.ready_to_act(network, from, actor, is_leaf);
        let dma = Dma { from, to, bytes, memory, source_event, destination_event: Then::Signal(signal) };
        self.start_dma(network, dma, ready);
    }

    /// When an actor has done its part: a host gives a command; where children are waited for, and for tests, the thread
    /// processor acts on it.
    fn ready_to_act(&mut self, network: &Wormhole, node: u32, actor: Actor, directly: bool) -> Time {
        let from = match actor {
            Actor::Host => self.command(node, network.now()),
            Actor::Thread => network.now(),
        };
        if directly && actor == Actor::Host { from } else { self.think(node, from, self.costs.thread) }
    }

    fn test_all(&mut self, network: &mut Wormhole, rank: Rank, actor: Actor, call: Call) {
        let Some(node) = self.job.as_ref().and_then(|job| job.members.node(rank)) else { return };
        let at = self.ready_to_act(network, node, actor, false);
        self.schedule(network, at, Step::TestGoes { rank, call });
    }

    /// The thread processor's packet does not pass the DMA processor.
    pub(super) fn send_test(&mut self, network: &mut Wormhole, rank: Rank, call: Call) {
        let Some(job) = &self.job else { return };
        let (Some(from), Some((first, last))) = (job.members.node(rank), job.members.contiguous()) else { return };
        let to = Destination::Range { first, last, root: job.multicast_root };
        let tag = self.packets.insert(InFlight::Test { rank, call });
        let (priority, closing) = (Priority::Low, Closing::EndToken);
        network.send(Packet {
            from,
            to,
            bytes: wire_bytes(0),
            priority,
            closing,
            combining: Combining::Worst,
            slowest: None,
            tag,
        });
    }

    fn complete(&mut self, network: &mut Wormhole, rank: Rank) {
        let Some(job) = &mut self.job else { return };
        if rank == job.members.root() {
            job.took.push(network.now().since(job.started[rank.index()]));
        }
        let done = &mut job.done[rank.index()];
        *done += 1;
        if *done < job.calls {
            return self.call(network, rank);
        }
        job.finished += 1;
    }
}
