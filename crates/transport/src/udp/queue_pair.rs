//! A queue pair: its protocol machine, its buffers and the routes of its paths.

use std::net::SocketAddr;

use protocol::queue_pair::QueuePair;
use units::{PathId, QpNumber, Time};
use wire::PartitionKey;

use super::long_packets::LongPackets;
use super::packet_protection::PacketProtection;
use super::port::UdpPortIndex;
use super::posted_buffers::{EndpointMemory, PostedQueue, PostedSend};
use super::queue_pair_setup::UdpRoute;
use super::send_batch::Coalescing;

pub(super) struct UdpQueuePair {
    pub machine: QueuePair,
    pub routes: Vec<UdpRoute>,
    pub sends: PostedQueue<PostedSend>,
    pub memory: EndpointMemory,
    pub coalescing: Coalescing,
    /// Boxed, because most queue pairs of a host have none.
    pub protection: Option<Box<PacketProtection>>,
    /// None if its packets pass every path, or must not be cut.
    pub long_packets: Option<Box<LongPackets>>,
    /// The path of the last packet.
    pub last_path: PathId,
    /// The deadline of its timer. A copy of what the timer queue holds, so that most packets need no look-up there.
    pub timer: Time,
}

impl UdpQueuePair {
    pub(super) fn new(number: QpNumber) -> Self {
        let mut machine = QueuePair::new(number);
        machine.initialise(PartitionKey::DEFAULT).expect("a new queue pair is in RESET");
        Self {
            machine,
            routes: Vec::new(),
            sends: PostedQueue::default(),
            memory: EndpointMemory::default(),
            coalescing: Coalescing::Allowed,
            protection: None,
            long_packets: None,
            last_path: PathId(0),
            timer: Time::NEVER,
        }
    }

    /// The path of a packet by where it arrived and where it came from. A verbs peer may send from any port number.
    pub(super) fn path(&self, at: UdpPortIndex, from: SocketAddr) -> Option<PathId> {
        let exact = self.routes.iter().position(|route| route.at == at && route.from == from);
        let found = exact.or_else(|| {
            let lax = self.coalescing == Coalescing::Forbidden;
            self.routes.iter().position(|route| lax && route.at == at && route.from.ip() == from.ip())
        });
        found.map(|index| PathId(index as u8))
    }
}
