//! What goes into one packet of a connection.

use units::{PathId, Psn, Span};

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
    /// The same, and which of the frames after it have come.
    Gaps {
        /// The number that is missing.
        expected: Psn,
        /// Bit `i`: number `expected + 1 + i` has come.
        arrived: u64,
    },
    /// The frame of this number came too early for the receiver: it is to be sent again after a while.
    NotReady {
        /// The number that was turned away; everything before it has come.
        expected: Psn,
        /// How long the receiver wants to be left alone.
        wait: Span,
    },
    /// The receiver cannot do what the frame of this number asks, now or ever.
    Refusal {
        /// The number.
        psn: Psn,
        /// Why.
        cause: FatalNak,
    },
    /// Does this path carry anything? To be answered on the same path.
    Probe {
        /// What the answer must say.
        token: u64,
    },
    /// The answer to a probe.
    ProbeReply {
        /// What the probe said.
        token: u64,
    },
}

/// Why a request can never be served (IB specification, 9.7.5.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FatalNak {
    /// It makes no sense, or is longer than what waits for it.
    InvalidRequest,
    /// It names memory that it may not touch.
    Access,
    /// The receiver has failed.
    Operational,
}

/// Why a frame is sent: drivers may treat repeats and control differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FramePurpose {
    /// For the first time.
    First,
    /// Again.
    Repeat,
    /// An acknowledgement, a NAK or a probe.
    Control,
}

/// The migration bit of a packet's header (IB specification, 9.2.3): set by an end that has no alternate path loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MigrationBit {
    /// The sender is migrated: this is its path, and it has no other yet.
    Migrated,
    /// The sender has loaded an alternate path.
    Loaded,
}

/// A frame to transmit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutgoingFrame<M> {
    /// The frame.
    pub frame: Frame<M>,
    /// How many times in a row.
    pub copies: u8,
    /// Why.
    pub purpose: FramePurpose,
    /// Over which path.
    pub path: PathId,
    /// What the header says of the sender's path state.
    pub migration: MigrationBit,
}

impl<M> OutgoingFrame<M> {
    /// A frame for the only path of an end that knows no other.
    pub(super) fn new(frame: Frame<M>, copies: u8, purpose: FramePurpose) -> Self {
        Self { frame, copies, purpose, path: PathId(0), migration: MigrationBit::Migrated }
    }

    pub(super) fn control(frame: Frame<M>) -> Self {
        Self::new(frame, 1, FramePurpose::Control)
    }
}

/// What the driver knows of a packet beside its contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FramePath {
    /// The path on which it came.
    pub path: PathId,
    /// What its header says of the sender's path state.
    pub migration: MigrationBit,
}

impl FramePath {
    /// On a connection with one path.
    pub const ONLY_PATH: Self = Self { path: PathId(0), migration: MigrationBit::Migrated };
}
