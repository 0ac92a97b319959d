//! Which ranks a communicator has, and on which hosts.

/// Which ranks a communicator has, and where they are.
pub(crate) struct CommunicatorLayout {
    /// In the communicator of all ranks.
    pub ranks: Vec<u32>,
    /// This process's rank.
    pub rank: u32,
    /// The ranks of this communicator, host by host; the first of each is its leader.
    pub hosts: Vec<Vec<u32>>,
    /// This process's host.
    pub host: usize,
    /// This process's rank within its host.
    pub local_rank: u16,
}
