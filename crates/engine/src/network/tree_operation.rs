//! An operation between hosts, and the pieces in which it goes through a tree.

use std::fmt;
use std::ops::Range;

use protocol::aggregation::{Contribution, ContributionRole, OperationMode, PollRole, ResultDisposition};
use protocol::collective::{CollectiveAlgorithm, CollectiveOperation};
use protocol::{BufferPool, Payload};
use reduce::{ElementType, Operator, ReductionKind};
use units::{OpId, Rank, SegmentIndex};
use wire::aggregation::{ElementCode, OperatorCode};

/// Names an operation of this process until its result has been taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OperationHandle(pub(super) u64);

/// Why an operation did not come to its end. Every rank of the group gets an error too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaderNetworkError {
    /// The ranks do not call the same operation with the same arguments.
    Disagree,
    /// A rank of the job is lost.
    RankLost(Rank),
    /// The operation is longer than any that is carried.
    TooLong,
    /// A message told of something that cannot be: a peer is broken, or of another version.
    Confused,
}

impl fmt::Display for LeaderNetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disagree => f.write_str("the ranks do not call the same operation with the same type and length"),
            Self::RankLost(rank) => write!(f, "{rank} is lost"),
            Self::TooLong => f.write_str("the vector is longer than 1 GiB"),
            Self::Confused => f.write_str("a message makes no sense: do all ranks run the same version?"),
        }
    }
}

impl std::error::Error for LeaderNetworkError {}

/// An operation that goes through the tree, or that went there until the tree broke.
#[derive(Debug)]
pub(super) struct TreeOperation {
    /// None for a census, which nobody asked for.
    pub ticket: Option<OperationHandle>,
    pub collective: CollectiveOperation,
    pub way: TreeMethod,
    pub data: Vec<u8>,
    /// Bytes of all pieces but the last: whole elements.
    piece_bytes: usize,
    /// Pieces in all, given to the tree, and done.
    pub pieces: u32,
    pub issued: u32,
    pub finished: u32,
    /// The number of the first piece, once it has one.
    pub first: OpId,
}

/// How an operation goes through a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TreeMethod {
    /// Everyone contributes, the nodes fold.
    Folded,
    /// Broadcasts are cast and barriers tested (P-94, P-97).
    Multicast,
}

/// What a piece was, for whoever must play it without the tree.
#[derive(Clone, Debug)]
pub(super) struct ReplayFragment {
    pub op: OpId,
    pub collective: CollectiveOperation,
    /// Our own part of it; absent where we had none.
    pub payload: Payload,
}

impl TreeOperation {
    pub(super) fn new(
        ticket: Option<OperationHandle>,
        way: TreeMethod,
        collective: CollectiveOperation,
        data: Vec<u8>,
        segment_bytes: u32,
    ) -> Self {
        let element = collective.kind().map_or(1, |kind| kind.element_size());
        let piece_bytes = (segment_bytes as usize / element).max(1) * element;
        let pieces = data.len().div_ceil(piece_bytes).max(1) as u32;
        Self { ticket, collective, way, data, piece_bytes, pieces, issued: 0, finished: 0, first: OpId(0) }
    }

    /// A barrier that no user asked for: when it is over, everyone has every cast before it (P-95).
    pub(super) fn census() -> Self {
        Self::new(None, TreeMethod::Folded, CollectiveOperation::Barrier, Vec::new(), 1)
    }

    /// How its next piece goes, if members can cast.
    pub(super) fn manner(&self, me: Rank) -> OperationMode {
        match (self.way, self.collective) {
            (TreeMethod::Multicast, CollectiveOperation::Broadcast { .. }) => OperationMode::Cast,
            (TreeMethod::Multicast, CollectiveOperation::Barrier) if me == Rank(0) => {
                OperationMode::Tested(PollRole::Asks)
            }
            (TreeMethod::Multicast, CollectiveOperation::Barrier) => OperationMode::Tested(PollRole::Answers),
            _ => OperationMode::Folded,
        }
    }

    fn range(&self, piece: u32) -> Range<usize> {
        let start = piece as usize * self.piece_bytes;
        start..(start + self.piece_bytes).min(self.data.len())
    }

    /// The number of an operation's piece, if it is one of this operation's that has been issued.
    pub(super) fn piece_of(&self, op: OpId) -> Option<u32> {
        let piece = op.0.wrapping_sub(self.first.0);
        (piece < self.issued).then_some(piece)
    }

