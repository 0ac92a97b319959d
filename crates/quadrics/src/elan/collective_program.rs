//! What the nodes run: a collective's machines, and how their duties become commands, DMAs and tests.

use protocol::collective::quadrics::{
    CallNumber, PollOutcome, PolledBarrier, QuadricsAction, QuadricsMembers, SynchronizedBroadcast, TreeBarrier,
};
use units::{Rank, SimSpan, SimTime};

use super::super::packet::{
    AckCombining, AckStatus, CircuitClosing, CircuitDestination, CircuitPacket, CircuitPriority, wire_bytes,
};
use super::super::wormhole::WormholeNetwork;
use super::costs::MemoryLocation;
use super::dma::{DmaCompletion, DmaDescriptor};
use super::{AdapterEvent, ElanAdapters, InFlightPacket, NONE};

/// A word that goes from one rank to another, or to all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CollectiveSignal {
    Ready { from: Rank, call: CallNumber },
    Release { call: CallNumber },
    Data { call: CallNumber },
}

/// A rank's machine.
pub(super) enum RankMachine {
    Tree(TreeBarrier),
    Test(PolledBarrier),
    Broadcast(SynchronizedBroadcast),
    /// The switches count; a node only knows which call it is in.
    Folded(CallNumber),
}

impl RankMachine {
    pub(super) fn enter(&mut self, out: &mut Vec<QuadricsAction>) {
        match self {
            Self::Tree(machine) => machine.enter(out),
            Self::Test(machine) => machine.enter(out),
            Self::Broadcast(machine) => machine.enter(out),
            Self::Folded(_) => {}
        }
    }

    pub(super) fn handle_signal(&mut self, signal: CollectiveSignal, out: &mut Vec<QuadricsAction>) {
        match (self, signal) {
            (Self::Tree(machine), CollectiveSignal::Ready { from, call }) => machine.handle_ready(from, call, out),
            (Self::Tree(machine), CollectiveSignal::Release { call }) => machine.handle_release(call, out),
            (Self::Test(machine), CollectiveSignal::Release { call }) => machine.handle_release(call, out),
            (Self::Broadcast(machine), CollectiveSignal::Ready { from, call }) => {
                machine.handle_ready(from, call, out)
            }
            (Self::Broadcast(machine), CollectiveSignal::Release { call }) => machine.handle_release(call, out),
            (Self::Broadcast(machine), CollectiveSignal::Data { call }) => machine.handle_data(call, out),
            (Self::Folded(call), CollectiveSignal::Release { .. }) => {
                out.push(QuadricsAction::Complete { call: *call });
                call.0 += 1;
            }
            (Self::Tree(_) | Self::Test(_) | Self::Folded(_), _) => {}
        }
    }

    pub(super) fn has_come_to(&self, call: CallNumber) -> bool {
        match self {
            Self::Tree(_) | Self::Folded(_) => false,
            Self::Test(machine) => machine.has_come_to(call),
            Self::Broadcast(machine) => machine.has_come_to(call),
        }
    }

    pub(super) fn handle_verdict(&mut self, call: CallNumber, verdict: PollOutcome, out: &mut Vec<QuadricsAction>) {
        match self {
            Self::Tree(_) | Self::Folded(_) => {}
            Self::Test(machine) => machine.handle_verdict(call, verdict, out),
            Self::Broadcast(machine) => machine.handle_verdict(call, verdict, out),
        }
    }

    pub(super) fn handle_alarm(&mut self, out: &mut Vec<QuadricsAction>) {
        match self {
            Self::Tree(_) | Self::Folded(_) => {}
            Self::Test(machine) => machine.handle_alarm(out),
            Self::Broadcast(machine) => machine.handle_alarm(out),
        }
    }
}

/// How a host learns that it may go on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum HostWakeup {
    /// It polls a word (*hgsync*).
    Polling,
    /// It waits for an event (*hgsyncEvent*).
    Event,
}

/// Where broadcasts put the data (QN-10).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum BroadcastBuffers {
    /// At the same address everywhere: nobody copies.
    Global,
    /// Through the system's buffers: one copy at each end.
    System,
}

/// What a group does, over and over.
pub(super) struct RunningCollective {
    pub(super) members: QuadricsMembers,
    pub(super) machines: Vec<RankMachine>,
    pub(super) wake: HostWakeup,
    pub(super) bytes: u32,
    pub(super) memory: MemoryLocation,
    pub(super) buffers: BroadcastBuffers,
    /// Processes of each node; one of them speaks for the others.
    pub(super) processes: u32,
    pub(super) multicast_root: u32,
    pub(super) calls: u32,
    pub(super) started: Vec<SimTime>,
    pub(super) done: Vec<u32>,
    /// What each call took at the root.
    pub(super) took: Vec<SimSpan>,
    /// Ranks that are through with all calls.
    pub(super) finished: u32,
}

