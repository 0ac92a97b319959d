//! What the endpoint asks of its driver, and the memory that the driver offers for sending.

use units::Rank;

use super::completion::PeerLossCause;
use super::rails::RailIndex;
use crate::BufferSlice;
use crate::connection::AckRequest;

/// What the driver must do.
#[derive(Debug)]
pub enum MessagingAction {
    /// Send a packet over a rail, in order, then return the bytes with [`handle_sent`](super::MessagingEndpoint::handle_sent).
    Transmit {
        /// The destination.
        to: Rank,
        /// The rail.
        rail: RailIndex,
        /// The packet.
        bytes: Vec<u8>,
        /// Bytes copied and checksummed for this packet just now, for drivers that model the cost.
        copied: u32,
    },
    /// Send header and borrowed body as one packet, as above. Return the header once the body is no longer needed.
    TransmitBorrowed {
        /// The destination.
        to: Rank,
        /// The rail.
        rail: RailIndex,
        /// The packet's header.
        head: Vec<u8>,
        /// The packet's body, borrowed from the user's buffer.
        body: BufferSlice,
        /// Whether the endpoint waits for the return.
        ask: AckRequest,
    },
    /// Send the packet that was written to the reserved buffer ([`InPlaceBuffers`]), as above. Return an empty buffer for it.
    TransmitInPlace {
        /// The destination.
        to: Rank,
        /// The rail.
        rail: RailIndex,
        /// Bytes of the packet.
        length: usize,
    },
    /// Close all rails to this peer: it is lost.
    DropPeer {
        /// The peer.
        peer: Rank,
        /// Why.
        cause: PeerLossCause,
    },
}

/// Ways to send without an intermediate buffer: in memory that the peer reads, or, for fragments, from the user's buffer.
pub trait InPlaceBuffers {
    /// A buffer for the next packet of a rail, if one is free. The packet written there is sent by
    /// [`MessagingAction::TransmitInPlace`], which is the next action, or by [`Self::send_reserved`], which is the next call.
    fn reserve(&mut self, to: Rank, rail: RailIndex, bytes: usize) -> Option<&mut [u8]>;

    /// Sends the buffer reserved last, at once. Unlike for [`MessagingAction::TransmitInPlace`], the driver returns nothing for
    /// it. Used for eager messages.
    fn send_reserved(&mut self, to: Rank, rail: RailIndex);

    /// Whether the driver sends fragments from the user's buffer ([`MessagingAction::TransmitBorrowed`]) if it has no buffer to
    /// reserve.
    fn supports_borrowed(&self) -> bool {
        false
    }

    /// Whether packets to this peer are written to memory that it reads. Nothing is then prepared before the CTS: a fragment is copied
    /// and checksummed in one pass when there is space for it.
    fn shares_memory_with(&self, _peer: Rank) -> bool {
        false
    }
}

/// For drivers without such buffers.
pub(super) struct NoInPlaceBuffers;

impl InPlaceBuffers for NoInPlaceBuffers {
    fn reserve(&mut self, _: Rank, _: RailIndex, _: usize) -> Option<&mut [u8]> {
        None
    }

    fn send_reserved(&mut self, _: Rank, _: RailIndex) {}
}
