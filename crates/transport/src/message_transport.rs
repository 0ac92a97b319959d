//! The boundary between the messaging machine and what moves its packets.
//!
//! In: packets to send, per peer and rail. Out: [`TransportEvent`]s. A transport delivers reliably and in order on each rail.

use std::io;
use std::time::Duration;

use protocol::BufferSlice;
use protocol::connection::AckRequest;
use protocol::messaging::RailIndex;
use units::{PathId, Rank, Time};

/// What a transport reports.
#[derive(Debug)]
pub enum TransportEvent<'a> {
    /// A packet arrived. The transport verified its own packets; the message checksum covers everything since then.
    Packet {
        /// The sender.
        from: Rank,
        /// The rail it arrived on.
        rail: RailIndex,
        /// The path of that rail.
        path: PathId,
        /// The packet's bytes.
        bytes: &'a mut [u8],
    },
    /// The oldest packet in flight on a rail is at the other end, or will never be. The buffer returns to its owner.
    SendComplete {
        /// The receiver.
        to: Rank,
        /// The rail it was sent on.
        rail: RailIndex,
        /// The buffer of the packet.
        bytes: Vec<u8>,
    },
    /// A rail has failed.
    RailLost {
        /// The peer it leads to.
        peer: Rank,
        /// The rail.
        rail: RailIndex,
    },
}

/// Whether [`TransportEvent::SendComplete`] follows a send from a reserved buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendReport {
    /// It follows, with an empty buffer.
    Wanted,
    /// It does not follow.
    Unwanted,
}

/// Sends and receives packets, reliably and in order on each rail.
pub trait MessageTransport {
    /// Sends a packet. Its buffer returns with [`TransportEvent::SendComplete`].
    fn send(&mut self, to: Rank, rail: RailIndex, bytes: Vec<u8>);
    /// Whether [`Self::send_borrowed`] sends the body without a copy.
    fn supports_borrowed(&self) -> bool {
        false
    }
    /// Whether packets to this peer are written to memory that it reads: then bodies are better copied there than borrowed.
    fn shares_memory_with(&self, _peer: Rank) -> bool {
        false
    }
    /// Sends a packet of two parts, the second without a copy. The first part returns with
    /// [`TransportEvent::SendComplete`] when neither is needed any more. `ack` says how soon the peer acknowledges.
    fn send_borrowed(&mut self, to: Rank, rail: RailIndex, mut head: Vec<u8>, body: BufferSlice, _ack: AckRequest) {
        head.extend_from_slice(body.bytes());
        self.send(to, rail, head);
    }
    /// Reserves space for the next packet of a rail in memory that the peer reads; none if there is no such memory or
    /// no space.
    fn reserve(&mut self, _to: Rank, _rail: RailIndex, _bytes: usize) -> Option<&mut [u8]> {
        None
    }
    /// Sends what was written to the space reserved last.
    fn send_reserved(&mut self, _to: Rank, _rail: RailIndex, _report: SendReport) {
        unreachable!("`reserve` returned no space")
    }
    /// A packet that arrived over a path failed the message checksum.
    fn report_corruption(&mut self, _from: Rank, _rail: RailIndex, _path: PathId) {}
    /// Runs one turn: sends and receives what it can. With nothing to report, waits for at most `wait`. Each event comes
    /// with the time.
    ///
    /// # Errors
    /// If the system call that waits fails.
    fn turn(&mut self, wait: Duration, on_event: &mut dyn FnMut(Time, TransportEvent<'_>)) -> io::Result<()>;
    /// The time of the last turn, or later.
    fn now(&self) -> Time;
    /// Releases everything that belongs to a peer.
    fn drop_peer(&mut self, peer: Rank);
}

impl<T: MessageTransport + ?Sized> MessageTransport for Box<T> {
    fn send(&mut self, to: Rank, rail: RailIndex, bytes: Vec<u8>) {
        (**self).send(to, rail, bytes);
    }

    fn supports_borrowed(&self) -> bool {
        (**self).supports_borrowed()
    }

    fn shares_memory_with(&self, peer: Rank) -> bool {
        (**self).shares_memory_with(peer)
    }

    fn send_borrowed(&mut self, to: Rank, rail: RailIndex, head: Vec<u8>, body: BufferSlice, ack: AckRequest) {
        (**self).send_borrowed(to, rail, head, body, ack);
    }

    fn reserve(&mut self, to: Rank, rail: RailIndex, bytes: usize) -> Option<&mut [u8]> {
        (**self).reserve(to, rail, bytes)
    }

    fn send_reserved(&mut self, to: Rank, rail: RailIndex, report: SendReport) {
        (**self).send_reserved(to, rail, report);
    }

    fn report_corruption(&mut self, from: Rank, rail: RailIndex, path: PathId) {
        (**self).report_corruption(from, rail, path);
    }

    fn turn(&mut self, wait: Duration, on_event: &mut dyn FnMut(Time, TransportEvent<'_>)) -> io::Result<()> {
        (**self).turn(wait, on_event)
    }

    fn now(&self) -> Time {
        (**self).now()
    }

    fn drop_peer(&mut self, peer: Rank) {
        (**self).drop_peer(peer);
    }
}
