//! Messages that schedules send and take whole: those of short vectors.
//!
//! In: messages of a running schedule; parts. Out: packets; whole messages, each at least once (the schedule drops duplicates). A short
//! message needs no acknowledgement of its own: every packet tells which operations its sender has finished (P-91).

use protocol::Payload;
use protocol::transfer::{BulkSender, IMPLICIT_ACK_BYTES};
use transport::edges::UnverifiedPart;
use units::{GroupId, OpId, PathId, Rank};
use wire::transfer::{TransferHeader, TransferName, TransferPacketKind};

use super::incoming_messages::{KeepOutcome, MessageUse};
use super::{HOST_STREAM, OutgoingStream, StreamData, StreamKey, StreamPeer, StreamTable};
use crate::aggregation::TreeEdges;

/// A sender that has sent so many messages to a peer and knows of none that it has arrived asks with the next one.
pub(super) const MESSAGES_PER_ACKNOWLEDGEMENT: usize = 8;
/// Messages of finished operations that a peer may lack, in number and bytes: a sender does not run further ahead.
const MAX_MESSAGES_AHEAD: u32 = 128;
const MAX_BYTES_AHEAD: u32 = 256 << 10;

/// An operation whose schedule takes whole messages.
#[derive(Clone, Copy)]
pub(super) struct WholeOperation {
    fingerprint: u32,
    max_bytes: u32,
}

/// A message that has arrived whole.
pub(in crate::network) struct WholeMessage {
    pub from: Rank,
    pub name: TransferName,
    pub fingerprint: u32,
    pub payload: Payload,
}

impl StreamTable {
    /// An operation begins whose schedule takes messages of at most `max_bytes`. Those that arrived before are among the next whole
    /// messages.
    pub(in crate::network) fn begin_whole(
        &mut self,
        tree_edges: &TreeEdges,
        key: StreamKey,
        fingerprint: u32,
        max_bytes: u32,
    ) {
        self.begun.insert(key.0, key.1.next());
        self.whole.insert(key, WholeOperation { fingerprint, max_bytes });
        self.is_changed = true;
        self.note_presence(tree_edges.clock().now());
        if self.check_early(key, fingerprint) && !self.incoming.is_empty() {
            self.take_early_messages(key);
        }
    }

    fn take_early_messages(&mut self, key: StreamKey) {
        let damaged = self.incoming.note_running(key);
        self.corrupted.extend(damaged.iter().map(|_| key.0));
        for message in self.incoming.take(|message| is_of(&message.header.name, key) && message.is_complete()) {
            let (from, TransferHeader { name, fingerprint, .. }) = (message.from, message.header);
            if message.is_asked {
                self.note_completed(from, message.path, &message.header);
            }
            self.assembled.insert((key, from, name.round));
            if let Some(bytes) = message.assemble() {
                self.arrived.push(WholeMessage { from, name, fingerprint, payload: bytes.into() });
            }
        }
    }

    /// The operation is finished, or has failed.
    pub(in crate::network) fn end_whole(&mut self, key: StreamKey) {
        if self.whole.remove(&key).is_some() {
            self.is_changed = true;
            self.assembled.retain(|(of, ..)| *of != key);
            self.incoming.take(|message| is_of(&message.header.name, key));
        }
    }

    /// Sends a message of a running operation.
    pub(in crate::network) fn send_whole(
        &mut self,
        tree_edges: &mut TreeEdges,
        to: Rank,
        name: TransferName,
        fingerprint: u32,
        payload: Payload,
    ) {
        let length = payload.len();
        let mut transfer = BulkSender::new(length);
        transfer.make_available(length.max(1));
        let operation = (name.group, name.operation);
        let data = StreamData::Message(payload);
        let peer = self.peers.entry(to).or_default();
        peer.open_messages += 1;
        peer.open_bytes += length;
        let (element, path) = (1, 0);
        self.outgoing.push(OutgoingStream {
            operation,
            to,
            name,
            fingerprint,
            length,
            element,
            transfer,
            data,
            path,
        });
        self.send_stream(tree_edges, self.outgoing.len() - 1);
    }

    /// Whole messages that have arrived for running operations.
    pub(in crate::network) fn take_arrived(&mut self) -> Vec<WholeMessage> {
        std::mem::take(&mut self.arrived)
    }

