//! The collectives on the nodes: one machine per rank, whose actions become commands, DMAs and tests.

use protocol::collective::quadrics::{
    CallNumber, PollOutcome, PolledBarrier, QuadricsAction, QuadricsMembers, SynchronizedBroadcast, TreeBarrier,
};
use units::{Rank, SimSpan, SimTime};

use super::super::packet::{AckCombining, AckStatus, CircuitClosing, CircuitDestination, CircuitPacket, wire_bytes};
use super::super::wormhole::WormholeNetwork;
use super::costs::MemoryLocation;
use super::dma::{DmaCompletion, DmaDescriptor};
use super::dma_message::CollectiveSignal;
use super::observed_run::{CallStage, ObservedCollective};
use super::retry::{LostDestination, NextAttempt, PacketAttempts};
use super::workload::{BroadcastBuffers, ElanCollective, ElanWorkload, HostWakeup};
use super::{AdapterEvent, ElanAdapters, InFlightPacket, NONE};

/// A rank's machine.
pub(super) enum RankMachine {
    Tree(TreeBarrier),
    Test(PolledBarrier),
    Broadcast(SynchronizedBroadcast),
    /// The switches count; a node only keeps its call number.
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

    pub(super) fn has_reached(&self, call: CallNumber) -> bool {
        match self {
            Self::Tree(_) | Self::Folded(_) => false,
            Self::Test(machine) => machine.has_entered(call),
            Self::Broadcast(machine) => machine.has_entered(call),
        }
    }

    pub(super) fn handle_poll_outcome(
        &mut self,
        call: CallNumber,
        verdict: PollOutcome,
        out: &mut Vec<QuadricsAction>,
    ) {
        match self {
            Self::Tree(_) | Self::Folded(_) => {}
            Self::Test(machine) => machine.handle_poll_outcome(call, verdict, out),
            Self::Broadcast(machine) => machine.handle_poll_outcome(call, verdict, out),
        }
    }

    pub(super) fn handle_timer(&mut self, out: &mut Vec<QuadricsAction>) {
        match self {
            Self::Tree(_) | Self::Folded(_) => {}
            Self::Test(machine) => machine.handle_timer(out),
            Self::Broadcast(machine) => machine.handle_timer(out),
        }
    }
}

/// A collective operation in repetition.
pub(super) struct RunningCollective {
    pub(super) members: QuadricsMembers,
    pub(super) machines: Vec<RankMachine>,
    pub(super) wake: HostWakeup,
    pub(super) bytes: u32,
    pub(super) memory: MemoryLocation,
    pub(super) buffers: BroadcastBuffers,
    /// Processes of each node; one of them represents the others.
    pub(super) processes: u32,
    pub(super) multicast_root: u32,
    pub(super) calls: u32,
    pub(super) started: Vec<SimTime>,
    pub(super) done: Vec<u32>,
    /// The duration of each call at the root.
    pub(super) took: Vec<SimSpan>,
    /// Ranks that have completed all calls.
    pub(super) finished: u32,
    /// Members enter up to this much later than they could.
    pub(super) late: SimSpan,
    /// The bytes of a broadcast, and what the ranks do; none if nobody observes the run.
    pub(super) observed: Option<ObservedCollective>,
    /// The failed polls in a row.
    polls: PacketAttempts,
    /// The destination that did not answer: the collective has failed.
    pub(super) lost: Option<LostDestination>,
}

