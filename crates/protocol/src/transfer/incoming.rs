//! The receiving end of a transfer: which parts are here, and what to tell the sender.

use std::ops::Range;

use super::{IMPLICIT_ACK_BYTES, UNSOLICITED_BYTES};

/// Ranges beyond the first gap that are remembered. A part that would need one more is dropped like a lost one.
const MAX_RANGES_AHEAD: usize = 64;

/// What became of a part that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum PartArrival {
    /// It is new: combine it with the vector, once.
    New,
    /// It was here already, or it cannot be remembered: drop it.
    Dropped,
    /// It does not fit the transfer.
    Malformed,
}

/// What the receiver tells the sender.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransferAcknowledgement {
    /// Everything before this offset is here.
    pub received: u32,
    /// Everything before this offset may be sent.
    pub limit: u32,
    /// Offset and length of ranges that are missing although later parts are here.
    pub missing: Vec<(u32, u32)>,
    /// The sender's probe of the last part that arrived.
    pub probe: u8,
}

/// The receiving end of a transfer.
#[derive(Debug)]
pub struct BulkReceiver {
    length: u32,
    is_empty: bool,
    /// Parts begin and end between elements of this size.
    element: u32,
    /// Everything before this offset is here.
    contiguous: u32,
    /// Ranges beyond it that are here: sorted, not adjacent.
    ahead: Vec<Range<u32>>,
    /// How far beyond the received bytes the sender may go.
    window: u32,
    /// `contiguous` at the last acknowledgement.
    acknowledged: u32,
    /// A gap was found or filled since the last acknowledgement, or the sender asked for one.
    must_acknowledge: bool,
    probe: u8,
}

impl BulkReceiver {
    /// A transfer of `length` bytes in elements of `element` bytes. The sender may be `window` bytes ahead of what has arrived. An
    /// empty transfer counts as one byte, so that its packet can be acknowledged.
    pub fn new(length: u32, element: u32, window: u32) -> Self {
        Self {
            length: length.max(1),
            is_empty: length == 0,
            element: element.max(1),
            contiguous: 0,
            ahead: Vec::new(),
            window,
            acknowledged: 0,
            // The sender of a long transfer learns early how far it may go.
            must_acknowledge: length > UNSOLICITED_BYTES,
            probe: 0,
        }
    }

    /// Bytes that are here without a gap.
    pub fn contiguous(&self) -> u32 {
        self.contiguous
    }

    /// True if everything is here.
    pub fn is_complete(&self) -> bool {
        self.contiguous == self.length
    }

    /// What would become of a part. Whoever combines parts before they are noted asks first: what is not new must not be combined.
    pub fn classify(&self, offset: u32, bytes: u32) -> PartArrival {
        let Some(end) = offset.checked_add(bytes).filter(|end| *end <= self.length) else {
            return PartArrival::Malformed;
        };
        if self.is_empty && bytes == 0 {
            return if self.is_complete() { PartArrival::Dropped } else { PartArrival::New };
        }
        if bytes == 0 || self.is_empty || !offset.is_multiple_of(self.element) || !bytes.is_multiple_of(self.element)
        {
            return PartArrival::Malformed;
        }
        let overlaps = |range: &Range<u32>| range.start < end && offset < range.end;
        if offset < self.contiguous || self.ahead.iter().any(overlaps) {
            return PartArrival::Dropped;
        }
        let touches = |range: &Range<u32>| range.end == offset || range.start == end;
        let needs_range = offset != self.contiguous && !self.ahead.iter().any(touches);
        if needs_range && self.ahead.len() == MAX_RANGES_AHEAD { PartArrival::Dropped } else { PartArrival::New }
    }

    /// Notes that a part has arrived intact (P-86); returns what became of it.
    #[inline]
    pub fn note_arrival(&mut self, offset: u32, bytes: u32, acknowledge_now: bool, probe: u8) -> PartArrival {
        self.must_acknowledge |= acknowledge_now;
        self.probe = probe;
        let arrival = self.classify(offset, bytes);
        match arrival {
            PartArrival::New if offset == self.contiguous => self.extend(offset + bytes.max(1)),
            PartArrival::New => self.insert(offset..offset + bytes),
            PartArrival::Dropped => self.must_acknowledge = true,
            PartArrival::Malformed => {}
        }
        arrival
    }

    /// Everything before `end` is here; perhaps that closes the first gap.
    fn extend(&mut self, end: u32) {
        self.contiguous = end;
        if self.ahead.first().is_some_and(|first| first.start == end) {
            self.contiguous = self.ahead.remove(0).end;
        }
    }

    /// Remembers a range beyond the first gap, which overlaps no other.
    fn insert(&mut self, part: Range<u32>) {
        let place = self.ahead.partition_point(|range| range.end < part.start);
        let joins_before = self.ahead.get(place).is_some_and(|range| range.end == part.start);
        let next = if joins_before { place + 1 } else { place };
        let joins_next = self.ahead.get(next).is_some_and(|range| range.start == part.end);
        match (joins_before, joins_next) {
            (true, true) => self.ahead[place].end = self.ahead.remove(next).end,
            (true, false) => self.ahead[place].end = part.end,
            (false, true) => self.ahead[next].start = part.start,
            (false, false) => {
                self.must_acknowledge = true; // A new gap: the sender repairs it at once.
                self.ahead.insert(place, part);
            }
        }
    }

    /// True if the sender should hear of what has arrived: half a window is new, all of a long transfer is here, there is a gap, or
    /// it asks (P-88). That a short transfer is here, it learns from the packets of later operations (P-91).
    pub fn owes_acknowledgement(&self) -> bool {
        let news = self.contiguous - self.acknowledged;
        let is_long = self.length > IMPLICIT_ACK_BYTES;
        self.must_acknowledge || news > 0 && (news >= self.window / 2 || is_long && self.is_complete())
    }

    /// The sender asked, and what it sent was not taken.
    pub fn acknowledge_again(&mut self) {
        self.must_acknowledge = true;
    }

    /// The sender may send more than it knows.
    pub fn grant_more(&mut self) {
        self.must_acknowledge |= self.length > UNSOLICITED_BYTES;
    }

    /// What to tell the sender now.
    pub fn acknowledge(&mut self) -> TransferAcknowledgement {
        self.must_acknowledge = false;
        self.acknowledged = self.contiguous;
        let mut missing = Vec::new();
        let mut start = self.contiguous;
        for range in &self.ahead {
            missing.push((start, range.start - start));
            start = range.end;
        }
        let limit = self.contiguous.saturating_add(self.window).min(self.length);
        TransferAcknowledgement { received: self.contiguous, limit, missing, probe: self.probe }
    }
}
