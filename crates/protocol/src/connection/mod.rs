//! A reliable connection over one edge: numbers, acknowledges, repeats, replicates.
//!
//! In: messages to send; frames, reports of damage and time from the driver. Out: frames to transmit, each so many
//! times, and every message of the other end exactly once and in order. Rules: docs/protocol.md P-1 to P-9.
//!
//! It is the transport of an InfiniBand reliable connection (24-bit numbers, cumulative acknowledgement, NAK on a
//! sequence error, go-back-N) with two additions. *Temporal replication* (SE-9): a frame is sent `copies` times in
//! a row, and damage is reported to the sender only when no copy came through. *Confirmation*: an answer at a higher
//! layer that proves arrival stands in for an acknowledgement, so that the usual case sends none.

mod frame;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use units::{Psn, Span, Time};

pub use frame::{Frame, Outgoing, Purpose};
pub use sender::Exhausted;

use receiver::Receiver;
use sender::Sender;

/// How a connection behaves. Both ends use the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// How many times a frame is sent in a row the first time (1: no replication).
    pub copies: u8,
    /// How many times it is sent in answer to a NAK or a timeout.
    pub resend_copies: u8,
    /// Frames that may be unacknowledged at once; more wait.
    pub window: u16,
    /// An acknowledgement is asked for with every so many unacknowledged frames.
    pub acknowledge_every: u16,
    /// A frame unacknowledged for so long is sent again.
    pub timeout: Span,
    /// Timeouts in a row without a sign of life after which the other end counts as lost.
    pub retry_limit: u8,
    /// NAKs in a row for one frame after which it counts as lost too: it lives, but nothing gets through to it.
    pub refusal_limit: u16,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            copies: 1,
            resend_copies: 1,
            window: 64,
            acknowledge_every: 16,
            timeout: Span::from_micros(20),
            retry_limit: 7,
            refusal_limit: 1_000,
        }
    }
}

/// How a packet was found to be beyond use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// By a check on this very link: the neighbour at the other end can repair it.
    Here,
    /// It came marked: someone further up knows already and repairs it (SE-5).
    Marked,
}

/// What the receiver made of a report of damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DamageOutcome {
    /// A copy of something that came through, or another copy is still to come.
    Harmless,
    /// No copy came through; the sender has been told.
    Reported,
}

/// One end of a connection that carries messages of type `M`.
#[derive(Debug)]
pub struct Connection<M> {
    policy: Policy,
    sender: Sender<M>,
    receiver: Receiver,
}

impl<M: Clone> Connection<M> {
    /// A connection whose two directions start at number zero.
    pub fn new(policy: Policy) -> Self {
        Self { policy, sender: Sender::new(Psn::new(0)), receiver: Receiver::new(Psn::new(0)) }
    }

    /// Sends a message, now or when the window allows. Returns its number if it went out now.
    pub fn send(&mut self, now: Time, message: M, out: &mut impl FnMut(Outgoing<M>)) -> Option<Psn> {
        self.sender.send(&self.policy, now, message, out)
    }

    /// The answer to the frame of this number has come some other way (P-5): it need not be acknowledged.
    pub fn confirm(&mut self, now: Time, psn: Psn, out: &mut impl FnMut(Outgoing<M>)) {
        self.sender.confirm(&self.policy, now, psn, out);
    }

    /// Takes a sound frame; returns the message that it delivers, if it does.
    pub fn handle_frame<'f>(
        &mut self,
        now: Time,
        frame: &'f Frame<M>,
        out: &mut impl FnMut(Outgoing<M>),
    ) -> Option<&'f M> {
        match frame {
            Frame::Data { psn, wants_ack, message } => {
                self.receiver.accept(&self.policy, *psn, *wants_ack, out).then_some(message)
            }
            Frame::Ack { psn } => {
                self.sender.acknowledged(&self.policy, now, *psn, out);
                None
            }
            Frame::Nak { expected } => {
                self.sender.refused(&self.policy, now, *expected, out);
                None
            }
        }
    }

    /// A packet came over this edge and was beyond use.
    pub fn handle_damage(&mut self, damage: Damage, out: &mut impl FnMut(Outgoing<M>)) -> DamageOutcome {
        self.receiver.damaged(&self.policy, damage, out)
    }

    /// Replicated packets that are not frames of this connection (multicasts) share its edge: after the first good
    /// one, so many more copies are due, and damage among them is harmless.
    pub fn expect_echoes(&mut self, echoes: u8) {
        self.receiver.expect_echoes(echoes);
    }

    /// One of those copies has come.
    pub fn note_echo(&mut self) {
        self.receiver.note_echo();
    }

    /// When [`Self::handle_timeout`] is due, if anything is unacknowledged.
    pub fn deadline(&self) -> Option<Time> {
        self.sender.deadline(&self.policy)
    }

    /// Sends again what is overdue.
    ///
    /// # Errors
    /// If the other end has given no sign of life for too long.
    pub fn handle_timeout(&mut self, now: Time, out: &mut impl FnMut(Outgoing<M>)) -> Result<(), Exhausted> {
        self.sender.handle_timeout(&self.policy, now, out)
    }

    /// Whether a message of this kind has been sent and not yet been acknowledged: it need not be sent again.
    pub fn is_carrying(&self, kind: impl Fn(&M) -> bool) -> bool {
        self.sender.is_carrying(kind)
    }

    /// Forgets everything that is unacknowledged: the other end is lost.
    pub fn abandon(&mut self) {
        self.sender.abandon();
    }
}
