//! Packets over queue pairs: each rail is one queue pair, with its own alternate paths.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

use protocol::BufferSlice;
use protocol::connection::AckRequest;
use protocol::messaging::{MessagingSettings, RailIndex};
use protocol::queue_pair::{QpOperation, QpState};
use units::{PathId, QpNumber, Rank, Time};
use wire::IcrcCoverage;

use transport::message_transport::{MessageTransport, TransportEvent};
use transport::udp::{Endpoint, EndpointEvent, QueuePairError, QueuePairSetup, RECEIVE_BUFFER_BYTES};

/// Receives that are posted on each rail: more than the peer has packets in flight there, and each is posted again before
/// more is read.
const POSTED_RECEIVES: usize = 24;
const POSTED: &str = "the queue pair is ready, and the messaging machine limits the packets in flight";
const SEND: QpOperation = QpOperation::Send { immediate: None };

struct UdpRail {
    peer: Rank,
    index: RailIndex,
    /// Posted sends without completion. Of the requests that fail, so many are sends; they fail first.
    in_flight: usize,
    is_lost: bool,
}

/// The rails of a process over UDP.
pub struct UdpTransport {
    endpoint: Endpoint,
    rails: BTreeMap<QpNumber, UdpRail>,
    numbers: BTreeMap<(Rank, RailIndex), QpNumber>,
    coverage: IcrcCoverage,
    /// Packets that could not be posted because their rail was just lost.
    unsent: VecDeque<(Rank, RailIndex, Vec<u8>)>,
    /// Events that concern no message: datagrams, and changes of paths. Kept only for an owner who reads them.
    side_events: Option<VecDeque<EndpointEvent>>,
}

impl UdpTransport {
    /// Over an endpoint, for a messaging machine with these settings.
    ///
    /// # Panics
    /// If its packets are longer than [`RECEIVE_BUFFER_BYTES`].
    pub fn new(endpoint: Endpoint, settings: &MessagingSettings) -> Self {
        assert!(settings.packet_bytes() <= RECEIVE_BUFFER_BYTES, "a packet fits a receive");
        Self {
            endpoint,
            rails: BTreeMap::new(),
            numbers: BTreeMap::new(),
            coverage: if settings.checksum.is_strong() { IcrcCoverage::Prefix } else { IcrcCoverage::Full },
            unsent: VecDeque::new(),
            side_events: None,
        }
    }

    /// Lets packets have no ICRC at all, as messages whose checksum is off have none: what a benchmark compares with.
    pub fn without_packet_checks(self) -> Self {
        Self { coverage: IcrcCoverage::Nothing, ..self }
    }

    /// Keeps datagrams and changes of paths for [`Self::next_side_event`].
    pub fn keep_side_events(&mut self) {
        self.side_events.get_or_insert_default();
    }

    /// The next datagram or change of a path.
    pub fn next_side_event(&mut self) -> Option<EndpointEvent> {
        self.side_events.as_mut()?.pop_front()
    }

    /// The peer and the rail of a queue pair.
    pub fn rail_of(&self, number: QpNumber) -> Option<(Rank, RailIndex)> {
        self.rails.get(&number).map(|rail| (rail.peer, rail.index))
    }

    /// The endpoint.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Whether there are any rails.
    pub fn has_rails(&self) -> bool {
        !self.rails.is_empty()
    }

    /// Creates the queue pair of a rail; returns its number for the peer.
    ///
    /// # Errors
    /// If the queue pair rejects a receive.
    pub fn create(&mut self, peer: Rank, index: RailIndex) -> Result<QpNumber, QueuePairError> {
        let number = self.endpoint.create();
        for _ in 0..POSTED_RECEIVES {
            self.endpoint.post_pooled_receive(number)?;
        }
        self.rails.insert(number, UdpRail { peer, index, in_flight: 0, is_lost: false });
        self.numbers.insert((peer, index), number);
        Ok(number)
    }

    /// Connects the queue pair of a rail.
    ///
    /// # Errors
    /// If the attributes are invalid.
    pub fn connect(&mut self, number: QpNumber, setup: QueuePairSetup) -> Result<(), QueuePairError> {
        self.endpoint.connect(number, QueuePairSetup { coverage: self.coverage, ..setup })
    }

    /// Packets that arrived when no receive was posted: each made its sender wait.
    pub fn unready(&self) -> u64 {
        let machines = self.rails.keys().filter_map(|number| self.endpoint.machine(*number));
        machines.map(|machine| machine.dropped().no_receive).sum()
    }

