//! An operation between hosts, and the fragments in which it goes through a tree.

use std::fmt;
use std::ops::Range;

use protocol::aggregation::{Contribution, ContributionRole, OperationMode, PollRole, ResultDisposition};
use protocol::collective::{CollectiveAlgorithm, CollectiveOperation};
use protocol::{BufferPool, Payload};
use reduce::{ElementType, Operator, ReductionKind};
use units::{OpId, Rank, SegmentIndex, Span};
use wire::aggregation::{ElementCode, OperatorCode};

/// Identifies an operation of this process until its result is taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OperationHandle(pub(super) u64);

/// Why an operation failed. Every rank of the group gets an error too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaderNetworkError {
    /// The ranks called different operations, or with different arguments.
    Mismatch,
    /// A rank of the job is lost.
    RankLost(Rank),
    /// Packets to a rank are not answered.
    Silent {
        /// The rank.
        rank: Rank,
        /// For how long it has not answered.
        silence: Span,
    },
    /// The vector exceeds the limit.
    TooLong,
    /// A malformed message: a peer is faulty, or of another version.
    ProtocolError,
    /// A message that arrived intact was damaged in the memory of this process.
    Corrupted,
}

impl fmt::Display for LeaderNetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch => f.write_str("the ranks did not call the same operation with the same type and length"),
            Self::RankLost(rank) => write!(f, "{rank} is lost"),
            Self::Silent { rank, silence } => {
                write!(f, "{rank} does not answer for {:.1} s", silence.as_nanos_f64() / 1e9)
            }
            Self::TooLong => f.write_str("the vector is longer than 1 GiB"),
            Self::ProtocolError => {
                f.write_str("malformed message from another rank; do all ranks run the same version?")
            }
            Self::Corrupted => f.write_str(
                "a message that arrived intact was damaged in this process's memory; test this host's memory",
            ),
        }
    }
}

impl std::error::Error for LeaderNetworkError {}

/// An operation that goes through the tree, or did so until the tree failed.
#[derive(Debug)]
pub(super) struct TreeOperation {
    /// None for an acknowledgement barrier, which no user started.
    pub handle: Option<OperationHandle>,
    pub collective: CollectiveOperation,
    pub method: TreeMethod,
    pub data: Vec<u8>,
    /// Bytes of every fragment but the last: whole elements.
    fragment_bytes: usize,
    /// Fragments in total, issued to the tree, and finished.
    pub fragments: u32,
    pub issued: u32,
    pub finished: u32,
    /// The number of the first fragment, once it is issued.
    pub first: OpId,
}

/// How an operation goes through a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TreeMethod {
    /// All leaders contribute, the nodes fold.
    Folded,
    /// Broadcasts are multicast and barriers polled (P-50, P-53).
    Multicast,
}

/// What is needed to replay a fragment without the tree.
#[derive(Clone, Debug)]
pub(super) struct ReplayFragment {
    pub op: OpId,
    pub collective: CollectiveOperation,
    /// This leader's contribution; size only if it had none.
    pub payload: Payload,
}

impl TreeOperation {
    pub(super) fn new(
        handle: Option<OperationHandle>,
        method: TreeMethod,
        collective: CollectiveOperation,
        data: Vec<u8>,
        segment_bytes: u32,
    ) -> Self {
        let element = collective.kind().map_or(1, |kind| kind.element_size());
        let fragment_bytes = (segment_bytes as usize / element).max(1) * element;
        let fragments = data.len().div_ceil(fragment_bytes).max(1) as u32;
        Self { handle, collective, method, data, fragment_bytes, fragments, issued: 0, finished: 0, first: OpId(0) }
    }

    /// A barrier without a user: when it is over, every leader has every multicast before it (P-51).
    pub(super) fn ack_barrier() -> Self {
        Self::new(None, TreeMethod::Folded, CollectiveOperation::Barrier, Vec::new(), 1)
    }

    /// The mode of its next fragment, if members can multicast.
    pub(super) fn mode(&self, me: Rank) -> OperationMode {
        match (self.method, self.collective) {
            (TreeMethod::Multicast, CollectiveOperation::Broadcast { .. }) => OperationMode::Multicast,
            (TreeMethod::Multicast, CollectiveOperation::Barrier) if me == Rank(0) => {
                OperationMode::Polled(PollRole::Poller)
            }
            (TreeMethod::Multicast, CollectiveOperation::Barrier) => OperationMode::Polled(PollRole::Responder),
            _ => OperationMode::Aggregated,
        }
    }

    fn range(&self, fragment: u32) -> Range<usize> {
        let start = fragment as usize * self.fragment_bytes;
        start..(start + self.fragment_bytes).min(self.data.len())
    }

    /// The index of a fragment, if it is an issued one of this operation.
    pub(super) fn fragment_of(&self, op: OpId) -> Option<u32> {
        let fragment = op.0.wrapping_sub(self.first.0);
        (fragment < self.issued).then_some(fragment)
    }

