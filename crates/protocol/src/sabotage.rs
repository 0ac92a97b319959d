//! Deliberate defects of the machines, for the tests that prove that the oracle catches them.
//!
//! A machine gets its defect with its [`ConnectionPolicy`](crate::connection::ConnectionPolicy), which reaches members, nodes and
//! their connections alike.

/// A defect of every machine of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MachineSabotage {
    /// Nodes fold wrongly.
    Fold(SlotSabotage),
    /// A connection delivers a frame again that arrives again.
    AcceptDuplicates,
    /// A connection does not retransmit after a timeout.
    NeverRetransmit,
    /// A member does not request a result that is late.
    NeverRequestResult,
    /// A member reports a result twice if it had to request it.
    DeliverTwice,
    /// A member leaves an operation without operands, such as a barrier, as soon as it has entered it.
    CompleteEarly,
    /// A node tells nobody that an operation failed, even if it is asked.
    SwallowAborts,
    /// A node does not take note of some results, and so keeps what it folded.
    KeepSlots,
}

/// A deliberate bug in the fold, which the oracle must catch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotSabotage {
    /// Folds the last child's operand twice.
    FoldTwice,
    /// Omits the first child's operand.
    FoldEarly,
    /// Folds from the last child to the first.
    FoldBackwards,
}
