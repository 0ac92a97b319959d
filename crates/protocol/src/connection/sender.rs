//! The sending half: keeps what is not known to have come, and sends it again.

use std::collections::VecDeque;

use units::{Psn, Time};

use super::{Frame, Outgoing, Policy, Purpose};

/// The other end gave no sign of life although everything was repeated as often as the policy allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exhausted;

#[derive(Debug)]
struct Unacknowledged<M> {
    message: M,
    /// Known to have come, though an earlier one is not.
    confirmed: bool,
}

#[derive(Debug)]
pub(super) struct Sender<M> {
    /// The number of the first unacknowledged frame; the others follow without a gap.
    first: Psn,
    unacknowledged: VecDeque<Unacknowledged<M>>,
    waiting: VecDeque<M>,
    /// The number that the other end last said was missing, and how often it said so.
    missing: Option<Psn>,
    refusals: u16,
    /// When anything was last sent or heard: timeouts count from here.
    quiet_since: Time,
    timeouts: u8,
}

impl<M: Clone> Sender<M> {
    pub(super) fn new(first: Psn) -> Self {
        Self {
            first,
            unacknowledged: VecDeque::new(),
            waiting: VecDeque::new(),
            missing: None,
            refusals: 0,
            quiet_since: Time::ZERO,
            timeouts: 0,
        }
    }

    pub(super) fn send(
        &mut self,
        policy: &Policy,
        now: Time,
        message: M,
        out: &mut impl FnMut(Outgoing<M>),
    ) -> Option<Psn> {
        if self.unacknowledged.len() >= usize::from(policy.window) {
            self.waiting.push_back(message);
            return None;
        }
        Some(self.transmit(policy, now, message, out))
    }

    fn transmit(&mut self, policy: &Policy, now: Time, message: M, out: &mut impl FnMut(Outgoing<M>)) -> Psn {
        let position = self.unacknowledged.len();
        if position == 0 {
            self.quiet_since = now;
            self.timeouts = 0;
        }
        let psn = self.number(position);
        // P-5: and always with the last that the window allows, or nothing would ever open it.
        let count = position + 1;
        let wants_ack =
            count.is_multiple_of(usize::from(policy.acknowledge_every.max(1))) || count >= usize::from(policy.window);
        self.unacknowledged.push_back(Unacknowledged { message: message.clone(), confirmed: false });
        let frame = Frame::Data { psn, wants_ack, message };
        out(Outgoing { frame, copies: policy.copies, purpose: Purpose::First });
        psn
    }

    fn number(&self, position: usize) -> Psn {
        Psn::new(self.first.get() + position as u32)
    }

    /// Everything up to `psn` has come.
    pub(super) fn acknowledged(&mut self, policy: &Policy, now: Time, psn: Psn, out: &mut impl FnMut(Outgoing<M>)) {
        let count = psn.next().distance_from(self.first) as usize;
        if count <= self.unacknowledged.len() {
            self.drop_first(policy, now, count, out);
        } // Otherwise it is an old one, or nonsense (P-6).
    }

    /// The other end misses `expected`: everything before it has come, it and what follows is sent again.
    pub(super) fn refused(&mut self, policy: &Policy, now: Time, expected: Psn, out: &mut impl FnMut(Outgoing<M>)) {
        let count = expected.distance_from(self.first) as usize;
        if count > self.unacknowledged.len() {
            return;
        }
        self.drop_first(policy, now, count, out);
        self.timeouts = 0; // A NAK is a sign of life.
        // P-7: the first NAK for a number brings back all that followed it; further ones bring that frame alone.
        // Repeating everything each time would make more packets out of every damaged one, without end.
        let all = self.unacknowledged.len();
        if self.missing.replace(expected) == Some(expected) {
            self.refusals = self.refusals.saturating_add(1);
            self.repeat(policy, now, all.min(1), out);
        } else {
            self.refusals = 0;
            self.repeat(policy, now, all, out);
        }
    }

    pub(super) fn confirm(&mut self, policy: &Policy, now: Time, psn: Psn, out: &mut impl FnMut(Outgoing<M>)) {
        let position = psn.distance_from(self.first) as usize;
        let Some(entry) = self.unacknowledged.get_mut(position) else {
            return;
        };
        entry.confirmed = true;
        let count = self.unacknowledged.iter().take_while(|entry| entry.confirmed).count();
        self.drop_first(policy, now, count, out);
    }

    fn drop_first(&mut self, policy: &Policy, now: Time, count: usize, out: &mut impl FnMut(Outgoing<M>)) {
        if count == 0 {
            return;
        }
        self.first = self.number(count);
        self.refusals = 0;
        self.unacknowledged.drain(..count);
        self.quiet_since = now;
        self.timeouts = 0;
        while self.unacknowledged.len() < usize::from(policy.window) {
            let Some(message) = self.waiting.pop_front() else {
                break;
            };
            self.transmit(policy, now, message, out);
        }
    }

    pub(super) fn deadline(&self, policy: &Policy) -> Option<Time> {
        if self.unacknowledged.is_empty() {
            return None;
        }
        Some(if self.is_refused_for_good(policy) {
            self.quiet_since
        } else {
            self.quiet_since + self.patience(policy)
        })
    }

    /// The same frame has been refused so often that the link cannot be said to carry anything (P-8).
    fn is_refused_for_good(&self, policy: &Policy) -> bool {
        self.refusals >= policy.refusal_limit
    }

    /// Doubles with every timeout in a row, so that a congested path is not made worse.
    fn patience(&self, policy: &Policy) -> units::Span {
        policy.timeout.times(1 << self.timeouts.min(6))
    }

    pub(super) fn handle_timeout(
        &mut self,
        policy: &Policy,
        now: Time,
        out: &mut impl FnMut(Outgoing<M>),
    ) -> Result<(), Exhausted> {
        if self.deadline(policy).is_none_or(|deadline| deadline > now) {
            return Ok(());
        }
        if self.timeouts >= policy.retry_limit || self.is_refused_for_good(policy) {
            return Err(Exhausted);
        }
        self.timeouts += 1;
        self.repeat(policy, now, self.unacknowledged.len(), out);
        Ok(())
    }

    /// Sends the first `count` again; the last one asks for an acknowledgement, so that a lost answer is found out.
    fn repeat(&mut self, policy: &Policy, now: Time, count: usize, out: &mut impl FnMut(Outgoing<M>)) {
        for (position, entry) in self.unacknowledged.iter().take(count).enumerate() {
            let (psn, message) = (self.number(position), entry.message.clone());
            let frame = Frame::Data { psn, wants_ack: position + 1 == count, message };
            out(Outgoing { frame, copies: policy.resend_copies, purpose: Purpose::Repeat });
        }
        self.quiet_since = now;
    }

    /// Whether a message of this kind is still on its way.
    pub(super) fn is_carrying(&self, kind: impl Fn(&M) -> bool) -> bool {
        self.unacknowledged.iter().any(|entry| kind(&entry.message)) || self.waiting.iter().any(kind)
    }

    pub(super) fn abandon(&mut self) {
        self.first = self.number(self.unacknowledged.len());
        self.unacknowledged.clear();
        self.waiting.clear();
    }
}
