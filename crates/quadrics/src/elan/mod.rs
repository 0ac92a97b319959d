//! Elan adapters and their hosts: sequential processors, and the collectives that run on them.
//!
//! In: events of the network (`AdapterCallbacks`) and timers. Out: packets. Each adapter has a command, a DMA, an inputter and
//! a thread processor (QN-1), each with its costs, and a memory that all data to and from it shares; a host's commands and
//! data to and from main memory share the PCI bus. A node receives multicasts for one process (QN-6).
//!
//! Reading order: `costs`, `dma_message`, `dma`, `retry`, `collective_program`, `contents` (the bytes of a broadcast), `remote_atomics`
//! (operations on remote words), `folded_barrier` (a barrier in the switches), `callbacks` (dispatch), `workload`, `cluster` and
//! `observed_run` (the interface), `library` (processes, addresses, groups), `events` and `tports`.

mod callbacks;
mod cluster;
mod collective_program;
mod contents;
mod costs;
mod dma;
mod dma_message;
mod events;
mod folded_barrier;
mod library;
mod observed_run;
mod remote_atomics;
mod retry;
#[cfg(test)]
pub(crate) mod tests;
mod tports;
mod workload;

use std::collections::BTreeMap;

use protocol::collective::quadrics::{CallNumber, QuadricsAction};
use units::{Rank, SimSpan, SimTime};

use self::collective_program::RunningCollective;
use self::dma::{ActiveDma, DmaCompletion, DmaDescriptor, DmaEngine, DmaPacket, PacketAttempt};
use self::dma_message::CollectiveSignal;
use super::packet::{AckStatus, CircuitDestination};
use super::quaternary_tree::{EliteSwitch, TreeLink};
use super::wormhole::WormholeNetwork;
use faults::RandomStream;
use simulator::processor::HostProcessors;
use simulator::slab::Slab;

pub use costs::{ElanCosts, MemoryLocation};
pub use dma_message::TportEnvelope;
pub use events::{DmaEvents, ElanEvent};
pub use library::{ElanAddress, ElanGroup, ElanLibrary, ElanLibraryError, Vpid};
pub(crate) use observed_run::{CallStage, ObservedStep, RunEnd};
pub use remote_atomics::{AtomicResult, FloodResult, RemoteAtomic};
pub(crate) use retry::LostDestination;
pub use retry::RetryPolicy;
pub use tports::{TportMatch, TportQueue, TportReceive};
pub use workload::{
    BroadcastBuffers, ElanBackground, ElanCollective, ElanTransport, ElanWorkload, HostWakeup, SwitchFoldCosts,
};

/// No rank.
const NONE: u32 = u32::MAX;
/// Bytes of a command on the PCI bus.
const COMMAND_BYTES: u32 = 8;
/// The port of a ping by tagged ports, and its tag.
const PING_PORT: u32 = u32::MAX;
const PING_TAG: u32 = 0;

/// Nodes, adapters and the network between them.
pub struct ElanCluster {
    network: WormholeNetwork,
    elans: ElanAdapters,
    seed: u64,
}

#[derive(Debug, Default)]
struct ElanNode {
    engine: DmaEngine,
    command_free: SimTime,
    input_free: SimTime,
    thread_free: SimTime,
    memory_free: SimTime,
    bus_free: SimTime,
}

/// A scheduled event of an adapter or host.
#[derive(Clone, Copy, Debug)]
enum AdapterEvent {
    Entered(Rank),
    DmaQueued(u32),
    DmaStarted(u32),
    Retransmit(DmaPacket),
    DataRead { packet: DmaPacket, is_last: bool },
    Background(u32),
    ThreadSees { node: u32, signal: CollectiveSignal },
    HostSees { node: u32, signal: CollectiveSignal },
    HostHandles { node: u32, signal: CollectiveSignal },
    SendTest { rank: Rank, call: CallNumber },
    TestResult { rank: Rank, call: CallNumber, answer: AckStatus },
    PollAgain(Rank),
    SendAtomic(u32),
    SendWord(TreeLink),
    CountWord(EliteSwitch),
    ForwardDown(EliteSwitch),
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
    Dma { packet: DmaPacket, turn: PacketAttempt },
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
    /// The data of a collective's packets, by tag.
    payloads: BTreeMap<u32, Box<[u8]>>,
    steps: Slab<AdapterEvent>,
    atomics: Slab<remote_atomics::PendingAtomic>,
    /// Words written, by node and address.
    words: BTreeMap<(u32, u32), u64>,
    fetched: Option<AtomicResult>,
    flooded: Option<(AckStatus, SimTime)>,
    background: Option<ElanBackground>,
    retry: RetryPolicy,
    stream: RandomStream,
    late_stream: RandomStream,
    messages: u64,
    turns: Vec<u64>,
    job: Option<RunningCollective>,
    /// The rank of each node.
    ranks: Vec<u32>,
    actions: Vec<QuadricsAction>,
    fold: Option<folded_barrier::FoldedBarrier>,
    /// The tagged port of each process.
    ports: BTreeMap<u32, TportQueue>,
    /// Completed receives that the processes have not collected.
    received: Vec<(u32, TportMatch)>,
    pinged: Option<SimTime>,
}

impl ElanAdapters {
    fn schedule(&mut self, network: &mut WormholeNetwork, at: SimTime, step: AdapterEvent) {
        let number = self.steps.insert(step);
        network.set_timer(at, number);
    }

    /// Passes a descriptor to the DMA processor at `at`.
    fn start_dma(&mut self, network: &mut WormholeNetwork, dma: DmaDescriptor, at: SimTime) {
        let number = self.dmas.insert(ActiveDma::new(dma));
        self.schedule(network, at, AdapterEvent::DmaQueued(number));
    }

    /// Runs the thread processor for `span`, from `from` or when it is free.
    fn run_thread(&mut self, node: u32, from: SimTime, span: SimSpan) -> SimTime {
        let free = &mut self.nodes[node as usize].thread_free;
        *free = from.max(*free) + span;
        *free
    }

    /// Runs the command processor for a host's command, after all earlier ones; returns the end. The command waits for the bus.
    fn command(&mut self, node: u32, at: SimTime) -> SimTime {
        let state = &mut self.nodes[node as usize];
        let written = at.max(state.bus_free);
        state.bus_free = written + self.costs.bus_time(COMMAND_BYTES);
        state.command_free = written.max(state.command_free) + self.costs.command;
        state.command_free
    }

    /// Transfers data to or from a memory, from `from` or after all earlier transfers; returns the end.
    fn move_data(&mut self, node: u32, memory: MemoryLocation, from: SimTime, bytes: u32) -> SimTime {
        let span = self.transfer_time(memory, bytes);
        let state = &mut self.nodes[node as usize];
        let free = match memory {
            MemoryLocation::Elan => &mut state.memory_free,
            MemoryLocation::Main => &mut state.bus_free,
        };
        *free = from.max(*free) + span;
        *free
    }

    fn transfer_time(&self, memory: MemoryLocation, bytes: u32) -> SimSpan {
        match memory {
            MemoryLocation::Elan => self.costs.transfer_time(bytes),
            MemoryLocation::Main => self.costs.bus_time(bytes),
        }
    }

    /// Runs the inputter for a packet that arrives at `at`; returns the end.
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
