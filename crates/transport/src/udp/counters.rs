//! What an endpoint counts.

/// Packets of an endpoint, by what became of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EndpointCounters {
    /// Packets passed to the kernel.
    pub sent: u64,
    /// Retransmissions among them.
    pub repeated: u64,
    /// Valid packets for a queue pair of this endpoint.
    pub received: u64,
    /// Packets with a wrong ICRC.
    pub damaged: u64,
    /// Packets that do not parse.
    pub malformed: u64,
    /// Packets without a MAC where one is due, or with a wrong one: forged, or damaged where the ICRC does not cover them.
    pub forged: u64,
    /// Authentic packets that had arrived before.
    pub replayed: u64,
    /// Packets for an unknown queue pair, or from an address that is no peer of it.
    pub foreign: u64,
    /// Datagrams for which no buffer was posted.
    pub no_buffer: u64,
    /// Send calls that the kernel rejected: no buffer space or no route.
    pub unsent: u64,
}
