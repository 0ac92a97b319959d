//! The sending half: keeps what is not known to have come, and sends it again.
//!
//! Every unacknowledged frame is flying, lost or arrived (though an earlier one is not). Whatever happens, reports and
//! timeouts only change these marks; then [`Sender::pump`] sends what is lost and what waits, as far as the window goes.

use std::collections::VecDeque;

use units::{Psn, Span, Time};

use super::congestion::CongestionWindow;
use super::rtt::RttEstimator;
use super::{CongestionControl, ConnectionPolicy, Frame, FramePurpose, OutgoingFrame, RetransmitTimer};

/// Why a connection is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetryExceeded {
    /// No sign of life although everything was repeated as often as the policy allows.
    Silence,
    /// It lives, but the same frame never gets through to it.
    Refused,
    /// It lives, but was not ready for too long.
    NotReady,
}

/// Whether the sender of a message waits for its acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckRequest {
    /// Yes: the frame asks for it.
    Now,
    /// No: the frame asks only if it is its turn (P-5).
    InTurn,
    /// No, and the same sender has more to send that asks: it need not have its turn early.
    Later,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TransmitState {
    Flying,
    Lost,
    Arrived,
}

#[derive(Debug)]
struct Unacknowledged<M> {
    message: M,
    sent_at: Time,
    fate: TransmitState,
    /// Sent more than once: its round trip cannot be told.
    repeated: bool,
    /// It asked for an acknowledgement: how long that took says how long the way is.
    asked: bool,
    /// Known to have come by other means, though an earlier one is not (P-5).
    confirmed: bool,
}

#[derive(Debug)]
pub(super) struct Sender<M> {
    /// The number of the first unacknowledged frame; the others follow without a gap.
    first: Psn,
    unacknowledged: VecDeque<Unacknowledged<M>>,
    waiting: VecDeque<(M, AckRequest)>,
    flying: u16,
    lost: u16,
    /// The number that the other end last said was missing, and how often it said so.
    missing: Option<Psn>,
    refusals: u16,
    /// When anything was last sent or heard: timeouts count from here.
    quiet_since: Time,
    /// Timeouts in a row on this path, and since the last sign of life on any.
    timeouts: u8,
    silence: u8,
    /// The other end asked to be left alone until then, so many times in a row.
    not_before: Time,
    not_ready: u8,
    /// The first missing frame has been sent once more, before its timeout (P-41).
    reminded: bool,
    trips: RttEstimator,
    congestion: CongestionWindow,
}

impl<M: Clone> Sender<M> {
    pub(super) fn new(first: Psn) -> Self {
        Self {
            first,
            unacknowledged: VecDeque::new(),
            waiting: VecDeque::new(),
            flying: 0,
            lost: 0,
            missing: None,
            refusals: 0,
            quiet_since: Time::ZERO,
            timeouts: 0,
            silence: 0,
            not_before: Time::ZERO,
            not_ready: 0,
            reminded: false,
            trips: RttEstimator::default(),
            congestion: CongestionWindow::default(),
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
        self.unacknowledged.len() < usize::from(policy.window) && self.may_fly(policy)
    }

    /// Room in the congestion window.
    fn may_fly(&self, policy: &ConnectionPolicy) -> bool {
        policy.pace == CongestionControl::Fixed || u32::from(self.flying) < self.congestion.window()
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
            self.quiet_since = now;
            self.timeouts = 0;
            self.silence = 0;
        }
        let psn = self.number(position);
        self.unacknowledged.push_back(Unacknowledged {
            message: message.clone(),
            sent_at: now,
            fate: TransmitState::Flying,
            repeated: false,
            asked: false,
            confirmed: false,
        });
        self.flying += 1;
        // P-5: and always with the last that the window allows, or nothing would ever open it.
        let wants_ack = ask == AckRequest::Now
            || (position + 1).is_multiple_of(usize::from(policy.acknowledge_every.max(1)))
            || !self.has_room(policy);
        self.unacknowledged[position].asked = wants_ack;
        let frame = Frame::Data { psn, wants_ack, message };
        out(OutgoingFrame::new(frame, policy.copies, FramePurpose::First));
        psn
    }

