//! The sending half: keeps unacknowledged frames, and retransmits them.
//!
//! Every unacknowledged frame is in flight, lost, or arrived (though an earlier one is not). Acknowledgements, NAKs and timeouts only
//! change these states; then [`Sender::pump`] sends lost frames and waiting messages as far as the windows allow.

use std::collections::VecDeque;

use units::{Psn, Span, Time};

use super::congestion::CongestionWindow;
use super::frame::{Frame, FramePurpose, OutgoingFrame};
use super::link_errors::{LinkErrors, SHORT_OPERATION_FRAMES};
use super::policy::{CongestionControl, ConnectionPolicy, CopyPolicy, RetransmitTimer};
use super::rtt::RttEstimator;

/// Why a connection failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetryExceeded {
    /// No response after all retransmissions that the policy allows.
    Timeout,
    /// The peer responds, but the same frame never arrives.
    NakLimit,
    /// The peer responds, but had no receive posted for too long.
    RnrLimit,
}

/// The timeout doubles this many times at most, and four times more if the peer is alive (P-131).
const MAX_DOUBLINGS: u8 = 6;
const MAX_EXTENDED_DOUBLINGS: u8 = 4;
/// Of these doublings, so many are kept for the next frames.
const MAX_KEPT_BACKOFF: u8 = 4;
/// A peer that answers others and not this connection counts as lost after this time.
const MAX_EXTENDED_SILENCE: Span = Span::from_micros(60_000_000);

/// When a message should be acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckRequest {
    /// At once: the frame requests it.
    Immediate,
    /// Not necessarily: the frame requests it only every `acknowledge_every` frames (P-5).
    Periodic,
    /// Later: the same sender has more to send that requests it.
    Deferred,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TransmitState {
    InFlight,
    Lost,
    Arrived,
}

#[derive(Debug)]
struct Unacknowledged<M> {
    message: M,
    sent_at: Time,
    state: TransmitState,
    /// Retransmitted: an acknowledgement does not tell its round trip.
    retransmitted: bool,
    /// It requested an acknowledgement, so the reply measures the round trip.
    requested_ack: bool,
    /// A higher layer proved that it arrived, though an earlier one is unacknowledged (P-5).
    confirmed: bool,
}

#[derive(Debug)]
pub(super) struct Sender<M> {
    /// The number of the first unacknowledged frame; the others follow without a gap.
    first: Psn,
    unacknowledged: VecDeque<Unacknowledged<M>>,
    waiting: VecDeque<(M, AckRequest)>,
    in_flight: u16,
    lost: u16,
    /// The number of the last NAK, and how often it was repeated.
    last_nak: Option<Psn>,
    repeated_naks: u16,
    /// When a frame was last sent or acknowledged: timeouts count from here.
    idle_since: Time,
    /// Timeouts in a row on this path, and on all paths since the last response.
    timeouts: u8,
    total_timeouts: u8,
    /// How often the timeout of the next frame is doubled from the start: answers came only after several timeouts (P-8).
    kept_backoff: u8,
    /// Timeouts that do not count as such, because the peer is alive (P-131).
    extensions: u8,
    /// The next one does not.
    is_extended: bool,
    /// What the first of these timeouts counts from.
    silent_since: Time,
    /// The peer asked for a pause until then, this many times in a row.
    not_before: Time,
    rnr_naks: u8,
    /// The first unacknowledged frame was retransmitted as a probe, before its timeout (P-12).
    tail_probe_sent: bool,
    rtt: RttEstimator,
    congestion: CongestionWindow,
    errors: LinkErrors,
}

impl<M: Clone> Sender<M> {
    pub(super) fn new(first: Psn) -> Self {
        Self {
            first,
            unacknowledged: VecDeque::new(),
            waiting: VecDeque::new(),
            in_flight: 0,
            lost: 0,
            last_nak: None,
            repeated_naks: 0,
            idle_since: Time::ZERO,
            timeouts: 0,
            total_timeouts: 0,
            kept_backoff: 0,
            extensions: 0,
            is_extended: false,
            silent_since: Time::ZERO,
            not_before: Time::ZERO,
            rnr_naks: 0,
            tail_probe_sent: false,
            rtt: RttEstimator::default(),
            congestion: CongestionWindow::default(),
            errors: LinkErrors::default(),
        }
    }

