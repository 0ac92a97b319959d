//! What leaders of a group send to each other without an aggregation node in between.
//!
//! A message of any length is sent as fragments over a connection. A fragment is an aggregation message whose header names the
//! leader message:
//!
//! ```text
//! group      the communicator's context        epoch     the term: which of its operation streams
//! operation  of that stream                    segment   which fragment
//! flags      the kind of message               count     the round, for a round's vector
//! detail     bytes of the whole message
//! ```
//! The first four bytes of a message are the fingerprint of the operation that its sender runs.

use protocol::Payload;
use protocol::aggregation::AggregationMessage;
use units::{ChildIndex, Epoch, GroupId, OpId, SegmentIndex};
use wire::aggregation::{AggregationHeader, AggregationMessageKind, ElementCode, OperatorCode};

/// The longest message: the vectors of one operation, and some overhead.
pub(super) const MAX_MESSAGE_BYTES: u32 = (1 << 30) + 4096;
const FINGERPRINT_BYTES: usize = 4;

/// The kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeaderMessageKind {
    /// A vector of one round of an algorithm.
    Round(u16),
    /// The sender leaves the tree; the operation is the first one whose result it lacks (P-59).
    FallbackPosition,
    /// The operation has failed at the sender: the ranks called different operations.
    Mismatch,
    /// The first leader has another tree for the group; the payload describes it, encrypted (P-111).
    TreeOffer,
    /// To the first leader: the sender can use the offered tree, from this operation on.
    SwitchAccept,
    /// To the first leader: the sender cannot use the offered tree.
    SwitchReject,
    /// From the first leader: all use the offered tree from this operation on (P-112).
    SwitchCommit,
    /// From the first leader: nobody uses the offered tree.
    SwitchAbort,
}

/// A whole message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LeaderMessage {
    pub context: GroupId,
    pub term: Epoch,
    pub op: OpId,
    pub kind: LeaderMessageKind,
    pub fingerprint: u32,
    pub payload: Payload,
}

impl LeaderMessageKind {
    fn code(self) -> (u8, u16) {
        match self {
            Self::Round(round) => (1, round),
            Self::FallbackPosition => (2, 0),
            Self::Mismatch => (3, 0),
            Self::TreeOffer => (4, 0),
            Self::SwitchAccept => (5, 0),
            Self::SwitchReject => (6, 0),
            Self::SwitchCommit => (7, 0),
            Self::SwitchAbort => (8, 0),
        }
    }

    fn from_code(code: u8, round: u16) -> Option<Self> {
        match code {
            1 => Some(Self::Round(round)),
            2 => Some(Self::FallbackPosition),
            3 => Some(Self::Mismatch),
            4 => Some(Self::TreeOffer),
            5 => Some(Self::SwitchAccept),
            6 => Some(Self::SwitchReject),
            7 => Some(Self::SwitchCommit),
            8 => Some(Self::SwitchAbort),
            _ => None,
        }
    }
}

impl LeaderMessage {
    /// The fragments of the message, each with at most `most` bytes of payload.
    pub(super) fn fragments(&self, most: usize) -> impl Iterator<Item = AggregationMessage> + '_ {
        let body = self.payload.bytes().unwrap_or_default();
        let total = FINGERPRINT_BYTES + body.len();
        let (flags, round) = self.kind.code();
        let count = total.div_ceil(most.max(FINGERPRINT_BYTES));
        (0..count).map(move |fragment| {
            let header = AggregationHeader {
                kind: AggregationMessageKind::Contribution,
                element: ElementCode(0),
                operator: OperatorCode(0),
                flags,
                group: self.context,
                epoch: self.term,
                operation: self.op,
                segment: SegmentIndex(fragment as u32),
                child: ChildIndex(0),
                element_count: round,
                detail: total as u32,
            };
            let range = fragment * most..((fragment + 1) * most).min(total);
            let payload = if fragment == 0 {
                let mut bytes = Vec::with_capacity(range.len());
                bytes.extend_from_slice(&self.fingerprint.to_le_bytes());
                bytes.extend_from_slice(&body[..range.end - FINGERPRINT_BYTES]);
                bytes
            } else {
                body[range.start - FINGERPRINT_BYTES..range.end - FINGERPRINT_BYTES].to_vec()
            };
            AggregationMessage::new(header, payload.into())
        })
    }
}

/// A message of which some fragments have arrived. The connection keeps their order.
#[derive(Debug)]
pub(super) struct PartialLeaderMessage {
    header: AggregationHeader,
    bytes: Vec<u8>,
}

