//! Packets to processes that share memory with this one through that memory, to others over UDP. Peers come one by one.
//!
//! A thread cannot sleep on memory and on sockets. So it sleeps on the sockets, and who writes to the memory of a sleeping peer sends
//! it a datagram that says nothing.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hostmem::ring::{PairMemory, PairTransport};
use protocol::BufferSlice;
use protocol::connection::AckRequest;
use protocol::messaging::RailIndex;
use transport::Clock;
use transport::message_transport::{MessageTransport, SendReport, TransportEvent};
use transport::udp::UdpPortIndex;
use units::{PathId, QpNumber, Rank, Span, Time};
use wire::QueueKey;

use super::UdpTransport;

/// How often the sockets are polled while they are quiet. Beside memory, a system call is slow.
const FIRST_INTERVAL: Span = Span::from_nanos(500);
/// With rails over UDP; and with none, when only requests to connect may arrive.
const LONGEST_INTERVAL: Span = Span::from_micros(4);
const LONGEST_WITHOUT_RAILS: Span = Span::from_micros(50);
/// A bound for sleeps: a datagram that wakes may be lost.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// Where a peer that sleeps is woken: this end's datagram queue pair and port, and the peer's.
#[derive(Clone, Copy, Debug)]
pub struct WakeAddress {
    /// This end's queue pair.
    pub from: QpNumber,
    /// This end's port.
    pub port: UdpPortIndex,
    /// The peer's socket, queue pair and key.
    pub to: (SocketAddr, QpNumber, QueueKey),
}

/// The rails of a process to peers that share memory with it, and to others.
pub struct PairMux {
    pairs: PairTransport,
    udp: UdpTransport,
    clock: Clock,
    /// The start of the last turn.
    now: Time,
    wake: BTreeMap<Rank, WakeAddress>,
    poll_at: Time,
    interval: Span,
}

impl PairMux {
    /// Over UDP, until there are pairs.
    pub fn new(mut udp: UdpTransport) -> Self {
        let clock = udp.endpoint().clock();
        Self {
            pairs: PairTransport::default(),
            udp,
            clock,
            now: Time::ZERO,
            wake: BTreeMap::new(),
            poll_at: Time::ZERO,
            interval: FIRST_INTERVAL,
        }
    }

    /// The part over UDP, for rails that begin or change. It is polled soon.
    pub fn udp(&mut self) -> &mut UdpTransport {
        self.poll_at = Time::ZERO;
        self.interval = FIRST_INTERVAL;
        &mut self.udp
    }

    /// Whether something happened over UDP that concerns no message.
    #[inline]
    pub fn next_side_event(&mut self) -> Option<transport::udp::EndpointEvent> {
        self.udp.next_side_event()
    }

    /// The part through memory.
    #[inline]
    pub fn pairs(&self) -> &PairTransport {
        &self.pairs
    }

    /// Shares memory with a peer.
    pub fn add_pair(&mut self, peer: Rank, memory: PairMemory, wake: WakeAddress) {
        self.now = self.clock.now();
        self.pairs.add(peer, memory);
        self.wake.insert(peer, wake);
    }

    /// Wants to be woken through the sockets by packets in memory; false if there is something to do.
    pub fn fall_asleep(&mut self) -> bool {
        self.poll_at = Time::ZERO;
        self.pairs.is_empty() || self.pairs.fall_asleep()
    }

    #[inline]
    fn wake_sleepers(&mut self) {
        while let Some(peer) = self.pairs.next_sleeper() {
            self.wake_up(peer);
        }
    }

    #[cold]
    fn wake_up(&mut self, peer: Rank) {
        if let Some(WakeAddress { from, port, to }) = self.wake.get(&peer) {
            // If it is lost, the peer sleeps a little longer.
            let _ = self.udp.endpoint().send_datagram(*from, *port, *to, &[], None);
        }
    }

    /// A turn of the sockets; whether there was anything to report.
    fn poll_udp(&mut self, wait: Duration, on_event: &mut dyn FnMut(Time, TransportEvent<'_>)) -> io::Result<bool> {
        let (mut any, latest) = (false, &mut self.now);
        self.udp.turn(wait, &mut |now, event| {
            any = true;
            *latest = (*latest).max(now); // Time must not run backwards for the messaging machine.
            on_event(now, event);
        })?;
        let longest = if self.udp.has_rails() { LONGEST_INTERVAL } else { LONGEST_WITHOUT_RAILS };
        self.interval = if any { FIRST_INTERVAL } else { (self.interval + self.interval).min(longest) };
        self.poll_at = self.now + self.interval;
        Ok(any)
    }
}

impl MessageTransport for PairMux {
    fn send(&mut self, to: Rank, rail: RailIndex, bytes: Vec<u8>) {
        if self.pairs.contains(to) {
            self.pairs.send(to, bytes, None);
            return self.wake_sleepers();
        }
        self.poll_at = Time::ZERO;
        self.udp.send(to, rail, bytes);
    }

    fn supports_borrowed(&self) -> bool {
        self.udp.supports_borrowed()
    }

    #[inline]
    fn shares_memory_with(&self, peer: Rank) -> bool {
        self.pairs.contains(peer)
    }

    fn send_borrowed(&mut self, to: Rank, rail: RailIndex, head: Vec<u8>, body: BufferSlice, ack: AckRequest) {
        if self.pairs.contains(to) {
            self.pairs.send(to, head, Some(body));
            return self.wake_sleepers();
        }
        self.poll_at = Time::ZERO;
        self.udp.send_borrowed(to, rail, head, body, ack);
    }

    #[inline]
    fn reserve(&mut self, to: Rank, _: RailIndex, bytes: usize) -> Option<&mut [u8]> {
        self.pairs.reserve(to, bytes)
    }

    #[inline]
    fn send_reserved(&mut self, to: Rank, _: RailIndex, report: SendReport) {
        self.pairs.send_reserved(to, report);
        self.wake_sleepers();
    }

    fn report_corruption(&mut self, from: Rank, rail: RailIndex, path: PathId) {
        if !self.pairs.contains(from) {
            self.udp.report_corruption(from, rail, path);
        }
    }

    fn turn(&mut self, wait: Duration, on_event: &mut dyn FnMut(Time, TransportEvent<'_>)) -> io::Result<()> {
        self.now = self.clock.now();
        if self.pairs.is_empty() {
            return self.udp.turn(wait, on_event);
        }
        let mut any = self.pairs.poll(self.now, on_event);
        self.wake_sleepers();
        if self.now >= self.poll_at {
            any |= self.poll_udp(Duration::ZERO, on_event)?;
        }
        if any || wait.is_zero() {
            return Ok(());
        }
        let sleep = if self.fall_asleep() { wait.min(LONGEST_SLEEP) } else { Duration::ZERO };
        self.poll_udp(sleep, on_event)?;
        self.now = self.clock.now();
        self.pairs.poll(self.now, on_event);
        self.wake_sleepers();
        Ok(())
    }

    #[inline]
    fn now(&self) -> Time {
        if self.pairs.is_empty() { self.udp.now() } else { self.now }
    }

    fn drop_peer(&mut self, peer: Rank) {
        if self.pairs.contains(peer) {
            self.pairs.remove(peer);
            self.wake.remove(&peer);
        } else {
            self.udp.drop_peer(peer);
        }
    }
}