    fn number(&self, position: usize) -> Psn {
        Psn::new(self.first.get() + position as u32)
    }

    /// Everything up to `psn` has come.
    pub(super) fn acknowledged(
        &mut self,
        policy: &ConnectionPolicy,
        now: Time,
        psn: Psn,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) {
        let count = psn.next().distance_from(self.first) as usize;
        // Otherwise it is an old one, or nonsense (P-6).
        if count > 0 && count <= self.unacknowledged.len() {
            self.measure(now, count);
            self.drop_first(policy, now, count);
            self.pump(policy, now, out);
        }
    }

    /// Takes a round trip from an acknowledgement of the first `count` frames, if it tells one: what was sent again, or was
    /// kept until something else came, may have arrived long ago.
    fn measure(&mut self, now: Time, count: usize) {
        let mut entries = self.unacknowledged.iter().take(count);
        if entries.all(|entry| !entry.repeated && entry.fate == TransmitState::Flying)
            && let Some(last) = self.unacknowledged.get(count - 1).filter(|last| last.asked && now >= last.sent_at)
        {
            self.trips.sample(now.since(last.sent_at));
        }
    }

    /// The other end misses `expected`: everything before it has come, it and what follows is sent again.
    pub(super) fn refused(
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
        self.drop_first(policy, now, count);
        self.note_life(); // A NAK is a sign of life.
        // P-7: the first NAK for a number brings back all that followed it; further ones bring that frame alone.
        // Repeating everything each time would make more packets out of every damaged one, without end.
        if self.missing.replace(expected) == Some(expected) {
            self.refusals = self.refusals.saturating_add(1);
            self.lose(1);
        } else {
            self.refusals = 0;
            self.lose(usize::MAX);
        }
        self.congestion.lost(now, &self.trips);
        self.pump(policy, now, out);
    }

    /// The other end misses `expected` and some after it, but not those whose bits are set (P-28).
    pub(super) fn gaps(
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
        self.drop_first(policy, now, count);
        self.note_life();
        let reach = (u64::BITS - arrived.leading_zeros()) as usize;
        // What was sent again less than a round trip ago may still be on its way.
        let recently = self.trips.smoothed();
        let mut lost = false;
        for (position, entry) in self.unacknowledged.iter_mut().take(reach + 1).enumerate() {
            let has_come = position > 0 && arrived >> (position - 1) & 1 == 1;
            let may_be_under_way = entry.repeated && now < entry.sent_at + recently;
            match entry.fate {
                TransmitState::Flying if has_come => self.flying -= 1,
                TransmitState::Flying if !may_be_under_way => {
                    (self.flying, self.lost, lost) = (self.flying - 1, self.lost + 1, true);
                    entry.fate = TransmitState::Lost;
                }
                TransmitState::Lost if has_come => self.lost -= 1,
                TransmitState::Arrived if position == 0 => {
                    (entry.fate, self.lost) = (TransmitState::Lost, self.lost + 1)
                }
                _ => {}
            }
            if has_come {
                entry.fate = TransmitState::Arrived;
            }
        }
        if lost {
            self.congestion.lost(now, &self.trips);
        }
        self.quiet_since = now;
        self.pump(policy, now, out);
    }

    /// The other end was not ready for `expected` and wants to be left alone for a while.
    pub(super) fn not_ready(&mut self, policy: &ConnectionPolicy, now: Time, expected: Psn, wait: Span) {
        let count = expected.distance_from(self.first) as usize;
        if count >= self.unacknowledged.len() {
            return;
        }
        self.drop_first(policy, now, count);
        self.note_life();
        self.not_ready = self.not_ready.saturating_add(1);
        self.lose(usize::MAX);
        self.not_before = now + wait;
    }

