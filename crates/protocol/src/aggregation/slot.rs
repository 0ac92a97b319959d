//! A slot holds one operation of a node: its contributions, then its result for children that missed it.
//!
//! In: contributions, in any order, perhaps twice. Out: one folded result, once. Rules: P-33 to P-40; claim SH-3.
//!
//! Slots form a ring: operation `n + window` reuses the slot of operation `n`. A member starts it only when it has
//! the result of `n`, so once all children have contributed to it, no child can request the old result any more.
//! Until then the slot keeps the old result next to the new collection (P-39).

use units::{ChildIndex, OpId, Span, Time};

use super::collection::{Collection, ContributionOutcome};
use super::{AbortCause, AggregationMessage, EdgeIndex};
use crate::Payload;

/// The pause between two requests to the missing children of an operation doubles at most this often.
const MAX_REQUEST_BACKOFF_SHIFT: u8 = 8;

/// How an operation relates to the slot's current one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Admission {
    Current,
    Past,
    OutOfWindow,
}

/// What is known about the operation of an empty slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlotHistory {
    /// Nothing: it may not have started.
    Unknown,
    /// The reliable connections have its result.
    Delivered,
}

/// The progress of an operation at this node.
#[derive(Debug)]
enum SlotState {
    /// No child has contributed.
    Vacant,
    Collecting(Collection),
    /// The fold was sent to the parents; the result has not arrived.
    Awaiting {
        sample: AggregationMessage,
    },
    /// The result, or the abort that replaces it.
    Done {
        result: AggregationMessage,
    },
    /// The result is on reliable connections to all children and no longer here.
    Delivered,
}

#[derive(Debug)]
pub(super) struct Slot {
    op: OpId,
    state: SlotState,
    /// When the first contribution came.
    first_at: Option<Time>,
    /// The result of the previous operation in this slot.
    earlier: Option<AggregationMessage>,
    /// Edges that requested the result before it was here.
    pub wanted_by: Vec<EdgeIndex>,
    /// When the reply to the last request is overdue.
    asked_until: Time,
    /// The same for the previous operation in this slot. It has a time of its own: neighbours that ask about the present operation again
    /// and again would otherwise keep the node from ever asking about the previous one.
    earlier_asked_until: Time,
    /// How often the missing children were asked about the present operation, up to [`MAX_REQUEST_BACKOFF_SHIFT`].
    child_requests: u8,
    /// The result was sent over the children's connections.
    delivered: bool,
    /// Children that need only the completion (P-49).
    completion_only: Vec<ChildIndex>,
    /// The children that had not entered at the last poll.
    late: Option<LateChildren>,
    /// A repair request for the member's multicast of this operation has arrived.
    multicast_requested: bool,
}

/// Children that answered a poll with "not entered" (P-53).
#[derive(Debug)]
struct LateChildren {
    poll: u32,
    children: Vec<ChildIndex>,
    reported: bool,
}

impl Slot {
    pub(super) fn new(op: OpId, past: SlotHistory) -> Self {
        let state = match past {
            SlotHistory::Unknown => SlotState::Vacant,
            SlotHistory::Delivered => SlotState::Delivered,
        };
        Self {
            op,
            state,
            first_at: None,
            earlier: None,
            wanted_by: Vec::new(),
            asked_until: Time::ZERO,
            earlier_asked_until: Time::ZERO,
            child_requests: 0,
            delivered: false,
            completion_only: Vec::new(),
            late: None,
            multicast_requested: false,
        }
    }

    /// Records a contribution, or the abort that replaces one.
    pub(super) fn contribute(
        &mut self,
        message: &AggregationMessage,
        child: ChildIndex,
        children: usize,
        window: u32,
    ) -> ContributionOutcome {
        match self.admit(message.op(), window) {
            Admission::Current => {}
            Admission::Past => return ContributionOutcome::Duplicate,
            Admission::OutOfWindow => return ContributionOutcome::OutOfWindow,
        }
        if matches!(self.state, SlotState::Vacant) {
            self.state = SlotState::Collecting(Collection::new(message.header, children));
        }
        let SlotState::Collecting(collection) = &mut self.state else {
            return ContributionOutcome::Duplicate;
        };
        collection.add(message, child)
    }

    /// When the first contribution came. The first call for an operation is that contribution.
    pub(super) fn note_contribution(&mut self, now: Time) -> Time {
        *self.first_at.get_or_insert(now)
    }

