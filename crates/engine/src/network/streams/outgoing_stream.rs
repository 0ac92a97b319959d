//! One message on its way to a peer.

use std::ops::Range;

use protocol::Payload;
use protocol::transfer::{BulkSender, TransferPacing};
use transport::edges::TransferPackets;
use units::{OpId, Rank};
use wire::transfer::{TransferHeader, TransferName, TransferPacketKind};

use super::StreamKey;

/// The bytes of a message.
pub(super) enum StreamData {
    /// In the caller's memory, which is valid while the operation runs.
    Borrowed(*const u8),
    /// A copy of everything from an offset on: the operation is over, and the receiver has the rest.
    Owned { start: u32, bytes: Vec<u8> },
    /// A whole message of a schedule.
    Message(Payload),
}

/// Buffers that detached messages no longer need: the allocator takes large ones from the kernel each time, and every page costs a fault.
#[derive(Default)]
pub(super) struct SpareBuffers(Vec<Vec<u8>>);

impl SpareBuffers {
    const MAX_BUFFERS: usize = 8;

    fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    /// Keeps the buffer of a message that is complete.
    pub(super) fn reclaim(&mut self, stream: OutgoingStream) {
        if let StreamData::Owned { mut bytes, .. } = stream.data
            && self.0.len() < Self::MAX_BUFFERS
        {
            bytes.clear();
            self.0.push(bytes);
        }
    }
}

pub(super) struct OutgoingStream {
    /// The operation, while it runs.
    pub operation: StreamKey,
    /// The receiver, in the communicator of all ranks.
    pub to: Rank,
    pub name: TransferName,
    pub fingerprint: u32,
    pub length: u32,
    pub element: u32,
    pub transfer: BulkSender,
    pub data: StreamData,
    /// The path on which it was sent last.
    pub path: u8,
}

// SAFETY: see `StreamBuffers`: the memory is used from one thread at a time, under the engine's lock.
unsafe impl Send for OutgoingStream {}

impl OutgoingStream {
    /// The bytes of a range.
    pub(super) fn bytes(&self, range: &Range<u32>) -> &[u8] {
        if self.length == 0 {
            return &[]; // An empty message counts as one byte, and has none.
        }
        assert!(range.end <= self.length, "a transfer stays within its length");
        let count = (range.end - range.start) as usize;
        match &self.data {
            // SAFETY: the range is within the message (asserted); the caller's memory is valid until the operation is over, and
            // then the stream is detached or removed.
            StreamData::Borrowed(bytes) => unsafe {
                std::slice::from_raw_parts(bytes.add(range.start as usize), count)
            },
            StreamData::Owned { start, bytes } => &bytes[(range.start - start) as usize..][..count],
            StreamData::Message(payload) => {
                &payload.bytes().expect("messages between hosts have bytes")[range.start as usize..][..count]
            }
        }
    }

    /// Copies what the receiver may still lack, so that the caller gets its memory back.
    pub(super) fn detach(&mut self, spare_buffers: &mut SpareBuffers) {
        let start = self.transfer.received();
        let mut bytes = spare_buffers.take();
        bytes.extend_from_slice(self.bytes(&(start..self.length)));
        self.data = StreamData::Owned { start, bytes };
    }

    /// True if this range of a message in the caller's memory is followed by the last `bytes` bytes of it, or has the first of them, and the
    /// message is much longer.
    pub(super) fn reaches_last(&self, bytes: u32, range: &Range<u32>) -> bool {
        let mark = self.length.saturating_sub(bytes);
        !self.is_detached() && self.length >= 2 * bytes && range.start < mark && mark <= range.end
    }

    /// How it is divided into packets.
    pub(super) fn packets(&self, are_short: bool) -> TransferPackets {
        TransferPackets { element: self.element as usize, are_short }
    }

    pub(super) fn is_detached(&self) -> bool {
        !matches!(self.data, StreamData::Borrowed(_))
    }

    /// The next range to send, whole elements. What other transfers to the peer have in flight may be any number of bytes, and leaves a
    /// window that ends anywhere.
    pub(super) fn next_range(&self, pacing: &TransferPacing, others: u32, max_bytes: u32) -> Option<Range<u32>> {
        let range = self.transfer.next_range(pacing, others, max_bytes)?;
        if range.end >= self.length {
            return Some(range);
        }
        let bytes = (range.end - range.start) / self.element * self.element;
        (bytes > 0).then(|| range.start..range.start + bytes)
    }

    /// Bytes that the receiver may lack.
    pub(super) fn unacknowledged(&self) -> u32 {
        self.length.saturating_sub(self.transfer.received())
    }

    /// The header of the packet at an offset.
    pub(super) fn header(&self, offset: u32, acknowledge_now: bool, unfinished: OpId) -> TransferHeader {
        TransferHeader {
            destination: units::QpNumber(0),
            name: self.name,
            fingerprint: self.fingerprint,
            length: self.length,
            unfinished,
            kind: TransferPacketKind::Data { offset, acknowledge_now, probe: self.transfer.probe() },
            payload_mac: 0,
        }
    }
}
