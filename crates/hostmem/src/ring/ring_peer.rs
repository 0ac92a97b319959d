//! The two rings to one peer, and what waits for space in them.

use std::collections::VecDeque;

use protocol::BufferSlice;

use super::mapped_ring::MappedRing;
use super::spsc_ring::{MAX_INLINE_BYTES, RingCorrupted, RingEntry, RingReader, RingWriter};
use crate::cache_hints::demote;

/// Packets received from one ring in one turn.
const PACKETS_PER_TURN: usize = 16;

/// A packet that waits for space: one buffer, or a header and a borrowed body.
type WaitingPacket = (Vec<u8>, Option<BufferSlice>);

/// Both directions between this process and a peer.
pub(super) struct RingPeer<const SLOTS: usize, const BYTES: usize> {
    /// The ring to the peer, and the one from it.
    outward: MappedRing<SLOTS, BYTES>,
    inward: MappedRing<SLOTS, BYTES>,
    writer: RingWriter,
    reader: RingReader,
    /// Packets that do not fit into the ring now.
    waiting: VecDeque<WaitingPacket>,
}

impl<const SLOTS: usize, const BYTES: usize> RingPeer<SLOTS, BYTES> {
    pub(super) fn new(outward: MappedRing<SLOTS, BYTES>, inward: MappedRing<SLOTS, BYTES>) -> Self {
        let (writer, reader) = (RingWriter::default(), RingReader::default());
        Self { outward, inward, writer, reader, waiting: VecDeque::new() }
    }

    /// Whether a packet is available.
    #[inline]
    pub(super) fn has_more(&self) -> bool {
        self.reader.has_more(&self.inward)
    }

    /// Whether packets wait for space.
    #[inline]
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Passes on some of the packets that have arrived; whether there were any.
    #[inline]
    pub(super) fn receive(&mut self, mut on_packet: impl FnMut(&mut [u8])) -> Result<bool, RingCorrupted> {
        let mut any = false;
        for _ in 0..PACKETS_PER_TURN {
            let Some(entry) = self.reader.next(&self.inward)? else { break };
            // SAFETY: `next` returned the entry, `finish` below releases it.
            on_packet(unsafe { self.inward.bytes(entry) });
            self.reader.finish(&self.inward, entry);
            any = true;
        }
        Ok(any)
    }

    /// Writes packets that waited for space; whether there was any. Their buffers return.
    #[inline]
    pub(super) fn write_waiting(&mut self, mut on_written: impl FnMut(Vec<u8>)) -> bool {
        let mut any = false;
        while let Some((head, body)) = self.waiting.pop_front() {
            if !self.write(&head, body.as_ref().map_or(&[][..], BufferSlice::bytes)) {
                self.waiting.push_front((head, body));
                break;
            }
            any = true;
            on_written(head);
        }
        any
    }

    /// Sends a packet of one or two parts; returns its first part if it is in the ring, or none if it waits.
    #[inline]
    pub(super) fn send(&mut self, head: Vec<u8>, body: Option<BufferSlice>) -> Option<Vec<u8>> {
        let is_written =
            self.waiting.is_empty() && self.write(&head, body.as_ref().map_or(&[][..], BufferSlice::bytes));
        if is_written {
            return Some(head);
        }
        self.waiting.push_back((head, body));
        None
    }

    /// Claims space for a packet that the caller writes in place, and then publishes.
    #[inline]
    pub(super) fn reserve(&mut self, bytes: usize) -> Option<(RingEntry, &mut [u8])> {
        if !self.waiting.is_empty() {
            return None;
        }
        let entry = self.writer.claim(&self.outward, bytes)?;
        // SAFETY: `claim` returned the entry; the caller publishes it before the next claim.
        Some((entry, unsafe { self.outward.bytes(entry) }))
    }

    /// Hands an entry to the peer. Demotes a short one to the shared cache, where the peer finds it sooner.
    #[inline]
    pub(super) fn publish(&mut self, entry: RingEntry) {
        self.writer.publish(&self.outward, entry);
        if entry.length <= MAX_INLINE_BYTES {
            // SAFETY: the hint takes addresses only; it neither reads nor writes the published entry.
            demote(unsafe { self.outward.bytes(entry) });
        }
    }

    /// The first parts of what waits; it is not sent any more.
    pub(super) fn drop_waiting(&mut self) -> impl Iterator<Item = Vec<u8>> {
        self.waiting.drain(..).map(|(head, _)| head)
    }

    /// Writes a packet into the ring. False if there is no space.
    #[inline]
    fn write(&mut self, head: &[u8], body: &[u8]) -> bool {
        let Some(entry) = self.writer.claim(&self.outward, head.len() + body.len()) else { return false };
        // SAFETY: `claim` returned the entry, `publish` below hands it over.
        let (first, second) = unsafe { self.outward.bytes(entry) }.split_at_mut(head.len());
        first.copy_from_slice(head);
        second.copy_from_slice(body);
        self.publish(entry);
        true
    }
}
