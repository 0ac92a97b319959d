//! The outcome of a command, which becomes its exit status.

/// The outcome of a command that ran to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandOutcome {
    /// All checks passed.
    Passed,
    /// The oracle found a violation, or a gated number does not hold.
    Failed,
}
