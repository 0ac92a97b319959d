//! A barrier that is tested: one member asks all by multicast whether they have come; who has contributes, who has not says
//! so, and the nodes tell the worst of it (P-97; claims QN-6, QN-9). The result of the operation releases all.
//!
//! The one who asks is the same machine as in the simulated network of Quadrics, [`PolledBarrier`].

use units::{OpId, Span, Time};
use wire::aggregation::AggregationMessageKind;

use super::super::node::transmit;
use super::super::{AbortCause, AggregationAction, AggregationMessage, EdgeIndex, OperationMode, Outbox, PollRole};
use super::AggregationMember;
use crate::Payload;
use crate::collective::quadrics::{PollBackoff, PollOutcome, PolledBarrier, QuadricsAction as Step};
use crate::connection::{AckRequest, Connection};

/// What a member knows of tests.
#[derive(Debug)]
pub(super) struct BarrierPollState {
    barrier: PolledBarrier,
    /// Of the last test that this member made.
    number: u32,
    again_at: Time,
    /// The last test that this member was too late for.
    late_for: Option<(OpId, u32)>,
}

impl BarrierPollState {
    /// A test that somebody was late for is made again after a small part of the time after which results are asked for.
    fn new(repair_after: Span) -> Self {
        let back_off = PollBackoff { first: Span::from_picos(repair_after.as_picos() / 64), most: repair_after };
        Self { barrier: PolledBarrier::tester(back_off), number: 0, again_at: Time::NEVER, late_for: None }
    }
}

impl AggregationMember {
    fn testing(&mut self) -> &mut BarrierPollState {
        let repair_after = self.plan.repair_after;
        self.testing.get_or_insert_with(|| Box::new(BarrierPollState::new(repair_after)))
    }

    /// The operation that is being tested here.
    fn under_test(&self) -> Option<OpId> {
        let asks = |manner: OperationMode| manner == OperationMode::Tested(PollRole::Asks);
        self.flights.iter().find(|flight| asks(flight.manner) && !flight.done).map(|flight| flight.op)
    }

    pub(super) fn begin_to_test(&mut self, now: Time, out: &mut Outbox) {
        let mut steps = Vec::new();
        self.testing().barrier.enter(&mut steps);
        self.follow(now, &steps, out);
    }

    /// Does what the barrier wants next.
    fn follow(&mut self, now: Time, steps: &[Step], out: &mut Outbox) {
        for step in steps {
            match step {
                Step::Test { .. } => self.ask_everyone(out),
                Step::Wait { span } => {
                    self.testing().again_at = now + *span;
                    self.note_deadline(now + *span);
                }
                // Nothing else comes of tests, but that they are over.
                _ => {}
            }
        }
    }

    fn ask_everyone(&mut self, out: &mut Outbox) {
        let Some(op) = self.under_test() else { return };
        let testing = self.testing();
        testing.number = testing.number.wrapping_add(1);
        let number = testing.number;
        let Some(flight) = self.flights.iter().find(|flight| flight.op == op) else { return };
        let mut header = flight.header;
        (header.kind, header.element_count, header.detail) = (AggregationMessageKind::Test, 0, number);
        let message = AggregationMessage { header, payload: Payload::EMPTY, seal: 0 };
        out.push(AggregationAction::Multicast { message, copies: self.policy.copies });
    }

    /// A test, or what came of one, is heard by everyone.
    pub(super) fn handle_test(&mut self, now: Time, message: &AggregationMessage, out: &mut Outbox) {
        if !self.is_of_ours(message) {
            return;
        }
        match message.header.kind {
            AggregationMessageKind::Test => self.handle_question(now, message, out),
            _ => self.handle_verdict(now, message, out),
        }
    }

    fn handle_question(&mut self, now: Time, test: &AggregationMessage, out: &mut Outbox) {
        let (op, number) = (test.op(), test.header.detail);
        if self.flights.iter().any(|flight| flight.op == op) {
            return self.answer(now, test, out);
        }
        let may_come = (0..self.plan.window as i32).contains(&op.steps_from(self.next));
        if !may_come || self.testing().late_for == Some((op, number)) {
            return;
        }
        self.testing().late_for = Some((op, number));
        for edge in 0..self.edges.len() {
            let (index, parent) = (EdgeIndex(edge as u16), self.plan.parents[edge]);
            if !self.is_lost(index) {
                let late = test.late(number, parent.child, parent.plane);
                self.edges[edge].send(now, late, AckRequest::InTurn, &mut transmit(index, out));
            }
        }
        let deadlines = self.edges.iter().filter_map(Connection::deadline);
        self.note_deadline(deadlines.min().unwrap_or(Time::NEVER));
    }

    /// Contributes to what somebody asks for, if it waits for a question.
    pub(super) fn answer(&mut self, now: Time, question: &AggregationMessage, out: &mut Outbox) {
        let op = question.op();
        let Some(flight) = self.flights.iter().find(|flight| flight.op == op && !flight.done) else { return };
        if flight.header.segment != question.header.segment {
            return self.fail(op, AbortCause::Mismatch, out); // Who asks takes the operation for another.
        }
        if flight.manner == OperationMode::Tested(PollRole::Answers) {
            self.contribute(now, op, out);
        }
    }

    fn handle_verdict(&mut self, now: Time, verdict: &AggregationMessage, out: &mut Outbox) {
        let op = self.under_test();
        if op != Some(verdict.op()) || self.testing().number != verdict.header.detail {
            return; // Of an earlier test, or somebody else's.
        }
        let testing = self.testing();
        if testing.again_at != Time::NEVER {
            return; // It came twice.
        }
        let (call, mut steps) = (testing.barrier.call(), Vec::new());
        testing.barrier.handle_verdict(call, PollOutcome::NotAll, &mut steps);
        self.follow(now, &steps, out);
    }

    /// Asks again if it is time to.
    pub(super) fn test_again(&mut self, now: Time, out: &mut Outbox) {
        let Some(testing) = &mut self.testing else { return };
        if testing.again_at > now {
            let again_at = testing.again_at;
            return self.note_deadline(again_at);
        }
        testing.again_at = Time::NEVER;
        let mut steps = Vec::new();
        testing.barrier.handle_alarm(&mut steps);
        self.follow(now, &steps, out);
    }

    /// All have come.
    pub(super) fn end_test(&mut self) {
        if let Some(testing) = &mut self.testing {
            testing.again_at = Time::NEVER;
            let call = testing.barrier.call();
            testing.barrier.handle_release(call, &mut Vec::new());
        }
    }
}
