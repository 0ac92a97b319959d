//! What both ends of a port agree on beforehand.

use units::Span;

use super::checksum_policy::ChecksumPolicy;

/// How a port behaves. All ports that speak with each other use the same, except for `copy_speed`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessagingSettings {
    /// How parcels are covered.
    pub sealing: ChecksumPolicy,
    /// Messages of at most so many bytes are sent without being asked for.
    pub eager_bytes: u32,
    /// Messages of at most so many bytes are put together if they must wait anyway.
    pub gather_bytes: u32,
    /// Bytes of a parcel into which small messages are gathered.
    pub gathered_bytes: u32,
    /// Bytes of messages (each counted with 64 more) that a peer may have sent and nobody has received.
    pub credit_bytes: u64,
    /// Most bytes of a parcel without its header; at least `eager_bytes`.
    pub piece_bytes: u32,
    /// Least bytes of a piece: what is copied and checked while it stays in the cache.
    pub sub_block: u32,
    /// Parcels of a long message that are handed to a rail at once.
    pub depth: usize,
    /// Long messages to one peer whose first chunk is copied before it is asked for; none where copying ahead saves nothing.
    pub prepared: usize,
    /// Parcels of letters that are handed to a rail at once; what more there is, is gathered.
    pub letter_depth: usize,
    /// How fast this machine copies and checks, in bytes per microsecond.
    pub copy_speed: u64,
    /// What one more parcel takes, apart from its bytes.
    pub parcel_cost: Span,
    /// The round trip of a rail that has not been measured yet.
    pub first_round_trip: Span,
}

impl Default for MessagingSettings {
    /// For queue pairs over UDP.
    fn default() -> Self {
        Self {
            sealing: ChecksumPolicy::default(),
            eager_bytes: 16 << 10,
            gather_bytes: 1 << 10,
            gathered_bytes: 4032,
            credit_bytes: 1 << 20,
            piece_bytes: 60 << 10,
            sub_block: 4 << 10,
            depth: 12,
            prepared: 4,
            letter_depth: 8,
            copy_speed: 20_000,
            parcel_cost: Span::from_micros(2),
            first_round_trip: Span::from_micros(20),
        }
    }
}

impl MessagingSettings {
    /// Bytes that a buffer must have to take any parcel.
    pub fn parcel_bytes(&self) -> usize {
        super::MESSAGE_HEADER_BYTES + self.piece_bytes as usize
    }

    /// # Panics
    /// If they contradict each other.
    pub(super) fn check(&self) {
        assert!(self.eager_bytes <= self.piece_bytes, "an eager message is one parcel");
        assert!(self.gather_bytes <= self.eager_bytes, "what is gathered is eager");
        let gathered = self.gather_bytes as usize + super::packet::CONTROL_HEADER_BYTES;
        assert!(gathered.next_multiple_of(8) <= self.gathered_bytes as usize, "one small message fits a parcel");
        assert!(self.gathered_bytes <= self.piece_bytes, "what is gathered is one parcel");
        let least = 4 * (u64::from(self.eager_bytes) + super::CONTROL_MESSAGE_COST_BYTES);
        assert!(self.credit_bytes >= least, "the credit is that of four messages at least");
        assert!(self.credit_bytes < 1 << 31, "of a count of granted bytes, 32 bits say which it is");
        assert!(self.depth > 0 && self.letter_depth > 0 && self.copy_speed > 0, "nothing would ever be sent");
        let aligned = self.sub_block > 0 && self.piece_bytes.is_multiple_of(self.sub_block);
        assert!(aligned, "pieces are whole sub-blocks");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue_pair::MAX_UNREQUESTED_ACKS;

    /// With as many letters under way as may be, the next would wait for an acknowledgement that nobody asked for.
    #[test]
    fn the_last_letter_that_may_be_under_way_asks_for_an_acknowledgement() {
        assert!(MessagingSettings::default().letter_depth > MAX_UNREQUESTED_ACKS);
    }
}
