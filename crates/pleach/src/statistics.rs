//! Counters of a communicator.

/// What a communicator has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CommunicatorStatistics {
    /// Operations that completed without an error.
    pub operations: u64,
    /// Of them: within this host alone.
    pub within_host: u64,
    /// Of them: between hosts, as counted at leaders.
    pub between_hosts: u64,
    /// Of those: reduced by aggregation nodes.
    pub aggregated: u64,
    /// Of those: sent by multicast, with acknowledgements combined by aggregation nodes.
    pub multicast: u64,
}
