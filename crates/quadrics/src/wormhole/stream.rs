//! Data on open circuits: the circuits on a link share it equally, and the most shared link determines the rate.

use units::SimSpan;

use super::super::quaternary_tree::TreeLink;
use super::{CircuitPhase, MAX_CHANNELS, WormholeEvent, WormholeNetwork};

/// The value 1 in the unit of `stretch`.
const ONE: u64 = 1024;

impl WormholeNetwork {
    /// Starts the data of a circuit whose heads have all arrived.
    pub(super) fn start_stream(&mut self, number: u32) {
        let byte_time = self.parameters.byte_time;
        let way = self.latency(self.circuits[number as usize].links).as_picos();
        let circuit = &mut self.circuits[number as usize];
        let whole = byte_time.serialise(circuit.packet.bytes).as_picos();
        circuit.phase = CircuitPhase::Streaming;
        (circuit.since, circuit.streaming_since) = (self.now, self.now);
        // The flits behind the head fill the links already.
        let slowest = circuit.packet.slowest.map_or(0, |slow| slow.serialise(circuit.packet.bytes).as_picos());
        circuit.stretch = (slowest * ONE / whole.max(1)).max(ONE);
        circuit.remaining = whole.saturating_sub(way * ONE / circuit.stretch);
        // A packet shorter than its path has left the source before its head arrives.
        circuit.lag = SimSpan::from_picos(way.min(whole * circuit.stretch / ONE));
        let channels = std::mem::take(&mut circuit.channels);
        let mut sharing = 1;
        for channel in &channels {
            let link = self.link_of(*channel);
            let streaming = &mut self.streaming[link.0 as usize];
            *streaming += 1;
            if *streaming > 1 {
                let now_there = *streaming;
                sharing = sharing.max(now_there);
                self.slow_others(number, link, now_there);
            }
        }
        let circuit = &mut self.circuits[number as usize];
        (circuit.channels, circuit.sharing) = (channels, sharing);
        self.schedule_drain(number);
    }

    /// Another circuit starts on a link: the circuits on it may have to slow down.
    fn slow_others(&mut self, newcomer: u32, link: TreeLink, sharing: u8) {
        let first = (link.0 * MAX_CHANNELS) as usize;
        for index in first..first + self.parameters.channels as usize {
            let other = self.channels[index].holder;
            if other != newcomer && self.is_streaming(other) && self.circuits[other as usize].sharing < sharing {
                self.set_sharing(other, sharing);
            }
        }
    }

    fn is_streaming(&self, number: u32) -> bool {
        self.circuits.get(number as usize).is_some_and(|circuit| circuit.phase == CircuitPhase::Streaming)
    }

    /// A circuit's data has left: circuits that shared links with it may speed up.
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
                if self.is_streaming(other) && self.circuits[other as usize].sharing == before {
                    let sharing = self.most_shared(other);
                    if sharing < before {
                        self.set_sharing(other, sharing);
                    }
                }
            }
        }
        self.circuits[number as usize].channels = channels;
    }

    fn most_shared(&self, number: u32) -> u8 {
        let channels = self.circuits[number as usize].channels.iter();
        channels.map(|channel| self.streaming[self.link_of(*channel).0 as usize]).max().unwrap_or(1)
    }

    fn set_sharing(&mut self, number: u32, sharing: u8) {
        let now = self.now;
        let circuit = &mut self.circuits[number as usize];
        let stretch = circuit.stretch.max(u64::from(circuit.sharing) * ONE);
        let done = now.since(circuit.since).as_picos() * ONE / stretch;
        circuit.remaining = circuit.remaining.saturating_sub(done);
        (circuit.since, circuit.sharing) = (now, sharing);
        self.schedule_drain(number);
    }

    fn schedule_drain(&mut self, number: u32) {
        let circuit = &mut self.circuits[number as usize];
        circuit.generation = circuit.generation.wrapping_add(1);
        let stretch = circuit.stretch.max(u64::from(circuit.sharing) * ONE);
        let left = SimSpan::from_picos(circuit.remaining * stretch / ONE);
        let event = WormholeEvent::Drained { circuit: number, generation: circuit.generation };
        self.queue.push(self.now + left, event.encode());
    }
}
