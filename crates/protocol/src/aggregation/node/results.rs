//! Results at a node: recorded in the seats, sent to the children, and to the edges that requested them.
//!
//! In: a fold or a received result. Out: multicasts and frames to the children. Rules: P-5, P-37 to P-41, P-47, P-49.

use units::{ChildIndex, Time};
use wire::aggregation::AggregationMessageKind;

use super::AggregationNode;
use crate::aggregation::outbox::transmit;
use crate::aggregation::{AggregationAction, AggregationMessage, DownwardDelivery, Outbox};

/// How a result reached this node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultArrival {
    /// By a multicast that also reached the children.
    ByMulticast,
    /// To this node alone: the children still need it.
    OverEdge,
}

impl AggregationNode {
    /// Makes a fold the operation's result and sends it to all children.
    pub(super) fn distribute(&mut self, now: Time, folded: &AggregationMessage, out: &mut Outbox) {
        let kind = if folded.header.kind == AggregationMessageKind::Abort {
            AggregationMessageKind::Abort
        } else {
            AggregationMessageKind::Result
        };
        let message = folded.addressed(kind, folded.header.child, folded.plane());
        self.handle_result(now, &message, ResultArrival::OverEdge, out);
    }

    /// Handles a result. Its plane is that of its root, so every seat of the group gets it; true if it is new to one
    /// of them.
    pub(super) fn handle_result(
        &mut self,
        now: Time,
        message: &AggregationMessage,
        arrival: ResultArrival,
        out: &mut Outbox,
    ) -> bool {
        let mut is_new = false;
        for seat in 0..self.seats.len() {
            if self.serves_group(seat, message) {
                is_new |= self.finish(now, seat, message, out);
            }
        }
        // With both kinds of delivery, a known result was multicast to the children already; the connections repeat
        // it, unless the slot has gone on without the result (P-41).
        let is_new_below = is_new
            || self.distribution(message) == DownwardDelivery::Multicast
            || (0..self.seats.len()).any(|seat| self.serves_group(seat, message) && self.has_missed(seat, message));
        if arrival == ResultArrival::OverEdge && self.distribution(message).has_multicast() && is_new_below {
            // P-41: the children need it even if the operation is past here.
            out.push(AggregationAction::Multicast { message: message.clone(), copies: self.policy.copies });
        }
        if arrival == ResultArrival::OverEdge && self.distribution(message).has_connections() {
            self.deliver_to_children(now, message, out);
        }
        is_new
    }

    fn has_missed(&mut self, seat: usize, message: &AggregationMessage) -> bool {
        let window = self.seats[seat].config.window;
        self.seats[seat].slot(message.op()).has_missed(message.op(), window)
    }

    fn distribution(&self, message: &AggregationMessage) -> DownwardDelivery {
        let seat = (0..self.seats.len()).find(|seat| self.serves_group(*seat, message));
        seat.map_or(DownwardDelivery::Multicast, |seat| self.seats[seat].config.distribution)
    }

    /// Sends a result to every child over its connection, once (P-47). Without multicast, children that need only the
    /// completion get a result without payload (P-49).
    fn deliver_to_children(&mut self, now: Time, message: &AggregationMessage, out: &mut Outbox) {
        let op = message.op();
        for seat in 0..self.seats.len() {
            if !self.serves_group(seat, message) || !self.seats[seat].slot(op).take_delivery_turn(op) {
                continue;
            }
            let without_multicast = self.seats[seat].config.distribution == DownwardDelivery::Connections;
            let completion_only = self.seats[seat].slot(op).take_completion_only();
            let completion_only: &[ChildIndex] =
                if without_multicast && message.header.kind == AggregationMessageKind::Result {
                    &completion_only
                } else {
                    &[]
                };
            for position in 0..self.seats[seat].config.children.len() {
                let Some(edge) = self.seats[seat].config.children[position].first().copied() else { continue };
                let reply = if completion_only.contains(&ChildIndex::from_position(position)) {
                    message.about(AggregationMessageKind::Result, message.header.child, message.plane())
                } else {
                    message.clone()
                };
                self.send(now, edge, reply, out);
            }
            if without_multicast {
                self.seats[seat].release(op);
            }
        }
    }

    /// Records a result in a seat and sends it to the edges that requested it; true if it is new.
    fn finish(&mut self, now: Time, seat: usize, message: &AggregationMessage, out: &mut Outbox) -> bool {
        let op = message.op();
        #[cfg(feature = "sabotage")]
        if self.policy.sabotage == Some(crate::sabotage::MachineSabotage::KeepSlots) && op.0.is_multiple_of(3) {
            return false;
        }
        let state = &mut self.seats[seat];
        let window = state.config.window;
        if !state.slot(op).finish(message, window) {
            self.counters.duplicate_result += 1;
            return false;
        }
        if let Some(first_at) = state.slot(op).first_at() {
            state.pace.note_result(now.since(first_at));
        }
        let mut wanted_by = std::mem::take(&mut state.slot(op).wanted_by);
        if state.config.distribution.has_connections() {
            wanted_by.clear(); // All children get it anyway.
        }
        // P-5: a result acknowledges the contribution, an abort does not.
        let acked = state.sent(op).take().filter(|_| message.header.kind == AggregationMessageKind::Result);
        if let Some(psn) = acked {
            let parent = state.config.parents[0].edge;
            self.edges[parent.index()].connection.confirm(now, psn, &mut transmit(parent, out));
        }
        for edge in wanted_by {
            self.send(now, edge, message.clone(), out);
        }
        true
    }
}
