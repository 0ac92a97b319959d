//! Messages that are kept until they can be used: those of operations that have not begun here, and those that a schedule takes whole.
//!
//! In: parts, verified. Out: what to tell their senders; the parts of a message, or a whole message. Of an operation that has not begun,
//! a sender may send [`UNSOLICITED_BYTES`] unasked, so that is what is kept of a message; all else is dropped, and the sender repairs
//! it (P-87).

use std::sync::Arc;

use protocol::transfer::{BulkReceiver, IMPLICIT_ACK_BYTES, PartArrival, TransferAcknowledgement, UNSOLICITED_BYTES};
use transport::edges::{KeyedMacs, UnverifiedPart};
use units::{PathId, Rank};
use wire::transfer::{TransferHeader, TransferName, TransferPacketKind};

use super::StreamKey;

/// Bytes and messages kept for operations that have not begun.
const MAX_EARLY_BYTES: usize = 4 << 20;
const MAX_EARLY_MESSAGES: usize = 1 << 14;

/// Whether the operation of a message runs here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MessageUse {
    Early,
    /// Its schedule takes messages of at most so many bytes.
    Running {
        max_bytes: u32,
    },
}

/// What became of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeepOutcome {
    /// It is kept, or was here already.
    Kept,
    /// There is no room for it: as if it were lost.
    Dropped,
    /// It is not intact.
    Damaged,
}

/// A part that is kept. It is verified once more when it is used: it was in memory for a while.
pub(super) struct KeptPart {
    pub offset: u32,
    payload_mac: u64,
    verifier: Arc<KeyedMacs>,
    bytes: Vec<u8>,
}

impl KeptPart {
    pub(super) fn unverified(&self) -> UnverifiedPart<'_> {
        UnverifiedPart::new(&self.bytes, self.payload_mac, &self.verifier)
    }
}

/// The bytes of a message so far.
enum MessageStorage {
    /// Its operation has not begun, and may yet take the parts one by one.
    Parts(Vec<KeptPart>),
    /// Its schedule takes it whole.
    Whole(Vec<u8>),
}

pub(super) struct IncomingMessage {
    pub from: Rank,
    pub path: PathId,
    pub header: TransferHeader,
    transfer: BulkReceiver,
    storage: MessageStorage,
    /// The sender asked for an acknowledgement, and gets it when the operation takes the message: then it covers earlier operations too.
    pub is_asked: bool,
}

impl IncomingMessage {
    fn is(&self, from: Rank, name: &TransferName) -> bool {
        self.from == from && self.header.name == *name
    }

    pub(super) fn is_complete(&self) -> bool {
        self.transfer.is_complete()
    }

    fn is_early(&self) -> bool {
        matches!(self.storage, MessageStorage::Parts(_))
    }

    /// The parts of a message whose operation has not begun.
    pub(super) fn parts(&self) -> &[KeptPart] {
        match &self.storage {
            MessageStorage::Parts(parts) => parts,
            MessageStorage::Whole(_) => &[],
        }
    }

    fn early_bytes(&self) -> usize {
        self.parts().iter().map(|part| part.bytes.len()).sum()
    }

    /// All bytes; none if they were damaged in this process's memory.
    pub(super) fn assemble(self) -> Option<Vec<u8>> {
        match self.storage {
            MessageStorage::Whole(bytes) => Some(bytes),
            MessageStorage::Parts(parts) => assemble(&parts, self.header.length),
        }
    }

    /// Stores a part that is new; false if it is not intact.
    fn store(&mut self, offset: u32, payload_mac: u64, part: UnverifiedPart<'_>) -> bool {
        match &mut self.storage {
            MessageStorage::Whole(bytes) => part.copy_to(&mut bytes[offset as usize..][..part.len()]),
            MessageStorage::Parts(parts) => part.verify().is_some_and(|bytes| {
                let (verifier, bytes) = (part.verifier().clone(), bytes.to_vec());
                parts.push(KeptPart { offset, payload_mac, verifier, bytes });
                true
            }),
        }
    }
}

/// A message from its parts, as far as they are here; none if they were damaged in this process's memory.
fn assemble(parts: &[KeptPart], length: u32) -> Option<Vec<u8>> {
    let mut whole = vec![0; length as usize];
    let is_intact = parts.iter().all(|part| {
        let target = &mut whole[part.offset as usize..][..part.bytes.len()];
        part.unverified().copy_to(target)
    });
    is_intact.then_some(whole)
}

#[derive(Default)]
pub(super) struct IncomingMessages {
    messages: Vec<IncomingMessage>,
    /// Bytes of operations that have not begun.
    early_bytes: usize,
}

