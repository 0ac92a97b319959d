//! Packets to processes of this host with which this one shares memory, pair by pair.
//!
//! In: packets. Out: packets of peers, completed sends, lost peers, and peers that must be woken by other means: a thread cannot sleep
//! on this memory and on sockets.

use std::collections::VecDeque;

use protocol::BufferSlice;
use protocol::messaging::RailIndex;
use transport::message_transport::{SendReport, TransportEvent};
use units::{PathId, Rank, Time};

use super::pair_memory::{PAIR_RING_BYTES, PAIR_SLOTS, PairMemory, PeerEnd};
use super::ring_peer::RingPeer;
use super::spsc_ring::{MAX_INLINE_BYTES, RingEntry};

const RAIL: RailIndex = RailIndex(0);
const PATH: PathId = PathId(0);

struct PairPeer {
    rank: Rank,
    // Before the memory that it refers to.
    rings: RingPeer<PAIR_SLOTS, PAIR_RING_BYTES>,
    memory: PairMemory,
    is_lost: bool,
    is_reported: bool,
}

/// The rails of a process to others with which it shares memory.
#[derive(Default)]
pub struct PairTransport {
    peers: Vec<PairPeer>,
    /// Where each rank is in `peers`.
    places: Vec<Option<u32>>,
    /// Packets that are in a ring or will never be; their buffers return to the owner.
    completed: Vec<(Rank, Vec<u8>)>,
    /// The entry that was reserved last.
    reserved: Option<RingEntry>,
    sleepers: VecDeque<Rank>,
    is_asleep: bool,
}

impl PairTransport {
    /// Whether there are any peers.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Whether memory is shared with this peer.
    #[inline]
    pub fn contains(&self, rank: Rank) -> bool {
        self.place(rank).is_some()
    }

    #[inline]
    fn place(&self, rank: Rank) -> Option<usize> {
        self.places.get(rank.index()).copied().flatten().map(|place| place as usize)
    }

    /// Adds the memory shared with a peer.
    pub fn add(&mut self, rank: Rank, memory: PairMemory) {
        // SAFETY: both are dropped together, the rings first.
        let rings = unsafe { memory.rings() };
        self.places.resize(self.places.len().max(rank.index() + 1), None);
        self.places[rank.index()] = Some(self.peers.len() as u32);
        self.peers.push(PairPeer { rank, rings, memory, is_lost: false, is_reported: false });
    }

    /// Releases the memory shared with a peer.
    pub fn remove(&mut self, rank: Rank) {
        let Some(place) = self.place(rank) else { return };
        self.peers.swap_remove(place);
        self.places[rank.index()] = None;
        if let Some(moved) = self.peers.get(place) {
            self.places[moved.rank.index()] = Some(place as u32);
        }
        self.completed.retain(|(completed, _)| *completed != rank);
    }

    /// Whether a peer said that it reads nothing more.
    #[inline]
    pub fn is_closed(&self, rank: Rank) -> bool {
        self.place(rank).is_some_and(|place| self.peers[place].memory.is_peer_closed())
    }

    /// How a peer ended, if it did and all its packets are read.
    pub fn peer_end(&self, rank: Rank) -> Option<PeerEnd> {
        let peer = &self.peers[self.place(rank)?];
        let end = peer.memory.peer_end()?;
        (!peer.rings.has_more()).then_some(end)
    }

    /// Tells all peers that this process reads nothing more.
    pub fn close(&self) {
        self.peers.iter().for_each(|peer| peer.memory.close());
    }

    /// Sends a packet of one or two parts.
    pub fn send(&mut self, to: Rank, head: Vec<u8>, body: Option<BufferSlice>) {
        let Some(place) = self.place(to) else { return };
        let peer = &mut self.peers[place];
        let bytes = head.len() + body.as_ref().map_or(0, |body| body.bytes().len());
        if peer.is_lost || !peer.has_space_for(bytes) {
            return self.completed.push((to, head));
        }
        if let Some(head) = peer.rings.send(head, body) {
            self.completed.push((to, head));
            self.note_published(place);
        }
    }

