//! Parameters that both ends of a messaging endpoint agree on beforehand.

use units::Span;

use super::checksum_policy::ChecksumPolicy;

/// How an endpoint behaves. All endpoints that communicate use the same settings, except for `copy_bytes_per_us`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessagingSettings {
    /// How packets are covered.
    pub checksum: ChecksumPolicy,
    /// Messages of at most this many bytes are sent eagerly, without a rendezvous.
    pub eager_bytes: u32,
    /// Messages of at most this many bytes are coalesced if they must wait anyway.
    pub coalesce_limit_bytes: u32,
    /// Bytes of a packet of coalesced messages.
    pub coalesced_bytes: u32,
    /// Bytes of messages (plus 64 each) that a peer may send before the user receives them.
    pub credit_bytes: u64,
    /// Most bytes of a packet without its header; at least `eager_bytes`.
    pub fragment_bytes: u32,
    /// Least bytes of a fragment: what stays in the cache while it is copied and checked.
    pub min_fragment_bytes: u32,
    /// Fragments in flight per rail.
    pub depth: usize,
    /// Long messages per peer whose first fragment is copied before the CTS; zero where copying ahead saves nothing.
    pub prepared: usize,
    /// Control packets in flight per rail; further messages are coalesced.
    pub control_depth: usize,
    /// How fast this machine copies and checksums, in bytes per microsecond.
    pub copy_bytes_per_us: u64,
    /// The cost of one more packet, without its bytes.
    pub packet_cost: Span,
    /// The round trip assumed for a rail that has not been measured.
    pub initial_rtt: Span,
}

impl Default for MessagingSettings {
    /// For queue pairs over UDP.
    fn default() -> Self {
        Self {
            checksum: ChecksumPolicy::default(),
            eager_bytes: 16 << 10,
            coalesce_limit_bytes: 1 << 10,
            coalesced_bytes: 4032,
            credit_bytes: 1 << 20,
            fragment_bytes: 60 << 10,
            min_fragment_bytes: 4 << 10,
            depth: 12,
            prepared: 4,
            control_depth: 8,
            copy_bytes_per_us: 20_000,
            packet_cost: Span::from_micros(2),
            initial_rtt: Span::from_micros(20),
        }
    }
}

impl MessagingSettings {
    /// Bytes of a buffer that can hold any packet.
    pub fn packet_bytes(&self) -> usize {
        super::packet::MESSAGE_HEADER_BYTES + self.fragment_bytes as usize
    }

    /// # Panics
    /// If the settings contradict each other.
    pub(super) fn check(&self) {
        assert!(self.eager_bytes <= self.fragment_bytes, "an eager message fits one packet");
        assert!(self.coalesce_limit_bytes <= self.eager_bytes, "coalesced messages are eager");
        let coalesced = self.coalesce_limit_bytes as usize + super::control_message::CONTROL_HEADER_BYTES;
        let fits = coalesced.next_multiple_of(8) <= self.coalesced_bytes as usize;
        assert!(fits, "a coalesced packet holds at least one message");
        assert!(self.coalesced_bytes <= self.fragment_bytes, "coalesced messages fit one packet");
        let least = 4 * (u64::from(self.eager_bytes) + super::limits::CONTROL_MESSAGE_COST_BYTES);
        assert!(self.credit_bytes >= least, "the credit covers at least four messages");
        assert!(self.credit_bytes < 1 << 31, "32 bits of a credit count must identify it");
        let progresses = self.depth > 0 && self.control_depth > 0 && self.copy_bytes_per_us > 0;
        assert!(progresses, "depths and copy speed are positive");
        let aligned = self.min_fragment_bytes > 0 && self.fragment_bytes.is_multiple_of(self.min_fragment_bytes);
        assert!(aligned, "fragment_bytes is a multiple of min_fragment_bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue_pair::MAX_UNREQUESTED_ACKS;

    /// Otherwise the sender fills `control_depth`, and waits for an acknowledgement that it never requested.
    #[test]
    fn the_last_control_packet_that_fits_requests_an_acknowledgement() {
        assert!(MessagingSettings::default().control_depth > MAX_UNREQUESTED_ACKS);
    }
}
