//! Tagged message ports: receives and messages match by sender and tag, in the order of arrival (QN-8). Between nodes a message
//! is a remote DMA, and the thread processor matches it; within a node it goes through shared memory.

use std::collections::VecDeque;

use units::{SimSpan, SimTime};

use super::super::packet::CircuitDestination;
use super::super::wormhole::WormholeNetwork;
use super::dma::{DmaCompletion, DmaDescriptor};
use super::dma_message::TportEnvelope;
use super::library::PATIENCE;
use super::{AdapterEvent, ElanAdapters, ElanAddress, ElanCluster, ElanLibrary, ElanLibraryError, Vpid};

/// What a receive matches; none matches anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TportReceive {
    /// The sender.
    pub from: Option<u32>,
    /// The tag.
    pub tag: Option<u32>,
    /// The receiver's own number for it.
    pub number: u32,
}

impl TportReceive {
    fn matches(&self, envelope: &TportEnvelope) -> bool {
        self.from.is_none_or(|from| from == envelope.from) && self.tag.is_none_or(|tag| tag == envelope.tag)
    }
}

/// A receive and the message that it matched.
pub type TportMatch = (TportReceive, TportEnvelope);

/// The tagged port of a process.
#[derive(Debug)]
pub struct TportQueue {
    posted: VecDeque<TportReceive>,
    unexpected: VecDeque<TportEnvelope>,
    /// The most unexpected messages.
    room: usize,
}

impl TportQueue {
    /// A port that stores up to `room` unexpected messages.
    pub fn new(room: usize) -> Self {
        Self { posted: VecDeque::new(), unexpected: VecDeque::new(), room }
    }

    /// Posts a receive: it takes the oldest message that matches.
    pub fn post(&mut self, receive: TportReceive) -> Option<TportMatch> {
        match self.unexpected.iter().position(|envelope| receive.matches(envelope)) {
            Some(place) => Some((receive, self.unexpected.remove(place)?)),
            None => {
                self.posted.push_back(receive);
                None
            }
        }
    }

    /// Accepts a message for the oldest receive that matches.
    ///
    /// # Errors
    /// The message itself, if it matches none and there is no room: the sender must retry.
    pub fn arrive(&mut self, envelope: TportEnvelope) -> Result<Option<TportMatch>, TportEnvelope> {
        match self.posted.iter().position(|receive| receive.matches(&envelope)) {
            Some(place) => Ok(self.posted.remove(place).map(|receive| (receive, envelope))),
            None if self.unexpected.len() >= self.room => Err(envelope),
            None => {
                self.unexpected.push_back(envelope);
                Ok(None)
            }
        }
    }
}

/// The most unexpected messages of a port.
const ROOM: usize = 64;

impl ElanLibrary {
    /// Posts a receive of a process.
    ///
    /// # Errors
    /// There is no such process.
    pub fn receive(
        &self,
        cluster: &mut ElanCluster,
        owner: Vpid,
        receive: TportReceive,
    ) -> Result<(), ElanLibraryError> {
        self.place(owner)?;
        let ElanCluster { network, elans, .. } = cluster;
        if let Some(matched) = elans.ports.entry(owner.0).or_insert_with(|| TportQueue::new(ROOM)).post(receive) {
            elans.schedule(network, network.now(), AdapterEvent::Received { owner: owner.0, matched });
        }
        Ok(())
    }

    /// Sends a message with a tag; within a node through shared memory.
    ///
    /// # Errors
    /// The address is not mapped at the sender, there is no such process, or the network has no such nodes.
    pub fn send(
        &self,
        cluster: &mut ElanCluster,
        (from, address): (Vpid, ElanAddress),
        to: Vpid,
        tag: u32,
        bytes: u32,
    ) -> Result<(), ElanLibraryError> {
        let memory = self.translate(from, address, bytes.into())?;
        let ((here, _), (there, _)) = (self.place(from)?, self.place(to)?);
        let envelope = TportEnvelope { from: from.0, tag, bytes };
        if here == there {
            let ElanCluster { network, elans, .. } = cluster;
            let at = network.now() + elans.costs.flag + elans.costs.copy(bytes).times(2);
            elans.schedule(network, at, AdapterEvent::Matched { owner: to.0, envelope });
            return Ok(());
        }
        let destination_event = DmaCompletion::Message { owner: to.0, envelope };
        let to = CircuitDestination::Node(there);
        let dma =
            DmaDescriptor { from: here, to, bytes, memory, source_event: DmaCompletion::Nothing, destination_event };
        cluster.post(dma).ok_or(ElanLibraryError::NotDone)
    }