    /// The other end will never take `psn`; everything before it has come.
    pub(super) fn refused_for_good(&mut self, policy: &ConnectionPolicy, now: Time, psn: Psn) {
        let count = psn.distance_from(self.first) as usize;
        if count < self.unacknowledged.len() {
            self.drop_first(policy, now, count);
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
        self.drop_first(policy, now, count);
        self.pump(policy, now, out);
    }

    fn note_life(&mut self) {
        self.reminded = false;
        self.timeouts = 0;
        self.silence = 0;
    }

    fn drop_first(&mut self, policy: &ConnectionPolicy, now: Time, count: usize) {
        if count == 0 {
            return;
        }
        self.first = self.number(count);
        self.refusals = 0;
        self.not_ready = 0;
        self.not_before = Time::ZERO; // It has taken what it was not ready for.
        self.quiet_since = now;
        self.note_life();
        for _ in 0..count {
            let Some(entry) = self.unacknowledged.pop_front() else { break };
            match entry.fate {
                TransmitState::Flying => self.flying -= 1,
                TransmitState::Lost => self.lost -= 1,
                TransmitState::Arrived => {}
            }
        }
        self.congestion.acknowledged(count as u32, u32::from(policy.window));
    }

    /// Marks the first `count` that have not arrived as lost. The very first counts as lost even if it has: the other
    /// end kept it and then could not take it (P-30), or it would be acknowledged.
    fn lose(&mut self, count: usize) {
        if let Some(first) = self.unacknowledged.front_mut().filter(|first| first.fate == TransmitState::Arrived) {
            first.fate = TransmitState::Lost;
            self.lost += 1;
        }
        for entry in self.unacknowledged.iter_mut().take(count).filter(|entry| entry.fate == TransmitState::Flying) {
            entry.fate = TransmitState::Lost;
            self.flying -= 1;
            self.lost += 1;
        }
    }

    /// Sends what is lost, then what waits, as far as the windows allow.
    fn pump(&mut self, policy: &ConnectionPolicy, now: Time, out: &mut impl FnMut(OutgoingFrame<M>)) {
        if now < self.not_before {
            return;
        }
        if self.lost > 0 {
            self.repeat(policy, now, out);
        }
        while self.has_room(policy) {
            let Some((message, ask)) = self.waiting.pop_front() else {
                break;
            };
            self.transmit(policy, now, message, ask, out);
        }
    }

    /// Sends lost frames again; the last one asks for an acknowledgement, so that a lost answer is found out.
    fn repeat(&mut self, policy: &ConnectionPolicy, now: Time, out: &mut impl FnMut(OutgoingFrame<M>)) {
        for position in 0..self.unacknowledged.len() {
            if self.lost == 0 || !self.may_fly(policy) {
                break;
            }
            let psn = self.number(position);
            let entry = &mut self.unacknowledged[position];
            if entry.fate != TransmitState::Lost {
                continue;
            }
            entry.fate = TransmitState::Flying;
            (entry.repeated, entry.sent_at) = (true, now);
            let message = entry.message.clone();
            self.flying += 1;
            self.lost -= 1;
            let wants_ack = self.lost == 0 || !self.may_fly(policy);
            out(OutgoingFrame::new(
                Frame::Data { psn, wants_ack, message },
                policy.resend_copies,
                FramePurpose::Repeat,
            ));
        }
        self.quiet_since = now;
    }

    pub(super) fn deadline(&self, policy: &ConnectionPolicy) -> Option<Time> {
        if self.unacknowledged.is_empty() {
            return None;
        }
        Some(if self.refusal(policy).is_some() {
            self.quiet_since
        } else if self.not_before > self.quiet_since {
            self.not_before
        } else {
            self.quiet_since + self.reminder(policy).unwrap_or_else(|| self.patience(policy))
        })
    }

    /// How long to be quiet before the other end is reminded; none if it has been, or if nothing is known of the path.
    fn reminder(&self, policy: &ConnectionPolicy) -> Option<Span> {
        let trip = self.trips.smoothed();
        let wanted =
            policy.timer == RetransmitTimer::Measured && !self.reminded && self.timeouts == 0 && trip > Span::ZERO;
        // An acknowledgement is late after two round trips, but not before the other end had a chance to run.
        wanted
            .then(|| self.trips.timeout(policy.timeout.divided_by(16)).max(trip.times(2)).min(self.patience(policy)))
    }

    /// The other end has refused so often that it cannot be said to take anything (P-8).
    fn refusal(&self, policy: &ConnectionPolicy) -> Option<RetryExceeded> {
        if self.refusals >= policy.refusal_limit {
            return Some(RetryExceeded::Refused);
        }
        policy.not_ready_limit.is_some_and(|limit| self.not_ready > limit).then_some(RetryExceeded::NotReady)
    }

    /// Doubles with every timeout in a row, so that a congested path is not made worse.
    fn patience(&self, policy: &ConnectionPolicy) -> Span {
        let timeout = match policy.timer {
            RetransmitTimer::Fixed => policy.timeout,
            RetransmitTimer::Measured => self.trips.timeout(policy.timeout),
        };
        // Timeouts on paths that were left count less, so that each path is tried quickly at first, but they do count: an
        // end that is only busy for a while must not be taken for dead the sooner the more paths there are.
        let elsewhere = self.silence.saturating_sub(self.timeouts) / 4;
        timeout.times(1 << (self.timeouts + elsewhere).min(6))
    }

    /// Sends again what is overdue. Returns how many timeouts in a row this path has seen.
    pub(super) fn handle_timeout(
        &mut self,
        policy: &ConnectionPolicy,
        now: Time,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) -> Result<u8, RetryExceeded> {
        if self.deadline(policy).is_none_or(|deadline| deadline > now) {
            return Ok(self.timeouts);
        }
        if let Some(exhausted) = self.refusal(policy) {
            return Err(exhausted);
        }
        if self.not_before > self.quiet_since {
            // The pause that the other end asked for is over.
            self.quiet_since = now;
            self.pump(policy, now, out);
            return Ok(self.timeouts);
        }
        if self.reminder(policy).is_some() {
            self.reminded = true;
            self.lose(1);
            self.pump(policy, now, out);
            return Ok(self.timeouts);
        }
        if self.silence >= policy.retry_limit {
            return Err(RetryExceeded::Silence);
        }
        self.timeouts = self.timeouts.saturating_add(1);
        self.silence = self.silence.saturating_add(1);
        self.congestion.timed_out();
        self.lose(usize::MAX);
        self.quiet_since = now;
        self.pump(policy, now, out);
        Ok(self.timeouts)
    }

    /// Another path: nothing that was measured or sent on the old one counts any more.
    pub(super) fn change_path(
        &mut self,
        policy: &ConnectionPolicy,
        now: Time,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) {
        self.trips = RttEstimator::default();
        self.congestion = CongestionWindow::default();
        self.timeouts = 0;
        self.reminded = false;
        self.refusals = 0;
        self.missing = None;
        self.lose(usize::MAX);
        self.quiet_since = now;
        self.pump(policy, now, out);
    }

    /// Frames and messages that are not known to have come.
    pub(super) fn outstanding(&self) -> usize {
        self.unacknowledged.len() + self.waiting.len()
    }

    /// Whether a message of this kind is still on its way.
    pub(super) fn is_carrying(&self, kind: impl Fn(&M) -> bool) -> bool {
        self.unacknowledged.iter().any(|entry| kind(&entry.message))
            || self.waiting.iter().any(|(message, _)| kind(message))
    }

    pub(super) fn first_unacknowledged(&self) -> Psn {
        self.first
    }

    pub(super) fn round_trip(&self) -> Span {
        self.trips.smoothed()
    }

    pub(super) fn abandon(&mut self) {
        self.first = self.number(self.unacknowledged.len());
        self.unacknowledged.clear();
        self.waiting.clear();
        (self.flying, self.lost) = (0, 0);
    }
}
