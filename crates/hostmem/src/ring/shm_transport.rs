//! The transport of messages through rings in shared memory.
//!
//! In: packets. Out: packets of peers, completed sends, lost peers. A peer is lost when its process has ended, or when its ring
//! holds what no correct peer writes. A waiting rank spins, then sleeps on its futex.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use protocol::messaging::{MessagingSettings, RailIndex};
use transport::Clock;
use transport::backoff::{WaitPolicy, WaitStep, Waiter};
use transport::message_transport::{MessageTransport, SendReport, TransportEvent};
use units::{PathId, Rank, Time};

use super::mapping::{MappedRing, RingMapping};
use super::spsc_ring::{MAX_INLINE_BYTES, RingCorrupted, RingEntry, RingReader, RingWriter};
use crate::cache_hints::demote;

const RAIL: RailIndex = RailIndex(0);
const PATH: PathId = PathId(0);
/// The sleep is short because a wake-up may be missed.
const WAIT: WaitPolicy = WaitPolicy {
    first_polls: 128,
    first_pauses: 2,
    polls_before_yield: 4096,
    polls_per_clock: 64,
    spin: Duration::from_micros(200),
    sleep: Duration::from_millis(1),
};
/// Turns without a wait between two clock reads.
const TURNS_PER_CLOCK: u32 = 64;
const LIVENESS_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Packets received from one ring in one turn.
const PACKETS_PER_TURN: usize = 16;

struct ShmPeer {
    rank: usize,
    /// The ring to the peer, and the one from it.
    outward: MappedRing,
    inward: MappedRing,
    writer: RingWriter,
    reader: RingReader,
    /// Packets that do not fit into the ring now.
    waiting: VecDeque<Vec<u8>>,
    is_lost: bool,
}

/// The rails of a process to the other ranks of its host.
pub struct ShmTransport {
    mapping: RingMapping,
    me: usize,
    clock: Clock,
    /// A recent clock reading: reading the clock takes a tenth of the time of a short message.
    now: Time,
    turns: u32,
    peers: Vec<ShmPeer>,
    /// Packets that are in a ring or will never be; their buffers return to the owner.
    completed: Vec<(usize, Vec<u8>)>,
    /// The entry that was reserved last.
    reserved: Option<RingEntry>,
    liveness_checked_at: Instant,
}

impl ShmTransport {
    /// Joins the other ranks in shared memory of this name, which must be unused; returns when all ranks have joined.
    ///
    /// # Errors
    /// If the memory cannot be created or mapped, or not all ranks join within `timeout`.
    pub fn join(name: &str, me: Rank, ranks: u32, timeout: Duration) -> io::Result<Self> {
        let (me, ranks) = (me.index(), ranks as usize);
        let mut mapping = RingMapping::open(name, me, ranks, timeout)?;
        mapping.unlink();
        // SAFETY: the transport keeps the mapping as long as its peers.
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
        let liveness_checked_at = Instant::now();
        Ok(Self {
            mapping,
            me,
            clock: Clock::new(),
            now: Time::ZERO,
            turns: 0,
            peers,
            completed: Vec::new(),
            reserved: None,
            liveness_checked_at,
        })
    }

    /// The settings of the messaging machine for shared memory.
    pub fn settings(base: MessagingSettings) -> MessagingSettings {
        MessagingSettings { fragment_bytes: 64 << 10, control_depth: 64, depth: 8, prepared: 0, ..base }
    }

    #[inline]
    fn is_idle(&self) -> bool {
        self.completed.is_empty() && !self.peers.iter().any(|peer| !peer.is_lost && peer.has_more())
    }

