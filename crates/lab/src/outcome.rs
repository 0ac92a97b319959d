//! What a command found.

/// What a command found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandOutcome {
    /// Everything was as it must be.
    Right,
    /// The oracle objects, or a gated number does not hold.
    Wrong,
}
