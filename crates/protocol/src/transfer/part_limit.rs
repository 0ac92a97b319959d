//! How long the parts to a peer may be: the MTU of its path may become smaller while packets are on their way (P-92).

use units::{Span, Time};

/// Packets of this size pass every path that carries IPv6, and all but the strangest that carry IPv4.
pub const BASE_PACKET_BYTES: usize = 1200;
/// Timeouts in a row after which long packets may be the reason.
const TIMEOUTS_BEFORE_LIMIT: u32 = 2;
const MIN_INTERVAL: Span = Span::from_micros(1_000_000);
const MAX_INTERVAL: Span = Span::from_micros(60_000_000);

/// Whether parts to a peer must be short at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartLimit {
    until: Time,
    interval: Span,
}

impl Default for PartLimit {
    fn default() -> Self {
        Self { until: Time::ZERO, interval: Span::ZERO }
    }
}

impl PartLimit {
    /// True if packets must not be longer than [`BASE_PACKET_BYTES`].
    pub fn is_limited(&self, now: Time) -> bool {
        now < self.until
    }

    /// A transfer has heard nothing for so many timeouts in a row.
    pub fn note_timeouts(&mut self, now: Time, timeouts: u32) {
        if timeouts < TIMEOUTS_BEFORE_LIMIT || self.is_limited(now) {
            return;
        }
        // If longer packets worked for longer than they were forbidden, something else has happened now.
        let failed_again = self.interval > Span::ZERO && now < self.until + self.interval;
        self.interval = if failed_again { (self.interval + self.interval).min(MAX_INTERVAL) } else { MIN_INTERVAL };
        self.until = now + self.interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milliseconds(count: u64) -> Span {
        Span::from_micros(count * 1000)
    }

    #[test]
    fn two_timeouts_shorten_packets_for_a_while_and_each_failure_for_twice_as_long() {
        let mut limit = PartLimit::default();
        let at = |count: u64| Time::ZERO + milliseconds(count);
        limit.note_timeouts(at(1), 1);
        assert!(!limit.is_limited(at(1)));
        limit.note_timeouts(at(5), 2);
        assert!(limit.is_limited(at(5)) && limit.is_limited(at(1004)) && !limit.is_limited(at(1005)));
        limit.note_timeouts(at(500), 3); // The outage goes on: the while does not.
        assert!(!limit.is_limited(at(1005)));
        limit.note_timeouts(at(1010), 2);
        assert!(limit.is_limited(at(3009)) && !limit.is_limited(at(3010)));
        limit.note_timeouts(at(9000), 2);
        assert!(!limit.is_limited(at(10_000)), "long packets had worked for a long time");
    }

    #[test]
    fn the_while_is_bounded() {
        let (mut limit, mut now) = (PartLimit::default(), Time::ZERO);
        for _ in 0..20 {
            limit.note_timeouts(now, 2);
            while limit.is_limited(now) {
                now += milliseconds(100);
            }
        }
        limit.note_timeouts(now, 2);
        assert!(limit.is_limited(now + milliseconds(59_999)) && !limit.is_limited(now + milliseconds(60_001)));
    }
}
