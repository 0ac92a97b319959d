//! The state of the present operation, and the state that lasts from one operation to the next.

use faults::RandomStream;
use protocol::Payload;
use protocol::aggregation::{AbortCause, AckBarrierCounter};
use units::{OpId, Rank, SimTime};

/// The present operation.
#[derive(Default)]
pub(super) struct OperationRun {
    /// The number of its first segment.
    pub(super) op: OpId,
    /// Its position among the operations.
    pub(super) index: OpId,
    pub(super) started: SimTime,
    pub(super) reduced: Option<SimTime>,
    /// Results of members: one for each segment.
    pub(super) completed: u64,
    pub(super) failed: u64,
    /// How many must complete or fail: one of each member and segment.
    pub(super) results: u64,
    /// Segments that each member has started; empty if the vector is one segment.
    pub(super) posted: Vec<u32>,
    /// Of these, the segments that have completed or failed.
    pub(super) finished: Vec<u32>,
    pub(super) last: SimTime,
    /// Events for the observer since the last call of it.
    pub(super) events: Vec<OperationEvent>,
}

impl OperationRun {
    /// Segments of a member in flight.
    pub(super) fn in_flight(&self, rank: Rank) -> u32 {
        self.posted[rank.index()] - self.finished[rank.index()]
    }
}

/// An event for the observer.
pub(super) enum OperationEvent {
    Started(Rank, OpId),
    Delivered(Rank, OpId, Payload),
    Failed(Rank, OpId, AbortCause),
}

/// The state that lasts from one operation to the next.
pub(super) struct OperationSequence {
    pub(super) next: OpId,
    /// Operations so far, without acknowledgement barriers.
    pub(super) operations: OpId,
    pub(super) run: OperationRun,
    /// Takes turns with the events of `run`.
    pub(super) spare_events: Vec<OperationEvent>,
    /// Counts multicast broadcasts, if there are any.
    pub(super) ack_barrier: Option<AckBarrierCounter>,
    /// Acknowledgement barriers so far: operations of the members that the observer does not see.
    pub(super) ack_barriers: u32,
    /// Why each member has left the group, if it has; empty if no member can leave.
    pub(super) left: Vec<Option<AbortCause>>,
    pub(super) lateness: RandomStream,
    /// An operation neither completed nor failed: a defect of the protocol, or an effect of the fault plan.
    pub(super) hung: bool,
}

impl OperationSequence {
    pub(super) fn new(ack_barrier: Option<AckBarrierCounter>, leavers: usize, seed: u64) -> Self {
        Self {
            next: OpId(0),
            operations: OpId(0),
            run: OperationRun::default(),
            spare_events: Vec::new(),
            ack_barrier,
            ack_barriers: 0,
            left: vec![None; leavers],
            lateness: RandomStream::new(seed, 0x1a7e),
            hung: false,
        }
    }

    pub(super) fn has_left(&self, rank: Rank) -> bool {
        self.left.get(rank.index()).is_some_and(Option::is_some)
    }
}