    pub(super) fn send(
        &mut self,
        policy: &ConnectionPolicy,
        now: Time,
        message: M,
        ask: AckRequest,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) -> Option<Psn> {
        if !self.has_room(policy) || !self.waiting.is_empty() || now < self.not_before {
            self.waiting.push_back((message, ask));
            return None;
        }
        Some(self.transmit(policy, now, message, ask, out))
    }

    fn has_room(&self, policy: &ConnectionPolicy) -> bool {
        self.unacknowledged.len() < usize::from(policy.window) && self.congestion_allows(policy)
    }

    /// Whether the congestion window has room.
    fn congestion_allows(&self, policy: &ConnectionPolicy) -> bool {
        policy.congestion_control == CongestionControl::Off || u32::from(self.in_flight) < self.congestion.window()
    }

    fn transmit(
        &mut self,
        policy: &ConnectionPolicy,
        now: Time,
        message: M,
        ask: AckRequest,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) -> Psn {
        let position = self.unacknowledged.len();
        if position == 0 {
            self.idle_since = now;
            self.reset_timeouts();
        }
        let psn = self.number(position);
        self.unacknowledged.push_back(Unacknowledged {
            message: message.clone(),
            sent_at: now,
            state: TransmitState::InFlight,
            retransmitted: false,
            requested_ack: false,
            confirmed: false,
        });
        self.in_flight += 1;
        // P-5: the last frame that fits the window always requests one, or the window would never open.
        let wants_ack = ask == AckRequest::Immediate
            || (position + 1).is_multiple_of(usize::from(policy.acknowledge_every.max(1)))
            || !self.has_room(policy);
        self.unacknowledged[position].requested_ack = wants_ack;
        let frame = Frame::Data { psn, wants_ack, message };
        let copies = self.copies(policy, position);
        self.errors.note_sent(copies);
        out(OutgoingFrame::new(frame, copies, FramePurpose::First));
        psn
    }

    /// How often a frame is sent at first, behind so many unacknowledged ones.
    fn copies(&self, policy: &ConnectionPolicy, position: usize) -> u8 {
        match policy.replication {
            CopyPolicy::Measured if position < SHORT_OPERATION_FRAMES => self.errors.copies().max(policy.copies),
            CopyPolicy::Measured | CopyPolicy::Fixed => policy.copies,
        }
    }

    fn number(&self, position: usize) -> Psn {
        Psn::new(self.first.get() + position as u32)
    }

    /// The peer received everything up to `psn`.
    pub(super) fn handle_ack(
        &mut self,
        policy: &ConnectionPolicy,
        now: Time,
        psn: Psn,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) {
        let count = psn.next().distance_from(self.first) as usize;
        // Otherwise it is old or malformed (P-6).
        if count > 0 && count <= self.unacknowledged.len() {
            self.measure(now, count);
            self.release(policy, now, count);
            self.pump(policy, now, out);
        }
    }

    /// Measures the round trip with an acknowledgement of the first `count` frames, unless one was retransmitted, or was buffered behind
    /// a gap: those may have arrived long ago.
    fn measure(&mut self, now: Time, count: usize) {
        let mut entries = self.unacknowledged.iter().take(count);
        if entries.all(|entry| !entry.retransmitted && entry.state == TransmitState::InFlight)
            && let Some(last) =
                self.unacknowledged.get(count - 1).filter(|last| last.requested_ack && now >= last.sent_at)
        {
            self.rtt.sample(now.since(last.sent_at));
        }
    }

    /// The peer misses `expected`: everything before it arrived; it and all later frames are lost.
    pub(super) fn handle_nak(
        &mut self,
        policy: &ConnectionPolicy,
        now: Time,
        expected: Psn,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) {
        let count = expected.distance_from(self.first) as usize;
        if count > self.unacknowledged.len() {
            return;
        }
        self.release(policy, now, count);
        self.note_response(); // A NAK is a response.
        self.errors.note_error();
        // P-7: the first NAK for a number retransmits all frames from it on; repeated ones only that frame. Otherwise every damaged
        // retransmission would cause a full window of further packets, without end.
        if self.last_nak.replace(expected) == Some(expected) {
            self.repeated_naks = self.repeated_naks.saturating_add(1);
            self.mark_lost(1);
        } else {
            self.repeated_naks = 0;
            self.mark_lost(usize::MAX);
        }
        self.congestion.note_loss(now, &self.rtt);
        self.pump(policy, now, out);
    }

