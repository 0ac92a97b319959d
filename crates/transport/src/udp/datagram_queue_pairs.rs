//! Datagrams and multicast groups of an endpoint.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;

use protocol::datagram::{MULTICAST_QP, UdQueuePair};
use units::QpNumber;
use wire::{Packet, PartitionKey, QueueKey};

use super::endpoint::Endpoint;
use super::port::{UdpPort, UdpPortIndex};
use super::queue_pair::{EndpointEvent, QueuePairError};
use super::send_batch::Coalescing;

/// A datagram queue pair, its buffers and the groups that it listens to.
struct DatagramQueuePair {
    machine: UdQueuePair,
    buffers: VecDeque<Vec<u8>>,
    groups: Vec<UdpPortIndex>,
}

/// Buffers that may wait for datagrams of one queue pair.
const MAX_POSTED_BUFFERS: usize = 1 << 14;

/// The datagram queue pairs of an endpoint.
#[derive(Default)]
pub(super) struct DatagramQueuePairs {
    listeners: BTreeMap<QpNumber, DatagramQueuePair>,
}

/// Datagrams that were dropped, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DatagramDrop {
    /// For nobody here.
    Foreign,
    /// Nobody had a buffer for it.
    Unbuffered,
}

impl DatagramQueuePairs {
    pub(super) fn contains(&self, number: QpNumber) -> bool {
        self.listeners.contains_key(&number)
    }

    /// Hands a datagram to all that it is for.
    pub(super) fn take(
        &mut self,
        at: UdpPortIndex,
        from: SocketAddr,
        packet: &Packet<'_>,
        events: &mut VecDeque<EndpointEvent>,
    ) -> Result<(), DatagramDrop> {
        let mut lost = Some(DatagramDrop::Foreign);
        let is_multicast = packet.headers.bth.destination == MULTICAST_QP;
        for (number, listener) in &mut self.listeners {
            let Ok(speaker) = listener.machine.accept(&packet.headers) else { continue };
            if is_multicast && !listener.groups.contains(&at) {
                continue;
            }
            let fits = listener.buffers.front().is_some_and(|buffer| buffer.len() >= packet.payload.len());
            let Some(mut buffer) = listener.buffers.pop_front().filter(|_| fits) else {
                lost = lost.map(|_| DatagramDrop::Unbuffered);
                continue;
            };
            let length = packet.payload.len();
            buffer[..length].copy_from_slice(packet.payload);
            let immediate = speaker.immediate;
            events.push_back(EndpointEvent::Datagram {
                pair: *number,
                from,
                speaker: speaker.pair,
                buffer,
                length,
                immediate,
            });
            lost = None;
        }
        lost.map_or(Ok(()), Err)
    }
}

impl Endpoint {
    /// Makes a datagram queue pair that lets in whoever knows the key.
    pub fn create_datagram(&mut self, key: QueueKey) -> QpNumber {
        let number = self.next_number();
        let machine = UdQueuePair::new(number, key, PartitionKey::DEFAULT);
        let listener = DatagramQueuePair { machine, buffers: VecDeque::new(), groups: Vec::new() };
        self.datagrams.listeners.insert(number, listener);
        number
    }

    /// Posts a buffer for a datagram. One that is too short for what comes is used up for nothing, as by any adapter.
    pub fn post_datagram_receive(&mut self, number: QpNumber, buffer: Vec<u8>) -> Result<(), QueuePairError> {
        let listener = self.datagrams.listeners.get_mut(&number).ok_or(QueuePairError::Unknown(number))?;
        if listener.buffers.len() >= MAX_POSTED_BUFFERS {
            return Err(QueuePairError::Post(protocol::queue_pair::QpPostError::Full));
        }
        listener.buffers.push_back(buffer);
        Ok(())
    }

    /// Joins a multicast group on the link of one of its ports: a datagram queue pair hears what is sent to it.
    ///
    /// # Errors
    /// If the group cannot be joined there.
    pub fn join(&mut self, number: QpNumber, group: SocketAddr, port: UdpPortIndex) -> io::Result<()> {
        let known = self.ports.iter().position(|open| open.local == group);
        let index = match known {
            Some(index) => index,
            None if self.ports.len() > usize::from(u8::MAX) => {
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "too many groups"));
            }
            None => {
                let interface = self.ports[port.index()].local;
                let port = UdpPort::join(group, interface)?;
                self.bed.add_port(self.ports.len(), port.as_fd())?;
                self.ports.push(port);
                self.ports.len() - 1
            }
        };
        if let Some(listener) = self.datagrams.listeners.get_mut(&number) {
            listener.groups.push(UdpPortIndex(index as u8));
        }
        Ok(())
    }

    /// Sends a datagram to a queue pair, or with [`MULTICAST_QP`] to all of a group.
    ///
    /// # Errors
    /// If there is no such datagram queue pair, or the message is longer than a packet may be.
    pub fn send_datagram(
        &mut self,
        number: QpNumber,
        port: UdpPortIndex,
        to: (SocketAddr, QpNumber, QueueKey),
        bytes: &[u8],
        immediate: Option<u32>,
    ) -> Result<(), QueuePairError> {
        if bytes.len() > units::limits::MAX_MTU as usize {
            return Err(QueuePairError::Setup("a datagram has at most 4096 bytes"));
        }
        let listener = self.datagrams.listeners.get_mut(&number).ok_or(QueuePairError::Unknown(number))?;
        let (address, pair, key) = to;
        let headers = listener.machine.address(pair, key, immediate);
        self.send_one((port, address), headers, bytes, Coalescing::Forbidden);
        Ok(())
    }
}