    fn move_packets(&mut self, on_event: &mut dyn FnMut(Time, TransportEvent<'_>)) {
        for peer in self.peers.iter_mut().filter(|peer| !peer.is_lost) {
            let from = Rank(peer.rank as u32);
            let mut any = false;
            let ring = &peer.inward;
            for _ in 0..PACKETS_PER_TURN {
                match peer.reader.next(ring) {
                    Ok(Some(entry)) => {
                        // SAFETY: `next` returned the entry, `finish` below releases it.
                        let bytes = unsafe { ring.bytes(entry) };
                        on_event(self.now, TransportEvent::Packet { from, rail: RAIL, path: PATH, bytes });
                        peer.reader.finish(ring, entry);
                        any = true;
                    }
                    Ok(None) => break,
                    Err(RingCorrupted) => {
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
                self.completed.push((peer.rank, bytes));
            }
            if any {
                self.mapping.futex(peer.rank).wake(); // It may wait for space, or for these packets.
            }
            if peer.is_lost {
                report_lost_peer(self.now, peer, &mut self.completed, on_event);
            }
        }
        if self.completed.is_empty() {
            return;
        }
        for (rank, bytes) in self.completed.drain(..) {
            on_event(self.now, TransportEvent::SendComplete { to: Rank(rank as u32), rail: RAIL, bytes });
        }
    }

    /// Reports a peer as lost if its process has ended and its ring is empty.
    pub fn check_liveness(&mut self, on_event: &mut dyn FnMut(Time, TransportEvent<'_>)) {
        if self.liveness_checked_at.elapsed() < LIVENESS_CHECK_INTERVAL {
            return;
        }
        self.liveness_checked_at = Instant::now();
        for peer in self.peers.iter_mut().filter(|peer| !peer.is_lost) {
            if !peer.has_more() && !self.mapping.is_alive(peer.rank) {
                peer.is_lost = true;
                report_lost_peer(self.now, peer, &mut self.completed, on_event);
            }
        }
    }

    /// Waits until there is something to report: spins, then sleeps.
    fn wait(&mut self, wait: Duration, on_event: &mut dyn FnMut(Time, TransportEvent<'_>)) {
        let mut waiter = Waiter::new(WAIT, wait);
        let mut has_read_clock = false;
        while self.is_idle() {
            match waiter.step() {
                WaitStep::Poll => {
                    // While idle: a packet that arrives later is not delayed by a clock read.
                    if waiter.has_read_clock() && !has_read_clock {
                        has_read_clock = true;
                        self.now = self.clock.now();
                    }
                }
                WaitStep::Sleep(time) => {
                    self.sleep(time);
                    self.check_liveness(on_event);
                    self.now = self.clock.now();
                    if self.peers.iter().any(|peer| !peer.waiting.is_empty()) {
                        return; // A ring may have space now.
                    }
                }
                WaitStep::TimedOut => {
                    self.now = self.clock.now();
                    return;
                }
            }
        }
    }

    fn sleep(&self, longest: Duration) {
        let futex = self.mapping.futex(self.me);
        let since = futex.register();
        if self.is_idle() {
            futex.wait(since, longest);
        }
        futex.unregister();
    }
}

impl ShmPeer {
    #[inline]
    fn has_more(&self) -> bool {
        self.reader.has_more(&self.inward)
    }

    /// Writes a packet into the ring. False if there is no space.
    fn write(&mut self, bytes: &[u8]) -> bool {
        let Some(entry) = self.writer.claim(&self.outward, bytes.len()) else { return false };
        // SAFETY: `claim` returned the entry, `publish` below hands it over.
        unsafe { self.outward.bytes(entry) }.copy_from_slice(bytes);
        self.publish(entry);
        true
    }

    /// Hands an entry to the peer. Demotes a short one to the shared cache, where the peer finds it sooner.
    #[inline]
    fn publish(&mut self, entry: RingEntry) {
        self.writer.publish(&self.outward, entry);
        if entry.length <= MAX_INLINE_BYTES {
            // SAFETY: the hint takes addresses only; it neither reads nor writes the published entry.
            demote(unsafe { self.outward.bytes(entry) });
        }
    }
}

fn report_lost_peer(
    now: Time,
    peer: &mut ShmPeer,
    completed: &mut Vec<(usize, Vec<u8>)>,
    on_event: &mut dyn FnMut(Time, TransportEvent<'_>),
) {
    completed.extend(peer.waiting.drain(..).map(|bytes| (peer.rank, bytes)));
    on_event(now, TransportEvent::RailLost { peer: Rank(peer.rank as u32), rail: RAIL });
}

impl MessageTransport for ShmTransport {
    fn send(&mut self, to: Rank, _: RailIndex, bytes: Vec<u8>) {
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.rank == to.index()) else { return };
        if !peer.is_lost && (!peer.waiting.is_empty() || !peer.write(&bytes)) {
            peer.waiting.push_back(bytes);
            return;
        }
        self.mapping.futex(peer.rank).wake();
        self.completed.push((peer.rank, bytes));
    }

    #[inline]
    fn reserve(&mut self, to: Rank, _: RailIndex, bytes: usize) -> Option<&mut [u8]> {
        let peer = self.peers.iter_mut().find(|peer| peer.rank == to.index())?;
        if peer.is_lost || !peer.waiting.is_empty() {
            return None;
        }
        let entry = peer.writer.claim(&peer.outward, bytes)?;
        self.reserved = Some(entry);
        // SAFETY: `claim` returned the entry; `send_reserved` publishes it before the next claim.
        Some(unsafe { peer.outward.bytes(entry) })
    }

    #[inline]
    fn send_reserved(&mut self, to: Rank, _: RailIndex, report: SendReport) {
        let entry = self.reserved.take().expect("`reserve` was called before");
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.rank == to.index()) else { return };
        peer.publish(entry);
        self.mapping.futex(peer.rank).wake();
        if report == SendReport::Wanted {
            self.completed.push((peer.rank, Vec::new()));
        }
    }

    fn turn(&mut self, wait: Duration, on_event: &mut dyn FnMut(Time, TransportEvent<'_>)) -> io::Result<()> {
        self.turns = self.turns.wrapping_add(1);
        if self.is_idle() && !wait.is_zero() {
            self.wait(wait, on_event);
        } else if self.turns.is_multiple_of(TURNS_PER_CLOCK) {
            self.now = self.clock.now();
        }
        self.move_packets(on_event);
        Ok(())
    }

    fn now(&self) -> Time {
        self.now
    }

    fn drop_peer(&mut self, peer: Rank) {
        for peer in self.peers.iter_mut().filter(|known| known.rank == peer.index()) {
            peer.is_lost = true;
            peer.waiting.clear();
        }
    }
}
