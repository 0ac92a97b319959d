//! The DMA processor: a queue of descriptors, packets one after the other, and time slices for large ones (QN-1, QN-8).
//!
//! A packet follows as soon as the previous one has left. A DMA that has used its slice while others wait moves to the end of
//! the queue. Damaged and lost packets are retransmitted (`retry`). The data of a collective is read when a packet leaves and
//! written when it arrives (`contents`).

use std::collections::VecDeque;

use units::SimTime;

use super::super::packet::{
    AckCombining, AckStatus, CircuitClosing, CircuitDestination, CircuitPacket, CircuitPriority, PACKET_BYTES,
    wire_bytes,
};
use super::super::wormhole::WormholeNetwork;
use super::costs::MemoryLocation;
use super::dma_message::{CollectiveSignal, TportEnvelope};
use super::retry::{NextAttempt, PacketAttempts};
use super::{AdapterEvent, ElanAdapters};

/// The most that the DMA processor reads ahead: one full packet.
const READ_AHEAD_BYTES: u32 = PACKET_BYTES;

/// What happens when a DMA is complete, at its source or at its destinations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DmaCompletion {
    Nothing,
    /// The background traffic sends the next message.
    NextMessage,
    /// A signal for the machine of the destination.
    Signal(CollectiveSignal),
    /// An event is set.
    Count(u32),
    /// The sender of a flood learns whether a destination accepted it: those with a buffer, which this word indicates.
    Flooded {
        buffer: u32,
    },
    /// A message for the tagged port of a process.
    Message {
        owner: u32,
        envelope: TportEnvelope,
    },
    /// A polling host is notified.
    Ping,
}

/// A descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct DmaDescriptor {
    pub(super) from: u32,
    pub(super) to: CircuitDestination,
    pub(super) bytes: u32,
    pub(super) memory: MemoryLocation,
    /// When all packets are acknowledged.
    pub(super) source_event: DmaCompletion,
    /// When all packets have arrived.
    pub(super) destination_event: DmaCompletion,
}

/// A DMA in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActiveDma {
    pub(super) dma: DmaDescriptor,
    left: u32,
    packets: u32,
    acknowledged: u32,
    begun: bool,
    /// No destination accepted a packet of a flood.
    rejected: bool,
    /// Its destination counts as lost.
    abandoned: bool,
}

impl ActiveDma {
    pub(super) fn new(dma: DmaDescriptor) -> Self {
        let packets = dma.bytes.div_ceil(PACKET_BYTES).max(1);
        Self { dma, left: dma.bytes, packets, acknowledged: 0, begun: false, rejected: false, abandoned: false }
    }

    /// Whether only one packet is missing.
    pub(super) fn lacks_one_packet(&self) -> bool {
        self.acknowledged + 1 == self.packets
    }
}

/// The DMA processor of one node.
#[derive(Debug, Default)]
pub(super) struct DmaEngine {
    queue: VecDeque<u32>,
    current: Option<u32>,
    slice_ends: SimTime,
}

/// One packet of a DMA.
#[derive(Clone, Copy, Debug)]
pub(super) struct DmaPacket {
    /// The DMA.
    pub(super) number: u32,
    /// Where its data begins in the DMA's.
    pub(super) offset: u32,
    /// Bytes of data.
    pub(super) data: u32,
    pub(super) attempts: PacketAttempts,
}

/// Whether a packet is sent for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PacketAttempt {
    First { is_last: bool },
    Retransmission,
}

impl ElanAdapters {
    /// Adds a descriptor to the queue.
    pub(super) fn queue_dma(&mut self, network: &mut WormholeNetwork, number: u32) {
        let node = self.dmas[number].dma.from;
        self.nodes[node as usize].engine.queue.push_back(number);
        if self.nodes[node as usize].engine.current.is_none() {
            self.start_next_dma(network, node);
        }
    }

    fn start_next_dma(&mut self, network: &mut WormholeNetwork, node: u32) {
        let engine = &mut self.nodes[node as usize].engine;
        engine.current = engine.queue.pop_front();
        let Some(number) = engine.current else { return };
        let running = &mut self.dmas[number];
        let mut start = self.costs.dma_start;
        if !running.begun && matches!(running.dma.to, CircuitDestination::Range { .. }) {
            start = start + self.costs.broadcast_start;
        }
        running.begun = true;
        self.schedule(network, network.now() + start, AdapterEvent::DmaStarted(node));
    }

    /// Sends the first packet of a slice.
    pub(super) fn start_slice(&mut self, network: &mut WormholeNetwork, node: u32) {
        self.nodes[node as usize].engine.slice_ends = network.now() + self.costs.slice;
        self.send_next(network, node);
    }

    fn send_next(&mut self, network: &mut WormholeNetwork, node: u32) {
        let Some(number) = self.nodes[node as usize].engine.current else { return };
        let running = &mut self.dmas[number];
        let data = running.left.min(PACKET_BYTES);
        let offset = running.dma.bytes - running.left;
        running.left -= data;
        let is_last = running.left == 0;
        let memory = running.dma.memory;
        let packet = DmaPacket { number, offset, data, attempts: PacketAttempts::default() };
        let read_at = self.fetch(node, memory, network.now(), data);
        if read_at > network.now() {
            return self.schedule(network, read_at, AdapterEvent::DataRead { packet, is_last });
        }
        self.transmit(network, packet, PacketAttempt::First { is_last });
    }