impl IncomingMessages {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Keeps a part of a message.
    pub(super) fn keep(
        &mut self,
        (from, path): (Rank, PathId),
        header: &TransferHeader,
        message_use: MessageUse,
        part: UnverifiedPart<'_>,
    ) -> KeepOutcome {
        let TransferPacketKind::Data { offset, acknowledge_now, probe } = header.kind else {
            return KeepOutcome::Dropped;
        };
        let bytes = part.len() as u32;
        if !self.has_room(header, offset, part.len(), message_use) {
            if probe != 0 && message_use == MessageUse::Early && self.messages.len() < MAX_EARLY_MESSAGES {
                // A sender that has waited for a while must hear that this process lives, or it takes it for lost.
                self.message((from, path), header, message_use).transfer.acknowledge_again();
            }
            return KeepOutcome::Dropped;
        }
        let message = self.message((from, path), header, message_use);
        if message.header.length != header.length || message.header.fingerprint != header.fingerprint {
            return KeepOutcome::Dropped; // The first one counts; when the operation begins, it shows whether it fits.
        }
        message.path = path;
        let is_new = message.transfer.classify(offset, bytes) == PartArrival::New;
        let is_intact =
            if is_new { message.store(offset, header.payload_mac, part) } else { part.verify().is_some() };
        if !is_intact {
            return KeepOutcome::Damaged;
        }
        let early = if is_new && message.is_early() { part.len() } else { 0 };
        message.is_asked |= acknowledge_now;
        // A sender that has waited for a while must hear at once that this process lives, and so must the sender of a long message.
        let is_urgent = probe != 0 || header.length > IMPLICIT_ACK_BYTES;
        let _ = message.transfer.note_arrival(offset, bytes, acknowledge_now && is_urgent, probe);
        self.early_bytes += early;
        KeepOutcome::Kept
    }

    /// The message of a part, perhaps its first.
    fn message(
        &mut self,
        (from, path): (Rank, PathId),
        header: &TransferHeader,
        message_use: MessageUse,
    ) -> &mut IncomingMessage {
        let known = self.messages.iter().position(|message| message.is(from, &header.name));
        let place = known.unwrap_or_else(|| {
            let transfer = BulkReceiver::new(header.length, 1, UNSOLICITED_BYTES);
            let storage = match message_use {
                MessageUse::Early => MessageStorage::Parts(Vec::new()),
                MessageUse::Running { .. } => MessageStorage::Whole(vec![0; header.length as usize]),
            };
            let (header, is_asked) = (*header, false);
            self.messages.push(IncomingMessage { from, path, header, transfer, storage, is_asked });
            self.messages.len() - 1
        });
        &mut self.messages[place]
    }

    fn has_room(&self, header: &TransferHeader, offset: u32, bytes: usize, message_use: MessageUse) -> bool {
        match message_use {
            MessageUse::Early => {
                let has_space =
                    self.messages.len() < MAX_EARLY_MESSAGES && self.early_bytes + bytes <= MAX_EARLY_BYTES;
                has_space && offset < UNSOLICITED_BYTES
            }
            // Its schedule bounds it. Messages of later operations must not keep it out: they wait for this one.
            MessageUse::Running { max_bytes } => header.length <= max_bytes,
        }
    }

    /// Takes the messages that fit, in the order of arrival.
    pub(super) fn take(&mut self, fits: impl Fn(&IncomingMessage) -> bool) -> Vec<IncomingMessage> {
        if !self.messages.iter().any(&fits) {
            return Vec::new();
        }
        let (taken, left) = std::mem::take(&mut self.messages).into_iter().partition(|message| fits(message));
        self.messages = left;
        self.count_early_bytes();
        taken
    }

    /// True if a message of an operation has another fingerprint: the ranks called different operations.
    pub(super) fn contradicts(&self, (group, operation): StreamKey, fingerprint: u32) -> bool {
        self.messages.iter().any(|IncomingMessage { header, .. }| {
            (header.name.group, header.name.operation) == (group, operation) && header.fingerprint != fingerprint
        })
    }

    /// An operation whose schedule takes whole messages runs from now on: their senders may send all of it. Returns those that were
    /// damaged in this process's memory.
    pub(super) fn note_running(&mut self, key: StreamKey) -> Vec<IncomingMessage> {
        let is_of_operation = |message: &IncomingMessage| {
            let name = message.header.name;
            (name.group, name.operation) == key
        };
        for message in self.messages.iter_mut().filter(|message| is_of_operation(message)) {
            if let Some(bytes) = assemble(message.parts(), message.header.length) {
                message.storage = MessageStorage::Whole(bytes);
                message.transfer.grant_more();
            }
        }
        self.count_early_bytes();
        self.take(|message| is_of_operation(message) && message.is_early())
    }

    fn count_early_bytes(&mut self) {
        self.early_bytes = self.messages.iter().map(IncomingMessage::early_bytes).sum();
    }