/// Who carries out a duty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ActingProcessor {
    Host,
    Thread,
}

impl ElanAdapters {
    /// A rank calls: its software takes a while, and the copies before the call.
    pub(super) fn call(&mut self, network: &mut WormholeNetwork, rank: Rank) {
        let Some(job) = &mut self.job else { return };
        let Some(node) = job.members.node(rank) else { return };
        job.started[rank.index()] = network.now();
        let mut work = self.costs.call + self.costs.flag.times(u64::from(job.processes - 1));
        if job.bytes > 0 && job.buffers == BroadcastBuffers::System && rank == job.members.root() {
            work = work + self.costs.copy(job.bytes);
        }
        let ready = self.processors.work(node as usize, network.now(), work);
        self.schedule(network, ready, AdapterEvent::Entered(rank));
    }

    pub(super) fn enter(&mut self, network: &mut WormholeNetwork, rank: Rank) {
        if self.fold.is_some() {
            return self.contribute(network, rank);
        }
        self.play(network, rank, ActingProcessor::Host, |machine, out| machine.enter(out));
    }

    /// The inputter has a signal. 'Ready' is for the thread processor, everything else for the host.
    pub(super) fn input_signal(
        &mut self,
        network: &mut WormholeNetwork,
        node: u32,
        signal: CollectiveSignal,
        at: SimTime,
    ) {
        match signal {
            CollectiveSignal::Ready { .. } => self.schedule(network, at, AdapterEvent::ThreadSees { node, signal }),
            _ => self.schedule(network, at + self.notification(), AdapterEvent::Seen { node, signal }),
        }
    }

    pub(super) fn notification(&self) -> SimSpan {
        let is_event = self.job.as_ref().is_some_and(|job| job.wake == HostWakeup::Event);
        if is_event { self.costs.notify + self.costs.event } else { self.costs.notify }
    }

    pub(super) fn thread_sees(&mut self, network: &mut WormholeNetwork, node: u32, signal: CollectiveSignal) {
        if let Some(rank) = self.rank_of(node) {
            self.play(network, rank, ActingProcessor::Thread, |machine, out| machine.handle_signal(signal, out));
        }
    }

    /// A word is in the host's memory: it sees it when it runs, and copies what there is to copy.
    pub(super) fn seen(&mut self, network: &mut WormholeNetwork, node: u32, signal: CollectiveSignal) {
        let Some(job) = &self.job else { return };
        let mut work = self.costs.flag.times(u64::from(job.processes - 1));
        if let CollectiveSignal::Data { .. } = signal {
            let copied = match (job.buffers, job.processes) {
                (BroadcastBuffers::System, _) => job.bytes,
                // The others copy slot by slot while the data comes; only the last slot is still to be copied.
                (BroadcastBuffers::Global, 2..) => job.bytes.min(self.costs.fifo_bytes),
                (BroadcastBuffers::Global, _) => 0,
            };
            work = work + self.costs.copy(copied);
        }
        let at = self.processors.work(node as usize, network.now(), work);
        self.schedule(network, at, AdapterEvent::Taken { node, signal });
    }

    pub(super) fn taken(&mut self, network: &mut WormholeNetwork, node: u32, signal: CollectiveSignal) {
        if let Some(rank) = self.rank_of(node) {
            self.play(network, rank, ActingProcessor::Host, |machine, out| machine.handle_signal(signal, out));
        }
    }

    pub(super) fn again(&mut self, network: &mut WormholeNetwork, rank: Rank) {
        self.play(network, rank, ActingProcessor::Thread, |machine, out| machine.handle_alarm(out));
    }

    /// The thread that sent a test hears what came of it.
    pub(super) fn verdict(&mut self, network: &mut WormholeNetwork, rank: Rank, call: CallNumber, answer: AckStatus) {
        let verdict = match answer {
            AckStatus::Success => PollOutcome::All,
            AckStatus::Failed => PollOutcome::NotAll,
            AckStatus::NetworkError => PollOutcome::Damaged,
        };
        self.play(network, rank, ActingProcessor::Thread, |machine, out| machine.handle_verdict(call, verdict, out));
    }

