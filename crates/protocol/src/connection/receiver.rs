//! The receiving half: in order, once, and honest about damage.

use units::Psn;

use super::{Damage, DamageOutcome, Frame, Outgoing, Policy};

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
}

impl Receiver {
    pub(super) fn new(first: Psn) -> Self {
        Self { expected: first, echoes: 0, damaged: 0, damaged_here: false, refused: false }
    }

    /// Takes a sound data frame; true if its message is to be delivered.
    pub(super) fn accept<M>(
        &mut self,
        policy: &Policy,
        psn: Psn,
        wants_ack: bool,
        out: &mut impl FnMut(Outgoing<M>),
    ) -> bool {
        if psn == self.expected {
            self.expected = psn.next();
            // P-4: the copies behind the first good one are echoes, except those that already came damaged.
            let copies = if self.refused { policy.resend_copies } else { policy.copies };
            self.echoes = copies.saturating_sub(1 + self.damaged);
            self.damaged = 0;
            self.damaged_here = false;
            self.refused = false;
            if wants_ack {
                out(Outgoing::control(Frame::Ack { psn }));
            }
            return true;
        }
        if psn.is_before(self.expected) {
            self.note_echo();
            if wants_ack {
                out(Outgoing::control(Frame::Ack { psn: self.expected.previous() }));
            }
        } else {
            self.refuse(out); // P-3: a gap.
        }
        false
    }

    pub(super) fn damaged<M>(
        &mut self,
        policy: &Policy,
        damage: Damage,
        out: &mut impl FnMut(Outgoing<M>),
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
    fn refuse<M>(&mut self, out: &mut impl FnMut(Outgoing<M>)) {
        if !std::mem::replace(&mut self.refused, true) {
            out(Outgoing::control(Frame::Nak { expected: self.expected }));
        }
    }
}