    /// Waits until the receive of this number is complete; returns its message and the duration.
    ///
    /// # Errors
    /// It is not complete within a second of virtual time.
    pub fn received(
        &self,
        cluster: &mut ElanCluster,
        owner: Vpid,
        number: u32,
    ) -> Result<(TportEnvelope, SimSpan), ElanLibraryError> {
        self.place(owner)?;
        let begun = cluster.network.now();
        let place = |elans: &ElanAdapters| {
            elans.received.iter().position(|(who, (receive, _))| *who == owner.0 && receive.number == number)
        };
        let end = begun + PATIENCE;
        cluster.network.run(&mut cluster.elans, |elans, network| place(elans).is_some() || network.now() >= end);
        let place = place(&cluster.elans).ok_or(ElanLibraryError::NotDone)?;
        let (_, (_, envelope)) = cluster.elans.received.swap_remove(place);
        Ok((envelope, cluster.network.now().since(begun)))
    }
}

impl ElanAdapters {
    /// A message has arrived completely: the thread processor searches for a receive.
    pub(super) fn message_arrived(
        &mut self,
        network: &mut WormholeNetwork,
        node: u32,
        (owner, envelope): (u32, TportEnvelope),
        at: SimTime,
    ) {
        let matched = self.run_thread(node, at, self.costs.matching);
        self.schedule(network, matched, AdapterEvent::Matched { owner, envelope });
    }

    pub(super) fn match_message(&mut self, network: &mut WormholeNetwork, owner: u32, envelope: TportEnvelope) {
        let port = self.ports.entry(owner).or_insert_with(|| TportQueue::new(ROOM));
        match port.arrive(envelope) {
            Ok(Some(matched)) => {
                self.schedule(network, network.now() + self.costs.notify, AdapterEvent::Received { owner, matched });
            }
            Ok(None) => {}
            // No room: retry.
            Err(envelope) => {
                let at = network.now() + self.costs.matching.max(SimSpan::from_micros(1));
                self.schedule(network, at, AdapterEvent::Matched { owner, envelope });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn message(from: u32, tag: u32) -> TportEnvelope {
        TportEnvelope { from, tag, bytes: 8 }
    }

    #[test]
    fn processes_send_by_tag_between_nodes_and_within_one() {
        use super::super::costs::MemoryLocation;
        use super::super::tests::{costs, fabric};
        let mut cluster = ElanCluster::new(fabric(), costs(), None, 1).expect("the parameters are valid");
        let mut library = ElanLibrary::new(16, 2);
        let near = library.allocate(Vpid(8), 64, MemoryLocation::Main).expect("the memory has room");
        let far = library.allocate(Vpid(30), 64, MemoryLocation::Main).expect("the memory has room");
        let to = Vpid(9);
        library.receive(&mut cluster, to, TportReceive { from: Some(30), tag: None, number: 1 }).expect("posted");
        library.send(&mut cluster, (Vpid(30), far), to, 5, 64).expect("sent");
        library.send(&mut cluster, (Vpid(8), near), to, 6, 64).expect("sent");
        let (got, took) = library.received(&mut cluster, to, 1).expect("the message arrives");
        assert_eq!(
            (got, took > SimSpan::from_micros(5)),
            (TportEnvelope { from: 30, tag: 5, bytes: 64 }, true),
            "{took:?}"
        );
        // The other message arrived early and waits for a receive.
        library.receive(&mut cluster, to, TportReceive { from: None, tag: Some(6), number: 2 }).expect("posted");
        let (got, took) = library.received(&mut cluster, to, 2).expect("the message has arrived");
        assert_eq!((got.from, took < SimSpan::from_micros(1)), (8, true), "{took:?}");
        library.receive(&mut cluster, to, TportReceive { from: None, tag: Some(7), number: 3 }).expect("posted");
        assert_eq!(library.received(&mut cluster, to, 3), Err(ElanLibraryError::NotDone), "no such message is sent");
    }

    #[test]
    fn the_oldest_receive_that_matches_gets_the_message() {
        let mut port = TportQueue::new(8);
        for (number, from, tag) in [(0, Some(1), None), (1, None, Some(7)), (2, None, None)] {
            assert_eq!(port.post(TportReceive { from, tag, number }), None);
        }
        let got =
            |port: &mut TportQueue, from, tag| port.arrive(message(from, tag)).ok().flatten().map(|(r, _)| r.number);
        assert_eq!(got(&mut port, 2, 7), Some(1));
        assert_eq!(got(&mut port, 1, 7), Some(0));
        assert_eq!(got(&mut port, 1, 7), Some(2));
        assert_eq!(got(&mut port, 1, 7), None);
    }

    #[test]
    fn unexpected_messages_are_kept_in_order_while_there_is_room() {
        let mut port = TportQueue::new(2);
        assert_eq!(port.arrive(message(1, 5)), Ok(None));
        assert_eq!(port.arrive(message(2, 5)), Ok(None));
        assert_eq!(port.arrive(message(3, 5)), Err(message(3, 5)));
        let receive = TportReceive { from: None, tag: Some(5), number: 9 };
        assert_eq!(port.post(receive).map(|(_, envelope)| envelope.from), Some(1));
        assert_eq!(port.post(receive).map(|(_, envelope)| envelope.from), Some(2));
        assert_eq!(port.post(receive), None);
    }
}
