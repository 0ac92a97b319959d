//! A member's record of multicasts: those that it sent and may have to repeat, those that arrived early, and up to
//! which operation all members are known to have all of them (P-50 to P-52).

use std::collections::VecDeque;

use units::OpId;

use super::AggregationMessage;

/// The multicasts of one member. It retains at most a window of its own and a window of early ones.
#[derive(Debug)]
pub(super) struct MemberMulticasts {
    window: u32,
    /// All members have every multicast before this operation.
    horizon: OpId,
    /// Multicast operations that started here since then.
    started: VecDeque<OpId>,
    own: VecDeque<AggregationMessage>,
    early: Vec<AggregationMessage>,
}

/// The origin of a received multicast.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MulticastOrigin {
    /// Our own, looped back by the network.
    Own,
    /// Another member's, under the operation number of ours.
    Conflicting,
    Other,
}

impl MemberMulticasts {
    pub(super) fn new(window: u32) -> Self {
        Self { window, horizon: OpId(0), started: VecDeque::new(), own: VecDeque::new(), early: Vec::new() }
    }

    /// True if no member can still need the multicast of the operation one window before this one (P-52).
    pub(super) fn has_room_for(&self, op: OpId) -> bool {
        self.started.front().is_none_or(|oldest| op.steps_from(*oldest) < self.window as i32)
    }

    /// A multicast operation starts, whichever member sends it.
    pub(super) fn start(&mut self, op: OpId) {
        self.started.push_back(op);
    }

    /// Retains this member's own multicast, to repeat it on request.
    pub(super) fn retain_own(&mut self, message: AggregationMessage) {
        self.own.push_back(message);
    }

    /// This member's own multicast, if some member may still miss it.
    pub(super) fn own(&self, op: OpId) -> Option<&AggregationMessage> {
        self.own.iter().find(|message| message.op() == op)
    }

    pub(super) fn origin(&self, message: &AggregationMessage) -> MulticastOrigin {
        match self.own(message.op()) {
            Some(own) if own.header.segment == message.header.segment => MulticastOrigin::Own,
            Some(_) => MulticastOrigin::Conflicting,
            None => MulticastOrigin::Other,
        }
    }

    pub(super) fn retained(&self) -> usize {
        self.own.len() + self.early.len()
    }

    /// True if all members are known to have every multicast of this member.
    pub(super) fn is_settled(&self) -> bool {
        self.own.is_empty()
    }

    /// Retains the multicast of an operation that has not started here; false if it is a duplicate or outside the
    /// window.
    pub(super) fn retain_early(&mut self, next: OpId, message: &AggregationMessage) -> bool {
        let op = message.op();
        let is_in_window = (0..self.window as i32).contains(&op.steps_from(next));
        if !is_in_window || self.early.iter().any(|early| early.op() == op) {
            return false;
        }
        self.early.push(message.clone());
        true
    }

    /// Removes the early multicast of an operation that starts now.
    pub(super) fn take_early(&mut self, op: OpId) -> Option<AggregationMessage> {
        let position = self.early.iter().position(|early| early.op() == op)?;
        Some(self.early.swap_remove(position))
    }

    /// An operation to which all members contributed is complete: all had every multicast before it (P-51).
    pub(super) fn acknowledge_before(&mut self, op: OpId) {
        let horizon = op.next();
        if horizon.steps_from(self.horizon) > 0 {
            self.horizon = horizon;
            self.started.retain(|op| op.steps_from(horizon) >= 0);
            self.own.retain(|message| message.op().steps_from(horizon) >= 0);
        }
    }
}
