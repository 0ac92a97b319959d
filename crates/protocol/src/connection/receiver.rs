//! The receiving half: in order, once, and honest about damage.

use units::limits::MAX_REORDER_PACKETS;
use units::{Psn, Span};

use super::{ConnectionPolicy, Damage, DamageOutcome, FatalNak, Frame, LossRecovery, OutgoingFrame};

/// Out-of-order arrivals between two reports of what is missing.
const REPORT_EVERY: u8 = 16;
const WORDS: usize = (MAX_REORDER_PACKETS / u64::BITS) as usize;

/// Where a frame stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PsnPosition {
    /// It is the expected one.
    Next,
    /// Earlier ones are missing; it is so many numbers past the expected one, and may be kept.
    Ahead(u32),
    /// It has come before.
    Old,
    /// Too far ahead to be kept.
    Beyond,
}

/// What the receiver remembers. Everything else is the sender's.
#[derive(Debug)]
pub(super) struct Receiver {
    expected: Psn,
    /// Copies of something already received that are still to come.
    echoes: u8,
    /// Copies of what is expected that came and were beyond use.
    damaged: u8,
    /// One of them was damaged on this very link.
    damaged_here: bool,
    /// The sender has been told that `expected` is missing; from now on it sends single copies.
    refused: bool,
    /// Arrivals since it was told.
    since_report: u8,
    /// Bit `i`: number `expected + i` is kept, though an earlier one is missing. None are, most of the time.
    held: Option<Box<[u64; WORDS]>>,
}

impl Receiver {
    pub(super) fn new(first: Psn) -> Self {
        Self {
            expected: first,
            echoes: 0,
            damaged: 0,
            damaged_here: false,
            refused: false,
            since_report: 0,
            held: None,
        }
    }

    pub(super) fn expected(&self) -> Psn {
        self.expected
    }

    pub(super) fn place(&self, policy: &ConnectionPolicy, psn: Psn) -> PsnPosition {
        let distance = psn.distance_from(self.expected);
        match distance {
            0 => PsnPosition::Next,
            _ if psn.is_before(self.expected) => PsnPosition::Old,
            _ if policy.repair == LossRecovery::GoBackN || distance >= MAX_REORDER_PACKETS => PsnPosition::Beyond,
            _ if self.holds(distance) => PsnPosition::Old,
            _ => PsnPosition::Ahead(distance),
        }
    }

    fn holds(&self, distance: u32) -> bool {
        self.held.as_ref().is_some_and(|held| held[distance as usize / 64] >> (distance % 64) & 1 == 1)
    }

    /// The expected frame has been taken.
    pub(super) fn take_next(&mut self, policy: &ConnectionPolicy) {
        self.expected = self.expected.next();
        // P-4: the copies behind the first good one are echoes, except those that already came damaged.
        let copies = if self.refused { policy.resend_copies } else { policy.copies };
        self.echoes = copies.saturating_sub(1 + self.damaged);
        self.damaged = 0;
        self.damaged_here = false;
        self.refused = false;
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

    /// True if the frame that is expected now came earlier and was kept.
    pub(super) fn has_next(&self) -> bool {
        self.holds(0)
    }

    /// A frame that is ahead has been kept.
    pub(super) fn keep<M>(&mut self, distance: u32, wants_ack: bool, out: &mut impl FnMut(OutgoingFrame<M>)) {
        let held = self.held.get_or_insert_default();
        held[distance as usize / 64] |= 1 << (distance % 64);
        self.since_report = self.since_report.saturating_add(1);
        if !self.refused || wants_ack || self.since_report >= REPORT_EVERY {
            self.report(out);
        }
    }

    /// Tells the sender what is missing.
    fn report<M>(&mut self, out: &mut impl FnMut(OutgoingFrame<M>)) {
        self.refused = true;
        self.since_report = 0;
        let arrived = self.held.as_ref().map_or(0, |held| held[0] >> 1 | held[1] << 63);
        out(OutgoingFrame::control(Frame::Gaps { expected: self.expected, arrived }));
    }

    /// A frame that has come before, or that is too far ahead.
    pub(super) fn turn_away<M>(
        &mut self,
        policy: &ConnectionPolicy,
        place: PsnPosition,
        wants_ack: bool,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) {
        if place == PsnPosition::Old {
            self.note_echo();
            match (wants_ack, policy.repair, self.held.is_some()) {
                (true, LossRecovery::Selective, true) => self.report(out),
                (true, ..) => self.acknowledge(out),
                _ => {}
            }
        } else {
            self.refuse(out); // P-3: a gap.
        }
    }

    pub(super) fn acknowledge<M>(&self, out: &mut impl FnMut(OutgoingFrame<M>)) {
        out(OutgoingFrame::control(Frame::Ack { psn: self.expected.previous() }));
    }

    pub(super) fn not_ready<M>(&mut self, wait: Span, out: &mut impl FnMut(OutgoingFrame<M>)) {
        self.refused = false;
        out(OutgoingFrame::control(Frame::NotReady { expected: self.expected, wait }));
    }

    pub(super) fn refuse_for_good<M>(&self, cause: FatalNak, out: &mut impl FnMut(OutgoingFrame<M>)) {
        out(OutgoingFrame::control(Frame::Refusal { psn: self.expected, cause }));
    }

    pub(super) fn damaged<M>(
        &mut self,
        policy: &ConnectionPolicy,
        damage: Damage,
        out: &mut impl FnMut(OutgoingFrame<M>),
    ) -> DamageOutcome {
        if self.echoes > 0 {
            self.echoes -= 1;
            return DamageOutcome::Harmless;
        }
        self.damaged += 1;
        self.damaged_here |= damage == Damage::Here;
        let copies = if self.refused { policy.resend_copies } else { policy.copies };
        if self.damaged < copies {
            return DamageOutcome::Harmless;
        }
        self.damaged = 0;
        // P-22: if all came marked, someone further up has seen to it.
        if !std::mem::take(&mut self.damaged_here) {
            return DamageOutcome::Harmless;
        }
        self.refused = false;
        self.refuse(out);
        DamageOutcome::Reported
    }

    pub(super) fn expect_echoes(&mut self, echoes: u8) {
        self.echoes = echoes.saturating_sub(self.damaged);
        self.damaged = 0;
        self.damaged_here = false;
    }

    pub(super) fn note_echo(&mut self) {
        self.echoes = self.echoes.saturating_sub(1);
    }

    /// Tells the sender once what is missing; should that get lost, its own timeout helps.
    fn refuse<M>(&mut self, out: &mut impl FnMut(OutgoingFrame<M>)) {
        if !std::mem::replace(&mut self.refused, true) {
            out(OutgoingFrame::control(Frame::Nak { expected: self.expected }));
        }
    }
}
