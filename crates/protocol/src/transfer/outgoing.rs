//! The sending end of a transfer: which part goes next, and when to ask again.

use std::collections::VecDeque;
use std::ops::Range;

use units::{Span, Time};

use super::pacing::TransferPacing;
use super::{TransferAcknowledgement, UNSOLICITED_BYTES};

/// The least time before the first probe. A probe is one packet, and only it reveals that the last packets of a transfer were lost.
const MIN_FIRST_TIMEOUT: Span = Span::from_micros(1_000);
/// The least time before the next ones: receivers share processors with others.
const MIN_TIMEOUT: Span = Span::from_micros(5_000);
/// The longest.
const MAX_TIMEOUT: Span = Span::from_micros(500_000);
/// Timeouts in a row without an answer after which the peer counts as lost: about twelve seconds.
const MAX_TIMEOUTS: u32 = 30;
/// How often the time between two probes doubles.
const MAX_BACK_OFFS: u32 = 8;
/// The least time between two repairs of one range.
const MIN_REPAIR_TIME: Span = Span::from_micros(500);
/// Ranges that wait for repair; the next acknowledgement names the others again.
const MAX_REPAIRS: usize = 64;

/// The peer has not answered for all timeouts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferPeerLost {
    /// For how long, from the first timeout on.
    pub silence: Span,
}

/// The sending end of a transfer.
#[derive(Debug)]
pub struct BulkSender {
    length: u32,
    /// Bytes that the driver has: the rest is still being received or folded here.
    available: u32,
    /// Everything before this offset was sent at least once.
    sent: u32,
    /// The receiver has everything before this offset.
    received: u32,
    /// The receiver accepts everything before this offset.
    limit: u32,
    /// Ranges to send again.
    repairs: VecDeque<Range<u32>>,
    /// Ranges that end before this offset were repaired, and may be on their way until then.
    repaired: (u32, Time),
    /// The first transmission whose acknowledgement gives a round trip: its end, and when it was sent.
    timed: Option<(u32, Time)>,
    timeouts: u32,
    /// When the first of them was.
    silent_since: Time,
    /// Counts timeouts, modulo 8; parts and acknowledgements carry it.
    probe: u8,
    /// After a timeout: everything before this offset was sent before the probe.
    sent_before_probe: Option<u32>,
    deadline: Time,
}

impl BulkSender {
    /// A transfer of `length` bytes, of which none is available yet. An empty transfer counts as one byte.
    pub fn new(length: u32) -> Self {
        let length = length.max(1);
        Self {
            length,
            available: 0,
            sent: 0,
            received: 0,
            limit: UNSOLICITED_BYTES.min(length),
            repairs: VecDeque::new(),
            repaired: (0, Time::ZERO),
            timed: None,
            timeouts: 0,
            silent_since: Time::NEVER,
            probe: 0,
            sent_before_probe: None,
            deadline: Time::NEVER,
        }
    }

    /// The driver now has everything before this offset.
    pub fn make_available(&mut self, available: u32) {
        self.available = self.available.max(available.min(self.length));
    }

    /// True if the receiver has everything.
    pub fn is_complete(&self) -> bool {
        self.received == self.length
    }

    /// True if everything was sent at least once.
    pub fn is_sent(&self) -> bool {
        self.sent == self.length
    }

    /// True if there is nothing to send: everything was sent, and nothing must be repaired.
    pub fn is_settled(&self) -> bool {
        self.is_sent() && self.repairs.is_empty()
    }