/// The result of one more fragment.
#[derive(Debug)]
pub(super) enum ReassemblyResult {
    More(PartialLeaderMessage),
    Whole(LeaderMessage),
    /// The fragment does not continue the last one.
    Malformed,
}

impl PartialLeaderMessage {
    /// Appends the next fragment from a peer.
    pub(super) fn read(earlier: Option<Self>, message: &AggregationMessage) -> ReassemblyResult {
        let (header, body) = (message.header, message.payload.bytes().unwrap_or_default());
        let mut partial = match earlier {
            None if header.segment.0 == 0
                && header.detail <= MAX_MESSAGE_BYTES
                && body.len() >= FINGERPRINT_BYTES =>
            {
                Self { header, bytes: Vec::with_capacity((header.detail as usize).min(1 << 20)) }
            }
            Some(earlier) if earlier.continues_with(&header) => earlier,
            _ => return ReassemblyResult::Malformed,
        };
        partial.header.segment = header.segment;
        partial.bytes.extend_from_slice(body);
        let total = partial.header.detail as usize;
        if partial.bytes.len() < total && !body.is_empty() {
            return ReassemblyResult::More(partial);
        }
        match LeaderMessageKind::from_code(header.flags, header.element_count) {
            Some(kind) if partial.bytes.len() == total => ReassemblyResult::Whole(partial.finish(kind)),
            _ => ReassemblyResult::Malformed,
        }
    }

    fn continues_with(&self, header: &AggregationHeader) -> bool {
        let next = AggregationHeader { segment: SegmentIndex(self.header.segment.0 + 1), ..self.header };
        next == *header
    }

    fn finish(self, kind: LeaderMessageKind) -> LeaderMessage {
        let AggregationHeader { group: context, epoch: term, operation: op, .. } = self.header;
        let (fingerprint, body) =
            self.bytes.split_first_chunk::<FINGERPRINT_BYTES>().expect("the first fragment holds it");
        let payload = Payload::Bytes(body.into());
        LeaderMessage { context, term, op, kind, fingerprint: u32::from_le_bytes(*fingerprint), payload }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leader_message(bytes: usize) -> LeaderMessage {
        LeaderMessage {
            context: GroupId(7),
            term: Epoch(2),
            op: OpId(40),
            kind: LeaderMessageKind::Round(9),
            fingerprint: 0xdead_beef,
            payload: Payload::Bytes((0..bytes).map(|byte| byte as u8).collect()),
        }
    }

    #[test]
    fn messages_are_reassembled_as_they_were_sent() {
        for (bytes, most) in [(0, 64), (1, 64), (59, 64), (60, 64), (61, 64), (5_000, 64), (124, 64), (3, 4)] {
            let written = leader_message(bytes);
            let mut partial = None;
            let mut read = None;
            let fragments: Vec<AggregationMessage> = written.fragments(most).collect();
            assert!(fragments.iter().all(|fragment| fragment.payload.len() as usize <= most));
            for fragment in &fragments {
                match PartialLeaderMessage::read(partial.take(), fragment) {
                    ReassemblyResult::More(more) => partial = Some(more),
                    ReassemblyResult::Whole(leader_message) => read = Some(leader_message),
                    ReassemblyResult::Malformed => panic!("{bytes} bytes in fragments of {most}"),
                }
            }
            assert_eq!(read, Some(written), "{bytes} bytes in fragments of {most}");
        }
    }

    #[test]
    fn fragments_that_do_not_belong_together_are_malformed() {
        let fragments: Vec<AggregationMessage> = leader_message(200).fragments(64).collect();
        assert!(matches!(PartialLeaderMessage::read(None, &fragments[1]), ReassemblyResult::Malformed));
        let ReassemblyResult::More(first) = PartialLeaderMessage::read(None, &fragments[0]) else {
            panic!("more fragments follow")
        };
        assert!(matches!(PartialLeaderMessage::read(Some(first), &fragments[2]), ReassemblyResult::Malformed));
        let mut huge = fragments[0].clone();
        huge.header.detail = u32::MAX;
        assert!(matches!(PartialLeaderMessage::read(None, &huge), ReassemblyResult::Malformed));
        let mut malformed = leader_message(0).fragments(64).next().expect("a fragment");
        malformed.header.flags = 77;
        assert!(matches!(PartialLeaderMessage::read(None, &malformed), ReassemblyResult::Malformed));
    }
}