    pub(super) fn rank_of(&self, node: u32) -> Option<Rank> {
        let rank = *self.ranks.get(node as usize)?;
        (rank != NONE).then_some(Rank(rank))
    }

    /// Gives a machine its input and carries out what it wants.
    fn play(
        &mut self,
        network: &mut WormholeNetwork,
        rank: Rank,
        actor: ActingProcessor,
        input: impl FnOnce(&mut RankMachine, &mut Vec<QuadricsAction>),
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

    fn carry_out(&mut self, network: &mut WormholeNetwork, rank: Rank, actor: ActingProcessor, duty: QuadricsAction) {
        let Some(job) = &self.job else { return };
        let (bytes, memory) = (job.bytes, job.memory);
        let signal = |signal| (0, MemoryLocation::Elan, signal);
        let one = |rank| job.members.node(rank).map(CircuitDestination::Node);
        let all = || {
            let (first, last) = job.members.contiguous()?;
            Some(CircuitDestination::Range { first, last, root: job.multicast_root })
        };
        let (to, (bytes, memory, signal)) = match duty {
            QuadricsAction::Ready { to, call } => (one(to), signal(CollectiveSignal::Ready { from: rank, call })),
            QuadricsAction::Release { to, call } => (one(to), signal(CollectiveSignal::Release { call })),
            QuadricsAction::ReleaseAll { call } => (all(), signal(CollectiveSignal::Release { call })),
            QuadricsAction::Data { to, call } => (one(to), (bytes, memory, CollectiveSignal::Data { call })),
            QuadricsAction::DataToAll { call } => (all(), (bytes, memory, CollectiveSignal::Data { call })),
            QuadricsAction::Test { call } => return self.test_all(network, rank, actor, call),
            QuadricsAction::Wait { span } => {
                return self.schedule(network, network.now() + span, AdapterEvent::Again(rank));
            }
            QuadricsAction::Complete { .. } => return self.complete(network, rank),
        };
        let (Some(from), Some(to)) = (job.members.node(rank), to) else { return };
        // The root of a tree hears that its data has gone by the source event of the last DMA.
        let children = job.members.children(rank);
        let is_last_child = matches!(duty, QuadricsAction::Data { to, .. }
            if rank == job.members.root() && children > 0 && job.members.child(rank, children - 1) == Some(to));
        let source_event = if is_last_child { DmaCompletion::Signal(signal) } else { DmaCompletion::Nothing };
        let is_leaf = children == 0;
        let ready = self.ready_to_act(network, from, actor, is_leaf);
        let dma =
            DmaDescriptor { from, to, bytes, memory, source_event, destination_event: DmaCompletion::Signal(signal) };
        self.start_dma(network, dma, ready);
    }

    /// When an actor has done its part: a host gives a command; where children are waited for, and for tests, the thread
    /// processor acts on it.
    fn ready_to_act(
        &mut self,
        network: &WormholeNetwork,
        node: u32,
        actor: ActingProcessor,
        directly: bool,
    ) -> SimTime {
        let from = match actor {
            ActingProcessor::Host => self.command(node, network.now()),
            ActingProcessor::Thread => network.now(),
        };
        if directly && actor == ActingProcessor::Host { from } else { self.think(node, from, self.costs.thread) }
    }

    fn test_all(&mut self, network: &mut WormholeNetwork, rank: Rank, actor: ActingProcessor, call: CallNumber) {
        let Some(node) = self.job.as_ref().and_then(|job| job.members.node(rank)) else { return };
        let at = self.ready_to_act(network, node, actor, false);
        self.schedule(network, at, AdapterEvent::TestGoes { rank, call });
    }

    /// The thread processor's packet does not pass the DMA processor.
    pub(super) fn send_test(&mut self, network: &mut WormholeNetwork, rank: Rank, call: CallNumber) {
        let Some(job) = &self.job else { return };
        let (Some(from), Some((first, last))) = (job.members.node(rank), job.members.contiguous()) else { return };
        let to = CircuitDestination::Range { first, last, root: job.multicast_root };
        let tag = self.packets.insert(InFlightPacket::Test { rank, call });
        let (priority, closing) = (CircuitPriority::Low, CircuitClosing::EndToken);
        network.send(CircuitPacket {
            from,
            to,
            bytes: wire_bytes(0),
            priority,
            closing,
            combining: AckCombining::Worst,
            slowest: None,
            tag,
        });
    }

    fn complete(&mut self, network: &mut WormholeNetwork, rank: Rank) {
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
