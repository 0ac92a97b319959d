//! Events: counters in an adapter's memory. A remote DMA increments one at each end, a process can increment any, and a host
//! waits until one has reached a count (QN-8).

use units::SimSpan;

use super::super::packet::{AckStatus, CircuitDestination};
use super::super::wormhole::WormholeNetwork;
use super::costs::MemoryLocation;
use super::dma::{DmaCompletion, DmaDescriptor};
use super::library::{ELAN_BASE, ELAN_BYTES, PATIENCE};
use super::{
    AdapterEvent, ElanAdapters, ElanAddress, ElanCluster, ElanLibrary, ElanLibraryError, RemoteAtomic, Vpid,
};

/// Bytes of a word.
const WORD: u64 = 8;

/// An event of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ElanEvent {
    owner: Vpid,
    address: ElanAddress,
}

/// The events that a remote DMA sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DmaEvents {
    /// Set when all is acknowledged; an event of the sender.
    pub source: Option<ElanEvent>,
    /// Set when all has arrived; an event of the receiver.
    pub destination: Option<ElanEvent>,
}

impl ElanLibrary {
    /// A new event of a process, never set.
    ///
    /// # Errors
    /// There is no such process, or its adapter's memory is full.
    pub fn event(&mut self, owner: Vpid) -> Result<ElanEvent, ElanLibraryError> {
        let address = self.allocate(owner, WORD, MemoryLocation::Elan)?;
        Ok(ElanEvent { owner, address })
    }

    /// Posts a remote DMA to the adapter and returns.
    ///
    /// # Errors
    /// An address is not mapped at its end, an event does not belong to that end, or the network has no such nodes.
    pub fn start_put(
        &self,
        cluster: &mut ElanCluster,
        (from, source): (Vpid, ElanAddress),
        (to, destination): (Vpid, ElanAddress),
        bytes: u32,
        events: DmaEvents,
    ) -> Result<(), ElanLibraryError> {
        let memory = self.slowest_memory(&[(from, source), (to, destination)], bytes)?;
        let then = |event: Option<ElanEvent>, end: Vpid| match event {
            None => Ok(DmaCompletion::Nothing),
            Some(event) if event.owner == end => Ok(DmaCompletion::Count(self.word(event)?.1)),
            Some(event) => Err(ElanLibraryError::Unmapped(end, event.address)),
        };
        let (source_event, destination_event) = (then(events.source, from)?, then(events.destination, to)?);
        let (from, to) = (self.place(from)?.0, self.place(to)?.0);
        let dma =
            DmaDescriptor { from, to: CircuitDestination::Node(to), bytes, memory, source_event, destination_event };
        cluster.post(dma).ok_or(ElanLibraryError::NotDone)
    }

    /// Sets an event of any process; returns how long until that is acknowledged.
    ///
    /// # Errors
    /// There is no such event, or the network has no such nodes.
    pub fn set(&self, cluster: &mut ElanCluster, from: Vpid, event: ElanEvent) -> Result<SimSpan, ElanLibraryError> {
        let ((node, word), from) = (self.word(event)?, self.place(from)?.0);
        let fetched =
            cluster.atomic(from, node..=node, word, RemoteAtomic::FetchAdd(1)).ok_or(ElanLibraryError::NotDone)?;
        if fetched.answer == AckStatus::Success { Ok(fetched.took) } else { Err(ElanLibraryError::NotDone) }
    }

    /// How often an event has been set.
    ///
    /// # Errors
    /// There is no such event.
    pub fn count(&self, cluster: &ElanCluster, event: ElanEvent) -> Result<u64, ElanLibraryError> {
        let (node, word) = self.word(event)?;
        Ok(cluster.word(node, word))
    }

