//! The DMA processor: descriptors in a queue, packets one after the other, and slices for large ones (QN-1, QN-8).
//!
//! A packet follows as soon as the one before has left. A DMA that has had its slice while others wait goes to the end of
//! the queue. Packets that came damaged are sent again.

use std::collections::VecDeque;

use units::SimTime;

use super::super::packet::{
    AckCombining, AckStatus, CircuitClosing, CircuitDestination, CircuitPacket, CircuitPriority, PACKET_BYTES,
    wire_bytes,
};
use super::super::wormhole::WormholeNetwork;
use super::costs::MemoryLocation;
use super::{AdapterEvent, ElanAdapters};

/// What the DMA processor has read ahead from the adapter's memory, at most: one full packet.
const AHEAD_BYTES: u32 = PACKET_BYTES;

/// What happens when a DMA is done, at its source or at its destinations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DmaCompletion {
    Nothing,
    /// The background sends the next message.
    NextMessage,
    /// A signal for the machine of the destination.
    Signal(super::collective_program::CollectiveSignal),
    /// An event is set.
    Count(u32),
    /// Whoever floods hears if anybody took it: those with a buffer, which this word of theirs says.
    Flooded {
        buffer: u32,
    },
    /// A message for the tagged port of a process.
    Message {
        owner: u32,
        envelope: super::TportEnvelope,
    },
    /// A host that polls is told.
    Ping,
}

/// A descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct DmaDescriptor {
    pub(super) from: u32,
    pub(super) to: CircuitDestination,
    pub(super) bytes: u32,
    pub(super) memory: MemoryLocation,
    /// When all is acknowledged.
    pub(super) source_event: DmaCompletion,
    /// When all is there.
    pub(super) destination_event: DmaCompletion,
}

/// A DMA that is not over.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActiveDma {
    pub(super) dma: DmaDescriptor,
    left: u32,
    packets: u32,
    acknowledged: u32,
    begun: bool,
    /// Nobody took a packet of a flood.
    refused: bool,
}

impl ActiveDma {
    pub(super) fn new(dma: DmaDescriptor) -> Self {
        let packets = dma.bytes.div_ceil(PACKET_BYTES).max(1);
        Self { dma, left: dma.bytes, packets, acknowledged: 0, begun: false, refused: false }
    }

    /// Whether one more packet makes it whole.
    pub(super) fn lacks_one(&self) -> bool {
        self.acknowledged + 1 == self.packets
    }
}

/// The processor of one node.
#[derive(Debug, Default)]
pub(super) struct DmaEngine {
    queue: VecDeque<u32>,
    current: Option<u32>,
    slice_ends: SimTime,
}

/// Whether a packet goes for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PacketAttempt {
    First { is_last: bool },
    Again,
}

impl ElanAdapters {
    /// A descriptor is in the queue.
    pub(super) fn queue_dma(&mut self, network: &mut WormholeNetwork, number: u32) {
        let node = self.dmas.get(number).dma.from;
        self.nodes[node as usize].engine.queue.push_back(number);
        if self.nodes[node as usize].engine.current.is_none() {
            self.next_dma(network, node);
        }
    }

    fn next_dma(&mut self, network: &mut WormholeNetwork, node: u32) {
        let engine = &mut self.nodes[node as usize].engine;
        engine.current = engine.queue.pop_front();
        let Some(number) = engine.current else { return };
        let running = self.dmas.get_mut(number);
        let mut start = self.costs.dma_start;
        if !running.begun && matches!(running.dma.to, CircuitDestination::Range { .. }) {
            start = start + self.costs.broadcast_start;
        }
        running.begun = true;
        self.schedule(network, network.now() + start, AdapterEvent::DmaStarted(node));
    }

    /// The first packet of a slice can go.
    pub(super) fn start_slice(&mut self, network: &mut WormholeNetwork, node: u32) {
        self.nodes[node as usize].engine.slice_ends = network.now() + self.costs.slice;
        self.send_next(network, node);
    }