    /// What this leader gives to the next piece.
    pub(super) fn contribution(&self, me: Rank, shelf: &mut BufferPool) -> (Contribution, ReplayFragment) {
        let piece = self.issued;
        let bytes = &self.data[self.range(piece)];
        let (kind, voice) = match self.collective {
            CollectiveOperation::Broadcast { root } if root == me => (opaque_bytes(), ContributionRole::Sole),
            CollectiveOperation::Broadcast { .. } => (opaque_bytes(), ContributionRole::Silent),
            CollectiveOperation::Barrier => (opaque_bytes(), ContributionRole::Plain),
            CollectiveOperation::Reduce { kind, .. } | CollectiveOperation::AllReduce { kind } => {
                (kind, ContributionRole::Plain)
            }
        };
        let payload =
            if voice == ContributionRole::Silent { Payload::EMPTY } else { Payload::Bytes(shelf.copy(bytes)) };
        let contribution = Contribution {
            element: ElementCode(kind.element().code()),
            operator: OperatorCode(kind.operator().code()),
            element_count: if voice == ContributionRole::Silent {
                0
            } else {
                (bytes.len() / kind.element_size()) as u16
            },
            voice,
            wish: self.wish(me),
            segment: self.fingerprint(piece),
            payload: payload.clone(),
        };
        let kept = match voice {
            ContributionRole::Silent => Payload::Absent { bytes: bytes.len() as u32 },
            ContributionRole::Plain | ContributionRole::Sole => payload,
        };
        (
            contribution,
            ReplayFragment { op: OpId(self.first.0.wrapping_add(piece)), collective: self.played(), payload: kept },
        )
    }

    /// Only who needs the result gets its bytes: the root of a reduce, and everyone but the root of a broadcast.
    fn wish(&self, me: Rank) -> ResultDisposition {
        match self.collective {
            CollectiveOperation::Broadcast { root } if root == me => ResultDisposition::End,
            CollectiveOperation::Reduce { root, .. } if root != me => ResultDisposition::End,
            _ => ResultDisposition::Result,
        }
    }

    /// Hosts alone give everyone what a tree folds: there a reduce is an allreduce that the others forget (SH-4).
    fn played(&self) -> CollectiveOperation {
        match self.collective {
            CollectiveOperation::Reduce { kind, .. } => CollectiveOperation::AllReduce { kind },
            other => other,
        }
    }

    /// Notes the result of a piece; false if it has not the length that was asked for.
    pub(super) fn finish(&mut self, me: Rank, piece: u32, result: &Payload) -> bool {
        let range = self.range(piece);
        let result = result.bytes().unwrap_or_default();
        self.finished += 1;
        if self.wish(me) == ResultDisposition::End {
            return true; // It is over; what a broadcast's root has it knows.
        }
        let fits = result.len() == range.len();
        if fits {
            self.data[range].copy_from_slice(result);
        }
        fits
    }

    /// What all members must agree on beside what a node sees of a piece: two operations of which a piece is alike are not
    /// the same.
    fn fingerprint(&self, piece: u32) -> SegmentIndex {
        let (code, root) = match (self.collective, self.way) {
            (CollectiveOperation::Barrier, TreeMethod::Folded) if self.ticket.is_none() => (4_u8, 0),
            (CollectiveOperation::Barrier, TreeMethod::Folded) => (0, 0),
            (CollectiveOperation::Barrier, TreeMethod::Multicast) => (5, 0),
            (CollectiveOperation::Broadcast { root }, _) => (1, root.0),
            (CollectiveOperation::Reduce { root, .. }, _) => (2, root.0),
            (CollectiveOperation::AllReduce { .. }, _) => (3, 0),
        };
        // Code, root, length and piece one behind the other, as words: what is at hand as numbers need not go through memory.
        let (length, [.., last]) = (self.data.len() as u64, piece.to_le_bytes());
        let words = [u64::from(code) | u64::from(root) << 8 | length << 40, length >> 24 | u64::from(piece) << 40];
        SegmentIndex(checksum::crc32c_words(words, &[last]))
    }
}

impl ReplayFragment {
    /// How the hosts play it among themselves with the same bits.
    pub(super) fn algorithm(&self) -> CollectiveAlgorithm {
        match self.collective {
            CollectiveOperation::Barrier => CollectiveAlgorithm::Dissemination { radix: 2 },
            CollectiveOperation::Broadcast { .. } => CollectiveAlgorithm::Tree { radix: 2 },
            CollectiveOperation::Reduce { .. } | CollectiveOperation::AllReduce { .. } => {
                CollectiveAlgorithm::OrderedTree
            }
        }
    }
}

/// The type under which bytes travel that nobody folds.
fn opaque_bytes() -> ReductionKind {
    ReductionKind::new(ElementType::U8, Operator::Or).expect("integers have bits")
}