impl RunningCollective {
    pub(super) fn new(workload: &ElanWorkload) -> Option<Self> {
        let members = &workload.members;
        let size = members.size();
        let (mut bytes, mut memory, mut buffers, mut wake) =
            (0, MemoryLocation::Elan, BroadcastBuffers::Global, HostWakeup::Polling);
        let machines = (0..size).map(Rank).map(|rank| {
            Some(match workload.operation {
                ElanCollective::TreeBarrier => RankMachine::Tree(TreeBarrier::new(members.clone(), rank)?),
                ElanCollective::FoldedBarrier(_) => RankMachine::Folded(CallNumber(0)),
                ElanCollective::PolledBarrier { back_off, .. } => {
                    RankMachine::Test(PolledBarrier::new(members, rank, back_off)?)
                }
                ElanCollective::Broadcast { synchronisation, .. } => {
                    RankMachine::Broadcast(SynchronizedBroadcast::new(members.clone(), rank, synchronisation)?)
                }
            })
        });
        let machines = machines.collect::<Option<Vec<_>>>()?;
        match workload.operation {
            ElanCollective::TreeBarrier | ElanCollective::FoldedBarrier(_) => {}
            ElanCollective::PolledBarrier { wake: how, .. } => wake = how,
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
            processes: workload.processes,
            multicast_root: workload.multicast_root,
            calls: workload.calls,
            started: vec![SimTime::ZERO; size as usize],
            done: vec![0; size as usize],
            took: Vec::with_capacity(workload.calls as usize),
            finished: 0,
            late: SimSpan::ZERO,
            observed: None,
            polls: PacketAttempts::default(),
            lost: None,
        })
    }
}

/// The processor that executes an action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ActingProcessor {
    Host,
    Thread,
}

impl ElanAdapters {
    /// A rank calls the operation: its software and the copies before the call take time.
    pub(super) fn call(&mut self, network: &mut WormholeNetwork, rank: Rank) {
        let Some(job) = &mut self.job else { return };
        let Some(node) = job.members.node(rank) else { return };
        job.started[rank.index()] = network.now();
        let mut work = self.costs.call + self.costs.flag.times(u64::from(job.processes - 1));
        if job.bytes > 0 && job.buffers == BroadcastBuffers::System && rank == job.members.root() {
            work = work + self.costs.copy(job.bytes);
        }
        let called = network.now() + self.lateness(rank);
        let ready = self.processors.work(node as usize, called, work);
        self.note_step(network, rank, CallStage::Called);
        self.schedule(network, ready, AdapterEvent::Entered(rank));
    }

    /// How late a rank is for its next call.
    fn lateness(&self, rank: Rank) -> SimSpan {
        let Some(job) = self.job.as_ref().filter(|job| job.late > SimSpan::ZERO) else { return SimSpan::ZERO };
        let call = u64::from(job.done[rank.index()]) * u64::from(job.members.size()) + u64::from(rank.0);
        SimSpan::from_picos(self.late_stream.below(call, job.late.as_picos() + 1))
    }

    pub(super) fn enter(&mut self, network: &mut WormholeNetwork, rank: Rank) {
        self.note_step(network, rank, CallStage::Entered);
        if self.fold.is_some() {
            return self.contribute(network, rank);
        }
        self.step_machine(network, rank, ActingProcessor::Host, |machine, out| machine.enter(out));
    }

    /// The inputter has received a signal. `Ready` is for the thread processor, all others are for the host.
    pub(super) fn input_signal(
        &mut self,
        network: &mut WormholeNetwork,
        node: u32,
        signal: CollectiveSignal,
        at: SimTime,
    ) {
        match signal {
            CollectiveSignal::Ready { .. } => self.schedule(network, at, AdapterEvent::ThreadSees { node, signal }),
            _ => self.schedule(network, at + self.notification(), AdapterEvent::HostSees { node, signal }),
        }
    }

    pub(super) fn notification(&self) -> SimSpan {
        let is_event = self.job.as_ref().is_some_and(|job| job.wake == HostWakeup::Event);
        if is_event { self.costs.notify + self.costs.event } else { self.costs.notify }
    }

    pub(super) fn thread_sees(&mut self, network: &mut WormholeNetwork, node: u32, signal: CollectiveSignal) {
        if let Some(rank) = self.rank_of(node) {
            self.step_machine(network, rank, ActingProcessor::Thread, |machine, out| {
                machine.handle_signal(signal, out)
            });
        }
    }

