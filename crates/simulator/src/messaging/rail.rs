//! One end of a rail: a queue pair, its unacknowledged packets, and the channels of its paths.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use protocol::connection::Paths;
use protocol::connection::path::MigrationRole;
use protocol::messaging::RailIndex;
use protocol::queue_pair::{PacketDescriptor, QpAttributes, QpMemory, QpOperation, QpState, QueuePair, Transmit};
use topology::NodeId;
use units::{PathId, Psn, QpNumber, Rank, SimTime, Time};
use wire::{PartitionKey, RemoteKey};

use super::parameters::MessagingRunParameters;
use crate::network::SimulatedNetwork;
use crate::packet::{PacketTarget, SimulatedPacket};
use crate::packet_body::{PacketBody, PacketFraming};
use crate::path_channels::PathChannels;
use crate::queue_pair::TransportSetupError;

/// Receives posted at any time.
const POSTED_RECEIVES: u64 = 32;

/// A posted packet: the bytes from the endpoint, and the bytes that the adapter reads.
struct PostedPacket {
    id: u64,
    bytes: Vec<u8>,
    read: Rc<[u8]>,
}

/// Buffers of posted receives, as far as they are filled.
#[derive(Default)]
pub(super) struct ReceiveBuffers(BTreeMap<u64, Vec<u8>>);

impl QpMemory for ReceiveBuffers {
    fn receive(&mut self, id: u64, offset: u32, bytes: &[u8]) {
        let buffer = self.0.entry(id).or_default();
        buffer.truncate(offset as usize);
        buffer.extend_from_slice(bytes);
    }

    fn may_write(&self, _: RemoteKey, _: u64, _: u32) -> bool {
        false
    }

    fn write(&mut self, _: RemoteKey, _: u64, _: &[u8]) {}
}

pub(super) struct RailEnd {
    pub(super) pair: QueuePair,
    pub(super) here: Rank,
    pub(super) peer: Rank,
    pub(super) rail: RailIndex,
    pub(super) paths: Vec<PathChannels>,
    pub(super) far: NodeId,
    pub(super) store: ReceiveBuffers,
    /// The earliest timer that is set.
    pub(super) timer: SimTime,
    pub(super) is_lost: bool,
    /// The path on which the last packet arrived.
    pub(super) last_path: PathId,
    framing: PacketFraming,
    unacknowledged: VecDeque<PostedPacket>,
    next_send: u64,
    next_receive: u64,
    packet_bytes: u32,
}

impl RailEnd {
    /// `index` is the number of the end; the other end is `index ^ 1`.
    pub(super) fn new(
        network: &SimulatedNetwork,
        parameters: &MessagingRunParameters,
        index: usize,
        [here, peer]: [Rank; 2],
        rail: RailIndex,
    ) -> Result<Self, TransportSetupError> {
        let role = if index.is_multiple_of(2) { MigrationRole::Leader } else { MigrationRole::Follower };
        let mut pair = QueuePair::new(QpNumber(index as u32));
        let contract = QpAttributes {
            remote: QpNumber(index as u32 ^ 1),
            send_psn: Psn::new(0),
            receive_psn: Psn::new(0),
            mtu: parameters.mtu,
            coverage: parameters.framing.coverage(),
            partition: PartitionKey::DEFAULT,
            policy: parameters.policy,
        };
        let count = usize::from(parameters.paths);
        let paths = (count > 1).then(|| Paths::new(parameters.path_policy, role, count, network.machine_time()));
        pair.initialise(contract.partition)
            .and_then(|()| pair.connect(contract, paths))
            .and_then(|()| pair.open())
            .expect("a new queue pair can be connected");
        let (from, far) = (parameters.hosts[here.index()], parameters.hosts[peer.index()]);
        let channels = (0..parameters.paths).map(|path| {
            PathChannels::new(network, from, far, PathId(rail.0 + path))
                .ok_or(TransportSetupError::NoRoute { from, to: far })
        });
        let mut end = Self {
            pair,
            here,
            peer,
            rail,
            paths: channels.collect::<Result<_, _>>()?,
            far,
            store: ReceiveBuffers::default(),
            timer: SimTime::NEVER,
            is_lost: false,
            last_path: PathId(0),
            framing: parameters.framing,
            unacknowledged: VecDeque::new(),
            next_send: 0,
            next_receive: 0,
            packet_bytes: parameters.settings.packet_bytes() as u32,
        };
        (0..POSTED_RECEIVES).for_each(|_| end.post_receive());
        Ok(end)
    }

    fn post_receive(&mut self) {
        if self.pair.post_receive(self.next_receive, self.packet_bytes).is_ok() {
            self.next_receive += 1;
        }
    }

    /// Posts a packet; `read` is what the adapter reads of it.
    pub(super) fn post(&mut self, now: Time, bytes: Vec<u8>, read: Rc<[u8]>, out: &mut Vec<Transmit>) {
        let (id, length) = (self.next_send, bytes.len() as u32);
        self.next_send += 1;
        self.unacknowledged.push_back(PostedPacket { id, bytes, read });
        if self.pair.state() == QpState::ReadyToSend {
            let operation = QpOperation::Send { immediate: None };
            self.pair
                .post_send(now, id, length, operation, &mut |transmit| out.push(transmit))
                .expect("the endpoint stays within the queue pair's limits");
        }
    }

    /// The oldest unacknowledged packet, which was delivered or never will be.
    pub(super) fn take_oldest(&mut self) -> Option<Vec<u8>> {
        self.unacknowledged.pop_front().map(|unacknowledged| unacknowledged.bytes)
    }

    /// The packet that filled a receive; another receive is posted in its place.
    pub(super) fn take_received(&mut self, id: u64, length: u32) -> Vec<u8> {
        let mut bytes = self.store.0.remove(&id).unwrap_or_default();
        bytes.truncate(length as usize);
        self.post_receive();
        bytes
    }

    fn bytes_of(&self, segment: &PacketDescriptor) -> Box<[u8]> {
        let index = self
            .unacknowledged
            .iter()
            .position(|unacknowledged| unacknowledged.id == segment.id)
            .expect("a segment of an unacknowledged packet");
        let from = segment.offset as usize;
        self.unacknowledged[index].read[from..from + usize::from(segment.length)].into()
    }

    /// Injects packets into the network.
    pub(super) fn transmit(&self, network: &mut SimulatedNetwork, packets: impl Iterator<Item = Transmit>) {
        let ready = network.now() + network.parameters().adapter_delay;
        for Transmit { headers, segment, path, .. } in packets {
            let Some(channels) = self.paths.get(path.index()) else { continue };
            let payload = segment.map_or(Box::default(), |segment| self.bytes_of(&segment));
            let to = headers.bth.destination.0;
            let body = PacketBody::Transport { to, path, framing: self.framing, headers, payload };
            let bytes = body.framed_bytes();
            let packet = SimulatedPacket::new(PacketTarget::Node, self.far.0, bytes, ready, Some(Rc::new(body)));
            network.inject(channels.leaves, SimulatedPacket { flow: channels.flow, ..packet });
        }
    }
}
