//! Operations on words elsewhere, at one node or at a range of them: test-and-write, fetch-and-add, and the flood, which any
//! of its destinations may take, of a word or of data (QN-5, QN-6, QN-10). Answers come back with the acknowledgement.

use std::ops::RangeInclusive;

use units::{SimSpan, SimTime};

use super::super::packet::{
    AckCombining, AckStatus, CircuitClosing, CircuitDestination, CircuitPacket, CircuitPriority, wire_bytes,
};
use super::super::wormhole::WormholeNetwork;
use super::costs::MemoryLocation;
use super::dma::{DmaCompletion, DmaDescriptor};
use super::{AdapterEvent, ElanAdapters, ElanCluster, InFlightPacket};

/// What is done to a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemoteAtomic {
    /// Adds, wrapping around.
    FetchAdd(u64),
    /// Writes the second if the word is the first: at all nodes or, if the test fails at one, at none.
    TestAndWrite(u64, u64),
    /// Writes the second wherever the word is the first, and succeeds if it is anywhere.
    Flood(u64, u64),
}

/// What came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicResult {
    /// The word before, of the last node asked.
    pub before: u64,
    /// What the destinations said together.
    pub answer: AckStatus,
    /// From command to answer.
    pub took: SimSpan,
}

/// An operation under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingAtomic {
    from: u32,
    to: CircuitDestination,
    word: u32,
    what: RemoteAtomic,
    begun: SimTime,
    before: u64,
}

impl ElanCluster {
    /// Does something to a word of a node or of several, from another; none if there are no such nodes.
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
        // The command processor has it, and a thread makes the packet.
        let told = self.elans.command(from, begun);
        let ready = self.elans.think(from, told, self.elans.costs.thread);
        let number = self.elans.atomics.insert(PendingAtomic { from, to, word, what, begun, before: 0 });
        self.elans.fetched = None;
        self.elans.schedule(&mut self.network, ready, AdapterEvent::AtomicGoes(number));
        self.network.run(&mut self.elans, |elans, _| elans.fetched.is_some());
        self.elans.fetched
    }

    /// A word of a node.
    pub fn word(&self, node: u32, word: u32) -> u64 {
        self.elans.words.get(&(node, word)).copied().unwrap_or(0)
    }
}

/// What came of a flood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FloodResult {
    /// Success if one of the destinations took it all.
    pub answer: AckStatus,
    /// From command to answer.
    pub took: SimSpan,
}

impl ElanCluster {
    /// Sends data to a range of nodes and is content if one takes it: whoever has a buffer there, which a word that is not 0
    /// says. None if there are no such nodes.
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
    /// What a destination says to a packet of a DMA that asks: a flood is taken by whoever has a buffer.
    pub(super) fn takes_flood(&mut self, node: u32, number: u32, data: u32, now: SimTime) -> bool {
        let DmaCompletion::Flooded { buffer } = self.dmas.get(number).dma.source_event else { return true };
        let takes = self.words.get(&(node, buffer)).is_some_and(|word| *word != 0);
        if takes {
            self.store(node, now, data);
        }
        takes
    }

    pub(super) fn send_atomic(&mut self, network: &mut WormholeNetwork, number: u32) {
        let PendingAtomic { from, to, what, .. } = *self.atomics.get(number);
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
            tag,
        });
    }

    /// A destination's inputter does it; whether the test held.
    pub(super) fn perform(&mut self, node: u32, number: u32) -> bool {
        let under = self.atomics.get_mut(number);
        let word = self.words.entry((node, under.word)).or_default();
        under.before = *word;
        match under.what {
            RemoteAtomic::FetchAdd(delta) => *word = word.wrapping_add(delta),
            RemoteAtomic::Flood(expected, value) if *word == expected => *word = value,
            // The end token says if it may be written.
            RemoteAtomic::TestAndWrite(expected, _) => return *word == expected,
            RemoteAtomic::Flood(..) => return false,
        }
        true
    }

    /// The end token tells a destination that the test held everywhere.
    pub(super) fn commit(&mut self, node: u32, number: u32) {
        let under = self.atomics.get(number);
        if let RemoteAtomic::TestAndWrite(_, value) = under.what {
            self.words.insert((node, under.word), value);
        }
    }

    /// The source has the answer. Damaged packets have done nothing, so they go again.
    pub(super) fn fetched(&mut self, network: &mut WormholeNetwork, number: u32, answer: AckStatus, at: SimTime) {
        if answer == AckStatus::NetworkError {
            return self.schedule(network, at, AdapterEvent::AtomicGoes(number));
        }
        let under = self.atomics.remove(number);
        self.fetched = Some(AtomicResult { before: under.before, answer, took: at.since(under.begun) });
    }
}
