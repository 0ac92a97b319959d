//! Data on open circuits: everyone on a link has a fair share, and the most crowded link decides.

use units::SimSpan;

use super::super::quaternary_tree::TreeLink;
use super::{CircuitPhase, MAX_CHANNELS, WormholeEvent, WormholeNetwork};

/// One, in the unit of `stretch`.
const ONE: u64 = 1024;

impl WormholeNetwork {
    /// All heads are there.
    pub(super) fn start_stream(&mut self, number: u32) {
        let byte_time = self.parameters.byte_time;
        let way = self.way(self.circuits[number as usize].links).as_picos();
        let circuit = &mut self.circuits[number as usize];
        let whole = byte_time.serialise(circuit.packet.bytes).as_picos();
        circuit.phase = CircuitPhase::Streaming;
        circuit.since = self.now;
        // The flits behind the head fill the links already.
        let slowest = circuit.packet.slowest.map_or(0, |slow| slow.serialise(circuit.packet.bytes).as_picos());
        circuit.stretch = (slowest * ONE / whole.max(1)).max(ONE);
        circuit.remaining = whole.saturating_sub(way * ONE / circuit.stretch);
        // A packet shorter than its way has left before its head is there.
        circuit.lag = SimSpan::from_picos(way.min(whole * circuit.stretch / ONE));
        let channels = std::mem::take(&mut circuit.channels);
        let mut crowd = 1;
        for channel in &channels {
            let link = self.link_of(*channel);
            let streaming = &mut self.streaming[link.0 as usize];
            *streaming += 1;
            if *streaming > 1 {
                let now_there = *streaming;
                crowd = crowd.max(now_there);
                self.crowd_others(number, link, now_there);
            }
        }
        let circuit = &mut self.circuits[number as usize];
        (circuit.channels, circuit.crowd) = (channels, crowd);
        self.expect_drain(number);
    }

    /// Another circuit streams on a link: those on it may have to slow down.
    fn crowd_others(&mut self, newcomer: u32, link: TreeLink, crowd: u8) {
        let first = (link.0 * MAX_CHANNELS) as usize;
        for index in first..first + self.parameters.channels as usize {
            let other = self.channels[index].holder;
            if other != newcomer && self.is_streaming(other) && self.circuits[other as usize].crowd < crowd {
                self.change_crowd(other, crowd);
            }
        }
    }

    fn is_streaming(&self, number: u32) -> bool {
        self.circuits.get(number as usize).is_some_and(|circuit| circuit.phase == CircuitPhase::Streaming)
    }

    /// A circuit's data has left: those who shared links with it may speed up.
    pub(super) fn end_stream(&mut self, number: u32) {
        self.circuits[number as usize].phase = CircuitPhase::Answering;
        let channels = std::mem::take(&mut self.circuits[number as usize].channels);
        for channel in &channels {
            let link = self.link_of(*channel);
            let before = self.streaming[link.0 as usize];
            self.streaming[link.0 as usize] = before - 1;
            if before == 1 {
                continue;
            }
            let first = (link.0 * MAX_CHANNELS) as usize;
            for index in first..first + self.parameters.channels as usize {
                let other = self.channels[index].holder;
                if self.is_streaming(other) && self.circuits[other as usize].crowd == before {
                    let crowd = self.most_crowded(other);
                    if crowd < before {
                        self.change_crowd(other, crowd);
                    }
                }
            }
        }
        self.circuits[number as usize].channels = channels;
    }

    fn most_crowded(&self, number: u32) -> u8 {
        let channels = self.circuits[number as usize].channels.iter();
        channels.map(|channel| self.streaming[self.link_of(*channel).0 as usize]).max().unwrap_or(1)
    }

    fn change_crowd(&mut self, number: u32, crowd: u8) {
        let now = self.now;
        let circuit = &mut self.circuits[number as usize];
        let stretch = circuit.stretch.max(u64::from(circuit.crowd) * ONE);
        let done = now.since(circuit.since).as_picos() * ONE / stretch;
        circuit.remaining = circuit.remaining.saturating_sub(done);
        (circuit.since, circuit.crowd) = (now, crowd);
        self.expect_drain(number);
    }

    fn expect_drain(&mut self, number: u32) {
        let circuit = &mut self.circuits[number as usize];
        circuit.generation = circuit.generation.wrapping_add(1);
        let stretch = circuit.stretch.max(u64::from(circuit.crowd) * ONE);
        let left = SimSpan::from_picos(circuit.remaining * stretch / ONE);
        let event = WormholeEvent::Drained { circuit: number, generation: circuit.generation };
        self.queue.push(self.now + left, event.encode());
    }
}
