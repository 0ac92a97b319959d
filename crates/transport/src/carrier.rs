//! What carries messages: the seam between the messaging machine and a network.

use std::io;
use std::time::Duration;

use protocol::BufferSlice;
use protocol::connection::AckRequest;
use protocol::messaging::RailIndex;
use units::{PathId, Rank, Time};

/// What a carrier has to tell.
#[derive(Debug)]
pub enum TransportEvent<'a> {
    /// A parcel came. Its packets were sound; what happened to it since, its seal tells.
    Parcel {
        /// From this rank.
        from: Rank,
        /// Over this rail.
        rail: RailIndex,
        /// And over this of its paths.
        path: PathId,
        /// Its bytes.
        bytes: &'a mut [u8],
    },
    /// The oldest parcel under way on a rail is at the other end, or never will be; its bytes come back.
    Landed {
        /// To this rank.
        to: Rank,
        /// Over this rail.
        rail: RailIndex,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// A rail carries nothing any more.
    RailLost {
        /// To this rank.
        peer: Rank,
        /// This one.
        rail: RailIndex,
    },
}

/// Carries parcels, reliably and in order on each rail.
pub trait MessageTransport {
    /// Sends a parcel. Its bytes come back as [`TransportEvent::Landed`].
    fn send(&mut self, to: Rank, rail: RailIndex, bytes: Vec<u8>);
    /// Whether it sends bytes from where they lie.
    fn borrows(&self) -> bool {
        false
    }
    /// Sends a parcel of two parts, the second from where it lies. The first comes back as [`TransportEvent::Landed`] when both are done with,
    /// soon if that is asked for.
    fn send_lent(&mut self, to: Rank, rail: RailIndex, mut head: Vec<u8>, body: BufferSlice, _ask: AckRequest) {
        head.extend_from_slice(body.bytes());
        self.send(to, rail, head);
    }
    /// Lends room for the next parcel of a rail, if it has any that the other end can read; see [`Rooms`].
    fn room(&mut self, _to: Rank, _rail: RailIndex, _bytes: usize) -> Option<&mut [u8]> {
        None
    }
    /// Sends what was written to the room lent last. If it `is_told`, an empty buffer comes back for it.
    fn send_room(&mut self, _to: Rank, _rail: RailIndex, _is_told: bool) {
        unreachable!("no room was lent")
    }
    /// A parcel that came over a rail was spoiled.
    fn note_spoiled(&mut self, _from: Rank, _rail: RailIndex, _path: PathId) {}
    /// Does what can be done, waits for at most `wait` if there is nothing to tell, and tells it with the time.
    ///
    /// # Errors
    /// If the system does not let it wait.
    fn turn(&mut self, wait: Duration, tell: &mut dyn FnMut(Time, TransportEvent<'_>)) -> io::Result<()>;
    /// About what time it is.
    fn now(&self) -> Time;
    /// Nothing is wanted from a rank any more.
    fn forget(&mut self, peer: Rank);
}

impl<C: MessageTransport + ?Sized> MessageTransport for Box<C> {
    fn send(&mut self, to: Rank, rail: RailIndex, bytes: Vec<u8>) {
        (**self).send(to, rail, bytes);
    }

    fn borrows(&self) -> bool {
        (**self).borrows()
    }

    fn send_lent(&mut self, to: Rank, rail: RailIndex, head: Vec<u8>, body: BufferSlice, ask: AckRequest) {
        (**self).send_lent(to, rail, head, body, ask);
    }

    fn room(&mut self, to: Rank, rail: RailIndex, bytes: usize) -> Option<&mut [u8]> {
        (**self).room(to, rail, bytes)
    }

    fn send_room(&mut self, to: Rank, rail: RailIndex, is_told: bool) {
        (**self).send_room(to, rail, is_told);
    }

    fn note_spoiled(&mut self, from: Rank, rail: RailIndex, path: PathId) {
        (**self).note_spoiled(from, rail, path);
    }

    fn turn(&mut self, wait: Duration, tell: &mut dyn FnMut(Time, TransportEvent<'_>)) -> io::Result<()> {
        (**self).turn(wait, tell)
    }

    fn now(&self) -> Time {
        (**self).now()
    }

    fn forget(&mut self, peer: Rank) {
        (**self).forget(peer);
    }
}
