//! What the user asks of a queue pair, and what it hears back.

use wire::RemoteKey;

use super::{InvalidQpTransition, QpState};
use crate::connection::{FatalNak, RetryExceeded};

/// What a posted send does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpOperation {
    /// A message for the other end's next receive.
    Send {
        /// Four bytes for its completion.
        immediate: Option<u32>,
    },
    /// A write to the other end's memory. With immediate data it also completes a receive there.
    Write {
        /// The key to the region.
        key: RemoteKey,
        /// Where.
        address: u64,
        /// Four bytes for a receive's completion.
        immediate: Option<u32>,
    },
}

/// Something posted has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkCompletion {
    /// A send or write: all of it is at the other end.
    Sent {
        /// What the user called it.
        id: u64,
    },
    /// A receive: a message is in its buffer.
    Received {
        /// What the user called it.
        id: u64,
        /// Bytes of the message; of a write with immediate data, what was written elsewhere.
        length: u32,
        /// What came with it.
        immediate: Option<u32>,
    },
    /// A send or write that did not get through.
    SendFailed {
        /// What the user called it.
        id: u64,
        /// Why.
        failure: QpError,
    },
    /// A receive that nothing will come for any more.
    ReceiveFailed {
        /// What the user called it.
        id: u64,
        /// Why.
        failure: QpError,
    },
}

/// Why a queue pair failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpError {
    /// The other end cannot be reached by any path, or takes nothing.
    Unreachable(RetryExceeded),
    /// The other end refused a request.
    Refused(FatalNak),
    /// The other end sent what makes no sense.
    BadRequest,
    /// A message was longer than the buffer that waited for it.
    TooLong,
    /// Something else failed before, or the user ended it.
    Flushed,
}

/// Why something cannot be posted; nothing has happened then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpPostError {
    /// Not in this state.
    State(QpState),
    /// So many are posted already.
    Full,
    /// Longer than a message may be.
    TooLong {
        /// The bytes asked for.
        length: u32,
    },
}

impl std::fmt::Display for QpPostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::State(state) => write!(f, "a queue pair in state {state} takes no such request"),
            Self::Full => {
                write!(f, "{} requests are posted already: wait for a completion", super::MAX_POSTED_REQUESTS)
            }
            Self::TooLong { length } => {
                write!(f, "{length} bytes are more than a message may have ({})", super::MAX_QP_MESSAGE_BYTES)
            }
        }
    }
}

impl std::error::Error for QpPostError {}

impl std::fmt::Display for QpError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(RetryExceeded::Silence) => f.write_str("the other end does not answer on any path"),
            Self::Unreachable(RetryExceeded::Refused) => f.write_str("the same packet is refused over and over"),
            Self::Unreachable(RetryExceeded::NotReady) => {
                f.write_str("the other end has posted no receive for too long")
            }
            Self::Refused(FatalNak::InvalidRequest) => f.write_str("the other end calls the request invalid"),
            Self::Refused(FatalNak::Access) => f.write_str("the other end does not grant access to that memory"),
            Self::Refused(FatalNak::Operational) => f.write_str("the other end has failed"),
            Self::BadRequest => f.write_str("the other end sent packets that make no message"),
            Self::TooLong => f.write_str("a message was longer than the receive posted for it"),
            Self::Flushed => f.write_str("the queue pair failed before this could be done"),
        }
    }
}

impl std::error::Error for QpError {}

impl From<InvalidQpTransition> for QpPostError {
    fn from(wrong: InvalidQpTransition) -> Self {
        Self::State(wrong.state)
    }
}
