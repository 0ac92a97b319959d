//! Parcels over queue pairs: each rail is one, with paths of its own to fall back on.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

use protocol::BufferSlice;
use protocol::connection::AckRequest;
use protocol::messaging::{MessagingSettings, RailIndex};
use protocol::queue_pair::{QpOperation, QpState};
use units::{PathId, QpNumber, Rank, Time};
use wire::IcrcCoverage;

use transport::carrier::{MessageTransport, TransportEvent};
use transport::udp::{Endpoint, EndpointEvent, QueuePairError, QueuePairSetup, RECEIVE_BUFFER_BYTES};

/// Receives that are posted on each rail: more than a port has parcels under way there, and they are posted anew before more is
/// read.
const POSTED_RECEIVES: usize = 24;
const POSTED: &str = "it is ready, and a port posts few parcels";
const SEND: QpOperation = QpOperation::Send { immediate: None };

struct UdpRail {
    peer: Rank,
    index: RailIndex,
    /// Parcels posted and not completed: of what fails, so many are sends, and come first.
    under_way: usize,
    is_lost: bool,
}

/// The rails of a process over UDP.
pub struct UdpTransport {
    endpoint: Endpoint,
    rails: BTreeMap<QpNumber, UdpRail>,
    numbers: BTreeMap<(Rank, RailIndex), QpNumber>,
    parcel_bytes: usize,
    coverage: IcrcCoverage,
    /// What could not be posted: the rail was lost a moment before.
    unsent: VecDeque<(Rank, RailIndex, Vec<u8>)>,
}

impl UdpTransport {
    /// Over this endpoint, for ports with these settings.
    pub fn new(endpoint: Endpoint, settings: &MessagingSettings) -> Self {
        Self {
            endpoint,
            rails: BTreeMap::new(),
            numbers: BTreeMap::new(),
            parcel_bytes: settings.parcel_bytes().max(RECEIVE_BUFFER_BYTES),
            coverage: if settings.sealing.is_strong() { IcrcCoverage::Beginning } else { IcrcCoverage::Whole },
            unsent: VecDeque::new(),
        }
    }

    /// The endpoint beneath.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Makes the queue pair of a rail; the other end must be told its number.
    ///
    /// # Errors
    /// If its receives cannot be posted.
    pub fn create(&mut self, peer: Rank, index: RailIndex) -> Result<QpNumber, QueuePairError> {
        let number = self.endpoint.create();
        for _ in 0..POSTED_RECEIVES {
            self.endpoint.post_receive(number, vec![0; self.parcel_bytes])?;
        }
        self.rails.insert(number, UdpRail { peer, index, under_way: 0, is_lost: false });
        self.numbers.insert((peer, index), number);
        Ok(number)
    }

    /// Connects the queue pair of a rail.
    ///
    /// # Errors
    /// If the set-up cannot be.
    pub fn connect(&mut self, number: QpNumber, setup: QueuePairSetup) -> Result<(), QueuePairError> {
        self.endpoint.connect(number, QueuePairSetup { coverage: self.coverage, ..setup })
    }

    /// Packets that came when no receive was posted: each cost its sender a pause.
    pub fn unready(&self) -> u64 {
        let machines = self.rails.keys().filter_map(|number| self.endpoint.machine(*number));
        machines.map(|machine| machine.dropped().unready).sum()
    }

    /// The queue pair of a rail that can send; one parcel more is under way there.
    fn ready(&mut self, to: Rank, rail: RailIndex) -> Option<QpNumber> {
        let number = *self.numbers.get(&(to, rail))?;
        let is_ready = self.endpoint.machine(number).is_some_and(|machine| machine.state() == QpState::ReadyToSend);
        let rail = self.rails.get_mut(&number).filter(|_| is_ready)?;
        rail.under_way += 1;
        Some(number)
    }

    fn take(&mut self, event: EndpointEvent, tell: &mut dyn FnMut(Time, TransportEvent<'_>)) {
        let now = self.endpoint.now();
        match event {
            EndpointEvent::Received { pair, mut buffer, message, path, .. } => {
                if let Some(rail) = self.rails.get(&pair) {
                    let bytes = &mut buffer[message];
                    tell(now, TransportEvent::Parcel { from: rail.peer, rail: rail.index, path, bytes });
                }
                // On a rail that is lost it cannot be posted, and need not be.
                let _ = self.endpoint.post_receive(pair, buffer);
            }
            EndpointEvent::Sent { pair, buffer, .. } => {
                if let Some(rail) = self.rails.get_mut(&pair) {
                    rail.under_way -= 1;
                    tell(now, TransportEvent::Landed { to: rail.peer, rail: rail.index, bytes: buffer });
                }
            }
            EndpointEvent::Failed { pair, buffer, .. } => {
                let Some(rail) = self.rails.get_mut(&pair) else { return };
                if !std::mem::replace(&mut rail.is_lost, true) {
                    tell(now, TransportEvent::RailLost { peer: rail.peer, rail: rail.index });
                }
                if rail.under_way > 0 {
                    rail.under_way -= 1;
                    tell(now, TransportEvent::Landed { to: rail.peer, rail: rail.index, bytes: buffer });
                }
            }
            EndpointEvent::Datagram { .. } | EndpointEvent::Path { .. } => {}
        }
    }
}

impl MessageTransport for UdpTransport {
    fn send(&mut self, to: Rank, rail: RailIndex, bytes: Vec<u8>) {
        match self.ready(to, rail) {
            Some(number) => {
                self.endpoint.post_send(number, bytes, SEND).expect(POSTED);
            }
            None => self.unsent.push_back((to, rail, bytes)),
        }
    }

    fn borrows(&self) -> bool {
        true
    }

    fn send_lent(&mut self, to: Rank, rail: RailIndex, head: Vec<u8>, body: BufferSlice, ask: AckRequest) {
        match self.ready(to, rail) {
            Some(number) => {
                self.endpoint.post_send_lent(number, (head, body), SEND, ask).expect(POSTED);
            }
            None => self.unsent.push_back((to, rail, head)),
        }
    }

    fn note_spoiled(&mut self, from: Rank, rail: RailIndex, path: PathId) {
        if let Some(number) = self.numbers.get(&(from, rail)) {
            self.endpoint.note_spoiled(*number, path);
        }
    }

    fn turn(&mut self, wait: Duration, tell: &mut dyn FnMut(Time, TransportEvent<'_>)) -> io::Result<()> {
        self.endpoint.turn(if self.unsent.is_empty() { wait } else { Duration::ZERO })?;
        while let Some(event) = self.endpoint.next_event() {
            self.take(event, tell);
        }
        // Behind the failures of its rail, which came first.
        let now = self.endpoint.now();
        while let Some((to, rail, bytes)) = self.unsent.pop_front() {
            tell(now, TransportEvent::RailLost { peer: to, rail });
            tell(now, TransportEvent::Landed { to, rail, bytes });
        }
        Ok(())
    }

    fn now(&self) -> Time {
        self.endpoint.clock().now()
    }

    fn forget(&mut self, peer: Rank) {
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