    /// The queue pair of a rail that can send; counts one more packet in flight.
    fn ready_queue_pair(&mut self, to: Rank, rail: RailIndex) -> Option<QpNumber> {
        let number = *self.numbers.get(&(to, rail))?;
        let is_ready = self.endpoint.machine(number).is_some_and(|machine| machine.state() == QpState::ReadyToSend);
        let rail = self.rails.get_mut(&number).filter(|_| is_ready)?;
        rail.in_flight += 1;
        Some(number)
    }

    fn handle_event(&mut self, event: EndpointEvent, on_event: &mut dyn FnMut(Time, TransportEvent<'_>)) {
        let now = self.endpoint.now();
        match event {
            EndpointEvent::Received { pair, mut buffer, message, path, .. } => {
                if let Some(rail) = self.rails.get(&pair) {
                    let bytes = &mut buffer[message];
                    on_event(now, TransportEvent::Packet { from: rail.peer, rail: rail.index, path, bytes });
                }
                self.endpoint.release(buffer);
                // A lost rail rejects it.
                let _ = self.endpoint.post_pooled_receive(pair);
            }
            EndpointEvent::Sent { pair, buffer, .. } => {
                if let Some(rail) = self.rails.get_mut(&pair) {
                    rail.in_flight -= 1;
                    on_event(now, TransportEvent::SendComplete { to: rail.peer, rail: rail.index, bytes: buffer });
                }
            }
            EndpointEvent::Failed { pair, buffer, .. } => {
                let Some(rail) = self.rails.get_mut(&pair) else { return };
                if !std::mem::replace(&mut rail.is_lost, true) {
                    on_event(now, TransportEvent::RailLost { peer: rail.peer, rail: rail.index });
                }
                if rail.in_flight > 0 {
                    rail.in_flight -= 1;
                    on_event(now, TransportEvent::SendComplete { to: rail.peer, rail: rail.index, bytes: buffer });
                }
            }
            event @ (EndpointEvent::Datagram { .. } | EndpointEvent::Path { .. }) => {
                if let Some(kept) = &mut self.side_events {
                    kept.push_back(event);
                }
            }
        }
    }
}

impl MessageTransport for UdpTransport {
    fn send(&mut self, to: Rank, rail: RailIndex, bytes: Vec<u8>) {
        match self.ready_queue_pair(to, rail) {
            Some(number) => {
                self.endpoint.post_send(number, bytes, SEND).expect(POSTED);
            }
            None => self.unsent.push_back((to, rail, bytes)),
        }
    }

    fn supports_borrowed(&self) -> bool {
        true
    }

    fn send_borrowed(&mut self, to: Rank, rail: RailIndex, head: Vec<u8>, body: BufferSlice, ask: AckRequest) {
        match self.ready_queue_pair(to, rail) {
            Some(number) => {
                self.endpoint.post_send_borrowed(number, (head, body), SEND, ask).expect(POSTED);
            }
            None => self.unsent.push_back((to, rail, head)),
        }
    }

    fn report_corruption(&mut self, from: Rank, rail: RailIndex, path: PathId) {
        if let Some(number) = self.numbers.get(&(from, rail)) {
            self.endpoint.report_corruption(*number, path);
        }
    }

    fn turn(&mut self, wait: Duration, on_event: &mut dyn FnMut(Time, TransportEvent<'_>)) -> io::Result<()> {
        self.endpoint.turn(if self.unsent.is_empty() { wait } else { Duration::ZERO })?;
        while let Some(event) = self.endpoint.next_event() {
            self.handle_event(event, on_event);
        }
        // After the failures of the rail, which come first.
        let now = self.endpoint.now();
        while let Some((to, rail, bytes)) = self.unsent.pop_front() {
            on_event(now, TransportEvent::RailLost { peer: to, rail });
            on_event(now, TransportEvent::SendComplete { to, rail, bytes });
        }
        Ok(())
    }

    fn now(&self) -> Time {
        self.endpoint.clock().now()
    }

    fn drop_peer(&mut self, peer: Rank) {
        let Self { endpoint, rails, numbers, .. } = self;
        numbers.retain(|(rank, _), number| {
            if *rank == peer {
                rails.remove(number);
                endpoint.destroy(*number);
            }
            *rank != peer
        });
    }
}