    fn send_next(&mut self, network: &mut WormholeNetwork, node: u32) {
        let Some(number) = self.nodes[node as usize].engine.current else { return };
        let running = self.dmas.get_mut(number);
        let data = running.left.min(PACKET_BYTES);
        running.left -= data;
        let is_last = running.left == 0;
        let given = match running.dma.memory {
            MemoryLocation::Main => network.now(),
            MemoryLocation::Elan => self.fetch(node, network.now(), data),
        };
        if given > network.now() {
            return self.schedule(network, given, AdapterEvent::Given { number, data, is_last });
        }
        self.transmit(network, number, data, PacketAttempt::First { is_last });
    }

    /// When the adapter's memory lets a packet begin to leave: it is read while it leaves, and a little ahead.
    fn fetch(&mut self, node: u32, now: SimTime, data: u32) -> SimTime {
        let through = self.move_data(node, now, data);
        let ahead = self.costs.moving(AHEAD_BYTES + data);
        SimTime::from_picos(through.as_picos().saturating_sub(ahead.as_picos())).max(now)
    }

    /// When the adapter's memory has a packet whose last byte comes at `at`: it is written while it comes.
    pub(super) fn store(&mut self, node: u32, at: SimTime, data: u32) -> SimTime {
        let begun = SimTime::from_picos(at.as_picos().saturating_sub(self.costs.moving(data).as_picos()));
        self.move_data(node, begun, data).max(at)
    }

    pub(super) fn transmit(&mut self, network: &mut WormholeNetwork, number: u32, data: u32, turn: PacketAttempt) {
        let DmaDescriptor { from, to, memory, source_event, .. } = self.dmas.get(number).dma;
        // Nobody knows who takes a flood before the answers are there.
        let (closing, combining) = match source_event {
            DmaCompletion::Flooded { .. } => (CircuitClosing::EndToken, AckCombining::Best),
            _ => (CircuitClosing::Acknowledgement, AckCombining::Worst),
        };
        let tag = self.packets.insert(super::InFlightPacket::Dma { number, data, turn });
        network.send(CircuitPacket {
            from,
            to,
            bytes: wire_bytes(data),
            priority: CircuitPriority::Low,
            closing,
            combining,
            slowest: self.costs.slowest(memory),
            tag,
        });
    }

    /// A packet has left: the next, or another DMA's turn.
    pub(super) fn packet_left(&mut self, network: &mut WormholeNetwork, number: u32, turn: PacketAttempt) {
        let PacketAttempt::First { is_last } = turn else { return };
        let node = self.dmas.get(number).dma.from;
        let engine = &mut self.nodes[node as usize].engine;
        let yields = network.now() >= engine.slice_ends && !engine.queue.is_empty();
        if is_last || yields {
            if !is_last {
                engine.queue.push_back(number);
            }
            return self.next_dma(network, node);
        }
        self.send_next(network, node);
    }

    /// A packet's answer is known at `at`.
    pub(super) fn packet_closed(
        &mut self,
        network: &mut WormholeNetwork,
        number: u32,
        data: u32,
        answer: AckStatus,
        at: SimTime,
    ) {
        if answer == AckStatus::NetworkError {
            return self.schedule(network, at, AdapterEvent::SendAgain { number, data });
        }
        let running = self.dmas.get_mut(number);
        running.refused |= answer == AckStatus::Failed;
        running.acknowledged += 1;
        if running.acknowledged < running.packets {
            return;
        }
        let DmaDescriptor { from, source_event, .. } = running.dma;
        let refused = self.dmas.remove(number).refused;
        match source_event {
            DmaCompletion::Nothing | DmaCompletion::Message { .. } | DmaCompletion::Ping => {}
            DmaCompletion::Count(word) => self.set_event(network, from, word, at),
            DmaCompletion::Flooded { .. } => {
                let answer = if refused { AckStatus::Failed } else { AckStatus::Success };
                self.schedule(network, at, AdapterEvent::Flooded(answer));
            }
            DmaCompletion::NextMessage => self.schedule(network, at, AdapterEvent::Background(from)),
            DmaCompletion::Signal(signal) => {
                self.schedule(network, at + self.costs.notify, AdapterEvent::Seen { node: from, signal })
            }
        }
    }
}
