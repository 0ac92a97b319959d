//! One end of a rail: a queue pair, the parcels in its hands, and the ways that its packets take.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use protocol::connection::Paths;
use protocol::connection::path::MigrationRole;
use protocol::messaging::RailIndex;
use protocol::queue_pair::{PacketDescriptor, QpAttributes, QpMemory, QpOperation, QpState, QueuePair, Transmit};
use topology::NodeId;
use units::{Lane, PathId, Psn, QpNumber, Rank, SimTime};
use wire::{IcrcCoverage, PartitionKey, RemoteKey};

use super::{MessagingRunParameters, TransportSetupError};
use crate::network::{ChannelId, PacketTarget, SimulatedNetwork, SimulatedPacket};
use crate::packet_body::PacketBody;
use crate::queue_pair::way;

/// Receives that are posted at any time.
const RECEIVES: u64 = 32;

/// How one path begins and ends.
pub(super) struct RailPath {
    pub(super) leaves: ChannelId,
    pub(super) reverse: ChannelId,
    pub(super) enters: ChannelId,
    flow: u32,
}

/// A parcel that was posted, as the port gave it, and as the adapter read it.
struct InHand {
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
    pub(super) ways: Vec<RailPath>,
    pub(super) far: NodeId,
    pub(super) store: ReceiveBuffers,
    /// When its alarm is set.
    pub(super) timer: SimTime,
    pub(super) is_lost: bool,
    in_hand: VecDeque<InHand>,
    next_send: u64,
    next_receive: u64,
    parcel_bytes: u32,
}

impl RailEnd {
    /// `index` numbers the ends; the other end is `index ^ 1`.
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
            coverage: IcrcCoverage::Whole,
            partition: PartitionKey::DEFAULT,
            policy: parameters.policy,
        };
        let count = usize::from(parameters.paths);
        let paths = (count > 1).then(|| Paths::new(parameters.path_policy, role, count, network.now()));
        pair.initialise(contract.partition)
            .and_then(|()| pair.connect(contract, paths))
            .and_then(|()| pair.open())
            .expect("a new queue pair goes this way");
        let (from, far) = (parameters.hosts[here.index()], parameters.hosts[peer.index()]);
        let ways = (0..parameters.paths).map(|path| RailPath::new(network, from, far, PathId(rail.0 + path)));
        let mut end = Self {
            pair,
            here,
            peer,
            rail,
            ways: ways.collect::<Result<_, _>>()?,
            far,
            store: ReceiveBuffers::default(),
            timer: SimTime::NEVER,
            is_lost: false,
            in_hand: VecDeque::new(),
            next_send: 0,
            next_receive: 0,
            parcel_bytes: parameters.settings.parcel_bytes() as u32,
        };
        (0..RECEIVES).for_each(|_| end.post_receive());
        Ok(end)
    }

    fn post_receive(&mut self) {
        if self.pair.post_receive(self.next_receive, self.parcel_bytes).is_ok() {
            self.next_receive += 1;
        }
    }

    /// Posts a parcel; `read` is what the adapter reads of it.
    pub(super) fn post(&mut self, now: SimTime, bytes: Vec<u8>, read: Rc<[u8]>, out: &mut Vec<Transmit>) {
        let (id, length) = (self.next_send, bytes.len() as u32);
        self.next_send += 1;
        self.in_hand.push_back(InHand { id, bytes, read });
        if self.pair.state() == QpState::ReadyToSend {
            let operation = QpOperation::Send { immediate: None };
            self.pair
                .post_send(now, id, length, operation, &mut |transmit| out.push(transmit))
                .expect("a port keeps within the limits");
        }
    }

    /// The oldest parcel in hand, which has come or never will.
    pub(super) fn take_back(&mut self) -> Option<Vec<u8>> {
        self.in_hand.pop_front().map(|in_hand| in_hand.bytes)
    }

    /// The parcel that filled a receive; another receive is posted in its place.
    pub(super) fn take_received(&mut self, id: u64, length: u32) -> Vec<u8> {
        let mut bytes = self.store.0.remove(&id).unwrap_or_default();
        bytes.truncate(length as usize);
        self.post_receive();
        bytes
    }

    fn bytes_of(&self, segment: &PacketDescriptor) -> Box<[u8]> {
        let index = self.in_hand.iter().position(|in_hand| in_hand.id == segment.id).expect("it is in hand");
        let from = segment.offset as usize;
        self.in_hand[index].read[from..from + usize::from(segment.length)].into()
    }

    /// Sends packets.
    pub(super) fn transmit(&self, network: &mut SimulatedNetwork, packets: impl Iterator<Item = Transmit>) {
        let ready = network.now() + network.parameters().adapter_delay;
        for Transmit { headers, segment, path, .. } in packets {
            let Some(way) = self.ways.get(path.index()) else { continue };
            let payload = segment.map_or(Box::default(), |segment| self.bytes_of(&segment));
            let body = PacketBody::Transport { to: headers.bth.destination.0, path, headers, payload };
            let bytes = body.framed_bytes();
            let packet = SimulatedPacket::new(PacketTarget::Node, self.far.0, bytes, ready, Some(Rc::new(body)));
            network.inject(way.leaves, SimulatedPacket { flow: way.flow, ..packet });
        }
    }
}

impl RailPath {
    fn new(
        network: &SimulatedNetwork,
        here: NodeId,
        there: NodeId,
        path: PathId,
    ) -> Result<Self, TransportSetupError> {
        let fabric = network.topology();
        let no_way = TransportSetupError::NoWay { from: here, to: there };
        let Some([out, back]) = way(fabric, here, there, path) else { return Err(no_way) };
        let (Some(first), Some(last)) = (out.hops.first(), back.hops.last()) else { return Err(no_way) };
        let peer = fabric.peer(first.node, first.port).expect("a way uses cabled ports");
        let channel = |end| network.channel(end, Lane(0));
        Ok(Self { leaves: channel(*first), reverse: channel(peer), enters: channel(*last), flow: out.flow })
    }
}
