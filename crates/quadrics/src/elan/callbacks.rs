//! Dispatches the events of the network, and the timers of adapters and hosts, to their handlers.

use units::SimTime;

use super::super::packet::AckStatus;
use super::super::wormhole::{AdapterCallbacks, WormholeNetwork};
use super::dma::{DmaCompletion, DmaPacket, PacketAttempt};
use super::dma_message::CollectiveSignal;
use super::{AdapterEvent, ElanAdapters, InFlightPacket, PING_PORT};

impl AdapterCallbacks for ElanAdapters {
    fn drained(&mut self, network: &mut WormholeNetwork, tag: u32) {
        if let InFlightPacket::Dma { packet, turn } = self.packets[tag] {
            self.packet_left(network, packet.number, turn);
        }
    }

    fn arrived(&mut self, network: &mut WormholeNetwork, node: u32, tag: u32, at: SimTime) {
        let DmaPacket { number, offset, data, .. } = match self.packets[tag] {
            InFlightPacket::Dma { packet, .. } => packet,
            InFlightPacket::Word(link) => return self.word_arrived(network, link, at),
            InFlightPacket::Test { .. } | InFlightPacket::Atomic { .. } => return,
        };
        let stored = self.store(node, self.dmas[number].dma.memory, at, data);
        let taken = self.input(node, stored);
        self.write_contents(node, offset, tag);
        let running = &self.dmas[number];
        if !running.lacks_one_packet() {
            return;
        }
        match running.dma.destination_event {
            DmaCompletion::Nothing | DmaCompletion::NextMessage | DmaCompletion::Flooded { .. } => {}
            DmaCompletion::Signal(signal) => self.input_signal(network, node, signal, taken),
            DmaCompletion::Count(word) => self.set_event(network, node, word, taken),
            DmaCompletion::Ping => self.schedule(network, taken + self.costs.notify, AdapterEvent::Pinged),
            DmaCompletion::Message { owner, envelope } => {
                self.message_arrived(network, node, (owner, envelope), taken)
            }
        }
    }

    fn test(&mut self, network: &mut WormholeNetwork, node: u32, tag: u32) -> (AckStatus, SimTime) {
        let said = self.input(node, network.now());
        let holds = match self.packets[tag] {
            InFlightPacket::Dma { packet, .. } => self.accepts_flood(node, packet.number, packet.data, network.now()),
            InFlightPacket::Word(_) => true,
            InFlightPacket::Test { call, .. } => {
                let job = self.job.as_ref();
                self.rank_of(node)
                    .and_then(|rank| job?.machines.get(rank.index()))
                    .is_some_and(|machine| machine.has_reached(call))
            }
            InFlightPacket::Atomic { number } => self.perform(node, number),
        };
        (if holds { AckStatus::Success } else { AckStatus::Failed }, said)
    }

    fn ended(&mut self, network: &mut WormholeNetwork, node: u32, tag: u32, answer: AckStatus, at: SimTime) {
        match self.packets[tag] {
            _ if answer != AckStatus::Success => {}
            InFlightPacket::Test { call, .. } => {
                let signal = CollectiveSignal::Release { call };
                self.schedule(network, at + self.notification(), AdapterEvent::HostSees { node, signal });
            }
            InFlightPacket::Atomic { number } => self.commit(node, number),
            InFlightPacket::Dma { .. } | InFlightPacket::Word(_) => {}
        }
    }

    fn closed(&mut self, network: &mut WormholeNetwork, tag: u32, answer: AckStatus, at: SimTime) {
        self.payloads.remove(&tag);
        match self.packets.remove(tag).expect("the number is in use") {
            InFlightPacket::Word(link) if answer != AckStatus::Success => {
                self.schedule(network, at, AdapterEvent::SendWord(link))
            }
            InFlightPacket::Word(_) => {}
            InFlightPacket::Dma { packet, .. } => self.packet_closed(network, packet, answer, at),
            InFlightPacket::Test { rank, call } => self.poll_closed(network, (rank, call), answer, at),
            InFlightPacket::Atomic { number } => self.complete_atomic(network, number, answer, at),
        }
    }

    fn timer(&mut self, network: &mut WormholeNetwork, number: u32) {
        match self.steps.remove(number).expect("the number is in use") {
            AdapterEvent::Entered(rank) => self.enter(network, rank),
            AdapterEvent::DmaQueued(number) => self.queue_dma(network, number),
            AdapterEvent::DmaStarted(node) => self.start_slice(network, node),
            AdapterEvent::DataRead { packet, is_last } => {
                self.transmit(network, packet, PacketAttempt::First { is_last });
            }
            AdapterEvent::Retransmit(packet) => self.transmit(network, packet, PacketAttempt::Retransmission),
            AdapterEvent::Background(node) => {
                self.messages += 1;
                self.send_background(network, node);
            }
            AdapterEvent::ThreadSees { node, signal } => self.thread_sees(network, node, signal),
            AdapterEvent::HostSees { node, signal } => self.host_sees(network, node, signal),
            AdapterEvent::HostHandles { node, signal } => self.host_handles(network, node, signal),
            AdapterEvent::SendTest { rank, call } => self.send_test(network, rank, call),
            AdapterEvent::TestResult { rank, call, answer } => self.test_result(network, rank, call, answer),
            AdapterEvent::PollAgain(rank) => self.poll_again(network, rank),
            AdapterEvent::SendAtomic(number) => self.send_atomic(network, number),
            AdapterEvent::SendWord(link) => self.send_word(network, link),
            AdapterEvent::CountWord(switch) => self.count_word(network, switch),
            AdapterEvent::ForwardDown(switch) => self.forward_down(network, switch),
            AdapterEvent::Matched { owner, envelope } => self.match_message(network, owner, envelope),
            AdapterEvent::Received { owner: PING_PORT, .. } => self.pinged = Some(network.now()),
            AdapterEvent::Received { owner, matched } => self.received.push((owner, matched)),
            AdapterEvent::Flooded(answer) => self.flooded = Some((answer, network.now())),
            AdapterEvent::Count { node, word } => self.count_event(node, word),
            AdapterEvent::Pinged => self.pinged = Some(network.now()),
            AdapterEvent::Nothing => {}
        }
    }
}
