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
    pub(super) fn detach(&mut self) {
        let start = self.transfer.received();
        let bytes = self.bytes(&(start..self.length)).to_vec();
        self.data = StreamData::Owned { start, bytes };
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