    /// Reserves space for a packet in the memory of a peer.
    #[inline]
    pub fn reserve(&mut self, to: Rank, bytes: usize) -> Option<&mut [u8]> {
        let place = self.place(to)?;
        let peer = &mut self.peers[place];
        if peer.is_lost || !peer.has_space_for(bytes) {
            return None;
        }
        let (entry, bytes) = peer.rings.reserve(bytes)?;
        self.reserved = Some(entry);
        Some(bytes)
    }

    /// Sends what was written to the space reserved last.
    ///
    /// # Panics
    /// If nothing is reserved.
    #[inline]
    pub fn send_reserved(&mut self, to: Rank, report: SendReport) {
        let entry = self.reserved.take().expect("`reserve` was called before");
        let Some(place) = self.place(to) else { return };
        self.peers[place].rings.publish(entry);
        if report == SendReport::Wanted {
            self.completed.push((to, Vec::new()));
        }
        self.note_published(place);
    }

    #[inline]
    fn note_published(&mut self, place: usize) {
        let peer = &self.peers[place];
        if peer.memory.take_asleep() {
            self.sleepers.push_back(peer.rank);
        }
    }

    /// The next peer that sleeps although packets wait for it.
    #[inline]
    pub fn next_sleeper(&mut self) -> Option<Rank> {
        self.sleepers.pop_front()
    }

    /// Does all that can be done now; whether there was anything.
    #[inline]
    pub fn poll(&mut self, now: Time, on_event: &mut dyn FnMut(Time, TransportEvent<'_>)) -> bool {
        if self.is_asleep {
            self.wake_up();
        }
        let mut any = false;
        let Self { peers, completed, sleepers, .. } = self;
        for peer in peers.iter_mut().filter(|peer| !peer.is_reported) {
            let from = peer.rank;
            let received = peer.rings.receive(|bytes| {
                on_event(now, TransportEvent::Packet { from, rail: RAIL, path: PATH, bytes });
            });
            peer.is_lost |= received.is_err();
            let is_received = received.unwrap_or(true);
            let is_written =
                peer.rings.has_waiting() && peer.rings.write_waiting(|bytes| completed.push((from, bytes)));
            // It may wait for space, or for these packets.
            if (is_received || is_written) && peer.memory.take_asleep() {
                sleepers.push_back(from);
            }
            any |= is_received || is_written;
            if peer.is_lost {
                peer.is_reported = true;
                completed.extend(peer.rings.drop_waiting().map(|bytes| (from, bytes)));
                on_event(now, TransportEvent::RailLost { peer: from, rail: RAIL });
            }
        }
        for (to, bytes) in completed.drain(..) {
            any = true;
            on_event(now, TransportEvent::SendComplete { to, rail: RAIL, bytes });
        }
        any
    }

    /// Wants to be woken by the next packet; false if there is something to do.
    pub fn fall_asleep(&mut self) -> bool {
        self.is_asleep = true;
        self.peers.iter().for_each(|peer| peer.memory.set_asleep(true));
        std::thread::yield_now(); // Packets that were being published become visible.
        let has_work = |peer: &PairPeer| !peer.is_lost && peer.rings.has_more();
        self.completed.is_empty() && !self.peers.iter().any(has_work)
    }

    #[cold]
    fn wake_up(&mut self) {
        self.is_asleep = false;
        self.peers.iter().for_each(|peer| peer.memory.set_asleep(false));
    }
}

impl PairPeer {
    /// Reserves memory for long packets. Without it the peer is lost: its packets cannot be delivered.
    #[inline]
    fn has_space_for(&mut self, bytes: usize) -> bool {
        if bytes <= MAX_INLINE_BYTES {
            return true;
        }
        if let Err(error) = self.memory.reserve_bytes() {
            tracing::error!("no space in /dev/shm for messages to a process of this host: {error}");
            self.is_lost = true;
        }
        !self.is_lost
    }
}