    /// When a packet can start to leave: its memory is read while it leaves, and slightly ahead.
    fn fetch(&mut self, node: u32, memory: MemoryLocation, now: SimTime, data: u32) -> SimTime {
        let through = self.move_data(node, memory, now, data);
        let ahead = self.transfer_time(memory, READ_AHEAD_BYTES + data);
        SimTime::from_picos(through.as_picos().saturating_sub(ahead.as_picos())).max(now)
    }

    /// When a packet whose last byte arrives at `at` is in its memory: it is written while it arrives.
    pub(super) fn store(&mut self, node: u32, memory: MemoryLocation, at: SimTime, data: u32) -> SimTime {
        let begun = SimTime::from_picos(at.as_picos().saturating_sub(self.transfer_time(memory, data).as_picos()));
        self.move_data(node, memory, begun, data).max(at)
    }

    pub(super) fn transmit(&mut self, network: &mut WormholeNetwork, packet: DmaPacket, turn: PacketAttempt) {
        let DmaDescriptor { from, to, memory, source_event, .. } = self.dmas[packet.number].dma;
        // Which destinations accept a flood is known only from their answers.
        let (closing, combining) = match source_event {
            DmaCompletion::Flooded { .. } => (CircuitClosing::EndToken, AckCombining::Best),
            _ => (CircuitClosing::Acknowledgement, AckCombining::Worst),
        };
        let tag = self.packets.insert(super::InFlightPacket::Dma { packet, turn });
        self.read_contents(packet, tag);
        network.send(CircuitPacket {
            from,
            to,
            bytes: wire_bytes(packet.data),
            priority: CircuitPriority::Low,
            closing,
            combining,
            slowest: self.costs.slowest(memory),
            attempt: packet.attempts.count(),
            tag,
        });
    }

    /// A packet has left: the next one of this DMA or another DMA follows.
    pub(super) fn packet_left(&mut self, network: &mut WormholeNetwork, number: u32, turn: PacketAttempt) {
        let PacketAttempt::First { is_last } = turn else { return };
        let node = self.dmas[number].dma.from;
        let engine = &mut self.nodes[node as usize].engine;
        let yields = network.now() >= engine.slice_ends && !engine.queue.is_empty();
        if is_last || yields {
            if !is_last {
                engine.queue.push_back(number);
            }
            return self.start_next_dma(network, node);
        }
        self.send_next(network, node);
    }

    /// The status of a packet is known at `at`.
    pub(super) fn packet_closed(
        &mut self,
        network: &mut WormholeNetwork,
        mut packet: DmaPacket,
        answer: AckStatus,
        at: SimTime,
    ) {
        if matches!(answer, AckStatus::NetworkError | AckStatus::Unanswered) {
            return match packet.attempts.fail(self.retry, answer, at) {
                NextAttempt::At(at) => self.schedule(network, at, AdapterEvent::Retransmit(packet)),
                NextAttempt::Never => self.abandon(network, packet.number, at),
            };
        }
        let number = packet.number;
        let running = &mut self.dmas[number];
        running.rejected |= answer == AckStatus::Failed;
        running.acknowledged += 1;
        if running.acknowledged < running.packets {
            return;
        }
        let DmaDescriptor { from, source_event, .. } = running.dma;
        let rejected = self.dmas.remove(number).expect("the number is in use").rejected;
        match source_event {
            DmaCompletion::Nothing | DmaCompletion::Message { .. } | DmaCompletion::Ping => {}
            DmaCompletion::Count(word) => self.set_event(network, from, word, at),
            DmaCompletion::Flooded { .. } => {
                let answer = if rejected { AckStatus::Failed } else { AckStatus::Success };
                self.schedule(network, at, AdapterEvent::Flooded(answer));
            }
            DmaCompletion::NextMessage => self.schedule(network, at, AdapterEvent::Background(from)),
            DmaCompletion::Signal(signal) => {
                self.schedule(network, at + self.costs.notify, AdapterEvent::HostSees { node: from, signal })
            }
        }
    }

    /// A DMA ends without its events, because its destination does not answer. What of it is still queued or in the network goes on
    /// without effect; the background turns to its next message.
    fn abandon(&mut self, network: &mut WormholeNetwork, number: u32, at: SimTime) {
        if std::mem::replace(&mut self.dmas[number].abandoned, true) {
            return;
        }
        let DmaDescriptor { from, to, source_event, destination_event, .. } = self.dmas[number].dma;
        match (source_event, destination_event) {
            (DmaCompletion::NextMessage, _) => self.schedule(network, at, AdapterEvent::Background(from)),
            (_, DmaCompletion::Signal(_)) => self.lose_destination(network, from, to),
            _ => {}
        }
    }
}