    /// The peer misses `expected` and some later frames, but not those whose bits are set (P-11).
    pub(super) fn handle_selective_ack(
        &mut self,
        policy: &ConnectionPolicy,
        now: Time,
        expected: Psn,
        arrived: u64,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) {
        let count = expected.distance_from(self.first) as usize;
        if count > self.unacknowledged.len() {
            return;
        }
        self.release(policy, now, count);
        self.note_response();
        let span = (u64::BITS - arrived.leading_zeros()) as usize;
        // A frame retransmitted less than a round trip ago may still be in flight.
        let recently = self.rtt.smoothed();
        let mut lost = false;
        for (position, entry) in self.unacknowledged.iter_mut().take(span + 1).enumerate() {
            let has_arrived = position > 0 && arrived >> (position - 1) & 1 == 1;
            let may_be_in_flight = entry.retransmitted && now < entry.sent_at + recently;
            match entry.state {
                TransmitState::InFlight if has_arrived => self.in_flight -= 1,
                TransmitState::InFlight if !may_be_in_flight => {
                    (self.in_flight, self.lost, lost) = (self.in_flight - 1, self.lost + 1, true);
                    entry.state = TransmitState::Lost;
                }
                TransmitState::Lost if has_arrived => self.lost -= 1,
                TransmitState::Arrived if position == 0 => {
                    (entry.state, self.lost) = (TransmitState::Lost, self.lost + 1)
                }
                _ => {}
            }
            if has_arrived {
                entry.state = TransmitState::Arrived;
            }
        }
        if lost {
            self.congestion.note_loss(now, &self.rtt);
        }
        self.idle_since = now;
        self.pump(policy, now, out);
    }

    /// The peer had no receive posted for `expected`, and asks for a pause.
    pub(super) fn handle_rnr_nak(&mut self, policy: &ConnectionPolicy, now: Time, expected: Psn, wait: Span) {
        let count = expected.distance_from(self.first) as usize;
        if count >= self.unacknowledged.len() {
            return;
        }
        self.release(policy, now, count);
        self.note_response();
        self.rnr_naks = self.rnr_naks.saturating_add(1);
        self.mark_lost(usize::MAX);
        self.not_before = now + wait;
    }

    /// The peer rejects `psn` for good; everything before it arrived.
    pub(super) fn handle_fatal_nak(&mut self, policy: &ConnectionPolicy, now: Time, psn: Psn) {
        let count = psn.distance_from(self.first) as usize;
        if count < self.unacknowledged.len() {
            self.release(policy, now, count);
        }
    }

    pub(super) fn confirm(
        &mut self,
        policy: &ConnectionPolicy,
        now: Time,
        psn: Psn,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) {
        let position = psn.distance_from(self.first) as usize;
        let Some(entry) = self.unacknowledged.get_mut(position) else {
            return;
        };
        entry.confirmed = true;
        let count = self.unacknowledged.iter().take_while(|entry| entry.confirmed).count();
        self.release(policy, now, count);
        self.pump(policy, now, out);
    }

    fn note_response(&mut self) {
        self.tail_probe_sent = false;
        // The answer to a frame that was sent several times measures no round trip. What is known is that it took longer than the timeout.
        self.kept_backoff = match self.timeouts {
            0 | 1 => self.kept_backoff.saturating_sub(1),
            several => self.kept_backoff.saturating_add(several - 1).min(MAX_KEPT_BACKOFF),
        };
        self.reset_timeouts();
    }

    fn reset_timeouts(&mut self) {
        (self.timeouts, self.total_timeouts, self.extensions) = (0, 0, 0);
    }

    fn release(&mut self, policy: &ConnectionPolicy, now: Time, count: usize) {
        if count == 0 {
            return;
        }
        self.first = self.number(count);
        self.repeated_naks = 0;
        self.rnr_naks = 0;
        self.not_before = Time::ZERO; // The peer accepted the frame that it had deferred.
        self.idle_since = now;
        self.note_response();
        for _ in 0..count {
            let Some(entry) = self.unacknowledged.pop_front() else { break };
            match entry.state {
                TransmitState::InFlight => self.in_flight -= 1,
                TransmitState::Lost => self.lost -= 1,
                TransmitState::Arrived => {}
            }
        }
        self.congestion.note_acknowledged(count as u32, u32::from(policy.window));
    }

