//! The content of one packet of a connection.

use units::{PathId, Psn, Span};

/// A frame, before the wire format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame<M> {
    /// A message.
    Data {
        /// Its sequence number.
        psn: Psn,
        /// The sender requests an acknowledgement.
        wants_ack: bool,
        /// The message.
        message: M,
    },
    /// Everything up to and including this number arrived.
    Ack {
        /// The last number.
        psn: Psn,
    },
    /// The frame with this number is missing; everything before it arrived.
    Nak {
        /// The missing number.
        expected: Psn,
    },
    /// The same, with a bitmap of later frames that arrived.
    SelectiveAck {
        /// The missing number.
        expected: Psn,
        /// Bit `i`: number `expected + 1 + i` arrived.
        arrived: u64,
    },
    /// Receiver not ready: no receive is posted for this frame. Send it again after a pause.
    RnrNak {
        /// The number of the deferred frame; everything before it arrived.
        expected: Psn,
        /// The pause.
        wait: Span,
    },
    /// The receiver rejects the request with this number for good.
    FatalNak {
        /// The number.
        psn: Psn,
        /// Why.
        cause: FatalNak,
    },
    /// A probe of this path; the reply takes the same path.
    Probe {
        /// The reply repeats it.
        token: u64,
    },
    /// The reply to a probe.
    ProbeReply {
        /// The token of the probe.
        token: u64,
    },
}

/// Why a request is rejected for good (IB specification, 9.7.5.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FatalNak {
    /// It is malformed, or longer than the posted receive.
    InvalidRequest,
    /// It names memory that the requester may not access.
    Access,
    /// The receiver failed.
    Operational,
}

/// Why a frame is sent: drivers may treat retransmissions and control frames differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FramePurpose {
    /// The first transmission.
    First,
    /// A retransmission.
    Retransmission,
    /// An acknowledgement, a NAK or a probe.
    Control,
}

/// The migration bit of a packet's header (IB specification, 9.2.3): set by an end without a loaded alternate path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MigrationBit {
    /// The sender is in state MIGRATED: it uses this path, and has no alternate.
    Migrated,
    /// The sender has loaded an alternate path.
    Loaded,
}

/// A frame to transmit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutgoingFrame<M> {
    /// The frame.
    pub frame: Frame<M>,
    /// Copies to send in a row.
    pub copies: u8,
    /// Why.
    pub purpose: FramePurpose,
    /// Over which path.
    pub path: PathId,
    /// The migration bit for the header.
    pub migration: MigrationBit,
}

impl<M> OutgoingFrame<M> {
    /// A frame for the only path of a connection.
    pub(super) fn new(frame: Frame<M>, copies: u8, purpose: FramePurpose) -> Self {
        Self { frame, copies, purpose, path: PathId(0), migration: MigrationBit::Migrated }
    }

    pub(super) fn control(frame: Frame<M>) -> Self {
        Self::new(frame, 1, FramePurpose::Control)
    }
}

/// The path of a packet, beside its contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FramePath {
    /// The path on which it arrived.
    pub path: PathId,
    /// The migration bit of its header.
    pub migration: MigrationBit,
}

impl FramePath {
    /// For a connection with one path.
    pub const ONLY_PATH: Self = Self { path: PathId(0), migration: MigrationBit::Migrated };
}