    /// The contribution of this leader to the next fragment.
    pub(super) fn contribution(&self, me: Rank, pool: &mut BufferPool) -> (Contribution, ReplayFragment) {
        let fragment = self.issued;
        let bytes = &self.data[self.range(fragment)];
        let (kind, role) = match self.collective {
            CollectiveOperation::Broadcast { root } if root == me => (opaque_bytes(), ContributionRole::Sole),
            CollectiveOperation::Broadcast { .. } => (opaque_bytes(), ContributionRole::ReceiveOnly),
            other => (other.kind().unwrap_or(opaque_bytes()), ContributionRole::Operand),
        };
        let payload =
            if role == ContributionRole::ReceiveOnly { Payload::EMPTY } else { Payload::Bytes(pool.copy(bytes)) };
        let contribution = Contribution {
            element: ElementCode(kind.element().code()),
            operator: OperatorCode(kind.operator().code()),
            element_count: if role == ContributionRole::ReceiveOnly {
                0
            } else {
                (bytes.len() / kind.element_size()) as u16
            },
            role,
            disposition: self.disposition(me),
            segment: self.fingerprint(fragment),
            payload: payload.clone(),
        };
        let replay_fragment = match role {
            ContributionRole::ReceiveOnly => Payload::SizeOnly { bytes: bytes.len() as u32 },
            ContributionRole::Operand | ContributionRole::Sole => payload,
        };
        (
            contribution,
            ReplayFragment {
                op: OpId(self.first.0.wrapping_add(fragment)),
                collective: self.replayed(),
                payload: replay_fragment,
            },
        )
    }

    /// Only leaders that need the result get its bytes: the root of a reduce, and all but the root of a broadcast.
    fn disposition(&self, me: Rank) -> ResultDisposition {
        match self.collective {
            CollectiveOperation::Broadcast { root } if root == me => ResultDisposition::CompletionOnly,
            CollectiveOperation::Reduce { root, .. } if root != me => ResultDisposition::CompletionOnly,
            _ => ResultDisposition::Deliver,
        }
    }

    /// Without the tree, all leaders get the fold: a reduce becomes an allreduce whose result the others drop (SH-4).
    fn replayed(&self) -> CollectiveOperation {
        match self.collective {
            CollectiveOperation::Reduce { kind, .. } => CollectiveOperation::AllReduce { kind },
            other => other,
        }
    }

    /// Stores the result of a fragment; false if it has a wrong length.
    pub(super) fn finish(&mut self, me: Rank, fragment: u32, result: &Payload) -> bool {
        let range = self.range(fragment);
        let result = result.bytes().unwrap_or_default();
        self.finished += 1;
        if self.disposition(me) == ResultDisposition::CompletionOnly {
            return true; // Complete; the root of a broadcast has the data.
        }
        let fits = result.len() == range.len();
        if fits {
            self.data[range].copy_from_slice(result);
        }
        fits
    }

    /// What all members must agree on beyond what a node sees of a fragment: equal fragments may belong to different operations.
    fn fingerprint(&self, fragment: u32) -> SegmentIndex {
        let (code, root) = match (self.collective, self.method) {
            (CollectiveOperation::Barrier, TreeMethod::Folded) if self.handle.is_none() => (4_u8, 0),
            (CollectiveOperation::Barrier, TreeMethod::Folded) => (0, 0),
            (CollectiveOperation::Barrier, TreeMethod::Multicast) => (5, 0),
            (CollectiveOperation::Broadcast { root }, _) => (1, root.0),
            (CollectiveOperation::Reduce { root, .. }, _) => (2, root.0),
            // An allreduce: what nodes cannot do does not get here (`LeaderNetwork::start`).
            _ => (3, 0),
        };
        // Code, root, length and fragment as two words: values in registers need not go through memory.
        let (length, [.., last]) = (self.data.len() as u64, fragment.to_le_bytes());
        let words = [u64::from(code) | u64::from(root) << 8 | length << 40, length >> 24 | u64::from(fragment) << 40];
        SegmentIndex(checksum::crc32c_words(words, &[last]))
    }
}

impl ReplayFragment {
    /// The algorithm by which the hosts compute the same bits without the tree.
    pub(super) fn algorithm(&self) -> CollectiveAlgorithm {
        match self.collective {
            CollectiveOperation::Barrier => CollectiveAlgorithm::Dissemination { radix: 2 },
            CollectiveOperation::Broadcast { .. } => CollectiveAlgorithm::Tree { radix: 2 },
            _ => CollectiveAlgorithm::OrderedTree,
        }
    }
}

/// The kind of bytes that are not folded.
fn opaque_bytes() -> ReductionKind {
    ReductionKind::new(ElementType::U8, Operator::Or).expect("integers have bits")
}
