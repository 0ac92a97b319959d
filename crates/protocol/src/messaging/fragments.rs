//! Long messages in flight (P-69 to P-71): fragments to send, and byte ranges received.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use units::{Rank, Time};

use super::fragment_sizer::{FragmentRange, FragmentSizer};
use super::lent_buffer::ReceiveBuffer;
use super::limits::MAX_RETRANSMITS;
use super::matching::{ReceiveId, SendId};
use super::rails::{RailIndex, RailPacketId};
use super::settings::MessagingSettings;
use super::unacked_log::ResendOutcome;
use crate::SharedBytes;

/// The checksum of a fragment's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FragmentChecksum {
    pub(super) algorithm: u8,
    pub(super) value: u64,
}

/// A fragment that was copied, or only checksummed, before it could be sent.
#[derive(Debug)]
pub(super) struct PreparedFragment {
    pub(super) range: FragmentRange,
    /// Space for the header, then the bytes; only the header if the bytes are sent from the user's buffer.
    pub(super) packet: Vec<u8>,
    pub(super) checksum: FragmentChecksum,
}

/// A fragment to retransmit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FragmentRetransmit {
    range: FragmentRange,
    avoid: RailIndex,
    retransmits: u8,
    checksum: FragmentChecksum,
}

/// The next fragment to send.
#[derive(Debug)]
pub(super) enum NextFragment {
    Prepared(PreparedFragment),
    Fresh(FragmentRange),
    /// With the number of retransmissions, and the checksum of its first transmission.
    Retransmit(FragmentRange, u8, FragmentChecksum),
}

#[derive(Debug)]
struct InFlightFragment {
    at: RailPacketId,
    range: FragmentRange,
    retransmits: u8,
    checksum: FragmentChecksum,
}

/// A long message that is being sent.
#[derive(Debug)]
pub(super) struct OutgoingTransfer {
    pub(super) announced: Time,
    pub(super) id: SendId,
    pub(super) data: SharedBytes,
    /// The CTS arrived.
    pub(super) is_ready: bool,
    pub(super) sizer: FragmentSizer,
    pub(super) prepared: VecDeque<PreparedFragment>,
    retransmits: VecDeque<FragmentRetransmit>,
    in_flight: Vec<InFlightFragment>,
}

impl OutgoingTransfer {
    pub(super) fn new(announced: Time, id: SendId, data: SharedBytes, sizer: FragmentSizer) -> Self {
        let prepared = VecDeque::new();
        let (retransmits, in_flight) = (VecDeque::new(), Vec::new());
        Self { announced, id, data, is_ready: false, sizer, prepared, retransmits, in_flight }
    }

    /// The rail to avoid with the next fragment (`Some(None)`: any rail is fine); none if there is nothing to send.
    pub(super) fn wants(&self) -> Option<Option<RailIndex>> {
        if let Some(retransmit) = self.retransmits.front() {
            return Some(Some(retransmit.avoid));
        }
        (!self.prepared.is_empty() || !self.sizer.is_empty()).then_some(None)
    }

    /// The next fragment, for a rail with this share of the speed.
    pub(super) fn next(&mut self, settings: &MessagingSettings, share: u64) -> Option<NextFragment> {
        if let Some(FragmentRetransmit { range, retransmits, checksum, .. }) = self.retransmits.pop_front() {
            return Some(NextFragment::Retransmit(range, retransmits, checksum));
        }
        if let Some(prepared) = self.prepared.pop_front() {
            return Some(NextFragment::Prepared(prepared));
        }
        self.sizer.next(settings, share).map(NextFragment::Fresh)
    }

    pub(super) fn note_sent(
        &mut self,
        at: RailPacketId,
        range: FragmentRange,
        retransmits: u8,
        checksum: FragmentChecksum,
    ) {
        self.in_flight.push(InFlightFragment { at, range, retransmits, checksum });
    }

