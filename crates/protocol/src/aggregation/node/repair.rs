//! Requests for missing messages at a node: results, members' multicasts, contributions, and answers to polls.
//!
//! In: requests, and damage that may have hit a result. Out: results, or requests to the neighbours that may have
//! them. Rules: P-40, P-41, P-44, P-45, P-50, P-53.

use units::{ChildIndex, Time};
use wire::aggregation::AggregationMessageKind;

use super::AggregationNode;
use crate::aggregation::{AggregationAction, AggregationMessage, EdgeIndex, Outbox};

impl AggregationNode {
    /// A child misses a result: the node sends it, or asks the neighbours that may have it (P-40, P-41).
    pub(super) fn handle_repair_request(
        &mut self,
        now: Time,
        seat: usize,
        edge: EdgeIndex,
        request: &AggregationMessage,
        out: &mut Outbox,
    ) {
        let (op, lost_parents, window) =
            (request.op(), self.seats[seat].lost_parents, self.seats[seat].config.window);
        let slot = self.seats[seat].slot(op);
        // P-53: a polled member asks before it contributes, so this may be the first message about the operation.
        slot.advance_to(op, window);
        if let Some(result) = slot.result_of(op) {
            let result = result.clone();
            self.send(now, edge, result, out);
            return;
        }
        if slot.op() == op && slot.is_over() {
            return; // P-47: the connection delivers it.
        }
        if slot.op() == op && !slot.wanted_by.contains(&edge) {
            slot.wanted_by.push(edge);
        }
        if slot.op() == op && slot.awaiting().is_none() {
            self.ask_missing_children(now, seat, request, out);
        } else if let Some(cause) = lost_parents {
            // P-45: the operation is past, its result never passed this node, and all parents that may have it are
            // lost.
            self.send(now, edge, request.aborted(cause), out);
        } else if slot.may_ask(op, now, self.policy.timeout) {
            self.ask_parents(now, seat, request, out);
        }
    }

    /// A member misses another member's multicast. The sender and the receivers may be anywhere, so the node forwards
    /// the request on all other edges and sends the reply to all requesters (P-50).
    pub(super) fn handle_multicast_request(
        &mut self,
        now: Time,
        seat: usize,
        from: EdgeIndex,
        request: &AggregationMessage,
        out: &mut Outbox,
    ) {
        let (op, timeout) = (request.op(), self.policy.timeout);
        let state = &mut self.seats[seat];
        let (window, plane) = (state.config.window, state.config.plane);
        let loss = state.lost_child.or(state.lost_parents);
        let slot = state.slot(op);
        if let Some(result) = slot.result_of(op).cloned() {
            self.send(now, from, result, out);
            return;
        }
        let may_ask = slot.request_multicast(op, from, window, now, timeout);
        if let Some(cause) = loss {
            // The lost neighbour may be the sender.
            self.send(now, from, request.aborted(cause), out);
            return;
        }
        if !may_ask {
            return;
        }
        for position in 0..self.seats[seat].config.children.len() {
            let child = ChildIndex::from_position(position);
            for edge in self.seats[seat].config.children[position].clone() {
                if edge != from {
                    self.send(now, edge, request.about(AggregationMessageKind::Repair, child, plane), out);
                }
            }
        }
        for parent in self.seats[seat].config.parents.clone() {
            if parent.edge != from {
                self.send(
                    now,
                    parent.edge,
                    request.about(AggregationMessageKind::Repair, parent.child, parent.plane),
                    out,
                );
            }
        }
    }

    /// A child, or a member below it, has not entered the polled operation (P-53).
    pub(super) fn handle_not_entered(
        &mut self,
        now: Time,
        seat: usize,
        edge: EdgeIndex,
        message: &AggregationMessage,
        out: &mut Outbox,
    ) {
        let state = &mut self.seats[seat];
        let (op, child) = (message.op(), message.header.child);
        if !state.is_authorized(child, edge) {
            self.counters.unauthorized_child += 1;
            return;
        }
        let window = state.config.window;
        state.slot(op).note_not_entered(op, child, message.header.detail, window);
        self.report_missing(now, seat, message, out);
    }

    /// Once all children have answered a poll and some have not entered, tells the parents; a root tells all members.
    pub(super) fn report_missing(&mut self, now: Time, seat: usize, about: &AggregationMessage, out: &mut Outbox) {
        let state = &mut self.seats[seat];
        let (children, window, plane) = (state.config.children.len(), state.config.window, state.config.plane);
        let Some(poll) = state.slot(about.op()).take_missing_report(children, window) else { return };
        if state.config.parents.is_empty() {
            let message = about.not_entered(poll, ChildIndex(0), plane);
            out.push(AggregationAction::Multicast { message, copies: self.policy.copies });
        }
        for parent in self.seats[seat].config.parents.clone() {
            self.send(now, parent.edge, about.not_entered(poll, parent.child, parent.plane), out);
        }
    }

    fn ask_parents(&mut self, now: Time, seat: usize, about: &AggregationMessage, out: &mut Outbox) {
        for parent in self.seats[seat].config.parents.clone() {
            let request = about.about(AggregationMessageKind::Repair, parent.child, parent.plane);
            self.send(now, parent.edge, request, out);
        }
    }

    /// Asks the children whose contributions are missing, which shows whether they are alive (P-44). If one of them
    /// is lost, aborts the operation instead.
    pub(super) fn ask_missing_children(
        &mut self,
        now: Time,
        seat: usize,
        about: &AggregationMessage,
        out: &mut Outbox,
    ) {
        let op = about.op();
        let state = &mut self.seats[seat];
        let (children, window, plane, lost_child) =
            (state.config.children.len(), state.config.window, state.config.plane, state.lost_child);
        let slot = state.slot(op);
        let missing = slot.missing(op, children, window);
        if missing.is_empty() || !slot.may_ask_children(op, now, self.policy.timeout) {
            return;
        }
        if let Some(abort) = lost_child.and_then(|cause| slot.abort(cause, Some(about))) {
            return self.forward(now, seat, abort, out);
        }
        for child in missing {
            for edge in self.seats[seat].config.children[child.index()].clone() {
                // One request at a time shows whether the child is alive. If each operation had its own, a node with thousands of them would
                // have no time for contributions.
                if self.edges[edge.index()].connection.is_unacknowledged(AggregationMessage::is_request) {
                    continue;
                }
                self.send(now, edge, about.about(AggregationMessageKind::Repair, child, plane), out);
            }
        }
    }

    /// All copies of a packet from a parent were damaged. It may have been the oldest outstanding result, so ask for
    /// that.
    pub(super) fn ask_for_oldest(&mut self, now: Time, edge: EdgeIndex, out: &mut Outbox) {
        for seat in 0..self.seats.len() {
            let Some(parent) = self.seats[seat].config.parents.iter().find(|parent| parent.edge == edge).copied()
            else {
                continue;
            };
            let awaiting = self.seats[seat].slots().filter(|slot| slot.awaiting().is_some());
            let Some(slot) = awaiting.min_by(|a, b| a.op().steps_from(b.op()).cmp(&0)) else {
                continue;
            };
            if !slot.may_ask(slot.op(), now, self.policy.timeout) {
                continue;
            }
            let request = slot
                .awaiting()
                .map(|sample| sample.about(AggregationMessageKind::Repair, parent.child, parent.plane));
            self.send(now, edge, request.expect("the slot awaits a result"), out);
        }
    }
}
