//! The transport of messages through rings in shared memory.
//!
//! In: packets. Out: packets of peers, completed sends, lost peers. A peer is lost when its process has ended, or when its ring
//! holds what no correct peer writes. A waiting rank spins, then sleeps on its futex.

use std::io;
use std::time::{Duration, Instant};

use protocol::BufferSlice;
use protocol::connection::AckRequest;
use protocol::messaging::{MessagingSettings, RailIndex};
use transport::Clock;
use transport::backoff::{WaitPolicy, WaitStep, Waiter};
use transport::message_transport::{MessageTransport, SendReport, TransportEvent};
use units::{PathId, Rank, Time};

use super::mapping::{RING_BYTES, RING_SLOTS, RingMapping};
use super::ring_peer::RingPeer;
use super::spsc_ring::RingEntry;

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

struct ShmPeer {
    rank: usize,
    rings: RingPeer<RING_SLOTS, RING_BYTES>,
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
        let peer = |rank| ShmPeer { rank, rings: RingPeer::new(ring(me, rank), ring(rank, me)), is_lost: false };
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
        self.completed.is_empty() && !self.peers.iter().any(|peer| !peer.is_lost && peer.rings.has_more())
    }

    fn move_packets(&mut self, on_event: &mut dyn FnMut(Time, TransportEvent<'_>)) {
        for peer in self.peers.iter_mut().filter(|peer| !peer.is_lost) {
            let (now, from) = (self.now, Rank(peer.rank as u32));
            let received = peer.rings.receive(|bytes| {
                on_event(now, TransportEvent::Packet { from, rail: RAIL, path: PATH, bytes });
            });
            peer.is_lost = received.is_err();
            let mut any = received.unwrap_or(true);
            any |= peer.rings.write_waiting(|bytes| self.completed.push((peer.rank, bytes)));
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
            if !peer.rings.has_more() && !self.mapping.is_alive(peer.rank) {
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
                    if self.peers.iter().any(|peer| peer.rings.has_waiting()) {
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

fn report_lost_peer(
    now: Time,
    peer: &mut ShmPeer,
    completed: &mut Vec<(usize, Vec<u8>)>,
    on_event: &mut dyn FnMut(Time, TransportEvent<'_>),
) {
    completed.extend(peer.rings.drop_waiting().map(|bytes| (peer.rank, bytes)));
    on_event(now, TransportEvent::RailLost { peer: Rank(peer.rank as u32), rail: RAIL });
}

impl MessageTransport for ShmTransport {
    fn send(&mut self, to: Rank, _: RailIndex, bytes: Vec<u8>) {
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.rank == to.index()) else { return };
        let sent = if peer.is_lost { Some(bytes) } else { peer.rings.send(bytes, None) };
        let Some(bytes) = sent else { return };
        self.mapping.futex(peer.rank).wake();
        self.completed.push((peer.rank, bytes));
    }

    fn send_borrowed(&mut self, to: Rank, _: RailIndex, head: Vec<u8>, body: BufferSlice, _: AckRequest) {
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.rank == to.index()) else { return };
        let sent = if peer.is_lost { Some(head) } else { peer.rings.send(head, Some(body)) };
        let Some(head) = sent else { return };
        self.mapping.futex(peer.rank).wake();
        self.completed.push((peer.rank, head));
    }

    fn shares_memory_with(&self, _: Rank) -> bool {
        true
    }

    #[inline]
    fn reserve(&mut self, to: Rank, _: RailIndex, bytes: usize) -> Option<&mut [u8]> {
        let peer = self.peers.iter_mut().find(|peer| peer.rank == to.index())?;
        let (entry, bytes) = if peer.is_lost { None } else { peer.rings.reserve(bytes) }?;
        self.reserved = Some(entry);
        Some(bytes)
    }

    #[inline]
    fn send_reserved(&mut self, to: Rank, _: RailIndex, report: SendReport) {
        let entry = self.reserved.take().expect("`reserve` was called before");
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.rank == to.index()) else { return };
        peer.rings.publish(entry);
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
            peer.rings.drop_waiting().for_each(drop);
        }
    }
}