    /// The list that [`Self::take_arrived`] returned, now empty: it keeps its memory.
    pub(in crate::network) fn return_arrived(&mut self, list: Vec<WholeMessage>) {
        if self.arrived.is_empty() {
            self.arrived = list;
        }
    }

    /// True if some peer lacks so much that this process must not run further ahead.
    pub(in crate::network) fn is_far_ahead(&self) -> bool {
        self.peers.values().any(|peer| peer.open_messages > MAX_MESSAGES_AHEAD || peer.open_bytes > MAX_BYTES_AHEAD)
    }

    /// Handles a part of a message that a running schedule takes whole; false if it is not intact.
    pub(super) fn handle_whole_part(
        &mut self,
        (from, path): (Rank, PathId),
        header: &TransferHeader,
        operation: WholeOperation,
        part: UnverifiedPart<'_>,
    ) -> bool {
        let TransferPacketKind::Data { offset, acknowledge_now, .. } = header.kind else { return true };
        if operation.fingerprint != header.fingerprint || header.length > operation.max_bytes {
            self.mismatches.push(header.name.group);
            return true;
        }
        if offset == 0 && part.len() == header.length as usize {
            let Some(bytes) = part.verify() else { return false };
            let TransferHeader { name, fingerprint, .. } = *header;
            self.arrived.push(WholeMessage { from, name, fingerprint, payload: Payload::Bytes(bytes.into()) });
            if acknowledge_now {
                self.note_completed(from, path, header);
            }
            return true;
        }
        let key = (header.name.group, header.name.operation);
        if self.assembled.contains(&(key, from, header.name.round)) {
            // Its acknowledgement was lost. As a new message it would never be complete, and hold up the next one to this rank.
            let is_intact = part.verify().is_some();
            if is_intact {
                self.note_completed(from, path, header);
            }
            return is_intact;
        }
        let message_use = MessageUse::Running { max_bytes: operation.max_bytes };
        let outcome = self.incoming.keep((from, path), header, message_use, part);
        let is_it = |name: &TransferName| *name == header.name;
        for message in
            self.incoming.take(|message| message.from == from && is_it(&message.header.name) && message.is_complete())
        {
            let TransferHeader { name, fingerprint, .. } = message.header;
            self.assembled.insert((key, from, name.round));
            let Some(bytes) = message.assemble() else { continue };
            self.arrived.push(WholeMessage { from, name, fingerprint, payload: bytes.into() });
            if acknowledge_now || header.length > IMPLICIT_ACK_BYTES {
                self.note_completed(from, path, header);
            }
        }
        outcome != KeepOutcome::Damaged
    }

    /// The first operation of a group that is not finished here.
    pub(super) fn unfinished(&self, group: GroupId) -> OpId {
        let Some(next) = self.begun.get(&group).copied() else { return OpId(0) };
        let running = self.whole.keys().chain(self.operations.keys());
        let of_group = running.filter(|(of, _)| *of == group).map(|(_, op)| *op);
        of_group.min_by_key(|op| op.steps_from(next)).unwrap_or(next)
    }

    /// A peer has finished all earlier operations of the group: what they sent to it has arrived (P-91).
    pub(super) fn note_finished_at(&mut self, from: Rank, header: &TransferHeader) {
        let Self { outgoing, peers, spare_buffers, .. } = self;
        let group = header.name.group;
        let is_known = |stream: &mut OutgoingStream| {
            stream.to == from
                && (stream.name.group, stream.name.epoch) == (group, HOST_STREAM)
                && stream.name.operation.steps_from(header.unfinished) < 0
        };
        for stream in outgoing.extract_if(.., is_known) {
            let peer = peers.entry(from).or_default();
            peer.pacing.note_delivered(stream.transfer.in_flight());
            peer.close_message(&stream);
            spare_buffers.reclaim(stream);
        }
    }
}

impl StreamPeer {
    /// A stream to the peer is complete.
    pub(super) fn close_message(&mut self, stream: &OutgoingStream) {
        if matches!(stream.data, StreamData::Message(_)) {
            self.open_messages = self.open_messages.saturating_sub(1);
            self.open_bytes = self.open_bytes.saturating_sub(stream.length);
        }
    }
}

fn is_of(name: &TransferName, key: StreamKey) -> bool {
    (name.group, name.operation) == key
}
