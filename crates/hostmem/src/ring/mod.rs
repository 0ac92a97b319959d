//! Parcels between ranks of one host: one rail to each, a ring in shared memory. Whoever waits spins, then sleeps at its bell.

#[cfg(test)]
mod loom_tests;
mod mapping;
mod spsc_ring;

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use protocol::messaging::{MessagingSettings, RailIndex};
use units::{PathId, Rank, Time};

use crate::team::cache_hints::demote;
use mapping::{MappedRing, RingMapping};
use spsc_ring::{MAX_INLINE_BYTES, RingEntry, RingReader, RingWriter};
use transport::Clock;
use transport::carrier::{MessageTransport, TransportEvent};

const RAIL: RailIndex = RailIndex(0);
const PATH: PathId = PathId(0);
/// How long one who waits looks again and again, and after how many looks it begins to give up the processor in between: the
/// one it waits for may need it.
const SPIN: Duration = Duration::from_micros(200);
const EAGER_LOOKS: u32 = 4096;
/// Looks before it looks at the clock, and pauses between them.
const FIRST_LOOKS: u32 = 128;
const PAUSES: u32 = 2;
const LOOKS_PER_YIELD: u32 = 64;
/// How long it sleeps at most: a bell may be missed.
const MAX_SLEEP: Duration = Duration::from_millis(1);
/// How often it looks whether the others are there.
const LIVENESS_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Parcels of one ring that are taken in one turn.
const PARCELS_PER_TURN: usize = 16;

struct ShmPeer {
    rank: usize,
    /// The ring to it, and the one from it.
    outward: MappedRing,
    inward: MappedRing,
    writer: RingWriter,
    reader: RingReader,
    /// Parcels that do not fit now.
    waiting: VecDeque<Vec<u8>>,
    is_lost: bool,
}

/// The rails of a process to others on its host.
pub struct ShmTransport {
    mapping: RingMapping,
    me: usize,
    clock: Clock,
    /// About what time it is: a look at the clock takes as long as a tenth of a short message.
    now: Time,
    turns: u32,
    peers: Vec<ShmPeer>,
    /// Parcels that are in a ring or will never be; their bytes go back.
    landed: Vec<(usize, Vec<u8>)>,
    /// The room that was lent last.
    lent: Option<RingEntry>,
    looked_around: Instant,
}

impl ShmTransport {
    /// Meets the other ranks in memory of this name, which nobody else uses; returns when all have come.
    ///
    /// # Errors
    /// If the memory cannot be had, or not all come in time.
    pub fn meet(name: &str, me: Rank, ranks: u32, patience: Duration) -> io::Result<Self> {
        let (me, ranks) = (me.index(), ranks as usize);
        let mut mapping = RingMapping::open(name, me, ranks, patience)?;
        mapping.take_name_away();
        // SAFETY: the carrier keeps the mapping as long as its peers.
        let ring = |from, to| unsafe { mapping.ring(from, to) };
        let peer = |rank| ShmPeer {
            rank,
            outward: ring(me, rank),
            inward: ring(rank, me),
            writer: RingWriter::default(),
            reader: RingReader::default(),
            waiting: VecDeque::new(),
            is_lost: false,
        };
        let peers = (0..ranks).filter(|rank| *rank != me).map(peer).collect();
        let looked_around = Instant::now();
        Ok(Self {
            mapping,
            me,
            clock: Clock::new(),
            now: Time::ZERO,
            turns: 0,
            peers,
            landed: Vec::new(),
            lent: None,
            looked_around,
        })
    }

    /// Settings that suit shared memory.
    pub fn settings(base: MessagingSettings) -> MessagingSettings {
        MessagingSettings { piece_bytes: 64 << 10, letter_depth: 64, depth: 8, prepared: 0, ..base }
    }

    #[inline]
    fn is_idle(&self) -> bool {
        self.landed.is_empty() && !self.peers.iter().any(|peer| !peer.is_lost && peer.has_more())
    }

