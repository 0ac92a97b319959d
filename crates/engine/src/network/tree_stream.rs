//! The operations of a group that go through one tree, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use manager::GroupDescriptor;
use protocol::BufferPool;
use protocol::aggregation::AckBarrierCounter;
use protocol::collective::FoldOrder;
use units::{Epoch, OpId};

use super::tree_operation::{ReplayFragment, TreeOperation};
use crate::aggregation::Membership;

/// The operations of a group that go through a tree, or did so until the tree failed.
pub(super) struct TreeStream {
    pub opened: GroupDescriptor,
    /// The term of the stream: all leaders count the trees of the group alike.
    pub term: Epoch,
    pub order: Arc<FoldOrder>,
    pub state: TreeState,
    /// The number of the next fragment.
    pub next: OpId,
    /// Fragments without a result, in the order of their numbers.
    pub unfinished: VecDeque<OpId>,
    /// The last fragments, finished or not: a leader with the result of `m` may be asked for `m - window + 1` (P-59).
    pub replay_log: VecDeque<ReplayFragment>,
    /// Buffers for their payload.
    pub pool: BufferPool,
    pub operations: VecDeque<TreeOperation>,
    /// When an acknowledgement barrier is due; none if leaders cannot multicast.
    pub ack_barrier: Option<AckBarrierCounter>,
}

pub(super) enum TreeState {
    Healthy(Box<Membership>),
    /// The tree has failed; the leaders exchange their positions.
    FallingBack {
        positions: Vec<Option<OpId>>,
    },
    /// The hosts run the operations of the tree.
    FallenBack,
}

impl TreeStream {
    /// The number after the last fragment of the operation in progress, which is the same at all leaders that are in it.
    pub(super) fn end_of_current_operation(&self) -> OpId {
        let mut operations = self.operations.iter();
        match operations.find(|operation| operation.issued < operation.fragments) {
            Some(operation) if operation.issued > 0 => OpId(operation.first.0.wrapping_add(operation.fragments)),
            _ => self.next,
        }
    }
}