    /// Marks the first `count` frames in flight as lost. The first frame counts as lost even if it arrived: the peer buffered it and then
    /// could not accept it (P-14), otherwise it would be acknowledged.
    fn mark_lost(&mut self, count: usize) {
        if let Some(first) = self.unacknowledged.front_mut().filter(|first| first.state == TransmitState::Arrived) {
            first.state = TransmitState::Lost;
            self.lost += 1;
        }
        for entry in self.unacknowledged.iter_mut().take(count).filter(|entry| entry.state == TransmitState::InFlight)
        {
            entry.state = TransmitState::Lost;
            self.in_flight -= 1;
            self.lost += 1;
        }
    }

    /// Sends lost frames, then waiting messages, as far as the windows allow.
    fn pump(&mut self, policy: &ConnectionPolicy, now: Time, out: &mut impl FnMut(OutgoingFrame<M>)) {
        if now < self.not_before {
            return;
        }
        if self.lost > 0 {
            self.retransmit(policy, now, out);
        }
        while self.has_room(policy) {
            let Some((message, ask)) = self.waiting.pop_front() else {
                break;
            };
            self.transmit(policy, now, message, ask, out);
        }
    }

    /// Retransmits lost frames; the last one requests an acknowledgement, so that a lost reply is detected.
    fn retransmit(&mut self, policy: &ConnectionPolicy, now: Time, out: &mut impl FnMut(OutgoingFrame<M>)) {
        for position in 0..self.unacknowledged.len() {
            if self.lost == 0 || !self.congestion_allows(policy) {
                break;
            }
            let psn = self.number(position);
            let entry = &mut self.unacknowledged[position];
            if entry.state != TransmitState::Lost {
                continue;
            }
            entry.state = TransmitState::InFlight;
            (entry.retransmitted, entry.sent_at) = (true, now);
            let message = entry.message.clone();
            self.in_flight += 1;
            self.lost -= 1;
            let wants_ack = self.lost == 0 || !self.congestion_allows(policy);
            out(OutgoingFrame::new(
                Frame::Data { psn, wants_ack, message },
                policy.resend_copies,
                FramePurpose::Retransmission,
            ));
        }
        self.idle_since = now;
    }

    pub(super) fn deadline(&self, policy: &ConnectionPolicy) -> Option<Time> {
        if self.unacknowledged.is_empty() {
            return None;
        }
        Some(if self.limit_exceeded(policy).is_some() {
            self.idle_since
        } else if self.not_before > self.idle_since {
            self.not_before
        } else {
            self.idle_since + self.tail_probe_delay(policy).unwrap_or_else(|| self.retransmit_timeout(policy))
        })
    }

    /// How long to wait before the tail probe; none if it was sent, or if the path has not been measured.
    fn tail_probe_delay(&self, policy: &ConnectionPolicy) -> Option<Span> {
        let trip = self.rtt.smoothed();
        let wanted = policy.timer == RetransmitTimer::Measured
            && !self.tail_probe_sent
            && self.timeouts == 0
            && trip > Span::ZERO;
        // An acknowledgement is late after two round trips, but not before the peer had a chance to run.
        wanted.then(|| {
            self.rtt.timeout(policy.timeout.divided_by(16)).max(trip.times(2)).min(self.retransmit_timeout(policy))
        })
    }

    /// The limit of NAKs or RNR NAKs that the peer exceeded, if any (P-8).
    fn limit_exceeded(&self, policy: &ConnectionPolicy) -> Option<RetryExceeded> {
        if self.repeated_naks >= policy.refusal_limit {
            return Some(RetryExceeded::NakLimit);
        }
        policy.not_ready_limit.is_some_and(|limit| self.rnr_naks > limit).then_some(RetryExceeded::RnrLimit)
    }

    /// Doubles with every timeout in a row, to spare a congested path.
    fn retransmit_timeout(&self, policy: &ConnectionPolicy) -> Span {
        let timeout = match policy.timer {
            RetransmitTimer::Fixed => policy.timeout,
            RetransmitTimer::Measured => self.rtt.timeout(policy.timeout),
        };
        // Timeouts on other paths count less, so that each path is tried quickly at first. But they do count: a peer that is only busy for a
        // while must not be declared lost sooner because it has more paths.
        let other_paths = self.total_timeouts.saturating_sub(self.timeouts) / 4;
        let kept = match policy.timer {
            RetransmitTimer::Fixed => 0,
            RetransmitTimer::Measured => self.kept_backoff,
        };
        let doublings = self.timeouts.saturating_add(other_paths + kept).min(MAX_DOUBLINGS);
        timeout.times(1 << (doublings + self.extensions.min(MAX_EXTENDED_DOUBLINGS)))
    }

