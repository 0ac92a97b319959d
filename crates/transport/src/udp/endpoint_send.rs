//! What an endpoint sends: the packets of its machines, in batches; and what the machines report.

use std::io;
use std::net::SocketAddr;

use protocol::connection::path::{MigrationCause, PathEvent};
use protocol::queue_pair::{Transmit, WorkCompletion};
use units::{PathId, QpNumber};
use wire::{Packet, PacketHeaders};

use super::endpoint::Endpoint;
use super::endpoint_paths::PathObservation;
use super::event::EndpointEvent;
use super::fault_injector::encode_datagram;
use super::port::UdpPortIndex;
use super::posted_buffers::{PostedReceive, SendSlice};
use super::queue_pair::UdpQueuePair;
use super::send_batch::{Coalescing, SocketSendError};

impl Endpoint {
    /// Sends what a queue pair's machine asks for, and collects its events.
    pub(super) fn carry_out(&mut self, number: QpNumber, mut outbox: Vec<Transmit>) {
        for packet in outbox.drain(..) {
            self.transmit(number, &packet);
        }
        self.outbox = outbox;
        self.collect(number);
        self.update_timer(number);
    }

    pub(super) fn transmit(&mut self, number: QpNumber, packet: &Transmit) {
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        let UdpQueuePair { routes, sends, protection, coalescing, long_packets, .. } = &mut **pair;
        let Some(route) = routes.get(packet.path.index()) else { return };
        let payload = match &packet.segment {
            None => SendSlice::default(),
            Some(segment) => {
                let Some(sending) = sends.get(segment.id) else { return };
                sending.part(segment.offset as usize, usize::from(segment.length))
            }
        };
        let (headers, payload) = match protection {
            None => (packet.headers, payload),
            Some(protection) => protection.seal(&packet.headers, payload),
        };
        self.counters.sent += 1;
        self.counters.repeated += u64::from(packet.purpose == protocol::connection::FramePurpose::Retransmission);
        let to = (route.port, route.to);
        // The reply is expected at this port.
        self.ports[route.at.index()].idle_turns = 0;
        if let Some(long) = long_packets
            && long.must_cut(headers.size_with(payload.len()), || self.clock.now())
        {
            let payload = payload.slices().concat();
            let whole = encode_datagram(&Packet::new(headers, &payload), &self.ports[to.0.index()].outgoing(to.1, 0));
            let name = (headers.bth.destination, long.next_number());
            return self.transmit_in_chunks(to, name, &whole);
        }
        if !self.options.fault_injector.is_idle() {
            let payload = payload.slices().concat();
            let whole = Packet::new(headers, &payload);
            let faults = self.options.fault_injector.faults_for(to.0, whole.size());
            if !faults.is_none() {
                let datagram = encode_datagram(&whole, &self.ports[to.0.index()].outgoing(to.1, 0));
                return self.delayed.apply(&self.ports, self.clock.now(), to, datagram, &faults);
            }
        }
        if let Err(unsent) = self.batch.add(&self.ports, to, &headers, payload, *coalescing) {
            self.record_send_error(&unsent);
        }
    }

    /// Sends one packet without delay.
    pub(super) fn send_one(
        &mut self,
        to: (UdpPortIndex, SocketAddr),
        headers: PacketHeaders,
        payload: &[u8],
        coalescing: Coalescing,
    ) {
        self.counters.sent += 1;
        if let Err(unsent) = self.batch.add(&self.ports, to, &headers, payload.into(), coalescing) {
            self.record_send_error(&unsent);
        }
        self.flush();
    }

    pub(super) fn flush(&mut self) {
        if let Err(unsent) = self.batch.flush(&self.ports) {
            self.record_send_error(&unsent);
        }
    }

    /// The kernel rejected packets. If it has no route, the path is down; if they are too long, the next ones are cut; otherwise the machines learn from their timers.
    pub(super) fn record_send_error(&mut self, unsent: &SocketSendError) {
        self.counters.unsent += 1;
        if unsent.is_too_long() && self.note_too_long(unsent.port, unsent.to) {
            return;
        }
        let no_way = !matches!(unsent.error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory);
        if no_way && self.ports[unsent.port.index()].is_up {
            let (port, to) = (unsent.port, unsent.to);
            let uses = |pair: &UdpQueuePair| {
                let found = pair.routes.iter().position(|route| route.port == port && route.to == to);
                found.map(|index| PathId(index as u8))
            };
            self.notify_paths(PathObservation::Down, uses);
        }
    }

    /// Collects completions and path events.
    pub(super) fn collect(&mut self, number: QpNumber) {
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        while let Some(completion) = pair.machine.poll_completion() {
            self.events.push_back(match completion {
                WorkCompletion::Sent { id } => {
                    EndpointEvent::Sent { pair: number, id, buffer: pair.sends.pop().head }
                }
                WorkCompletion::SendFailed { id, failure } => {
                    EndpointEvent::Failed { pair: number, id, buffer: pair.sends.pop().head, failure }
                }
                WorkCompletion::Received { id, length, immediate } => {
                    let PostedReceive { buffer, start, .. } = pair.memory.receives.pop();
                    // Of a write with immediate data, the length is that of the data written to the region.
                    let message = start..buffer.len().min(start + length as usize);
                    EndpointEvent::Received { pair: number, id, buffer, message, path: pair.last_path, immediate }
                }
                WorkCompletion::ReceiveFailed { id, failure } => {
                    EndpointEvent::Failed { pair: number, id, buffer: pair.memory.receives.pop().buffer, failure }
                }
            });
        }
        while let Some(event) = pair.machine.poll_path_event() {
            if let PathEvent::Migrated { from, cause: MigrationCause::Timeout, .. } = event
                && let Some(route) = pair.routes.get(from.index())
                && !self.suspects.contains(&(route.port, route.to))
            {
                self.suspects.push((route.port, route.to));
            }
            self.events.push_back(EndpointEvent::Path { pair: number, event });
        }
    }
}
