//! Closes circuits: acknowledgements return, combined at the branches, and links are released one after the other.

use units::SimTime;

use super::super::packet::{AckStatus, CircuitClosing, CircuitDestination, CircuitPacket};
use super::{AdapterCallbacks, CircuitPhase, NONE, VirtualChannel, WormholeEvent, WormholeNetwork};

impl WormholeNetwork {
    /// The last byte has left the source, unless the event is obsolete.
    pub(super) fn handle_drained<A: AdapterCallbacks>(&mut self, adapters: &mut A, number: u32, generation: u16) {
        let circuit = &self.circuits[number as usize];
        if circuit.phase != CircuitPhase::Streaming || circuit.generation != generation {
            return;
        }
        self.end_stream(number);
        let CircuitPacket { tag, closing, .. } = self.circuits[number as usize].packet;
        let there = self.now + self.circuits[number as usize].lag;
        adapters.drained(self, tag);
        match closing {
            CircuitClosing::EndToken => self.queue.push(there, WormholeEvent::Tested { circuit: number }.encode()),
            CircuitClosing::Acknowledgement => self.acknowledge(adapters, number, there),
        }
    }

    /// Every destination acknowledges once the CRC is checked; the acknowledgement releases the links as it passes.
    fn acknowledge<A: AdapterCallbacks>(&mut self, adapters: &mut A, number: u32, there: SimTime) {
        let answer = self.check_crc(number);
        let circuit = &self.circuits[number as usize];
        let (packet, links) = (circuit.packet, circuit.links);
        let back = there + self.latency(links);
        self.release(number, |network, depth| there + network.latency(links - depth));
        if answer == AckStatus::Success {
            for node in Self::destinations(&packet) {
                adapters.arrived(self, node, packet.tag, there);
            }
        }
        adapters.closed(self, packet.tag, answer, back);
    }

    /// The destinations return their status; the source's end token carries the combined status to them.
    pub(super) fn handle_tested<A: AdapterCallbacks>(&mut self, adapters: &mut A, number: u32) {
        let damaged = self.check_crc(number);
        let circuit = &self.circuits[number as usize];
        let (packet, links) = (circuit.packet, circuit.links);
        let (mut answer, mut said) = (None, self.now);
        if damaged == AckStatus::Success {
            for node in Self::destinations(&packet) {
                let (one, at) = adapters.test(self, node, packet.tag);
                answer = Some(answer.map_or(one, |answer| packet.combining.combine(answer, one)));
                said = said.max(at);
            }
        }
        let answer = answer.unwrap_or(damaged);
        let known = said + self.latency(links);
        self.release(number, |network, depth| known + network.latency(depth + 1));
        let at = known + self.latency(links);
        if damaged == AckStatus::Success {
            for node in Self::destinations(&packet) {
                adapters.ended(self, node, packet.tag, answer, at);
            }
        }
        adapters.closed(self, packet.tag, answer, known);
    }

    /// Whether the packet arrived, and whether the CRC detects damage.
    fn check_crc(&mut self, number: u32) -> AckStatus {
        let status = self.packet_status(number);
        if status != AckStatus::Success {
            self.counters.damaged += 1;
            return status;
        }
        if self.parameters.damage <= 0.0 {
            return AckStatus::Success;
        }
        let links = self.circuits[number as usize].channels.len() as u64;
        let first = self.counters.packets << 20;
        if (0..links).any(|link| self.damage_chance.hits(self.damage.at(first + link))) {
            self.counters.damaged += 1;
            return AckStatus::NetworkError;
        }
        AckStatus::Success
    }

    /// Releases all links, each at a time that depends on its distance from the source, and ends the circuit.
    fn release(&mut self, number: u32, at: impl Fn(&Self, u32) -> SimTime) {
        let circuit = &mut self.circuits[number as usize];
        let (links, to) = (circuit.links, circuit.packet.to);
        let mut channels = std::mem::take(&mut circuit.channels);
        for channel in &channels {
            let link = self.link_of(*channel);
            let free_at = at(self, self.depth(link, links));
            let has_waiters = self.link_queues[link.0 as usize].first != NONE
                || self
                    .tree
                    .switch_of_up_link(link)
                    .is_some_and(|group| self.switch_queues[group as usize].first != NONE);
            self.channels[*channel as usize] = VirtualChannel { holder: NONE, free_at, grant_scheduled: has_waiters };
            if has_waiters {
                self.queue.push(free_at, WormholeEvent::Grant { link }.encode());
            }
        }
        if let CircuitDestination::Range { root, .. } = to {
            let free_at = at(self, self.tree.dimension());
            let slot = &mut self.roots[root as usize];
            if slot.holder == number {
                (slot.holder, slot.free_at) = (NONE, free_at);
                if !slot.waiting.is_empty() {
                    self.queue.push(free_at, WormholeEvent::RootFree { root }.encode());
                }
            }
        }
        channels.clear();
        let circuit = &mut self.circuits[number as usize];
        (circuit.channels, circuit.phase) = (channels, CircuitPhase::Unused);
        self.free_circuits.push(number);
        self.counters.packets += 1;
    }
}
