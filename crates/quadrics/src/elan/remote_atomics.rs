//! Operations on remote words, at one node or at a range of them: test-and-write, fetch-and-add, and the flood of a word or of
//! data, which any of its destinations may accept (QN-5, QN-6, QN-10). Results return with the acknowledgement.

use std::ops::RangeInclusive;

use units::{SimSpan, SimTime};

use super::super::packet::{
    AckCombining, AckStatus, CircuitClosing, CircuitDestination, CircuitPacket, CircuitPriority, wire_bytes,
};
use super::super::wormhole::WormholeNetwork;
use super::costs::MemoryLocation;
use super::dma::{DmaCompletion, DmaDescriptor};
use super::retry::{NextAttempt, PacketAttempts};
use super::{AdapterEvent, ElanAdapters, ElanCluster, InFlightPacket};

/// An operation on a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemoteAtomic {
    /// Adds, with wrapping.
    FetchAdd(u64),
    /// Writes the second value if the word equals the first: at all nodes or, if the test fails at one, at none.
    TestAndWrite(u64, u64),
    /// Writes the second value at every node whose word equals the first; succeeds if there is one.
    Flood(u64, u64),
}

/// The result of an atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicResult {
    /// The previous word, of the last node.
    pub before: u64,
    /// The combined status of the destinations.
    pub answer: AckStatus,
    /// The time from command to result.
    pub took: SimSpan,
}

/// An operation in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingAtomic {
    from: u32,
    to: CircuitDestination,
    word: u32,
    what: RemoteAtomic,
    begun: SimTime,
    before: u64,
    attempts: PacketAttempts,
}

impl ElanCluster {
    /// Applies an operation to a word of one or several nodes; none if there are no such nodes.
    pub fn atomic(
        &mut self,
        from: u32,
        to: RangeInclusive<u32>,
        word: u32,
        what: RemoteAtomic,
    ) -> Option<AtomicResult> {
        let (first, last) = (*to.start(), *to.end());
        if first > last || from.max(last) >= self.network.nodes() {
            return None;
        }
        let begun = self.network.now();
        let to = if first == last {
            CircuitDestination::Node(first)
        } else {
            CircuitDestination::Range { first, last, root: 0 }
        };
        // The command processor accepts it, and a thread builds the packet.
        let commanded = self.elans.command(from, begun);
        let ready = self.elans.run_thread(from, commanded, self.elans.costs.thread);
        let number = self.elans.atomics.insert(PendingAtomic {
            from,
            to,
            word,
            what,
            begun,
            before: 0,
            attempts: PacketAttempts::default(),
        });
        self.elans.fetched = None;
        self.elans.schedule(&mut self.network, ready, AdapterEvent::SendAtomic(number));
        self.network.run(&mut self.elans, |elans, _| elans.fetched.is_some());
        self.elans.fetched
    }

    /// The value of a word of a node.
    pub fn word(&self, node: u32, word: u32) -> u64 {
        self.elans.words.get(&(node, word)).copied().unwrap_or(0)
    }
}

/// The result of a flood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FloodResult {
    /// Success if one of the destinations accepted all packets.
    pub answer: AckStatus,
    /// The time from command to result.
    pub took: SimSpan,
}

impl ElanCluster {
    /// Sends data to a range of nodes, one of which must accept it: a node with a buffer, which a nonzero word indicates. None
    /// if there are no such nodes.
    pub fn flood(&mut self, from: u32, to: RangeInclusive<u32>, bytes: u32, buffer: u32) -> Option<FloodResult> {
        let (first, last) = (*to.start(), *to.end());
        if first > last || from.max(last) >= self.network.nodes() {
            return None;
        }
        let begun = self.network.now();
        let to = CircuitDestination::Range { first, last, root: 0 };
        let (source_event, destination_event) = (DmaCompletion::Flooded { buffer }, DmaCompletion::Nothing);
        let dma = DmaDescriptor { from, to, bytes, memory: MemoryLocation::Elan, source_event, destination_event };
        let ready = self.elans.command(from, begun);
        self.elans.flooded = None;
        self.elans.start_dma(&mut self.network, dma, ready);
        self.network.run(&mut self.elans, |elans, _| elans.flooded.is_some());
        let (answer, at) = self.elans.flooded?;
        Some(FloodResult { answer, took: at.since(begun) })
    }
}

impl ElanAdapters {
    /// Whether a destination accepts a packet of a DMA: only nodes with a buffer accept a flood.
    pub(super) fn accepts_flood(&mut self, node: u32, number: u32, data: u32, now: SimTime) -> bool {
        let DmaCompletion::Flooded { buffer } = self.dmas[number].dma.source_event else { return true };
        let accepts = self.words.get(&(node, buffer)).is_some_and(|word| *word != 0);
        if accepts {
            self.store(node, MemoryLocation::Elan, now, data);
        }
        accepts
    }

    pub(super) fn send_atomic(&mut self, network: &mut WormholeNetwork, number: u32) {
        let PendingAtomic { from, to, what, attempts, .. } = self.atomics[number];
        let tag = self.packets.insert(InFlightPacket::Atomic { number });
        let combining =
            if matches!(what, RemoteAtomic::Flood(..)) { AckCombining::Best } else { AckCombining::Worst };
        let (priority, closing) = (CircuitPriority::Low, CircuitClosing::EndToken);
        network.send(CircuitPacket {
            from,
            to,
            bytes: wire_bytes(16),
            priority,
            closing,
            combining,
            slowest: None,
            attempt: attempts.count(),
            tag,
        });
    }

    /// Performs the operation at a destination's inputter; returns whether the test succeeded.
    pub(super) fn perform(&mut self, node: u32, number: u32) -> bool {
        let pending = &mut self.atomics[number];
        let word = self.words.entry((node, pending.word)).or_default();
        pending.before = *word;
        match pending.what {
            RemoteAtomic::FetchAdd(delta) => *word = word.wrapping_add(delta),
            RemoteAtomic::Flood(expected, value) if *word == expected => *word = value,
            // The end token tells whether to write.
            RemoteAtomic::TestAndWrite(expected, _) => return *word == expected,
            RemoteAtomic::Flood(..) => return false,
        }
        true
    }

    /// The end token tells a destination that the test succeeded everywhere.
    pub(super) fn commit(&mut self, node: u32, number: u32) {
        let pending = &self.atomics[number];
        if let RemoteAtomic::TestAndWrite(_, value) = pending.what {
            self.words.insert((node, pending.word), value);
        }
    }

    /// The source has the status. A damaged or lost packet had no effect, so it is retransmitted.
    pub(super) fn complete_atomic(
        &mut self,
        network: &mut WormholeNetwork,
        number: u32,
        answer: AckStatus,
        at: SimTime,
    ) {
        if matches!(answer, AckStatus::NetworkError | AckStatus::Unanswered)
            && let NextAttempt::At(at) = self.atomics[number].attempts.fail(self.retry, answer, at)
        {
            return self.schedule(network, at, AdapterEvent::SendAtomic(number));
        }
        let pending = self.atomics.remove(number).expect("the number is in use");
        self.fetched = Some(AtomicResult { before: pending.before, answer, took: at.since(pending.begun) });
    }
}