    /// Waits on a host until an event has been set this often; returns the duration.
    ///
    /// # Errors
    /// There is no such event, or it is not set within a second of virtual time.
    pub fn wait(&self, cluster: &mut ElanCluster, event: ElanEvent, count: u64) -> Result<SimSpan, ElanLibraryError> {
        let (node, word) = self.word(event)?;
        let begun = cluster.network.now();
        let is_set = |elans: &ElanAdapters| elans.words.get(&(node, word)).copied().unwrap_or(0) >= count;
        let end = begun + PATIENCE;
        cluster.network.run(&mut cluster.elans, |elans, network| is_set(elans) || network.now() >= end);
        if !is_set(&cluster.elans) {
            return Err(ElanLibraryError::NotDone);
        }
        cluster.pass(cluster.elans.costs.notify + cluster.elans.costs.event);
        Ok(cluster.network.now().since(begun))
    }

    /// The node and word of an event. Each process has its own part of the adapter's memory.
    fn word(&self, event: ElanEvent) -> Result<(u32, u32), ElanLibraryError> {
        self.translate(event.owner, event.address, WORD)?;
        let (node, context) = self.place(event.owner)?;
        let word = u64::from(context) * (ELAN_BYTES / WORD) + (event.address.0 - ELAN_BASE) / WORD;
        Ok((node, word as u32))
    }
}

impl ElanCluster {
    /// A host's command that posts a descriptor. None if there are no such nodes.
    pub(super) fn post(&mut self, dma: DmaDescriptor) -> Option<()> {
        let CircuitDestination::Node(to) = dma.to else { return None };
        if dma.from.max(to) >= self.network.nodes() {
            return None;
        }
        let ready = self.elans.command(dma.from, self.network.now());
        self.elans.start_dma(&mut self.network, dma, ready);
        Some(())
    }
}

impl ElanAdapters {
    /// A DMA sets an event at this time.
    pub(super) fn set_event(&mut self, network: &mut WormholeNetwork, node: u32, word: u32, at: units::SimTime) {
        self.schedule(network, at, AdapterEvent::Count { node, word });
    }

    pub(super) fn count_event(&mut self, node: u32, word: u32) {
        let count = self.words.entry((node, word)).or_default();
        *count = count.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{costs, fabric};
    use super::*;

    #[test]
    fn a_remote_dma_sets_an_event_at_each_end_and_several_may_be_in_flight() {
        let mut cluster = ElanCluster::new(fabric(), costs(), None, 1).expect("the parameters are valid");
        let mut library = ElanLibrary::new(16, 2);
        let (from, to) = (Vpid(1), Vpid(18));
        let here = library.allocate(from, 4_096, MemoryLocation::Elan).expect("the memory has room");
        let there = library.allocate(to, 4_096, MemoryLocation::Elan).expect("the memory has room");
        let [sent, came, other] =
            [from, to, Vpid(19)].map(|owner| library.event(owner).expect("the memory has room"));
        let events = DmaEvents { source: Some(sent), destination: Some(came) };
        for _ in 0..3 {
            library.start_put(&mut cluster, (from, here), (to, there), 4_096, events).expect("posted");
        }
        assert_eq!(library.count(&cluster, came), Ok(0));
        let one = library.wait(&mut cluster, came, 1).expect("the event is set");
        let all = one + library.wait(&mut cluster, came, 3).expect("the events are set");
        assert!(all > one + SimSpan::from_micros(12), "{one:?} {all:?}: a link carries one DMA after the other");
        library.wait(&mut cluster, sent, 3).expect("all are acknowledged");
        assert_eq!([sent, came, other].map(|event| library.count(&cluster, event)), [Ok(3), Ok(3), Ok(0)]);
        let foreign = DmaEvents { source: Some(came), destination: None };
        assert!(library.start_put(&mut cluster, (from, here), (to, there), 8, foreign).is_err());
    }

    #[test]
    fn a_process_sets_an_event_elsewhere_and_waiting_for_one_that_is_never_set_ends() {
        let mut cluster = ElanCluster::new(fabric(), costs(), None, 1).expect("the parameters are valid");
        let mut library = ElanLibrary::new(16, 1);
        let event = library.event(Vpid(9)).expect("the memory has room");
        assert_eq!(library.wait(&mut cluster, event, 1), Err(ElanLibraryError::NotDone));
        library.set(&mut cluster, Vpid(2), event).expect("it is set");
        assert_eq!(library.count(&cluster, event), Ok(1));
        library.wait(&mut cluster, event, 1).expect("it has been set");
    }
}
