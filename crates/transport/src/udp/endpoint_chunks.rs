//! Packets that an endpoint sends and receives in chunks (P-130).

use std::net::SocketAddr;

use units::QpNumber;
use wire::packet_chunk::{CHUNK_BYTES, ChunkHeader, is_packet_chunk};

use super::endpoint::Endpoint;
use super::long_packets::{MAX_UNCUT_BYTES, cut};
use super::port::{DatagramSpan, IpIdentification, UdpPortIndex};
use super::send_batch::{MAX_BATCH_BYTES, SocketSendError};

impl Endpoint {
    /// Sends a packet in chunks.
    #[cold]
    pub(super) fn transmit_in_chunks(
        &mut self,
        to: (UdpPortIndex, SocketAddr),
        (destination, number): (QpNumber, u32),
        packet: &[u8],
    ) {
        self.flush();
        let count = packet.len().div_ceil(CHUNK_BYTES) as u8;
        let bytes = cut(packet, ChunkHeader { destination, packet: number, index: 0, count });
        if !self.options.fault_injector.is_idle() {
            for datagram in bytes.chunks(MAX_UNCUT_BYTES) {
                let faults = self.options.fault_injector.faults_for(to.0, datagram.len());
                self.delayed.apply(&self.ports, self.clock.now(), to, datagram.to_vec(), &faults);
            }
            return;
        }
        let port = &self.ports[to.0.index()];
        let mut failed = None;
        let datagrams = port.max_gso_segments().clamp(1, MAX_BATCH_BYTES / MAX_UNCUT_BYTES);
        for call in bytes.chunks(MAX_UNCUT_BYTES * datagrams) {
            failed = port.send(to.1, call, MAX_UNCUT_BYTES).err().or(failed);
        }
        if let Some(error) = failed {
            self.record_send_error(&SocketSendError { port: to.0, to: to.1, error, size: MAX_UNCUT_BYTES });
        }
    }

    /// The kernel rejected packets of this size as too long. False if no queue pair can send shorter ones.
    pub(super) fn note_too_long(&mut self, port: UdpPortIndex, to: SocketAddr) -> bool {
        let now = self.clock.now();
        let mut any = false;
        for pair in self.pairs.values_mut() {
            if let Some(long) = &mut pair.long_packets
                && pair.routes.iter().any(|route| (route.port, route.to) == (port, to))
            {
                long.note_too_long(now);
                any = true;
            }
        }
        any
    }

    /// A chunk arrived: a packet that it completes is handled like one that arrived as a whole.
    #[cold]
    pub(super) fn handle_chunk(&mut self, (at, from): (UdpPortIndex, SocketAddr), datagram: &[u8]) {
        let Ok((header, chunk)) = ChunkHeader::parse(datagram) else {
            self.counters.malformed += 1;
            return;
        };
        let known = self.pairs.get_mut(&header.destination).filter(|pair| pair.path(at, from).is_some());
        let Some(long) = known.and_then(|pair| pair.long_packets.as_mut()) else {
            self.counters.foreign += 1;
            return;
        };
        let Some((mut packet, length)) = long.assembler.add(&header, chunk) else { return };
        if is_packet_chunk(&packet) {
            self.counters.malformed += 1;
            return;
        }
        let span = DatagramSpan { bytes: 0..length, number: IpIdentification::Guess(0), is_last: true };
        self.handle_packet((at, from), &mut packet, &span);
    }
}
