//! Counts of dropped packets.

/// Dropped packets, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DropCounters {
    /// Arrived in a state that accepts no packets.
    pub wrong_state: u64,
    /// Of another partition.
    pub wrong_partition: u64,
    /// Of a kind that has no meaning here.
    pub malformed: u64,
    /// Received before.
    pub duplicate: u64,
    /// Arrived when no receive was posted; the sender was asked to wait.
    pub no_receive: u64,
}
