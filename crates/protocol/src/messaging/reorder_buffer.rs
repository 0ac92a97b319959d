//! Received messages by sequence number: duplicates are detected, early ones wait for their turn (P-66, P-67).

use std::collections::BTreeMap;

use super::limits::REPAIR_WINDOW;
use super::matching::MessageContents;

/// A message that arrived before an earlier one.
#[derive(Debug)]
pub(super) enum EarlyMessage {
    /// An eager message or RTS, with its tag: it must be matched in order.
    Ordered(u64, MessageContents),
    /// A message without order; it was handled on arrival.
    Handled,
}

/// Where a sequence number stands relative to the expected one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SequencePosition {
    Expected,
    Ahead,
    /// It was received before.
    Duplicate,
    /// Further ahead than a peer may send.
    OutOfWindow,
}

#[derive(Debug, Default)]
pub(super) struct ReorderBuffer {
    expected: u64,
    early: BTreeMap<u64, EarlyMessage>,
}

impl ReorderBuffer {
    /// Messages received in order.
    pub(super) fn received(&self) -> u64 {
        self.expected
    }

    pub(super) fn position(&self, sequence: u64) -> SequencePosition {
        match sequence.checked_sub(self.expected) {
            None => SequencePosition::Duplicate,
            Some(_) if self.early.contains_key(&sequence) => SequencePosition::Duplicate,
            Some(0) => SequencePosition::Expected,
            Some(ahead) if ahead < REPAIR_WINDOW => SequencePosition::Ahead,
            Some(_) => SequencePosition::OutOfWindow,
        }
    }

    /// The expected message was handled.
    pub(super) fn advance(&mut self) {
        self.expected += 1;
    }

    pub(super) fn insert(&mut self, sequence: u64, early: EarlyMessage) {
        self.early.insert(sequence, early);
    }

    /// The expected message, if it arrived early.
    #[inline]
    pub(super) fn next(&mut self) -> Option<EarlyMessage> {
        if self.early.is_empty() {
            return None;
        }
        let early = self.early.remove(&self.expected)?;
        self.expected += 1;
        Some(early)
    }
}
