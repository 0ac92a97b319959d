//! The receiving half: delivers in order and once, and reports gaps and damage.

use units::limits::MAX_REORDER_PACKETS;
use units::{Psn, Span};

use super::damage::{Damage, DamageOutcome};
use super::frame::{FatalNak, Frame, OutgoingFrame};
use super::policy::{ConnectionPolicy, LossRecovery};

/// Out-of-order arrivals between two reports of a gap.
const REPORT_INTERVAL: u8 = 16;
/// So many reports of damage in a row are sent while no data arrives intact; then ever fewer (P-107).
const DAMAGE_REPORTS: u16 = 64;
const WORDS: usize = (MAX_REORDER_PACKETS / u64::BITS) as usize;

/// Where a frame stands relative to the expected one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PsnPosition {
    /// It is the expected frame.
    Expected,
    /// Earlier frames are missing; it is this many numbers past the expected one, and can be buffered.
    Ahead(u32),
    /// It was received before.
    Duplicate,
    /// Too far ahead to be buffered.
    OutOfWindow,
}

/// The state of the receiver. Everything else is the sender's.
#[derive(Debug)]
pub(super) struct Receiver {
    expected: Psn,
    /// Further copies of a received frame that are due.
    copies_due: u8,
    /// Damaged copies of the expected frame.
    damaged: u8,
    /// One of them was damaged on this link.
    damaged_here: bool,
    /// A NAK for `expected` was sent; from now on the sender sends `resend_copies`.
    nak_sent: bool,
    /// Arrivals since then.
    since_report: u8,
    /// Reports of damage that were due since the last intact data frame.
    damage_streak: u16,
    /// Bit `i`: number `expected + i` is buffered, though an earlier one is missing. Usually none.
    held: Option<Box<[u64; WORDS]>>,
}

impl Receiver {
    pub(super) fn new(first: Psn) -> Self {
        Self {
            expected: first,
            copies_due: 0,
            damaged: 0,
            damaged_here: false,
            nak_sent: false,
            since_report: 0,
            damage_streak: 0,
            held: None,
        }
    }

    pub(super) fn expected(&self) -> Psn {
        self.expected
    }

    pub(super) fn classify(&self, policy: &ConnectionPolicy, psn: Psn) -> PsnPosition {
        let distance = psn.distance_from(self.expected);
        match distance {
            0 => PsnPosition::Expected,
            _ if psn.is_before(self.expected) => PsnPosition::Duplicate,
            _ if policy.loss_recovery == LossRecovery::GoBackN || distance >= MAX_REORDER_PACKETS => {
                PsnPosition::OutOfWindow
            }
            _ if self.holds(distance) => PsnPosition::Duplicate,
            _ => PsnPosition::Ahead(distance),
        }
    }

    fn holds(&self, distance: u32) -> bool {
        self.held.as_ref().is_some_and(|held| held[distance as usize / 64] >> (distance % 64) & 1 == 1)
    }

    /// The expected frame was accepted.
    pub(super) fn accept_expected(&mut self, policy: &ConnectionPolicy) {
        self.expected = self.expected.next();
        // P-4: the copies after the first intact one are still due, except those that already arrived damaged.
        let copies = if self.nak_sent { policy.resend_copies } else { policy.copies };
        self.copies_due = copies.saturating_sub(1 + self.damaged);
        self.damaged = 0;
        self.damaged_here = false;
        self.nak_sent = false;
        self.since_report = 0;
        if let Some(held) = &mut self.held {
            for word in 0..WORDS {
                let carry = if word + 1 < WORDS { held[word + 1] << 63 } else { 0 };
                held[word] = held[word] >> 1 | carry;
            }
            if held.iter().all(|word| *word == 0) {
                self.held = None;
            }
        }
    }

    /// Whether the expected frame arrived early and is buffered.
    pub(super) fn holds_expected(&self) -> bool {
        self.holds(0)
    }

