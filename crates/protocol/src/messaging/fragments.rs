//! Long messages on their way out and in (P-87 to P-89).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use units::{Rank, Time};

use super::MAX_RETRANSMITS;
use super::fragment_sizer::{FragmentRange, FragmentSizer};
use super::matching::{ReceiveId, SendId};
use super::rails::{RailIndex, RailPacketId};
use super::unacked_log::ResendOutcome;

/// The code of a piece's bytes, and what it gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FragmentChecksum {
    pub(super) algorithm: u8,
    pub(super) value: u64,
}

/// A piece that was copied, or looked at, before it could be sent.
#[derive(Debug)]
pub(super) struct PreparedFragment {
    pub(super) stretch: FragmentRange,
    /// Room for the header, then the bytes; without them if they are sent from where they lie.
    pub(super) parcel: Vec<u8>,
    pub(super) sealed: FragmentChecksum,
}

/// A piece to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FragmentRetransmit {
    stretch: FragmentRange,
    avoid: RailIndex,
    tries: u8,
    sealed: FragmentChecksum,
}

/// What goes out next.
#[derive(Debug)]
pub(super) enum NextFragment {
    Prepared(PreparedFragment),
    Fresh(FragmentRange),
    /// The tries so far, and what its bytes were sealed with.
    Again(FragmentRange, u8, FragmentChecksum),
}

#[derive(Debug)]
struct InFlightFragment {
    at: RailPacketId,
    stretch: FragmentRange,
    tries: u8,
    sealed: FragmentChecksum,
}

/// A message on its way out.
#[derive(Debug)]
pub(super) struct OutgoingTransfer {
    pub(super) announced: Time,
    pub(super) id: SendId,
    pub(super) data: Arc<Vec<u8>>,
    pub(super) is_ready: bool,
    pub(super) chunks: FragmentSizer,
    pub(super) prepared: VecDeque<PreparedFragment>,
    repeats: VecDeque<FragmentRetransmit>,
    flying: Vec<InFlightFragment>,
}

impl OutgoingTransfer {
    pub(super) fn new(announced: Time, id: SendId, data: Vec<u8>, chunks: FragmentSizer) -> Self {
        let (data, prepared, repeats, flying) = (Arc::new(data), VecDeque::new(), VecDeque::new(), Vec::new());
        Self { announced, id, data, is_ready: false, chunks, prepared, repeats, flying }
    }

    /// The rail to avoid with the next piece; none within if any will do, none at all if there is nothing to send.
    pub(super) fn wants(&self) -> Option<Option<RailIndex>> {
        if let Some(repeat) = self.repeats.front() {
            return Some(Some(repeat.avoid));
        }
        (!self.prepared.is_empty() || !self.chunks.is_empty()).then_some(None)
    }

    /// The next piece, for a rail with such a share of the speed.
    pub(super) fn next(&mut self, settings: &super::MessagingSettings, share: u64) -> Option<NextFragment> {
        if let Some(repeat) = self.repeats.pop_front() {
            return Some(NextFragment::Again(repeat.stretch, repeat.tries, repeat.sealed));
        }
        if let Some(prepared) = self.prepared.pop_front() {
            return Some(NextFragment::Prepared(prepared));
        }
        self.chunks.next(settings, share).map(NextFragment::Fresh)
    }

    pub(super) fn fly(&mut self, at: RailPacketId, stretch: FragmentRange, tries: u8, sealed: FragmentChecksum) {
        self.flying.push(InFlightFragment { at, stretch, tries, sealed });
    }

    /// A parcel came spoiled. [`ResendOutcome::Needless`] if it was none of this message.
    pub(super) fn ask_again(&mut self, at: RailPacketId) -> ResendOutcome {
        let Some(index) = self.flying.iter().position(|flying| flying.at == at) else {
            return ResendOutcome::Needless;
        };
        let InFlightFragment { stretch, tries, sealed, .. } = self.flying.swap_remove(index);
        if tries >= MAX_RETRANSMITS {
            return ResendOutcome::TooOften;
        }
        self.repeats.push_back(FragmentRetransmit { stretch, avoid: at.0, tries: tries + 1, sealed });
        ResendOutcome::Noted
    }

    /// A rail is lost, and perhaps everything that went by it. True if there was anything.
    pub(super) fn lose_rail(&mut self, rail: RailIndex) -> bool {
        let (lost, left): (Vec<_>, Vec<_>) = self.flying.drain(..).partition(|flying| flying.at.0 == rail);
        self.flying = left;
        let repeat = |InFlightFragment { stretch, tries, sealed, .. }: &InFlightFragment| {
            let (stretch, tries, sealed) = (*stretch, *tries, *sealed);
            FragmentRetransmit { stretch, avoid: rail, tries, sealed }
        };
        self.repeats.extend(lost.iter().map(repeat));
        !lost.is_empty()
    }
}

/// A message on its way in.
#[derive(Debug)]
pub(super) struct IncomingTransfer {
    pub(super) id: ReceiveId,
    pub(super) source: Rank,
    pub(super) tag: u64,
    pub(super) length: u64,
    pub(super) buffer: Vec<u8>,
    pub(super) here: ReceivedRanges,
}

/// Which bytes of a message are here.
#[derive(Debug, Default)]
pub(super) struct ReceivedRanges(BTreeMap<u64, u64>);

/// How a stretch stands to those that are here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RangeCoverage {
    Missing,
    Here,
    /// Some of it is here: nobody cuts a message in two ways.
    Straddling,
}

impl ReceivedRanges {
    pub(super) fn standing(&self, range: &Range<u64>) -> RangeCoverage {
        match self.0.range(..range.end).next_back() {
            Some((_, end)) if *end <= range.start => RangeCoverage::Missing,
            Some((start, end)) if *start <= range.start && range.end <= *end => RangeCoverage::Here,
            Some(_) => RangeCoverage::Straddling,
            None => RangeCoverage::Missing,
        }
    }

    /// Adds one that is missing, and joins it to its neighbours.
    pub(super) fn add(&mut self, range: Range<u64>) {
        let mut end = range.end;
        if let Some(next) = self.0.remove(&end) {
            end = next;
        }
        match self.0.range_mut(..range.start).next_back() {
            Some((_, before)) if *before == range.start => *before = end,
            _ => {
                self.0.insert(range.start, end);
            }
        }
    }

    pub(super) fn is_all(&self, length: u64) -> bool {
        self.0.get(&0) == Some(&length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stretches_are_a_set_of_bytes(order in Just((0..32u64).collect::<Vec<_>>()).prop_shuffle(), cut in 1u64..9) {
            let mut stretches = ReceivedRanges::default();
            let mut bytes = std::collections::BTreeSet::new();
            for start in order.into_iter().map(|number| number * cut) {
                prop_assert_eq!(stretches.standing(&(start..start + cut)), RangeCoverage::Missing);
                stretches.add(start..start + cut);
                bytes.extend(start..start + cut);
                prop_assert_eq!(stretches.standing(&(start..start + cut)), RangeCoverage::Here);
                for from in 0..32 * cut {
                    for to in [from + 1, from + cut, from + 2 * cut] {
                        let have = (from..to).filter(|byte| bytes.contains(byte)).count() as u64;
                        let expected = match have {
                            0 => RangeCoverage::Missing,
                            all if all == to - from => RangeCoverage::Here,
                            _ => RangeCoverage::Straddling,
                        };
                        prop_assert_eq!(stretches.standing(&(from..to)), expected);
                    }
                }
            }
            prop_assert!(stretches.is_all(32 * cut));
        }
    }
}
