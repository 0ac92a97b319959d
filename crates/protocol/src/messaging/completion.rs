//! What the user learns: completions, and why something failed.

use std::fmt;

use units::Rank;

use super::limits::{MAX_MESSAGE_BYTES, MAX_PENDING};
use super::matching::{ReceiveId, SendId};

/// Why a peer counts as lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerLossCause {
    /// All rails to it failed.
    Unreachable,
    /// It violated the protocol.
    Malformed,
    /// It sent more bytes than its credit allows.
    CreditExceeded,
    /// One packet arrived corrupt in every retransmission.
    RetransmitLimit,
    /// Every packet it sends arrives corrupt.
    Unreadable,
    /// The buffer of a long message changed in this host's memory while the message was in flight; the original bytes are gone.
    LocalCorruption,
    /// The user dropped it.
    Dropped,
}

impl fmt::Display for PeerLossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "all rails to it failed",
            Self::Malformed => "it sent a malformed packet (do all ranks run the same version?)",
            Self::CreditExceeded => "it sent more bytes than its credit allows",
            Self::RetransmitLimit => "one packet arrived corrupt in every retransmission",
            Self::Unreadable => "every packet from it arrives corrupt",
            Self::LocalCorruption => "a send buffer changed in this host's memory while its message was in flight",
            Self::Dropped => "the application dropped it",
        })
    }
}

/// Why a send or a receive failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MessageFailure {
    /// The peer is lost.
    Lost(Rank, PeerLossCause),
    /// The message is longer than the buffer, and was discarded.
    Truncated {
        /// The sender.
        source: Rank,
        /// The message's tag.
        tag: u64,
        /// The message's bytes.
        length: u64,
    },
    /// The message was corrupted in memory and discarded: here while it waited for a receive, or at the sender while it waited
    /// for an acknowledgement.
    Corrupted {
        /// The sender.
        source: Rank,
        /// The message's tag.
        tag: u64,
    },
}

impl fmt::Display for MessageFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(rank, cause) => write!(f, "{rank} is lost: {cause}"),
            Self::Truncated { source, tag, length } => {
                write!(f, "message from {source} with tag {tag:#x} has {length} bytes, more than the receive buffer")
            }
            Self::Corrupted { source, tag } => {
                write!(f, "message from {source} with tag {tag:#x} was corrupted in memory while it was queued")
            }
        }
    }
}

/// As [`Display`](fmt::Display): a `main` that returns the error prints `Debug`.
impl fmt::Debug for MessageFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for MessageFailure {}

/// The end of a send or receive; it returns the buffer.
#[derive(Debug)]
pub enum MessageCompletion {
    /// A send: the buffer is free. A short message is on its way, a long one has arrived.
    Sent {
        /// The send.
        id: SendId,
        /// Its buffer.
        buffer: Vec<u8>,
    },
    /// A receive: the message is in its buffer, and its checksum was right.
    Received {
        /// The receive.
        id: ReceiveId,
        /// The sender.
        source: Rank,
        /// The message's tag.
        tag: u64,
        /// Bytes of the message, from the start of the buffer.
        length: usize,
        /// Its buffer, in its full length.
        buffer: Vec<u8>,
    },
    /// A failed send.
    SendFailed {
        /// The send.
        id: SendId,
        /// Why.
        failure: MessageFailure,
        /// Its buffer.
        buffer: Vec<u8>,
    },
    /// A failed receive.
    ReceiveFailed {
        /// The receive.
        id: ReceiveId,
        /// Why.
        failure: MessageFailure,
        /// Its buffer; the contents are undefined.
        buffer: Vec<u8>,
    },
}

/// Why a send or receive cannot be posted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MessagePostError {
    /// There is no such peer.
    Unknown(Rank),
    /// The peer is lost.
    Lost(Rank, PeerLossCause),
    /// [`MAX_PENDING`] are pending.
    Full,
    /// Longer than [`MAX_MESSAGE_BYTES`].
    TooLong,
}

impl fmt::Display for MessagePostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(rank) => write!(f, "{rank} is not a peer of this endpoint"),
            Self::Lost(rank, cause) => write!(f, "{rank} is lost: {cause}"),
            Self::Full => write!(f, "{MAX_PENDING} operations are pending: poll completions first"),
            Self::TooLong => write!(f, "a message has at most {MAX_MESSAGE_BYTES} bytes"),
        }
    }
}

/// As [`Display`](fmt::Display): a `main` that returns the error prints `Debug`.
impl fmt::Debug for MessagePostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for MessagePostError {}

/// A send or receive that was not posted.
pub struct RejectedPost {
    /// Why.
    pub error: MessagePostError,
    /// The caller's buffer.
    pub buffer: Vec<u8>,
}

/// The reason alone, for a caller that panics: the buffer may be long.
impl fmt::Debug for RejectedPost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}