    /// A packet arrived corrupt. [`ResendOutcome::NotNeeded`] if it carried no fragment of this message.
    pub(super) fn handle_nack(&mut self, at: RailPacketId) -> ResendOutcome {
        let Some(index) = self.in_flight.iter().position(|fragment| fragment.at == at) else {
            return ResendOutcome::NotNeeded;
        };
        let InFlightFragment { range, retransmits, checksum, .. } = self.in_flight.swap_remove(index);
        if retransmits >= MAX_RETRANSMITS {
            return ResendOutcome::LimitReached;
        }
        let retransmits = retransmits + 1;
        self.retransmits.push_back(FragmentRetransmit { range, avoid: at.0, retransmits, checksum });
        ResendOutcome::Scheduled
    }

    /// A rail failed: retransmits every fragment that was sent over it. True if there was any.
    pub(super) fn lose_rail(&mut self, rail: RailIndex) -> bool {
        let (lost, left): (Vec<_>, Vec<_>) = self.in_flight.drain(..).partition(|fragment| fragment.at.0 == rail);
        self.in_flight = left;
        let retransmit = |InFlightFragment { range, retransmits, checksum, .. }: &InFlightFragment| {
            let (range, retransmits, checksum) = (*range, *retransmits, *checksum);
            FragmentRetransmit { range, avoid: rail, retransmits, checksum }
        };
        self.retransmits.extend(lost.iter().map(retransmit));
        !lost.is_empty()
    }
}

/// A long message that is being received.
#[derive(Debug)]
pub(super) struct IncomingTransfer {
    pub(super) id: ReceiveId,
    pub(super) source: Rank,
    pub(super) tag: u64,
    pub(super) length: u64,
    pub(super) buffer: ReceiveBuffer,
    pub(super) received: ReceivedRanges,
}

/// The byte ranges of a message that were received: start to end, disjoint and not adjacent.
#[derive(Debug, Default)]
pub(super) struct ReceivedRanges(BTreeMap<u64, u64>);

/// How much of a range was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RangeCoverage {
    Missing,
    Received,
    /// Part of it: a sender cuts a message in one way only.
    Overlapping,
}

impl ReceivedRanges {
    pub(super) fn coverage(&self, range: &Range<u64>) -> RangeCoverage {
        match self.0.range(..range.end).next_back() {
            Some((_, end)) if *end <= range.start => RangeCoverage::Missing,
            Some((start, end)) if *start <= range.start && range.end <= *end => RangeCoverage::Received,
            Some(_) => RangeCoverage::Overlapping,
            None => RangeCoverage::Missing,
        }
    }

    /// Adds a missing range, and joins it to its neighbours.
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

    pub(super) fn is_complete(&self, length: u64) -> bool {
        self.0.get(&0) == Some(&length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_behave_like_a_set_of_bytes(
            order in Just((0..32u64).collect::<Vec<_>>()).prop_shuffle(),
            cut in 1u64..9
        ) {
            let mut ranges = ReceivedRanges::default();
            let mut bytes = std::collections::BTreeSet::new();
            for start in order.into_iter().map(|number| number * cut) {
                prop_assert_eq!(ranges.coverage(&(start..start + cut)), RangeCoverage::Missing);
                ranges.add(start..start + cut);
                bytes.extend(start..start + cut);
                prop_assert_eq!(ranges.coverage(&(start..start + cut)), RangeCoverage::Received);
                for from in 0..32 * cut {
                    for to in [from + 1, from + cut, from + 2 * cut] {
                        let have = (from..to).filter(|byte| bytes.contains(byte)).count() as u64;
                        let expected = match have {
                            0 => RangeCoverage::Missing,
                            all if all == to - from => RangeCoverage::Received,
                            _ => RangeCoverage::Overlapping,
                        };
                        prop_assert_eq!(ranges.coverage(&(from..to)), expected);
                    }
                }
            }
            prop_assert!(ranges.is_complete(32 * cut));
        }
    }
}
