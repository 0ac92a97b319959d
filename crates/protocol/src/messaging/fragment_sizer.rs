//! How a long message is cut (claim CK-7): the first chunk is what can be copied during the handshake, each later one what can
//! be copied while the one before is on its way. So the network never waits for a copy, and there are few chunks.
//!
//! The receiver copies too, once a chunk has come: at the end of a message nothing overlaps with that. So chunks shrink
//! again, each to half of what is left, until a copy takes no longer than one more parcel does.

use units::Span;

use super::settings::MessagingSettings;

/// The chunks of one message, made one at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FragmentSizer {
    /// Chunks at the end are not cut smaller.
    least: u64,
    next: u64,
    growth_eighths: u64,
    /// Bytes for which there is time before the first answer.
    ahead: u64,
    left: u64,
    offset: u64,
}

/// The speeds that decide it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PipelineSpeeds {
    /// Bytes per microsecond of copies with their codes.
    pub(super) copy: u64,
    /// Bytes per microsecond of all rails together; none if not measured yet.
    pub(super) network: Option<u64>,
    /// From the announcement to the answer.
    pub(super) round_trip: Span,
}

/// A stretch of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FragmentRange {
    pub(super) offset: u64,
    pub(super) length: u32,
}

/// Chunks grow at least by a quarter and at most eightfold.
const LEAST_GROWTH: u64 = 10;
const MOST_GROWTH: u64 = 64;

impl FragmentSizer {
    pub(super) fn new(settings: &MessagingSettings, speeds: &PipelineSpeeds, length: u64) -> Self {
        let during_handshake = speeds.copy.saturating_mul(speeds.round_trip.as_picos()) / 1_000_000;
        let ratio = speeds.network.map_or(16, |network| speeds.copy.saturating_mul(8) / network.max(1));
        let during_parcel = speeds.copy.saturating_mul(settings.parcel_cost.as_picos()) / 1_000_000;
        let in_bounds = |bytes: u64| bytes.clamp(settings.sub_block.into(), settings.piece_bytes.into());
        let block = u64::from(settings.sub_block);
        Self {
            least: in_bounds(during_parcel),
            // Whole sub-blocks, and not one more than there is time for: the answer would wait for it.
            next: in_bounds(during_handshake / block * block),
            ahead: during_handshake,
            growth_eighths: ratio.clamp(LEAST_GROWTH, MOST_GROWTH),
            left: length,
            offset: 0,
        }
    }

    /// The next chunk, for a rail that has so many eighths of the speed of the fastest.
    pub(super) fn next(&mut self, settings: &MessagingSettings, speed_eighths: u64) -> Option<FragmentRange> {
        if self.left == 0 {
            return None;
        }
        let block = u64::from(settings.sub_block);
        let wanted = (self.next * speed_eighths.clamp(1, 8) / 8).max(block);
        let length = if self.left <= self.least { self.left } else { wanted.min(self.left / 2) };
        let length = if length < self.left { length.next_multiple_of(block).min(self.left) } else { length };
        let length = length.min(settings.piece_bytes.into());
        let stretch = FragmentRange { offset: self.offset, length: length as u32 };
        self.offset += length;
        self.left -= length;
        self.next = (self.next * self.growth_eighths / 8).min(settings.piece_bytes.into());
        Some(stretch)
    }

    /// The next chunk, if there is time for it before the answer to the announcement. For the first there always is.
    pub(super) fn next_ahead(&mut self, settings: &MessagingSettings) -> Option<FragmentRange> {
        if self.offset > 0 && self.offset + self.next > self.ahead {
            return None;
        }
        self.next(settings, 8)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn speeds(copy: u64, network: u64, micros: u64) -> PipelineSpeeds {
        PipelineSpeeds { copy, network: Some(network), round_trip: Span::from_micros(micros) }
    }

    fn cut(settings: &MessagingSettings, speeds: &PipelineSpeeds, length: u64) -> Vec<u32> {
        let mut chunks = FragmentSizer::new(settings, speeds, length);
        std::iter::from_fn(|| chunks.next(settings, 8)).map(|stretch| stretch.length).collect()
    }

    /// Jack of CK-8: 6 GB/s against 3 GB/s, twice 1.4 us of handshake.
    #[test]
    fn chunks_double_where_the_copy_is_twice_as_fast_as_the_network() {
        let settings = MessagingSettings { piece_bytes: 1 << 20, ..MessagingSettings::default() };
        let speeds = PipelineSpeeds { copy: 6_000, network: Some(3_000), round_trip: Span::from_nanos(2_800) };
        let sizes = cut(&settings, &speeds, 1 << 20);
        assert_eq!(sizes[0], 16_384, "16.8 KB, in whole sub-blocks");
        assert!(sizes[1] >= 32_768 && sizes[2] >= 65_536, "{sizes:?}");
        assert!(sizes.len() < 14, "{sizes:?}");
        assert!(*sizes.last().expect("several") <= 16_384, "the end shrinks: {sizes:?}");
    }

    proptest! {
        #[test]
        fn every_byte_is_in_one_chunk(
            length in 0u64..10_000_000,
            copy in 1u64..100_000,
            network in 1u64..100_000,
            micros in 0u64..10_000,
            shares in proptest::collection::vec(0u64..12, 1..5),
        ) {
            let settings = MessagingSettings::default();
            let mut chunks = FragmentSizer::new(&settings, &speeds(copy, network, micros), length);
            let mut at = 0;
            let mut shares = shares.iter().cycle();
            while let Some(stretch) = chunks.next(&settings, *shares.next().expect("cycles")) {
                prop_assert_eq!(stretch.offset, at);
                prop_assert!(stretch.length > 0 && stretch.length <= settings.piece_bytes);
                at += u64::from(stretch.length);
                prop_assert!(at == length || stretch.length.is_multiple_of(settings.sub_block));
            }
            prop_assert_eq!(at, length);
            prop_assert!(chunks.is_empty());
        }
    }
}
