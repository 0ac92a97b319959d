//! The polled barrier: one member polls all others by multicast. Members that have entered contribute, the others
//! answer that they have not, and the nodes report whether any is missing (P-53; claims QN-6, QN-9). The result
//! releases all.
//!
//! The poller uses the same [`PolledBarrier`] as the simulated Quadrics network.

use units::{OpId, Span, Time};
use wire::aggregation::AggregationMessageKind;

use super::AggregationMember;
use crate::Payload;
use crate::aggregation::outbox::transmit;
use crate::aggregation::{
    AbortCause, AggregationAction, AggregationMessage, EdgeIndex, OperationMode, Outbox, PollRole,
};
use crate::collective::quadrics::{PollBackoff, PollOutcome, PolledBarrier, QuadricsAction};
use crate::connection::{AckRequest, Connection};

/// A member's state in polled barriers.
#[derive(Debug)]
pub(super) struct BarrierPollState {
    barrier: PolledBarrier,
    /// The number of the last poll that this member sent.
    poll: u32,
    poll_again_at: Time,
    /// The last poll that this member answered with "not entered".
    late_for: Option<(OpId, u32)>,
}

impl BarrierPollState {
    /// The first poll is repeated after a small fraction of the repair timeout.
    fn new(repair_after: Span) -> Self {
        let backoff = PollBackoff { first: repair_after.divided_by(64), max: repair_after };
        Self { barrier: PolledBarrier::poller(backoff), poll: 0, poll_again_at: Time::NEVER, late_for: None }
    }
}

impl AggregationMember {
    fn polling(&mut self) -> &mut BarrierPollState {
        let repair_after = self.config.repair_after;
        self.polling.get_or_insert_with(|| Box::new(BarrierPollState::new(repair_after)))
    }

    /// The operation that this member polls.
    fn polled_operation(&self) -> Option<OpId> {
        let is_polled = |mode: OperationMode| mode == OperationMode::Polled(PollRole::Poller);
        self.operations
            .iter()
            .find(|operation| is_polled(operation.mode) && !operation.done)
            .map(|operation| operation.op)
    }

    pub(super) fn start_polling(&mut self, now: Time, out: &mut Outbox) {
        let mut actions = Vec::new();
        self.polling().barrier.enter(&mut actions);
        self.carry_out(now, &actions, out);
    }

    /// Carries out the actions of the barrier.
    fn carry_out(&mut self, now: Time, actions: &[QuadricsAction], out: &mut Outbox) {
        for action in actions {
            match action {
                QuadricsAction::Poll { .. } => self.send_poll(out),
                QuadricsAction::Wait { span } => {
                    self.polling().poll_again_at = now + *span;
                    self.note_deadline(now + *span);
                }
                // A poller has no other actions except completion.
                _ => {}
            }
        }
    }

    fn send_poll(&mut self, out: &mut Outbox) {
        let Some(op) = self.polled_operation() else { return };
        let polling = self.polling();
        polling.poll = polling.poll.wrapping_add(1);
        let poll = polling.poll;
        let Some(operation) = self.operations.iter().find(|operation| operation.op == op) else { return };
        let mut header = operation.header;
        (header.kind, header.element_count, header.detail) = (AggregationMessageKind::Poll, 0, poll);
        let message = AggregationMessage { header, payload: Payload::EMPTY, checksum: 0 };
        out.push(AggregationAction::Multicast { message, copies: self.policy.copies });
    }

    /// Handles a poll, or the report that some member has not entered.
    pub(super) fn handle_poll_message(&mut self, now: Time, message: &AggregationMessage, out: &mut Outbox) {
        if !self.is_own_group(message) {
            return;
        }
        match message.header.kind {
            AggregationMessageKind::Poll => self.handle_poll(now, message, out),
            _ => self.handle_missing_report(now, message, out),
        }
    }

    fn handle_poll(&mut self, now: Time, poll: &AggregationMessage, out: &mut Outbox) {
        let (op, number) = (poll.op(), poll.header.detail);
        if self.operations.iter().any(|operation| operation.op == op) {
            return self.answer_poll(now, poll, out);
        }
        let is_in_window = (0..self.config.window as i32).contains(&op.steps_from(self.next));
        if !is_in_window || self.polling().late_for == Some((op, number)) {
            return;
        }
        self.polling().late_for = Some((op, number));
        for edge in 0..self.edges.len() {
            let (index, parent) = (EdgeIndex(edge as u16), self.config.parents[edge]);
            if !self.is_lost(index) {
                let answer = poll.not_entered(number, parent.child, parent.plane);
                self.edges[edge].send(now, answer, AckRequest::Periodic, &mut transmit(index, out));
            }
        }
        let deadlines = self.edges.iter().filter_map(Connection::deadline);
        self.note_deadline(deadlines.min().unwrap_or(Time::NEVER));
    }

    /// Contributes to the operation of a poll or request, if its contribution waits for one.
    pub(super) fn answer_poll(&mut self, now: Time, poll: &AggregationMessage, out: &mut Outbox) {
        let op = poll.op();
        let is_open = |operation: &&super::InFlightOperation| operation.op == op && !operation.done;
        let Some(operation) = self.operations.iter().find(is_open) else { return };
        if operation.header.segment != poll.header.segment {
            return self.fail(op, AbortCause::Mismatch, out); // P-54: the sender is in another operation.
        }
        if operation.mode == OperationMode::Polled(PollRole::Responder) {
            self.contribute(now, op, out);
        }
    }

    fn handle_missing_report(&mut self, now: Time, report: &AggregationMessage, out: &mut Outbox) {
        let op = self.polled_operation();
        if op != Some(report.op()) || self.polling().poll != report.header.detail {
            return; // About an earlier poll, or another member's.
        }
        let polling = self.polling();
        if polling.poll_again_at != Time::NEVER {
            return; // A duplicate.
        }
        let (call, mut actions) = (polling.barrier.call(), Vec::new());
        polling.barrier.handle_poll_outcome(call, PollOutcome::SomeMissing, &mut actions);
        self.carry_out(now, &actions, out);
    }

    /// Polls again when the pause is over.
    pub(super) fn handle_poll_timer(&mut self, now: Time, out: &mut Outbox) {
        let Some(polling) = &mut self.polling else { return };
        if polling.poll_again_at > now {
            let poll_again_at = polling.poll_again_at;
            return self.note_deadline(poll_again_at);
        }
        polling.poll_again_at = Time::NEVER;
        let mut actions = Vec::new();
        polling.barrier.handle_timer(&mut actions);
        self.carry_out(now, &actions, out);
    }

    /// All members have entered.
    pub(super) fn end_polling(&mut self) {
        if let Some(polling) = &mut self.polling {
            polling.poll_again_at = Time::NEVER;
            let call = polling.barrier.call();
            polling.barrier.handle_release(call, &mut Vec::new());
        }
    }
}