    /// What the senders should hear (P-88). Before an operation begins, nothing beyond [`UNSOLICITED_BYTES`] is granted.
    pub(super) fn take_acknowledgements(&mut self, mut tell: impl FnMut(&IncomingMessage, TransferAcknowledgement)) {
        for message in &mut self.messages {
            if message.transfer.owes_acknowledgement() {
                let mut acknowledgement = message.transfer.acknowledge();
                if message.is_early() {
                    acknowledgement.limit = acknowledgement.limit.min(UNSOLICITED_BYTES);
                }
                tell(message, acknowledgement);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{Epoch, GroupId, OpId, QpNumber};

    const LENGTH: u32 = 3_000;

    fn verifier() -> Arc<KeyedMacs> {
        static VERIFIER: std::sync::OnceLock<Arc<KeyedMacs>> = std::sync::OnceLock::new();
        VERIFIER.get_or_init(|| Arc::new(KeyedMacs::new(manager::AuthKey([7; 16])))).clone()
    }

    fn header(offset: u32, operation: u32, bytes: &[u8]) -> TransferHeader {
        let name = TransferName { group: GroupId(1), epoch: Epoch(0), operation: OpId(operation), round: 0 };
        let payload_mac = verifier().payload(bytes);
        let kind = TransferPacketKind::Data { offset, acknowledge_now: false, probe: 0 };
        let (destination, unfinished) = (QpNumber(0), OpId(0));
        TransferHeader { destination, name, fingerprint: 7, length: LENGTH, unfinished, kind, payload_mac }
    }

    fn keep(messages: &mut IncomingMessages, operation: u32, offset: u32, bytes: &[u8]) -> KeepOutcome {
        keep_header(messages, &header(offset, operation, bytes), bytes)
    }

    fn keep_header(messages: &mut IncomingMessages, header: &TransferHeader, bytes: &[u8]) -> KeepOutcome {
        let verifier = verifier();
        let part = UnverifiedPart::new(bytes, header.payload_mac, &verifier);
        messages.keep((Rank(3), PathId(0)), header, MessageUse::Early, part)
    }

    /// Regression: senders whose bytes found no room were not answered, and took a rank that entered an operation late for lost.
    #[test]
    fn a_sender_without_room_hears_that_this_process_lives() {
        let mut messages = IncomingMessages::default();
        let whole = vec![1; LENGTH as usize];
        (0..10_000).for_each(|op| {
            keep(&mut messages, op, 0, &whole);
        });
        messages.take_acknowledgements(|_, _| ());
        let answers = |messages: &mut IncomingMessages| {
            let mut answers = Vec::new();
            messages.take_acknowledgements(|message, answer| answers.push((message.header.name.operation, answer)));
            answers
        };
        for (probe, wanted) in [(0, 0), (3, 1)] {
            let kind = TransferPacketKind::Data { offset: 0, acknowledge_now: true, probe };
            let late = TransferHeader { kind, ..header(0, 20_000, &whole) };
            assert_eq!(keep_header(&mut messages, &late, &whole), KeepOutcome::Dropped);
            let answers = answers(&mut messages);
            assert_eq!(answers.len(), wanted, "probe {probe}");
            // It does not say that anything has arrived, nor that what was sent before the probe is lost.
            assert!(answers.iter().all(|(op, answer)| {
                *op == OpId(20_000) && answer.received == 0 && answer.missing.is_empty() && answer.probe != probe
            }));
        }
    }

    #[test]
    fn a_message_is_assembled_from_parts_in_any_order() {
        let whole: Vec<u8> = (0..LENGTH).map(|index| index as u8).collect();
        let mut messages = IncomingMessages::default();
        for offset in [2_000, 0, 2_000, 1_000] {
            let part = &whole[offset as usize..][..1_000];
            assert_eq!(keep(&mut messages, 5, offset, part), KeepOutcome::Kept);
        }
        let mut taken = messages.take(IncomingMessage::is_complete);
        assert_eq!(taken.pop().and_then(IncomingMessage::assemble), Some(whole));
        assert!(taken.is_empty() && messages.is_empty());
    }

    #[test]
    fn damage_in_memory_is_found() {
        let mut messages = IncomingMessages::default();
        let whole = vec![1; LENGTH as usize];
        assert_eq!(keep(&mut messages, 5, 0, &whole), KeepOutcome::Kept);
        let MessageStorage::Parts(parts) = &mut messages.messages[0].storage else {
            unreachable!("it has not begun")
        };
        parts[0].bytes[17] ^= 4;
        assert_eq!(messages.note_running((GroupId(1), OpId(5))).len(), 1);
        assert!(messages.is_empty());
    }

    #[test]
    fn what_is_kept_before_an_operation_begins_is_bounded() {
        let mut messages = IncomingMessages::default();
        let whole = vec![1; LENGTH as usize];
        let kept = (0..10_000).filter(|op| keep(&mut messages, *op, 0, &whole) == KeepOutcome::Kept).count();
        assert_eq!(kept, MAX_EARLY_BYTES / LENGTH as usize);
        // An operation that begins does not count any more.
        assert!(messages.note_running((GroupId(1), OpId(0))).is_empty());
        assert_eq!(keep(&mut messages, 20_000, 0, &whole), KeepOutcome::Kept);
        assert_eq!(keep(&mut messages, 20_001, 0, &whole), KeepOutcome::Dropped);
    }
}
