//! Datagrams and multicast groups of an endpoint.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use protocol::datagram::UdQueuePair;
use units::QpNumber;
use wire::{PartitionKey, QueueKey};

use super::datagram_queue_pairs::{DatagramQueuePair, MAX_POSTED_BUFFERS};
use super::endpoint::Endpoint;
use super::event::QueuePairError;
use super::port::{UdpPort, UdpPortIndex};
use super::send_batch::Coalescing;

impl Endpoint {
    /// Creates a datagram queue pair that accepts senders with this key.
    pub fn create_datagram(&mut self, key: QueueKey) -> QpNumber {
        let number = self.next_number();
        let machine = UdQueuePair::new(number, key, PartitionKey::DEFAULT);
        let queue_pair = DatagramQueuePair { machine, buffers: VecDeque::new(), groups: Vec::new() };
        self.datagrams.pairs.insert(number, queue_pair);
        number
    }

    /// Posts a buffer for a datagram. A datagram that is too long for the buffer consumes it, as on any adapter.
    pub fn post_datagram_receive(&mut self, number: QpNumber, buffer: Vec<u8>) -> Result<(), QueuePairError> {
        let queue_pair = self.datagrams.pairs.get_mut(&number).ok_or(QueuePairError::Unknown(number))?;
        if queue_pair.buffers.len() >= MAX_POSTED_BUFFERS {
            return Err(QueuePairError::Post(protocol::queue_pair::QpPostError::Full));
        }
        queue_pair.buffers.push_back(buffer);
        Ok(())
    }

    /// Joins a multicast group on the link of one of the ports; the queue pair then receives what is sent to the group.
    ///
    /// # Errors
    /// If the kernel rejects the group on that link.
    pub fn join(&mut self, number: QpNumber, group: SocketAddr, port: UdpPortIndex) -> io::Result<()> {
        let known = self.ports.iter().position(|open| open.local == group);
        let index = match known {
            Some(index) => index,
            None if self.ports.len() > usize::from(u8::MAX) => {
                return Err(io::Error::new(
                    io::ErrorKind::QuotaExceeded,
                    "an endpoint joins at most 256 multicast groups",
                ));
            }
            None => {
                let interface = self.ports[port.index()].local;
                let port = UdpPort::join(group, interface)?;
                self.epoll_set.add_port(self.ports.len(), port.as_fd())?;
                self.ports.push(port);
                self.ports.len() - 1
            }
        };
        if let Some(queue_pair) = self.datagrams.pairs.get_mut(&number) {
            queue_pair.groups.push(UdpPortIndex(index as u8));
        }
        Ok(())
    }

    /// Sends a datagram to a queue pair, or to a whole group with [`MULTICAST_QP`](protocol::datagram::MULTICAST_QP).
    ///
    /// # Errors
    /// If there is no such datagram queue pair, or the message exceeds one packet.
    pub fn send_datagram(
        &mut self,
        number: QpNumber,
        port: UdpPortIndex,
        to: (SocketAddr, QpNumber, QueueKey),
        bytes: &[u8],
        immediate: Option<u32>,
    ) -> Result<(), QueuePairError> {
        if bytes.len() > units::limits::MAX_MTU as usize {
            return Err(QueuePairError::Setup("a datagram carries at most 4096 bytes"));
        }
        let queue_pair = self.datagrams.pairs.get_mut(&number).ok_or(QueuePairError::Unknown(number))?;
        let (address, pair, key) = to;
        let headers = queue_pair.machine.address(pair, key, immediate);
        self.send_one((port, address), headers, bytes, Coalescing::Forbidden);
        Ok(())
    }
}