    /// The children that the operation waits for now.
    pub(super) fn awaited_children(&self) -> impl Iterator<Item = ChildIndex> + '_ {
        let collection = match &self.state {
            SlotState::Collecting(collection) => Some(collection),
            _ => None,
        };
        collection.into_iter().flat_map(Collection::missing_children)
    }

    /// When the first contribution came, if one did.
    pub(super) fn first_at(&self) -> Option<Time> {
        self.first_at
    }

    /// Classifies an operation; the next one of this slot takes it over. A message about the next one proves that the
    /// current one is over, whether or not its result has passed this node.
    fn admit(&mut self, op: OpId, window: u32) -> Admission {
        match op.steps_from(self.op) {
            0 => Admission::Current,
            steps if steps == window as i32 => {
                self.earlier = match std::mem::replace(&mut self.state, SlotState::Vacant) {
                    SlotState::Done { result } => Some(result),
                    _ => None,
                };
                self.op = op;
                self.first_at = None;
                self.wanted_by.clear();
                self.earlier_asked_until = std::mem::replace(&mut self.asked_until, Time::ZERO);
                self.child_requests = 0;
                self.delivered = false;
                self.completion_only.clear();
                self.late = None;
                self.multicast_requested = false;
                Admission::Current
            }
            steps if steps == -(window as i32) => Admission::Past,
            _ => Admission::OutOfWindow,
        }
    }

    /// Takes the slot over if the operation of a message without contribution is the next one.
    pub(super) fn advance_to(&mut self, op: OpId, window: u32) {
        self.admit(op, window);
    }

    /// Folds all contributions in child order (P-35). The slot then awaits the result.
    pub(super) fn fold(&mut self) -> AggregationMessage {
        let SlotState::Collecting(collection) = std::mem::replace(&mut self.state, SlotState::Vacant) else {
            unreachable!("only ContributionOutcome::Fold leads here")
        };
        self.earlier = None; // P-39: every child that contributed has it.
        let (folded, completion_only) = collection.fold();
        self.completion_only = completion_only;
        self.state = SlotState::Awaiting { sample: folded.clone() };
        folded
    }

    /// Records the result; false if it is a duplicate or belongs to another operation.
    pub(super) fn finish(&mut self, result: &AggregationMessage, window: u32) -> bool {
        if self.admit(result.op(), window) != Admission::Current || self.is_over() {
            return false;
        }
        self.state = SlotState::Done { result: result.clone() };
        true
    }

    /// True if the result has arrived.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, SlotState::Done { .. } | SlotState::Delivered)
    }

    /// True once, when the result is here and has not been sent over the children's connections.
    pub(super) fn take_delivery_turn(&mut self, op: OpId) -> bool {
        let due = self.op == op && matches!(self.state, SlotState::Done { .. }) && !self.delivered;
        self.delivered |= due;
        due
    }

    /// Removes the list of children that need only the completion.
    pub(super) fn take_completion_only(&mut self) -> Vec<ChildIndex> {
        std::mem::take(&mut self.completion_only)
    }

    /// The result of an operation, if this slot still has it.
    pub(super) fn result_of(&self, op: OpId) -> Option<&AggregationMessage> {
        match &self.state {
            SlotState::Done { result } if op == self.op => Some(result),
            _ => self.earlier.as_ref().filter(|earlier| earlier.op() == op),
        }
    }

    pub(super) fn op(&self) -> OpId {
        self.op
    }

    /// True if the slot has gone on from an operation without its result, and some children may still wait for that.
    pub(super) fn has_missed(&self, op: OpId, window: u32) -> bool {
        let is_collecting = matches!(self.state, SlotState::Vacant | SlotState::Collecting(_));
        op.steps_from(self.op) == -(window as i32) && self.earlier.is_none() && is_collecting
    }

    /// The fold that was sent to the parents, if its result has not arrived.
    pub(super) fn awaiting(&self) -> Option<&AggregationMessage> {
        match &self.state {
            SlotState::Awaiting { sample } => Some(sample),
            _ => None,
        }
    }

    /// Records a repair request for a member's multicast. True if the node must forward the request now: the
    /// operation is current, its result is missing, and the previous request is overdue.
    pub(super) fn request_multicast(
        &mut self,
        op: OpId,
        from: EdgeIndex,
        window: u32,
        now: Time,
        timeout: Span,
    ) -> bool {
        if self.admit(op, window) != Admission::Current || self.is_over() {
            return false;
        }
        if !self.wanted_by.contains(&from) {
            self.wanted_by.push(from);
        }
        self.multicast_requested = true;
        self.may_ask(op, now, timeout)
    }

    /// True if a repair request for a member's multicast of this operation has arrived.
    pub(super) fn is_multicast_requested(&self, op: OpId) -> bool {
        self.op == op && self.multicast_requested
    }

    /// Records that a child has not entered the polled operation.
    pub(super) fn note_not_entered(&mut self, op: OpId, child: ChildIndex, poll: u32, window: u32) {
        if self.admit(op, window) != Admission::Current {
            return;
        }
        let late = match &mut self.late {
            // Polls are numbered; a late answer to an earlier one is ignored.
            Some(late) if (late.poll.wrapping_sub(poll) as i32) > 0 => return,
            Some(late) if late.poll == poll => late,
            entry => entry.insert(LateChildren { poll, children: Vec::new(), reported: false }),
        };
        if !late.children.contains(&child) {
            late.children.push(child);
        }
    }

    /// The number of the last poll, once, when all children have answered it and some have not entered.
    pub(super) fn take_missing_report(&mut self, children: usize, window: u32) -> Option<u32> {
        self.late.as_ref().filter(|late| !late.reported)?;
        let missing = self.missing(self.op, children, window);
        let late = self.late.as_mut()?;
        late.reported = !missing.is_empty() && missing.iter().all(|child| late.children.contains(child));
        late.reported.then_some(late.poll)
    }

    /// The payload bytes held for the operation, if it is in flight.
    pub(super) fn held(&self) -> Option<u64> {
        match &self.state {
            SlotState::Collecting(collection) => Some(collection.bytes()),
            SlotState::Awaiting { sample } => Some(sample.payload.len().into()),
            SlotState::Vacant | SlotState::Done { .. } | SlotState::Delivered => None,
        }
    }

    /// The children that have not contributed to an operation; none once it has been folded.
    pub(super) fn missing(&mut self, op: OpId, children: usize, window: u32) -> Vec<ChildIndex> {
        if self.admit(op, window) != Admission::Current {
            return Vec::new();
        }
        let is_missing = |position: &usize| match &self.state {
            SlotState::Vacant => true,
            SlotState::Collecting(collection) => collection.is_missing(*position),
            SlotState::Awaiting { .. } | SlotState::Done { .. } | SlotState::Delivered => false,
        };
        (0..children).filter(is_missing).map(ChildIndex::from_position).collect()
    }

    /// True if the node may ask its neighbours about this operation, the present or the previous one: not before the last request is
    /// overdue (P-40), otherwise every damaged reply would cause more requests.
    pub(super) fn may_ask(&mut self, op: OpId, now: Time, timeout: Span) -> bool {
        let until = if op == self.op { &mut self.asked_until } else { &mut self.earlier_asked_until };
        let may = now >= *until;
        if may {
            *until = now + timeout;
        }
        may
    }

    /// The same about the children that have not contributed. They are alive and only late, most likely: the longer the wait, the rarer the
    /// requests.
    pub(super) fn may_ask_children(&mut self, op: OpId, now: Time, timeout: Span) -> bool {
        let may = self.may_ask(op, now, timeout.times(1 << self.child_requests));
        if may {
            self.child_requests = (self.child_requests + 1).min(MAX_REQUEST_BACKOFF_SHIFT);
        }
        may
    }

    /// Replaces the result by an abort. A slot without contributions needs a message about the operation as a
    /// template.
    pub(super) fn abort(
        &mut self,
        cause: AbortCause,
        about: Option<&AggregationMessage>,
    ) -> Option<AggregationMessage> {
        let sample = match &self.state {
            SlotState::Collecting(collection) => AggregationMessage::new(collection.sample, Payload::EMPTY),
            SlotState::Awaiting { sample } => sample.clone(),
            SlotState::Vacant => about?.clone(),
            SlotState::Done { .. } | SlotState::Delivered => return None,
        };
        let abort = sample.aborted(cause);
        self.state = SlotState::Awaiting { sample: abort.clone() };
        Some(abort)
    }
}

#[cfg(feature = "sabotage")]
impl Slot {
    /// Spoils the operands just before they are folded.
    pub(super) fn sabotage(&mut self, sabotage: crate::sabotage::SlotSabotage) {
        if let SlotState::Collecting(collection) = &mut self.state {
            collection.sabotage(sabotage);
        }
    }
}