    fn move_parcels(&mut self, tell: &mut dyn FnMut(Time, TransportEvent<'_>)) {
        for peer in self.peers.iter_mut().filter(|peer| !peer.is_lost) {
            let from = Rank(peer.rank as u32);
            let mut any = false;
            let ring = &peer.inward;
            for _ in 0..PARCELS_PER_TURN {
                match peer.reader.next(ring) {
                    Ok(Some(entry)) => {
                        // SAFETY: given out just now, given back behind this.
                        let bytes = unsafe { ring.bytes(entry) };
                        tell(self.now, TransportEvent::Parcel { from, rail: RAIL, path: PATH, bytes });
                        peer.reader.finish(ring, entry);
                        any = true;
                    }
                    Ok(None) => break,
                    Err(spsc_ring::RingCorrupted) => {
                        peer.is_lost = true;
                        break;
                    }
                }
            }
            while let Some(bytes) = peer.waiting.pop_front() {
                if !peer.write(&bytes) {
                    peer.waiting.push_front(bytes);
                    break;
                }
                any = true;
                self.landed.push((peer.rank, bytes));
            }
            if any {
                self.mapping.bell(peer.rank).ring(); // It may wait for room, or for what was just written.
            }
            if peer.is_lost {
                report_lost_peer(self.now, peer, &mut self.landed, tell);
            }
        }
        if self.landed.is_empty() {
            return;
        }
        for (rank, bytes) in self.landed.drain(..) {
            tell(self.now, TransportEvent::Landed { to: Rank(rank as u32), rail: RAIL, bytes });
        }
    }

    /// Whoever has ended, and whose last words have been read, is lost.
    pub fn look_around(&mut self, tell: &mut dyn FnMut(Time, TransportEvent<'_>)) {
        if self.looked_around.elapsed() < LIVENESS_CHECK_INTERVAL {
            return;
        }
        self.looked_around = Instant::now();
        for peer in self.peers.iter_mut().filter(|peer| !peer.is_lost) {
            if !peer.has_more() && !self.mapping.is_there(peer.rank) {
                peer.is_lost = true;
                report_lost_peer(self.now, peer, &mut self.landed, tell);
            }
        }
    }

    /// Waits for something to tell: awake for a while, then asleep.
    fn wait(&mut self, wait: Duration, tell: &mut dyn FnMut(Time, TransportEvent<'_>)) {
        // Without a pause: most often the answer is there in a moment.
        for _ in 0..FIRST_LOOKS {
            if !self.is_idle() {
                return;
            }
            // Whoever looks at a line takes it from the one who is about to write it.
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        }
        let began = Instant::now();
        // Before anything comes: then nothing should wait for a look at the clock.
        self.now = self.clock.now();
        let spin = SPIN.min(wait);
        let mut looks = 0u32;
        while self.is_idle() {
            looks += 1;
            std::hint::spin_loop();
            if looks.is_multiple_of(LOOKS_PER_YIELD) {
                if looks > EAGER_LOOKS {
                    std::thread::yield_now();
                }
                if began.elapsed() >= spin {
                    break;
                }
            }
        }
        if !self.is_idle() {
            return;
        }
        while self.is_idle() && began.elapsed() < wait {
            self.nap(wait.saturating_sub(began.elapsed()));
            self.look_around(tell);
            if self.peers.iter().any(|peer| !peer.waiting.is_empty()) {
                break; // There may be room now.
            }
        }
        self.now = self.clock.now();
    }

    fn nap(&self, wait: Duration) {
        let bell = self.mapping.bell(self.me);
        let ticket = bell.come();
        if self.is_idle() {
            bell.sleep(ticket, wait.min(MAX_SLEEP));
        }
        bell.leave();
    }
}

impl ShmPeer {
    #[inline]
    fn has_more(&self) -> bool {
        self.reader.has_more(&self.inward)
    }

    /// Puts a parcel into the ring. False if there is no room.
    fn write(&mut self, bytes: &[u8]) -> bool {
        let Some(entry) = self.writer.claim(&self.outward, bytes.len()) else { return false };
        // SAFETY: claimed just now, published behind this.
        unsafe { self.outward.bytes(entry) }.copy_from_slice(bytes);
        self.publish(entry);
        true
    }

    /// Lets the peer have an entry. A short one is sent to where it finds it sooner.
    #[inline]
    fn publish(&mut self, entry: RingEntry) {
        self.writer.publish(&self.outward, entry);
        if entry.length <= MAX_INLINE_BYTES {
            // SAFETY: of a published entry nothing is read or written here; the lines are named, no more.
            demote(unsafe { self.outward.bytes(entry) });
        }
    }
}

fn report_lost_peer(
    now: Time,
    peer: &mut ShmPeer,
    landed: &mut Vec<(usize, Vec<u8>)>,
    tell: &mut dyn FnMut(Time, TransportEvent<'_>),
) {
    landed.extend(peer.waiting.drain(..).map(|bytes| (peer.rank, bytes)));
    tell(now, TransportEvent::RailLost { peer: Rank(peer.rank as u32), rail: RAIL });
}

impl MessageTransport for ShmTransport {
    fn send(&mut self, to: Rank, _: RailIndex, bytes: Vec<u8>) {
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.rank == to.index()) else { return };
        if !peer.is_lost && (!peer.waiting.is_empty() || !peer.write(&bytes)) {
            peer.waiting.push_back(bytes);
            return;
        }
        self.mapping.bell(peer.rank).ring();
        self.landed.push((peer.rank, bytes));
    }

    #[inline]
    fn room(&mut self, to: Rank, _: RailIndex, bytes: usize) -> Option<&mut [u8]> {
        let peer = self.peers.iter_mut().find(|peer| peer.rank == to.index())?;
        if peer.is_lost || !peer.waiting.is_empty() {
            return None;
        }
        let entry = peer.writer.claim(&peer.outward, bytes)?;
        self.lent = Some(entry);
        // SAFETY: claimed just now; it is published by `send_room`, before anything else is claimed.
        Some(unsafe { peer.outward.bytes(entry) })
    }

    #[inline]
    fn send_room(&mut self, to: Rank, _: RailIndex, is_told: bool) {
        let entry = self.lent.take().expect("room was lent");
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.rank == to.index()) else { return };
        peer.publish(entry);
        self.mapping.bell(peer.rank).ring();
        if is_told {
            self.landed.push((peer.rank, Vec::new()));
        }
    }

    fn turn(&mut self, wait: Duration, tell: &mut dyn FnMut(Time, TransportEvent<'_>)) -> io::Result<()> {
        self.turns = self.turns.wrapping_add(1);
        if self.is_idle() && !wait.is_zero() {
            self.wait(wait, tell);
        } else if self.turns.is_multiple_of(LOOKS_PER_YIELD) {
            self.now = self.clock.now();
        }
        self.move_parcels(tell);
        Ok(())
    }

    fn now(&self) -> Time {
        self.now
    }

    fn forget(&mut self, peer: Rank) {
        for peer in self.peers.iter_mut().filter(|known| known.rank == peer.index()) {
            peer.is_lost = true;
            peer.waiting.clear();
        }
    }
}
