//! What leaders of a group write to each other when no aggregation node is between them.
//!
//! A letter of any length goes as pieces over a connection; a piece is an aggregation message whose header names the letter:
//!
//! ```text
//! group      the communicator's context        epoch     the term: which of its streams of operations
//! operation  of that stream                    segment   which piece
//! flags      the subject                       count     the round, for a round's vector
//! detail     bytes of the whole letter
//! ```
//! The first four bytes of a letter are the fingerprint of what its writer believes to be doing.

use protocol::Payload;
use protocol::aggregation::AggregationMessage;
use units::{ChildIndex, Epoch, GroupId, OpId, SegmentIndex};
use wire::aggregation::{AggregationHeader, AggregationMessageKind, ElementCode, OperatorCode};

/// Longest letter: the vectors of one operation, and something for the rest.
pub(super) const MAX_MESSAGE_BYTES: u32 = (1 << 30) + 4096;
const FINGERPRINT_BYTES: usize = 4;

/// What a letter is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeaderMessageKind {
    /// A vector of one round of an algorithm.
    Round(u16),
    /// The writer leaves the tree; the operation is the first that it has no result of (P-62).
    Stand,
    /// The operation has failed for the writer: the ranks do not agree on what to do.
    Disagree,
}

/// A whole letter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LeaderMessage {
    pub context: GroupId,
    pub term: Epoch,
    pub op: OpId,
    pub subject: LeaderMessageKind,
    pub fingerprint: u32,
    pub payload: Payload,
}

impl LeaderMessageKind {
    fn code(self) -> (u8, u16) {
        match self {
            Self::Round(round) => (1, round),
            Self::Stand => (2, 0),
            Self::Disagree => (3, 0),
        }
    }

    fn from_code(code: u8, round: u16) -> Option<Self> {
        match code {
            1 => Some(Self::Round(round)),
            2 => Some(Self::Stand),
            3 => Some(Self::Disagree),
            _ => None,
        }
    }
}

impl LeaderMessage {
    /// The messages that carry it, each with at most so many bytes of payload.
    pub(super) fn pieces(&self, most: usize) -> impl Iterator<Item = AggregationMessage> + '_ {
        let body = self.payload.bytes().unwrap_or_default();
        let total = FINGERPRINT_BYTES + body.len();
        let (flags, round) = self.subject.code();
        let count = total.div_ceil(most.max(FINGERPRINT_BYTES));
        (0..count).map(move |piece| {
            let header = AggregationHeader {
                kind: AggregationMessageKind::Contribution,
                element: ElementCode(0),
                operator: OperatorCode(0),
                flags,
                group: self.context,
                epoch: self.term,
                operation: self.op,
                segment: SegmentIndex(piece as u32),
                child: ChildIndex(0),
                element_count: round,
                detail: total as u32,
            };
            let range = piece * most..((piece + 1) * most).min(total);
            let payload = if piece == 0 {
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

/// A letter of which some pieces have come. A connection keeps their order.
#[derive(Debug)]
pub(super) struct PartialLeaderMessage {
    header: AggregationHeader,
    bytes: Vec<u8>,
}

/// What a piece made of the letters that were being read.
#[derive(Debug)]
pub(super) enum ReassemblyResult {
    More(PartialLeaderMessage),
    Whole(LeaderMessage),
    /// The piece makes no sense after the last one.
    Nonsense,
}

impl PartialLeaderMessage {
    /// Reads the next piece from a peer.
    pub(super) fn read(earlier: Option<Self>, message: &AggregationMessage) -> ReassemblyResult {
        let (header, body) = (message.header, message.payload.bytes().unwrap_or_default());
        let mut partial = match earlier {
            None if header.segment.0 == 0
                && header.detail <= MAX_MESSAGE_BYTES
                && body.len() >= FINGERPRINT_BYTES =>
            {
                Self { header, bytes: Vec::with_capacity((header.detail as usize).min(1 << 20)) }
            }
            Some(earlier) if earlier.goes_on_with(&header) => earlier,
            _ => return ReassemblyResult::Nonsense,
        };
        partial.header.segment = header.segment;
        partial.bytes.extend_from_slice(body);
        let total = partial.header.detail as usize;
        if partial.bytes.len() < total && !body.is_empty() {
            return ReassemblyResult::More(partial);
        }
        match LeaderMessageKind::from_code(header.flags, header.element_count) {
            Some(subject) if partial.bytes.len() == total => ReassemblyResult::Whole(partial.finish(subject)),
            _ => ReassemblyResult::Nonsense,
        }
    }

    fn goes_on_with(&self, header: &AggregationHeader) -> bool {
        let next = AggregationHeader { segment: SegmentIndex(self.header.segment.0 + 1), ..self.header };
        next == *header
    }

    fn finish(self, subject: LeaderMessageKind) -> LeaderMessage {
        let AggregationHeader { group: context, epoch: term, operation: op, .. } = self.header;
        let (fingerprint, body) =
            self.bytes.split_first_chunk::<FINGERPRINT_BYTES>().expect("the first piece had it");
        let payload = Payload::Bytes(body.into());
        LeaderMessage { context, term, op, subject, fingerprint: u32::from_le_bytes(*fingerprint), payload }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(bytes: usize) -> LeaderMessage {
        LeaderMessage {
            context: GroupId(7),
            term: Epoch(2),
            op: OpId(40),
            subject: LeaderMessageKind::Round(9),
            fingerprint: 0xdead_beef,
            payload: Payload::Bytes((0..bytes).map(|byte| byte as u8).collect()),
        }
    }

    #[test]
    fn letters_are_read_as_they_were_written() {
        for (bytes, most) in [(0, 64), (1, 64), (59, 64), (60, 64), (61, 64), (5_000, 64), (124, 64), (3, 4)] {
            let written = letter(bytes);
            let mut partial = None;
            let mut read = None;
            let pieces: Vec<AggregationMessage> = written.pieces(most).collect();
            assert!(pieces.iter().all(|piece| piece.payload.len() as usize <= most));
            for piece in &pieces {
                match PartialLeaderMessage::read(partial.take(), piece) {
                    ReassemblyResult::More(more) => partial = Some(more),
                    ReassemblyResult::Whole(letter) => read = Some(letter),
                    ReassemblyResult::Nonsense => panic!("{bytes} bytes in pieces of {most}"),
                }
            }
            assert_eq!(read, Some(written), "{bytes} bytes in pieces of {most}");
        }
    }

    #[test]
    fn pieces_that_do_not_go_together_are_nonsense() {
        let pieces: Vec<AggregationMessage> = letter(200).pieces(64).collect();
        assert!(matches!(PartialLeaderMessage::read(None, &pieces[1]), ReassemblyResult::Nonsense));
        let ReassemblyResult::More(first) = PartialLeaderMessage::read(None, &pieces[0]) else {
            panic!("there is more")
        };
        assert!(matches!(PartialLeaderMessage::read(Some(first), &pieces[2]), ReassemblyResult::Nonsense));
        let mut huge = pieces[0].clone();
        huge.header.detail = u32::MAX;
        assert!(matches!(PartialLeaderMessage::read(None, &huge), ReassemblyResult::Nonsense));
        let mut strange = letter(0).pieces(64).next().expect("a piece");
        strange.header.flags = 77;
        assert!(matches!(PartialLeaderMessage::read(None, &strange), ReassemblyResult::Nonsense));
    }
}