    /// The last transmission, if a timeout is due that need not count if the peer has responded elsewhere since: several have passed, but not
    /// for too long.
    pub(super) fn may_extend_retries(&self, policy: &ConnectionPolicy, now: Time) -> Option<Time> {
        let may_extend = self.total_timeouts >= policy.retry_limit.min(MAX_DOUBLINGS)
            && self.silence(now) < MAX_EXTENDED_SILENCE
            && self.deadline(policy).is_some_and(|deadline| deadline <= now);
        may_extend.then_some(self.idle_since)
    }

    /// The timeout that is due does not count, and the next one is twice as late.
    pub(super) fn extend_retries(&mut self) {
        self.is_extended = true;
    }

    /// The number of timeouts in a row on this path.
    pub(super) fn timeouts(&self) -> u8 {
        self.timeouts
    }

    /// The number of timeouts in a row on all paths.
    pub(super) fn total_timeouts(&self) -> u8 {
        self.total_timeouts
    }

    /// How long the peer has not responded to what is unacknowledged; zero before the first timeout.
    pub(super) fn silence(&self, now: Time) -> Span {
        if self.total_timeouts == 0 { Span::ZERO } else { now.since(self.silent_since) }
    }

    /// Retransmits overdue frames. Returns the number of timeouts in a row on this path.
    pub(super) fn handle_timeout(
        &mut self,
        policy: &ConnectionPolicy,
        now: Time,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) -> Result<u8, RetryExceeded> {
        if self.deadline(policy).is_none_or(|deadline| deadline > now) {
            return Ok(self.timeouts);
        }
        let is_extended = std::mem::take(&mut self.is_extended);
        if let Some(exhausted) = self.limit_exceeded(policy) {
            return Err(exhausted);
        }
        if self.not_before > self.idle_since {
            // The pause that the peer asked for is over.
            self.idle_since = now;
            self.pump(policy, now, out);
            return Ok(self.timeouts);
        }
        if self.tail_probe_delay(policy).is_some() {
            self.tail_probe_sent = true;
            self.mark_lost(1);
            self.pump(policy, now, out);
            return Ok(self.timeouts);
        }
        if self.total_timeouts >= policy.retry_limit && !is_extended {
            return Err(RetryExceeded::Timeout);
        }
        if self.total_timeouts == 0 {
            self.silent_since = self.idle_since;
        }
        self.timeouts = self.timeouts.saturating_add(1);
        if is_extended {
            self.extensions = self.extensions.saturating_add(1);
        } else {
            // A peer that is alive no more is given up as quickly as any other.
            self.extensions = 0;
            self.total_timeouts = self.total_timeouts.saturating_add(1);
        }
        self.congestion.note_timeout();
        self.mark_lost(usize::MAX);
        self.idle_since = now;
        self.pump(policy, now, out);
        Ok(self.timeouts)
    }

    /// Resets everything that was measured or sent on the old path.
    pub(super) fn change_path(
        &mut self,
        policy: &ConnectionPolicy,
        now: Time,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) {
        self.rtt = RttEstimator::default();
        self.kept_backoff = 0;
        self.congestion = CongestionWindow::default();
        self.errors = LinkErrors::default();
        self.timeouts = 0;
        self.tail_probe_sent = false;
        self.repeated_naks = 0;
        self.last_nak = None;
        self.mark_lost(usize::MAX);
        self.idle_since = now;
        self.pump(policy, now, out);
    }

    /// Whether so little is unacknowledged that it belongs to a short operation.
    pub(super) fn is_short_operation(&self) -> bool {
        self.outstanding() < SHORT_OPERATION_FRAMES
    }

    /// Unacknowledged frames and waiting messages.
    pub(super) fn outstanding(&self) -> usize {
        self.unacknowledged.len() + self.waiting.len()
    }

    /// Whether a message of this kind is unacknowledged or waiting.
    pub(super) fn is_unacknowledged(&self, kind: impl Fn(&M) -> bool) -> bool {
        self.unacknowledged.iter().any(|entry| kind(&entry.message))
            || self.waiting.iter().any(|(message, _)| kind(message))
    }

    pub(super) fn first_unacknowledged(&self) -> Psn {
        self.first
    }

    pub(super) fn round_trip(&self) -> Span {
        self.rtt.smoothed()
    }

    pub(super) fn abandon(&mut self) {
        self.first = self.number(self.unacknowledged.len());
        self.unacknowledged.clear();
        self.waiting.clear();
        (self.in_flight, self.lost) = (0, 0);
    }
}
