//! What a member knows of casts: those that it has told and may be asked for, those that came before it had begun, and how
//! far everyone is known to have all of them (P-94 to P-96).

use std::collections::VecDeque;

use units::OpId;

use super::AggregationMessage;

/// The casts of one member. At most a window of its own and a window of early ones are kept.
#[derive(Debug)]
pub(super) struct MemberMulticasts {
    window: u32,
    /// Everyone has every cast before this operation.
    horizon: OpId,
    /// Casts that have begun here since then.
    begun: VecDeque<OpId>,
    own: VecDeque<AggregationMessage>,
    early: Vec<AggregationMessage>,
}

/// What a cast is to whoever hears it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MulticastOrigin {
    /// Our own voice, back from the network.
    Own,
    /// Somebody tells something else under the number of ours.
    Rival,
    Other,
}

impl MemberMulticasts {
    pub(super) fn new(window: u32) -> Self {
        Self { window, horizon: OpId(0), begun: VecDeque::new(), own: VecDeque::new(), early: Vec::new() }
    }

    /// True if nobody can still need what an operation a window before this one told (P-96).
    pub(super) fn has_room_for(&self, op: OpId) -> bool {
        self.begun.front().is_none_or(|oldest| op.steps_from(*oldest) < self.window as i32)
    }

    /// A cast begins, whoever tells it.
    pub(super) fn begin(&mut self, op: OpId) {
        self.begun.push_back(op);
    }

    /// Keeps what this member tells, for whoever misses it.
    pub(super) fn keep_own(&mut self, message: AggregationMessage) {
        self.own.push_back(message);
    }

    /// What this member told, if someone may still miss it.
    pub(super) fn own(&self, op: OpId) -> Option<&AggregationMessage> {
        self.own.iter().find(|message| message.op() == op)
    }

    pub(super) fn origin(&self, message: &AggregationMessage) -> MulticastOrigin {
        match self.own(message.op()) {
            Some(own) if own.header.segment == message.header.segment => MulticastOrigin::Own,
            Some(_) => MulticastOrigin::Rival,
            None => MulticastOrigin::Other,
        }
    }

    pub(super) fn kept(&self) -> usize {
        self.own.len() + self.early.len()
    }

    /// True if everyone is known to have all that this member told.
    pub(super) fn is_settled(&self) -> bool {
        self.own.is_empty()
    }

    /// Keeps a cast of an operation that has not begun here; false if there can be none of that number, or it is here.
    pub(super) fn keep_early(&mut self, next: OpId, message: &AggregationMessage) -> bool {
        let op = message.op();
        let may_come = (0..self.window as i32).contains(&op.steps_from(next));
        if !may_come || self.early.iter().any(|early| early.op() == op) {
            return false;
        }
        self.early.push(message.clone());
        true
    }

    /// What came early of the operation that begins now.
    pub(super) fn take_early(&mut self, op: OpId) -> Option<AggregationMessage> {
        let place = self.early.iter().position(|early| early.op() == op)?;
        Some(self.early.swap_remove(place))
    }

    /// An operation to which all contributed is over: each had every cast before it (P-95).
    pub(super) fn reach(&mut self, op: OpId) {
        let beyond = op.next();
        if beyond.steps_from(self.horizon) > 0 {
            self.horizon = beyond;
            self.begun.retain(|op| op.steps_from(beyond) >= 0);
            self.own.retain(|message| message.op().steps_from(beyond) >= 0);
        }
    }
}

/// Counts casts, and says when all must be heard (P-95). A pure function of the stream of operations, so that all members
/// come to the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckBarrierCounter {
    every: u32,
    since: u32,
}

impl AckBarrierCounter {
    /// Smaller windows leave no room for casts.
    pub const LEAST_WINDOW: u32 = 8;

    /// For members whose window is this; none if it is too small for casts.
    pub const fn new(window: u32) -> Option<Self> {
        if window < Self::LEAST_WINDOW {
            return None;
        }
        Some(Self { every: window / 2, since: 0 })
    }

    /// True if the next operation must be one to which all contribute.
    pub const fn is_due(&self) -> bool {
        self.since >= self.every
    }

    /// True if there were casts of which it is not known that all have them.
    pub const fn is_open(&self) -> bool {
        self.since > 0
    }

    /// A cast begins.
    pub fn note_cast(&mut self) {
        self.since += 1;
    }

    /// An operation to which all contribute begins.
    pub fn note_contributions(&mut self) {
        self.since = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_census_is_due_after_half_a_window() {
        assert_eq!(AckBarrierCounter::new(7), None);
        let mut census = AckBarrierCounter::new(16).expect("room for casts");
        for _ in 0..8 {
            assert!(!census.is_due());
            census.note_cast();
        }
        assert!(census.is_due() && census.is_open());
        census.note_contributions();
        assert!(!census.is_due() && !census.is_open());
    }
}