    /// A word is in the host's memory: the host sees it when it runs, and copies the data if necessary.
    pub(super) fn host_sees(&mut self, network: &mut WormholeNetwork, node: u32, signal: CollectiveSignal) {
        let Some(job) = &self.job else { return };
        let mut work = self.costs.flag.times(u64::from(job.processes - 1));
        if let CollectiveSignal::Data { .. } = signal {
            let copied = match (job.buffers, job.processes) {
                (BroadcastBuffers::System, _) => job.bytes,
                // The other processes copy slot by slot as the data arrives; only the last slot remains.
                (BroadcastBuffers::Global, 2..) => job.bytes.min(self.costs.fifo_bytes),
                (BroadcastBuffers::Global, _) => 0,
            };
            work = work + self.costs.copy(copied);
        }
        let at = self.processors.work(node as usize, network.now(), work);
        self.schedule(network, at, AdapterEvent::HostHandles { node, signal });
    }

    pub(super) fn host_handles(&mut self, network: &mut WormholeNetwork, node: u32, signal: CollectiveSignal) {
        if let Some(rank) = self.rank_of(node) {
            self.step_machine(network, rank, ActingProcessor::Host, |machine, out| {
                machine.handle_signal(signal, out)
            });
        }
    }

    pub(super) fn poll_again(&mut self, network: &mut WormholeNetwork, rank: Rank) {
        self.step_machine(network, rank, ActingProcessor::Thread, |machine, out| machine.handle_timer(out));
    }

    /// The status of a poll is known at `at`, or missing.
    pub(super) fn poll_closed(
        &mut self,
        network: &mut WormholeNetwork,
        (rank, call): (Rank, CallNumber),
        answer: AckStatus,
        at: SimTime,
    ) {
        let retry = self.retry;
        let Some(job) = &mut self.job else { return };
        let at = match answer {
            AckStatus::Success | AckStatus::Failed => {
                job.polls = PacketAttempts::default();
                at
            }
            AckStatus::NetworkError | AckStatus::Unanswered => match job.polls.fail(retry, answer, at) {
                NextAttempt::At(at) => at,
                NextAttempt::Never => {
                    let (Some(from), Some((first, last))) = (job.members.node(rank), job.members.contiguous()) else {
                        return;
                    };
                    let to = CircuitDestination::Range { first, last, root: job.multicast_root };
                    return self.lose_destination(network, from, to);
                }
            },
        };
        self.schedule(network, at, AdapterEvent::TestResult { rank, call, answer });
    }

    /// The thread that sent a test receives the result.
    pub(super) fn test_result(
        &mut self,
        network: &mut WormholeNetwork,
        rank: Rank,
        call: CallNumber,
        answer: AckStatus,
    ) {
        let verdict = match answer {
            AckStatus::Success => PollOutcome::AllEntered,
            AckStatus::Failed => PollOutcome::SomeMissing,
            AckStatus::NetworkError | AckStatus::Unanswered => PollOutcome::Damaged,
        };
        self.step_machine(network, rank, ActingProcessor::Thread, |machine, out| {
            machine.handle_poll_outcome(call, verdict, out)
        });
    }

    pub(super) fn rank_of(&self, node: u32) -> Option<Rank> {
        let rank = *self.ranks.get(node as usize)?;
        (rank != NONE).then_some(Rank(rank))
    }

    /// Passes an input to a machine and executes its actions.
    fn step_machine(
        &mut self,
        network: &mut WormholeNetwork,
        rank: Rank,
        processor: ActingProcessor,
        input: impl FnOnce(&mut RankMachine, &mut Vec<QuadricsAction>),
    ) {
        let Some(job) = &mut self.job else { return };
        let Some(machine) = job.machines.get_mut(rank.index()) else { return };
        let mut out = std::mem::take(&mut self.actions);
        input(machine, &mut out);
        for action in out.drain(..) {
            self.execute(network, rank, processor, action);
        }
        self.actions = out;
    }

