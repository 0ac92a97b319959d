//! What a DMA can tell its destination: a signal of a collective, or the envelope of a tagged message.

use protocol::collective::quadrics::CallNumber;
use units::Rank;

/// A word from one rank to another, or to all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CollectiveSignal {
    Ready { from: Rank, call: CallNumber },
    Release { call: CallNumber },
    Data { call: CallNumber },
}

/// The envelope of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TportEnvelope {
    /// The sender's virtual process id.
    pub from: u32,
    /// The tag.
    pub tag: u32,
    /// The length of the message.
    pub bytes: u32,
}
