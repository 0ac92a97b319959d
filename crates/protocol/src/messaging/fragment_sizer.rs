//! The sizes of fragments (claim CK-7): the first is what can be copied during the handshake, each later one what can be copied while
//! the previous one is in flight. So the network never waits for a copy, and there are few fragments.
//!
//! The receiver copies each fragment after it arrived; at the end of a message nothing overlaps with that copy. So fragments shrink
//! again, each to half of what remains, until a copy takes no longer than one more packet costs.

use units::Span;

use super::settings::MessagingSettings;

/// Cuts one message into fragments, one at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FragmentSizer {
    /// Fragments at the end are not cut smaller.
    least: u64,
    next: u64,
    growth_eighths: u64,
    /// Bytes that can be copied before the CTS.
    ahead: u64,
    remaining: u64,
    offset: u64,
}

/// The speeds that determine the sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PipelineSpeeds {
    /// Bytes per microsecond of copies with checksums.
    pub(super) copy: u64,
    /// Bytes per microsecond of all rails together; none before the first measurement.
    pub(super) network: Option<u64>,
    /// From RTS to CTS.
    pub(super) rtt: Span,
}

/// The bytes of a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FragmentRange {
    pub(super) offset: u64,
    pub(super) length: u32,
}

/// Eighths by which fragments grow: at least by a quarter, at most eightfold.
const MIN_GROWTH_EIGHTHS: u64 = 10;
const MAX_GROWTH_EIGHTHS: u64 = 64;

impl FragmentSizer {
    pub(super) fn new(settings: &MessagingSettings, speeds: &PipelineSpeeds, length: u64) -> Self {
        let during_handshake = speeds.copy.saturating_mul(speeds.rtt.as_nanos()) / 1_000;
        let ratio = speeds.network.map_or(16, |network| speeds.copy.saturating_mul(8) / network.max(1));
        let during_packet = speeds.copy.saturating_mul(settings.packet_cost.as_nanos()) / 1_000;
        let in_bounds = |bytes: u64| bytes.clamp(settings.min_fragment_bytes.into(), settings.fragment_bytes.into());
        let block = u64::from(settings.min_fragment_bytes);
        Self {
            least: in_bounds(during_packet),
            // Whole blocks, and no more than there is time for: the first fragment after the CTS would wait for the copy.
            next: in_bounds(during_handshake / block * block),
            ahead: during_handshake,
            growth_eighths: ratio.clamp(MIN_GROWTH_EIGHTHS, MAX_GROWTH_EIGHTHS),
            remaining: length,
            offset: 0,
        }
    }

    /// The next fragment, for a rail with this many eighths of the fastest rail's speed.
    pub(super) fn next(&mut self, settings: &MessagingSettings, speed_eighths: u64) -> Option<FragmentRange> {
        if self.remaining == 0 {
            return None;
        }
        let block = u64::from(settings.min_fragment_bytes);
        let wanted = (self.next * speed_eighths.clamp(1, 8) / 8).max(block);
        let length = if self.remaining <= self.least { self.remaining } else { wanted.min(self.remaining / 2) };
        let length =
            if length < self.remaining { length.next_multiple_of(block).min(self.remaining) } else { length };
        let length = length.min(settings.fragment_bytes.into());
        let range = FragmentRange { offset: self.offset, length: length as u32 };
        self.offset += length;
        self.remaining -= length;
        self.next = (self.next * self.growth_eighths / 8).min(settings.fragment_bytes.into());
        Some(range)
    }

    /// The next fragment, if it can be copied before the CTS. The first one always is.
    pub(super) fn next_ahead(&mut self, settings: &MessagingSettings) -> Option<FragmentRange> {
        if self.offset > 0 && self.offset + self.next > self.ahead {
            return None;
        }
        self.next(settings, 8)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.remaining == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn speeds(copy: u64, network: u64, micros: u64) -> PipelineSpeeds {
        PipelineSpeeds { copy, network: Some(network), rtt: Span::from_micros(micros) }
    }

    fn cut(settings: &MessagingSettings, speeds: &PipelineSpeeds, length: u64) -> Vec<u32> {
        let mut sizer = FragmentSizer::new(settings, speeds, length);
        std::iter::from_fn(|| sizer.next(settings, 8)).map(|range| range.length).collect()
    }

    /// Jack of CK-8: 6 GB/s against 3 GB/s, twice 1.4 us of handshake.
    #[test]
    fn fragments_double_where_the_copy_is_twice_as_fast_as_the_network() {
        let settings = MessagingSettings { fragment_bytes: 1 << 20, ..MessagingSettings::default() };
        let speeds = PipelineSpeeds { copy: 6_000, network: Some(3_000), rtt: Span::from_nanos(2_800) };
        let sizes = cut(&settings, &speeds, 1 << 20);
        assert_eq!(sizes[0], 16_384, "16.8 KB, in whole blocks");
        assert!(sizes[1] >= 32_768 && sizes[2] >= 65_536, "{sizes:?}");
        assert!(sizes.len() < 14, "{sizes:?}");
        assert!(*sizes.last().expect("several") <= 16_384, "the end shrinks: {sizes:?}");
    }

    proptest! {
        #[test]
        fn every_byte_is_in_one_fragment(
            length in 0u64..10_000_000,
            copy in 1u64..100_000,
            network in 1u64..100_000,
            micros in 0u64..10_000,
            shares in proptest::collection::vec(0u64..12, 1..5),
        ) {
            let settings = MessagingSettings::default();
            let mut sizer = FragmentSizer::new(&settings, &speeds(copy, network, micros), length);
            let mut at = 0;
            let mut shares = shares.iter().cycle();
            while let Some(range) = sizer.next(&settings, *shares.next().expect("cycles")) {
                prop_assert_eq!(range.offset, at);
                prop_assert!(range.length > 0 && range.length <= settings.fragment_bytes);
                at += u64::from(range.length);
                prop_assert!(at == length || range.length.is_multiple_of(settings.min_fragment_bytes));
            }
            prop_assert_eq!(at, length);
            prop_assert!(sizer.is_empty());
        }
    }
}
