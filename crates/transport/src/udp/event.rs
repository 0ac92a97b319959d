//! What an endpoint reports to its user: events and errors.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;

use protocol::connection::path::{InvalidPathTransition, LoadPathError, PathEvent};
use protocol::queue_pair::{InvalidQpTransition, QpError, QpPostError};
use units::{PathId, QpNumber};

/// What an endpoint reports to its user.
#[derive(Debug)]
pub enum EndpointEvent {
    /// A send or a write is complete; its buffer returns.
    Sent {
        /// The queue pair.
        pair: QpNumber,
        /// The id of the request.
        id: u64,
        /// The buffer that was sent.
        buffer: Vec<u8>,
    },
    /// A message arrived.
    Received {
        /// The queue pair.
        pair: QpNumber,
        /// The id of the receive.
        id: u64,
        /// A buffer as long as the posted one.
        buffer: Vec<u8>,
        /// The position of the message in it.
        message: Range<usize>,
        /// The path of the packet that completed the message.
        path: PathId,
        /// The immediate data of the message.
        immediate: Option<u32>,
    },
    /// A send, a write or a receive failed.
    Failed {
        /// The queue pair.
        pair: QpNumber,
        /// The id of the request.
        id: u64,
        /// The posted buffer.
        buffer: Vec<u8>,
        /// The reason.
        failure: QpError,
    },
    /// A datagram arrived.
    Datagram {
        /// The receiving queue pair.
        pair: QpNumber,
        /// The address of the sender.
        from: SocketAddr,
        /// The queue pair of the sender.
        source: QpNumber,
        /// The posted buffer.
        buffer: Vec<u8>,
        /// The length of the message in it.
        length: usize,
        /// The immediate data of the message.
        immediate: Option<u32>,
    },
    /// A path changed its state.
    Path {
        /// The queue pair.
        pair: QpNumber,
        /// The change.
        event: PathEvent,
    },
}

/// Why a request to a queue pair failed.
#[derive(Debug)]
pub enum QueuePairError {
    /// There is no queue pair with this number.
    Unknown(QpNumber),
    /// The queue pair is in the wrong state.
    Move(InvalidQpTransition),
    /// The queue pair rejected the work request.
    Post(QpPostError),
    /// The alternate path cannot be loaded.
    Load(LoadPathError),
    /// The connection cannot migrate.
    Migrate(InvalidPathTransition),
    /// The attributes of the connection are invalid.
    Setup(&'static str),
}

impl fmt::Display for QueuePairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(number) => write!(f, "this endpoint has no {number}"),
            Self::Move(wrong) => wrong.fmt(f),
            Self::Post(wrong) => wrong.fmt(f),
            Self::Load(wrong) => wrong.fmt(f),
            Self::Migrate(wrong) => wrong.fmt(f),
            Self::Setup(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for QueuePairError {}