    /// A frame that is ahead was buffered.
    pub(super) fn hold_early<M>(&mut self, distance: u32, wants_ack: bool, out: &mut impl FnMut(OutgoingFrame<M>)) {
        let held = self.held.get_or_insert_default();
        held[distance as usize / 64] |= 1 << (distance % 64);
        self.since_report = self.since_report.saturating_add(1);
        if !self.nak_sent || wants_ack || self.since_report >= REPORT_INTERVAL {
            self.send_selective_ack(out);
        }
    }

    /// Reports the gap to the sender.
    fn send_selective_ack<M>(&mut self, out: &mut impl FnMut(OutgoingFrame<M>)) {
        self.nak_sent = true;
        self.since_report = 0;
        let arrived = self.held.as_ref().map_or(0, |held| held[0] >> 1 | held[1] << 63);
        out(OutgoingFrame::control(Frame::SelectiveAck { expected: self.expected, arrived }));
    }

    /// Drops a duplicate, or a frame that is too far ahead.
    pub(super) fn discard<M>(
        &mut self,
        policy: &ConnectionPolicy,
        position: PsnPosition,
        wants_ack: bool,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) {
        if position == PsnPosition::Duplicate {
            self.note_copy();
            match (wants_ack, policy.loss_recovery, self.held.is_some()) {
                (true, LossRecovery::Selective, true) => self.send_selective_ack(out),
                (true, ..) => self.send_ack(out),
                _ => {}
            }
        } else {
            self.send_nak(out); // P-3: a gap.
        }
    }

    pub(super) fn send_ack<M>(&self, out: &mut impl FnMut(OutgoingFrame<M>)) {
        out(OutgoingFrame::control(Frame::Ack { psn: self.expected.previous() }));
    }

    pub(super) fn send_rnr_nak<M>(&mut self, wait: Span, out: &mut impl FnMut(OutgoingFrame<M>)) {
        self.nak_sent = false;
        out(OutgoingFrame::control(Frame::RnrNak { expected: self.expected, wait }));
    }

    pub(super) fn send_fatal_nak<M>(&self, cause: FatalNak, out: &mut impl FnMut(OutgoingFrame<M>)) {
        out(OutgoingFrame::control(Frame::FatalNak { psn: self.expected, cause }));
    }

    pub(super) fn handle_damage<M>(
        &mut self,
        policy: &ConnectionPolicy,
        damage: Damage,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) -> DamageOutcome {
        if self.copies_due > 0 {
            self.copies_due -= 1;
            return DamageOutcome::Harmless;
        }
        self.damaged += 1;
        self.damaged_here |= damage == Damage::Here;
        let copies = if self.nak_sent { policy.resend_copies } else { policy.copies };
        if self.damaged < copies {
            return DamageOutcome::Harmless;
        }
        self.damaged = 0;
        // P-42: if all copies arrived marked, a node further up repairs the frame.
        if !std::mem::take(&mut self.damaged_here) {
            return DamageOutcome::Harmless;
        }
        self.damage_streak = self.damage_streak.saturating_add(1);
        if self.damage_streak > DAMAGE_REPORTS && !self.damage_streak.is_power_of_two() {
            return DamageOutcome::Harmless;
        }
        self.nak_sent = false;
        self.send_nak(out);
        DamageOutcome::Reported
    }

    /// A data frame arrived intact. NAKs do not count: a fault may damage data and spare them.
    pub(super) fn note_intact_data(&mut self) {
        self.damage_streak = 0;
    }

    pub(super) fn expect_copies(&mut self, echoes: u8) {
        self.copies_due = echoes.saturating_sub(self.damaged);
        self.damaged = 0;
        self.damaged_here = false;
    }

    pub(super) fn note_copy(&mut self) {
        self.copies_due = self.copies_due.saturating_sub(1);
    }

    /// Sends one NAK per gap; if it is lost, the sender's timeout repairs the gap.
    fn send_nak<M>(&mut self, out: &mut impl FnMut(OutgoingFrame<M>)) {
        if !std::mem::replace(&mut self.nak_sent, true) {
            out(OutgoingFrame::control(Frame::Nak { expected: self.expected }));
        }
    }
}
