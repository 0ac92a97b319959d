//! What goes into one packet of a connection.

use units::Psn;

/// A frame, before the wire gives it bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame<M> {
    /// A message.
    Data {
        /// Its number.
        psn: Psn,
        /// The sender wants to hear that it came.
        wants_ack: bool,
        /// The message.
        message: M,
    },
    /// Everything up to and including this number has come.
    Ack {
        /// The last one.
        psn: Psn,
    },
    /// The frame of this number has not come, though it should have; everything before it has.
    Nak {
        /// The number that is missing.
        expected: Psn,
    },
}

/// Why a frame is sent: drivers may treat repeats and control differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// For the first time.
    First,
    /// Again.
    Repeat,
    /// An acknowledgement or a NAK.
    Control,
}

/// A frame to transmit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outgoing<M> {
    /// The frame.
    pub frame: Frame<M>,
    /// How many times in a row.
    pub copies: u8,
    /// Why.
    pub purpose: Purpose,
}

impl<M> Outgoing<M> {
    pub(super) fn control(frame: Frame<M>) -> Self {
        Self { frame, copies: 1, purpose: Purpose::Control }
    }
}
