//! What a machine asks of its driver.
//!
//! The driver lends an outbox to each call and carries the duties out in order. A queue inside each machine would
//! do as well, but a million machines would each keep one (docs/decisions/0002-outbox.md).

use units::OpId;

use super::{AbortCause, AggregationMessage};
use crate::Payload;
use crate::connection::OutgoingFrame;

/// An edge of a machine: a connection to one neighbour in the tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EdgeIndex(pub u16);

impl EdgeIndex {
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Something that the driver must do. Every variant is a duty, never a hint.
#[derive(Clone, Debug)]
pub enum AggregationAction {
    /// Transmit a frame over an edge, so many times in a row.
    Transmit {
        /// The edge.
        edge: EdgeIndex,
        /// The frame, how often and by which path.
        outgoing: OutgoingFrame<AggregationMessage>,
    },
    /// Send a message down the tree from here, to every member below, so many times in a row.
    Multicast {
        /// The result or abort.
        message: AggregationMessage,
        /// How many times.
        copies: u8,
    },
    /// A root has the result: the reduce phase is over.
    Reduced {
        /// Of this operation.
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

/// Duties, in the order in which they are to be done.
#[derive(Default, Debug)]
pub struct Outbox {
    duties: Vec<AggregationAction>,
}

impl Outbox {
    /// Adds a duty.
    pub fn push(&mut self, duty: AggregationAction) {
        self.duties.push(duty);
    }

    /// Takes all duties, first things first; the room stays for the next call.
    pub fn drain(&mut self) -> impl Iterator<Item = AggregationAction> + '_ {
        self.duties.drain(..)
    }

    /// True if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.duties.is_empty()
    }
}
