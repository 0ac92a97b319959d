//! Work requests of a queue pair, and their completions.

use wire::RemoteKey;

use super::state::{InvalidQpTransition, QpState};
use crate::connection::{FatalNak, RetryExceeded};

/// What a posted send does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpOperation {
    /// Sends a message to the peer's next receive.
    Send {
        /// Immediate data for its completion.
        immediate: Option<u32>,
    },
    /// Writes to the peer's memory. With immediate data it also completes a receive there.
    Write {
        /// The key of the region.
        key: RemoteKey,
        /// The address in the region.
        address: u64,
        /// Immediate data for a receive's completion.
        immediate: Option<u32>,
    },
}

/// The end of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkCompletion {
    /// A send or write: all of it arrived.
    Sent {
        /// The user's id.
        id: u64,
    },
    /// A receive: a message is in its buffer.
    Received {
        /// The user's id.
        id: u64,
        /// Bytes of the message; of a write with immediate data, the bytes written to memory.
        length: u32,
        /// The immediate data.
        immediate: Option<u32>,
    },
    /// A failed send or write.
    SendFailed {
        /// The user's id.
        id: u64,
        /// Why.
        failure: QpError,
    },
    /// A failed receive.
    ReceiveFailed {
        /// The user's id.
        id: u64,
        /// Why.
        failure: QpError,
    },
}

/// Why a queue pair failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpError {
    /// No path reaches the peer, or it accepts nothing.
    Unreachable(RetryExceeded),
    /// The peer rejected a request.
    Rejected(FatalNak),
    /// The peer sent an invalid request.
    BadRequest,
    /// A message was longer than the posted receive.
    TooLong,
    /// Another request failed before, or the user closed the queue pair.
    Flushed,
}

/// Why a request cannot be posted; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpPostError {
    /// The state does not allow it.
    State(QpState),
    /// [`super::limits::MAX_POSTED_REQUESTS`] are posted.
    Full,
    /// Longer than [`super::limits::MAX_QP_MESSAGE_BYTES`].
    TooLong {
        /// The requested bytes.
        length: u32,
    },
}

impl std::fmt::Display for QpPostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::State(state) => write!(f, "a queue pair in state {state} does not accept this request"),
            Self::Full => {
                write!(f, "{} requests are posted: wait for a completion", super::limits::MAX_POSTED_REQUESTS)
            }
            Self::TooLong { length } => {
                write!(f, "{length} bytes exceed the longest message ({} bytes)", super::limits::MAX_QP_MESSAGE_BYTES)
            }
        }
    }
}

impl std::error::Error for QpPostError {}

impl std::fmt::Display for QpError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(RetryExceeded::Timeout) => f.write_str("the peer does not respond on any path"),
            Self::Unreachable(RetryExceeded::NakLimit) => {
                f.write_str("the peer sent too many NAKs for the same packet")
            }
            Self::Unreachable(RetryExceeded::RnrLimit) => f.write_str("the peer had no receive posted for too long"),
            Self::Rejected(FatalNak::InvalidRequest) => f.write_str("the peer rejected the request as invalid"),
            Self::Rejected(FatalNak::Access) => f.write_str("the peer does not allow access to that memory"),
            Self::Rejected(FatalNak::Operational) => f.write_str("the peer reports an operational error"),
            Self::BadRequest => f.write_str("the peer sent an invalid request"),
            Self::TooLong => f.write_str("a message was longer than the posted receive"),
            Self::Flushed => f.write_str("flushed: the queue pair failed or was closed before"),
        }
    }
}

impl std::error::Error for QpError {}

impl From<InvalidQpTransition> for QpPostError {
    fn from(wrong: InvalidQpTransition) -> Self {
        Self::State(wrong.state)
    }
}
