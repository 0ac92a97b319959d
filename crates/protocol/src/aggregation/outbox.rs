//! The actions that a member or node asks of its driver.
//!
//! The driver passes an outbox to each call and carries the actions out in order. A queue inside each machine would
//! also work, but a million machines would each keep one (docs/decisions/0002-outbox.md).

use units::OpId;

use super::{AbortCause, AggregationMessage, EdgeIndex};
use crate::Payload;
use crate::connection::OutgoingFrame;

/// An action that the driver must carry out.
#[derive(Clone, Debug)]
pub enum AggregationAction {
    /// Transmit a frame over an edge.
    Transmit {
        /// The edge.
        edge: EdgeIndex,
        /// The frame, the number of copies and the path.
        outgoing: OutgoingFrame<AggregationMessage>,
    },
    /// Multicast a message to every member below.
    Multicast {
        /// The result or abort.
        message: AggregationMessage,
        /// How many copies to send in a row.
        copies: u8,
    },
    /// A root has the result: the reduce phase is over.
    Reduced {
        /// The operation.
        op: OpId,
    },
    /// A member's operation is complete.
    Complete {
        /// The operation.
        op: OpId,
        /// Its result.
        result: Payload,
    },
    /// A member's operation has failed for good.
    Failed {
        /// The operation.
        op: OpId,
        /// Why.
        cause: AbortCause,
    },
}

/// Actions in the order in which the driver must carry them out.
#[derive(Default, Debug)]
pub struct Outbox {
    actions: Vec<AggregationAction>,
}

impl Outbox {
    /// Adds an action.
    pub fn push(&mut self, action: AggregationAction) {
        self.actions.push(action);
    }

    /// Removes all actions in order; keeps the allocation for the next call.
    pub fn drain(&mut self) -> impl Iterator<Item = AggregationAction> + '_ {
        self.actions.drain(..)
    }

    /// True if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }
}

/// A sink for the frames of the connection behind an edge.
pub(super) fn transmit(edge: EdgeIndex, out: &mut Outbox) -> impl FnMut(OutgoingFrame<AggregationMessage>) + '_ {
    move |outgoing| out.push(AggregationAction::Transmit { edge, outgoing })
}
