//! Repair at a member: requests for late results, and replies to the requests of its parents.
//!
//! In: timers, damage, gaps between multicasts, requests. Out: repair requests, retained multicasts. Rules: P-40,
//! P-44, P-50.

use units::{OpId, Span, Time};
use wire::aggregation::{AggregationHeader, AggregationMessageKind};

use super::{AggregationMember, InFlightOperation, RepairTimeoutMode};
use crate::Payload;
use crate::aggregation::outbox::transmit;
use crate::aggregation::{AggregationMessage, EdgeIndex, OperationMode, Outbox};
use crate::connection::AckRequest;

/// The pause between two requests for one result doubles at most this often.
const MAX_REPAIR_BACKOFF_SHIFT: u8 = 6;
/// How much longer than for a result a member waits for a multicast.
pub(super) const MULTICAST_REPAIR_FACTOR: u64 = 4;
/// A multicast that a later one overtook is requested after this fraction of the usual time.
const GAP_REPAIR_DIVISOR: u64 = 8;

impl AggregationMember {
    /// How long the member waits for a result.
    pub(super) fn repair_timeout(&self) -> Span {
        match self.config.repair_timeout_mode {
            RepairTimeoutMode::Fixed => self.config.repair_after,
            RepairTimeoutMode::Adaptive => self.config.repair_after.max(self.recent_duration.times(4)),
        }
    }

    /// The operations whose results are to be requested now. Each is requested once; after that only the oldest one is, because requests travel
    /// over a connection, which loses none, and a node that serves thousands of operations needs its time for them.
    pub(super) fn overdue(&mut self, now: Time) -> Vec<AggregationHeader> {
        let timeout = self.repair_timeout();
        let mut is_oldest = true;
        let mut headers = Vec::new();
        for operation in self.operations.iter_mut().filter(|operation| !operation.done) {
            if operation.ask_at <= now {
                if is_oldest || operation.asked == 0 || operation.mode == OperationMode::Multicast {
                    headers.push(operation.header);
                } else {
                    operation.ask_at = now + timeout.times(1 << operation.asked);
                }
            }
            is_oldest = false;
        }
        headers
    }

    /// Requests the result of an operation over one edge (P-40).
    pub(super) fn request_repair(&mut self, now: Time, edge: EdgeIndex, header: AggregationHeader, out: &mut Outbox) {
        if self.is_lost(edge) {
            return;
        }
        let parent = self.config.parents[edge.index()];
        let request = AggregationMessage { header, payload: Payload::EMPTY, checksum: 0 }.about(
            AggregationMessageKind::Repair,
            parent.child,
            parent.plane,
        );
        let connection = &mut self.edges[edge.index()];
        let is_under_way = connection.is_unacknowledged(|carried| carried.is_same_request(&request));
        if !is_under_way && !self.policy.never_requests_results() {
            connection.send(now, request, AckRequest::Periodic, &mut transmit(edge, out));
        }
        if let Some(deadline) = self.edges[edge.index()].deadline() {
            self.note_deadline(deadline);
        }
        let (timeout, max_shift) = match self.config.repair_timeout_mode {
            RepairTimeoutMode::Fixed => (self.repair_timeout(), 1),
            RepairTimeoutMode::Adaptive => (self.repair_timeout(), MAX_REPAIR_BACKOFF_SHIFT),
        };
        let operation = self.operations.iter_mut().find(|operation| operation.op == header.operation);
        if let Some(operation) = operation {
            // Most likely a member is only late: the longer the wait, the rarer the requests.
            operation.asked = (operation.asked + 1).min(max_shift);
            operation.ask_at = now + timeout.times(1 << operation.asked);
        }
    }

    /// Handles a parent's request (P-44). The acknowledgement shows that this member is alive, and the connection
    /// delivers its contribution. The request may be for its multicast (P-50), and stands for a poll in a polled
    /// barrier (P-53).
    pub(super) fn handle_repair_request(
        &mut self,
        now: Time,
        edge: EdgeIndex,
        request: &AggregationMessage,
        out: &mut Outbox,
    ) {
        let op = request.op();
        if let Some(own) = self.multicasts.own(op) {
            let message = own.clone();
            self.edges[edge.index()].send(now, message, AckRequest::Periodic, &mut transmit(edge, out));
            if let Some(deadline) = self.edges[edge.index()].deadline() {
                self.note_deadline(deadline);
            }
            return;
        }
        self.answer_poll(now, request, out);
    }

    /// A multicast has arrived: earlier ones that have not are lost or about to arrive, so request them soon.
    pub(super) fn expect_missed_before(&mut self, now: Time, op: OpId) {
        let soon = now + self.config.repair_after.divided_by(GAP_REPAIR_DIVISOR);
        let is_missed = |operation: &&mut InFlightOperation| {
            operation.mode == OperationMode::Multicast
                && !operation.done
                && operation.asked == 0
                && op.steps_from(operation.op) > 0
        };
        let mut is_any = false;
        for operation in self.operations.iter_mut().filter(is_missed) {
            operation.ask_at = operation.ask_at.min(soon);
            is_any = true;
        }
        if is_any {
            self.note_deadline(soon);
        }
    }
}
