//! Unreliable datagram queue pairs, their posted buffers and the multicast groups they have joined.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use protocol::datagram::{MULTICAST_QP, UdQueuePair};
use units::QpNumber;
use wire::Packet;

use super::event::EndpointEvent;
use super::port::UdpPortIndex;

/// A datagram queue pair, its posted buffers and its multicast groups.
pub(super) struct DatagramQueuePair {
    pub machine: UdQueuePair,
    pub buffers: VecDeque<Vec<u8>>,
    pub groups: Vec<UdpPortIndex>,
}

/// Buffers that may be posted on one queue pair.
pub(super) const MAX_POSTED_BUFFERS: usize = 1 << 14;

/// The datagram queue pairs of an endpoint.
#[derive(Default)]
pub(super) struct DatagramQueuePairs {
    pub pairs: BTreeMap<QpNumber, DatagramQueuePair>,
}

/// Why a datagram was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DatagramDrop {
    /// No queue pair here is its destination.
    Foreign,
    /// Its queue pair has no buffer posted.
    NoBuffer,
}

impl DatagramQueuePairs {
    pub(super) fn contains(&self, number: QpNumber) -> bool {
        self.pairs.contains_key(&number)
    }

    /// Delivers a datagram to every queue pair that it is for.
    pub(super) fn deliver(
        &mut self,
        at: UdpPortIndex,
        from: SocketAddr,
        packet: &Packet<'_>,
        events: &mut VecDeque<EndpointEvent>,
    ) -> Result<(), DatagramDrop> {
        let mut lost = Some(DatagramDrop::Foreign);
        let is_multicast = packet.headers.bth.destination == MULTICAST_QP;
        for (number, pair) in &mut self.pairs {
            let Ok(source) = pair.machine.accept(&packet.headers) else { continue };
            if is_multicast && !pair.groups.contains(&at) {
                continue;
            }
            let fits = pair.buffers.front().is_some_and(|buffer| buffer.len() >= packet.payload.len());
            let Some(mut buffer) = pair.buffers.pop_front().filter(|_| fits) else {
                lost = lost.map(|_| DatagramDrop::NoBuffer);
                continue;
            };
            let length = packet.payload.len();
            buffer[..length].copy_from_slice(packet.payload);
            let immediate = source.immediate;
            events.push_back(EndpointEvent::Datagram {
                pair: *number,
                from,
                source: source.pair,
                buffer,
                length,
                immediate,
            });
            lost = None;
        }
        lost.map_or(Ok(()), Err)
    }
}