    /// Everything before this offset is at the receiver.
    pub fn received(&self) -> u32 {
        self.received
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn deadline(&self) -> Time {
        self.deadline
    }

    /// Bytes that were sent and not acknowledged.
    pub fn in_flight(&self) -> u32 {
        self.sent - self.received
    }

    /// The next range to send, of at most `max_bytes`; none if nothing may be sent now. `others` are the bytes in flight of other
    /// transfers to the same peer. Call [`Self::note_sent`] with what was sent of it.
    pub fn next_range(&self, pacing: &TransferPacing, others: u32, max_bytes: u32) -> Option<Range<u32>> {
        if let Some(repair) = self.repairs.front() {
            return Some(repair.start..repair.end.min(repair.start.saturating_add(max_bytes)));
        }
        let window_end = self.received.saturating_add(pacing.window().saturating_sub(others));
        let end = self.available.min(self.limit).min(window_end);
        (self.sent < end).then(|| self.sent..end.min(self.sent.saturating_add(max_bytes)))
    }

    /// Notes that a range that [`Self::next_range`] returned was sent, or the first part of it.
    pub fn note_sent(&mut self, now: Time, range: Range<u32>, pacing: &TransferPacing) {
        if let Some(repair) = self.repairs.front_mut().filter(|repair| repair.start == range.start) {
            repair.start = range.end;
            if repair.start >= repair.end {
                self.repairs.pop_front();
            }
        } else {
            self.sent = self.sent.max(range.end);
            self.timed.get_or_insert((range.end, now));
        }
        self.arm(now, pacing);
    }

    /// True if the end of this range should ask for an acknowledgement: nothing more may be sent behind it.
    pub fn is_last_for_now(&self, range: &Range<u32>, pacing: &TransferPacing) -> bool {
        let window_end = self.received.saturating_add(pacing.window());
        range.end < self.length && range.end >= window_end.min(self.limit)
    }

    /// Handles an acknowledgement. What it says is untrusted: it may be old, or nonsense.
    pub fn handle_acknowledgement(
        &mut self,
        now: Time,
        acknowledgement: &TransferAcknowledgement,
        pacing: &mut TransferPacing,
    ) {
        let TransferAcknowledgement { received, limit, missing, probe } = acknowledgement;
        let received = (*received).min(self.sent).max(self.received);
        let has_news = received > self.received || *limit > self.limit || !missing.is_empty() || *probe == self.probe;
        // A receiver that lives and has no room yet is asked again, and not more and more often.
        self.timeouts = if has_news { 0 } else { self.timeouts.min(MAX_BACK_OFFS) };
        let trip = self.timed.filter(|(end, _)| received >= *end).map(|(_, at)| now.since(at));
        if trip.is_some() {
            self.timed = None;
        }
        if received > self.received {
            pacing.note_acknowledged(received - self.received, trip);
        }
        self.received = received;
        self.limit = self.limit.max((*limit).min(self.length));
        self.repairs.retain_mut(|repair| {
            repair.start = repair.start.max(received);
            repair.start < repair.end
        });
        self.queue_repairs(now, missing, pacing);
        if let Some(sent) = self.sent_before_probe.filter(|_| *probe == self.probe) {
            self.sent_before_probe = None;
            // What was sent before the probe and did not arrive before it is lost.
            let known = missing.last().map_or(received, |(offset, length)| offset.saturating_add(*length));
            self.queue_repairs(now, &[(known, sent.saturating_sub(known))], pacing);
        }
        self.arm(now, pacing);
    }

    fn queue_repairs(&mut self, now: Time, missing: &[(u32, u32)], pacing: &mut TransferPacing) {
        for (offset, length) in missing {
            let range = (*offset).max(self.received)..offset.saturating_add(*length).min(self.sent);
            let (below, until) = self.repaired;
            let under_way = range.end <= below && now < until;
            let queued = self.repairs.iter().any(|repair| repair.start < range.end && range.start < repair.end);
            if range.start >= range.end || under_way || queued || self.repairs.len() == MAX_REPAIRS {
                continue;
            }
            pacing.note_loss(now);
            self.timed = None; // The acknowledgement of a repaired range gives no round trip.
            self.repaired = (range.end, now + pacing.repair_time(MIN_REPAIR_TIME));
            self.repairs.push_back(range);
        }
    }

    /// Nothing was heard for a while: sends the first unacknowledged bytes again, which asks for an acknowledgement (P-89).
    ///
    /// # Errors
    /// If the peer has not answered for all timeouts.
    pub fn handle_timeout(
        &mut self,
        now: Time,
        probe_bytes: u32,
        pacing: &mut TransferPacing,
    ) -> Result<(), TransferPeerLost> {
        if self.timeouts == 0 {
            self.silent_since = now;
        }
        self.timeouts += 1;
        if self.timeouts > MAX_TIMEOUTS {
            return Err(TransferPeerLost { silence: now.since(self.silent_since) });
        }
        // Most often the receiver was only not running: the window shrinks when it reports a loss.
        self.probe = (self.probe + 1) % 8;
        self.sent_before_probe = Some(self.sent);
        self.timed = None;
        let probe = self.received..self.sent.min(self.received.saturating_add(probe_bytes));
        if probe.start < probe.end && self.repairs.is_empty() {
            self.repairs.push_back(probe);
        }
        self.arm(now, pacing);
        Ok(())
    }

    /// The process was busy with other things, and could not hear the receiver: the clock of the first probe starts now.
    pub fn note_absence(&mut self, now: Time, pacing: &TransferPacing) {
        if self.timeouts == 0 {
            self.arm(now, pacing);
        }
    }

    /// What parts carry, so that an acknowledgement shows after which timeout it was sent.
    pub fn probe(&self) -> u8 {
        self.probe
    }

    /// Timeouts in a row without an answer.
    pub fn timeouts(&self) -> u32 {
        self.timeouts
    }

    fn arm(&mut self, now: Time, pacing: &TransferPacing) {
        let timeout = pacing.timeout(if self.timeouts == 0 { MIN_FIRST_TIMEOUT } else { MIN_TIMEOUT });
        let backed_off = Span::from_nanos(timeout.as_nanos() << self.timeouts.saturating_sub(1).min(MAX_BACK_OFFS))
            .min(MAX_TIMEOUT.max(timeout));
        self.deadline = if self.received < self.sent { now + backed_off } else { Time::NEVER };
    }
}
