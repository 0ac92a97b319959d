//! Results at a member: matched with operations in flight, and reported once.
//!
//! In: results, aborts, multicasts of other members. Out: [`AggregationAction::Complete`] or
//! [`AggregationAction::Failed`]. Rules: P-5, P-38, P-50, P-51.

use units::{OpId, Time};
use wire::aggregation::AggregationMessageKind;

use super::AggregationMember;
use crate::aggregation::operation_mode::is_member_multicast;
use crate::aggregation::outbox::transmit;
use crate::aggregation::{AbortCause, AggregationAction, AggregationMessage, EdgeIndex, OperationMode, Outbox};

impl AggregationMember {
    /// Handles a result; true if an operation was waiting for it.
    pub(super) fn handle_result(&mut self, now: Time, message: &AggregationMessage, out: &mut Outbox) -> bool {
        let header = &message.header;
        if !self.is_own_group(message) {
            return false;
        }
        let op = header.operation;
        if is_member_multicast(header) {
            self.expect_missed_before(now, op);
        }
        let Some(operation) = self.operations.iter_mut().find(|operation| operation.op == op && !operation.done)
        else {
            // P-38: a duplicate, unless it is the early multicast of a later operation (P-50).
            return is_member_multicast(header) && self.multicasts.retain_early(self.next, message);
        };
        let is_expected = is_member_multicast(header) == (operation.mode == OperationMode::Multicast)
            && header.segment == operation.header.segment;
        if header.kind == AggregationMessageKind::Result && !is_expected {
            self.fail(op, AbortCause::Mismatch, out);
            return true;
        }
        operation.done = true;
        #[cfg(feature = "sabotage")]
        let was_requested = operation.asked > 0;
        // A requested result took as long as the timeout; counting it would let the timeout grow without bound.
        if operation.asked == 0 {
            let took = now.since(operation.started);
            self.recent_duration = self.recent_duration.divided_by(8).times(7) + took.divided_by(8);
        }
        // P-5: a result acknowledges the contribution, an abort does not.
        if let Some(psn) = operation.sent.take().filter(|_| header.kind == AggregationMessageKind::Result) {
            self.edges[0].confirm(now, psn, &mut transmit(EdgeIndex(0), out));
        }
        match operation.mode {
            OperationMode::Multicast => {}
            OperationMode::Aggregated => self.note_contributions(header.kind, op),
            OperationMode::Polled(_) => {
                self.note_contributions(header.kind, op);
                self.end_polling();
            }
        }
        #[cfg(feature = "sabotage")]
        if self.policy.sabotage == Some(crate::sabotage::MachineSabotage::DeliverTwice) && was_requested {
            out.push(AggregationAction::Complete { op, result: message.payload.clone() });
        }
        out.push(match header.kind {
            AggregationMessageKind::Abort => {
                AggregationAction::Failed { op, cause: AbortCause::from_code(header.detail) }
            }
            _ => AggregationAction::Complete { op, result: message.payload.clone() },
        });
        self.remove_done();
        true
    }

    /// An operation with contributions is over. Only a result shows that all members contributed.
    fn note_contributions(&mut self, end: AggregationMessageKind, op: OpId) {
        if end == AggregationMessageKind::Result {
            self.multicasts.acknowledge_before(op);
        }
    }

    fn remove_done(&mut self) {
        while self.operations.front().is_some_and(|operation| operation.done) {
            self.operations.pop_front();
        }
    }

    /// Fails an operation about which the members disagree.
    pub(super) fn fail(&mut self, op: OpId, cause: AbortCause, out: &mut Outbox) {
        if let Some(operation) = self.operations.iter_mut().find(|operation| operation.op == op) {
            operation.done = true;
        }
        self.remove_done();
        out.push(AggregationAction::Failed { op, cause });
    }

    /// Fails all operations: all parents are lost.
    pub(super) fn fail_all(&mut self, cause: AbortCause, out: &mut Outbox) {
        self.lost = Some(cause);
        self.wake_at = Time::NEVER;
        for operation in self.operations.drain(..).filter(|operation| !operation.done) {
            out.push(AggregationAction::Failed { op: operation.op, cause });
        }
    }
}
