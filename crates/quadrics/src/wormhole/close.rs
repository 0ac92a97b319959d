//! Closing: answers come back, combined where ways part, and links are let go one after the other.

use units::SimTime;

use super::super::packet::{AckStatus, CircuitClosing, CircuitDestination, CircuitPacket};
use super::{AdapterCallbacks, CircuitPhase, NONE, VirtualChannel, WormholeEvent, WormholeNetwork};

impl WormholeNetwork {
    /// The last byte has left the source, unless the event has been overtaken.
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

    /// Every destination acknowledges as soon as the codes are checked; links are let go as the answer passes.
    fn acknowledge<A: AdapterCallbacks>(&mut self, adapters: &mut A, number: u32, there: SimTime) {
        let answer = self.damaged(number);
        let circuit = &self.circuits[number as usize];
        let (packet, links) = (circuit.packet, circuit.links);
        let back = there + self.way(links);
        self.let_go(number, |network, depth| there + network.way(links - depth));
        if answer == AckStatus::Success {
            for node in Self::destinations(&packet) {
                adapters.arrived(self, node, packet.tag, there);
            }
        }
        adapters.closed(self, packet.tag, answer, back);
    }

    /// The destinations say what they think; the source's end token tells them what came of it.
    pub(super) fn handle_tested<A: AdapterCallbacks>(&mut self, adapters: &mut A, number: u32) {
        let damaged = self.damaged(number);
        let circuit = &self.circuits[number as usize];
        let (packet, links) = (circuit.packet, circuit.links);
        let (mut answer, mut said) = (None, self.now);
        if damaged == AckStatus::Success {
            for node in Self::destinations(&packet) {
                let (one, at) = adapters.test(self, node, packet.tag);
                answer = Some(answer.map_or(one, |answer| packet.combining.of(answer, one)));
                said = said.max(at);
            }
        }
        let answer = answer.unwrap_or(damaged);
        let known = said + self.way(links);
        self.let_go(number, |network, depth| known + network.way(depth + 1));
        let at = known + self.way(links);
        if damaged == AckStatus::Success {
            for node in Self::destinations(&packet) {
                adapters.ended(self, node, packet.tag, answer, at);
            }
        }
        adapters.closed(self, packet.tag, answer, known);
    }

    /// Whether the codes find damage.
    fn damaged(&mut self, number: u32) -> AckStatus {
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

    /// Lets go of all links, each at the time that belongs to its distance from the source; the circuit is over.
    fn let_go(&mut self, number: u32, at: impl Fn(&Self, u32) -> SimTime) {
        let circuit = &mut self.circuits[number as usize];
        let (links, to) = (circuit.links, circuit.packet.to);
        let mut channels = std::mem::take(&mut circuit.channels);
        for channel in &channels {
            let link = self.link_of(*channel);
            let free_at = at(self, self.depth(link, links));
            let waited_for = self.lines[link.0 as usize].first != NONE
                || self.tree.group(link).is_some_and(|group| self.groups[group as usize].first != NONE);
            self.channels[*channel as usize] = VirtualChannel { holder: NONE, free_at, told: waited_for };
            if waited_for {
                self.queue.push(free_at, WormholeEvent::Grant { link }.encode());
            }
        }
        if let CircuitDestination::Range { root, .. } = to {
            let free_at = at(self, self.tree.dimension());
            let place = &mut self.roots[root as usize];
            if place.holder == number {
                (place.holder, place.free_at) = (NONE, free_at);
                if !place.waiting.is_empty() {
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
