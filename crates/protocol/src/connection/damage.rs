//! Damaged packets, as the driver reports them.

/// How the driver found that a packet is unusable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// A check on this link failed: the neighbour at the other end of the link can repair it.
    Here,
    /// The packet arrived marked as bad: a node further up has detected the damage, and repairs it (SE-5).
    Marked,
}

/// The result of a report of damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DamageOutcome {
    /// The damaged packet was a copy of a frame that arrived, or another copy is still due.
    Harmless,
    /// Every copy was damaged; the receiver sent a NAK.
    Reported,
}