    fn execute(
        &mut self,
        network: &mut WormholeNetwork,
        rank: Rank,
        processor: ActingProcessor,
        action: QuadricsAction,
    ) {
        let Some(job) = &self.job else { return };
        let (bytes, memory) = (job.bytes, job.memory);
        let signal = |signal| (0, MemoryLocation::Elan, signal);
        let one = |rank| job.members.node(rank).map(CircuitDestination::Node);
        let all = || {
            let (first, last) = job.members.contiguous()?;
            Some(CircuitDestination::Range { first, last, root: job.multicast_root })
        };
        let (to, (bytes, memory, signal)) = match action {
            QuadricsAction::Ready { to, call } => (one(to), signal(CollectiveSignal::Ready { from: rank, call })),
            QuadricsAction::Release { to, call } => (one(to), signal(CollectiveSignal::Release { call })),
            QuadricsAction::ReleaseAll { call } => (all(), signal(CollectiveSignal::Release { call })),
            QuadricsAction::Data { to, call } => (one(to), (bytes, memory, CollectiveSignal::Data { call })),
            QuadricsAction::DataToAll { call } => (all(), (bytes, memory, CollectiveSignal::Data { call })),
            QuadricsAction::Poll { call } => return self.test_all(network, rank, processor, call),
            QuadricsAction::Wait { span } => {
                return self.schedule(network, network.now() + SimSpan::from(span), AdapterEvent::PollAgain(rank));
            }
            QuadricsAction::Complete { .. } => return self.complete(network, rank),
        };
        let (Some(from), Some(to)) = (job.members.node(rank), to) else { return };
        // The source event of the last DMA tells the root of a tree that its data has left.
        let children = job.members.children(rank);
        let is_last_child = matches!(action, QuadricsAction::Data { to, .. }
            if rank == job.members.root() && children > 0 && job.members.child(rank, children - 1) == Some(to));
        let source_event = if is_last_child { DmaCompletion::Signal(signal) } else { DmaCompletion::Nothing };
        let is_leaf = children == 0;
        let ready = self.ready_to_act(network, from, processor, is_leaf);
        let dma =
            DmaDescriptor { from, to, bytes, memory, source_event, destination_event: DmaCompletion::Signal(signal) };
        self.start_dma(network, dma, ready);
    }

    /// When a processor has done its part: a host issues a command; for nodes with children, and for tests, the thread
    /// processor then acts on it.
    fn ready_to_act(
        &mut self,
        network: &WormholeNetwork,
        node: u32,
        processor: ActingProcessor,
        directly: bool,
    ) -> SimTime {
        let from = match processor {
            ActingProcessor::Host => self.command(node, network.now()),
            ActingProcessor::Thread => network.now(),
        };
        if directly && processor == ActingProcessor::Host {
            from
        } else {
            self.run_thread(node, from, self.costs.thread)
        }
    }

    fn test_all(&mut self, network: &mut WormholeNetwork, rank: Rank, processor: ActingProcessor, call: CallNumber) {
        let Some(node) = self.job.as_ref().and_then(|job| job.members.node(rank)) else { return };
        let at = self.ready_to_act(network, node, processor, false);
        self.schedule(network, at, AdapterEvent::SendTest { rank, call });
    }

    /// Packets of the thread processor bypass the DMA processor.
    pub(super) fn send_test(&mut self, network: &mut WormholeNetwork, rank: Rank, call: CallNumber) {
        let Some(job) = &self.job else { return };
        let (Some(from), Some((first, last))) = (job.members.node(rank), job.members.contiguous()) else { return };
        let to = CircuitDestination::Range { first, last, root: job.multicast_root };
        let tag = self.packets.insert(InFlightPacket::Test { rank, call });
        network.send(CircuitPacket {
            from,
            to,
            bytes: wire_bytes(0),
            priority: self.costs.poll_priority,
            closing: CircuitClosing::EndToken,
            combining: AckCombining::Worst,
            slowest: None,
            attempt: 0,
            tag,
        });
    }

    fn complete(&mut self, network: &mut WormholeNetwork, rank: Rank) {
        self.note_step(network, rank, CallStage::Completed);
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
