//! Why a control connection ended.

use std::io;

/// The cause, for counters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum DisconnectCause {
    /// The peer closed the connection, or the network broke it.
    Closed,
    /// A handshake or a message was not complete in time.
    Slow,
    /// The peer announced a message longer than the limit.
    TooLong,
    /// The peer is not a Pleach program, or has another protocol version.
    NotPleach,
    /// The peer and this process do not have the same secret.
    WrongSecret,
    /// Bytes that are not authentic.
    BadMac,
    /// A message that cannot be decoded.
    Malformed,
    /// The peer does not read its messages.
    NotReading,
    /// The peer was silent for long and is not registered.
    Idle,
    /// Too many connections; this was the oldest unauthenticated one, or came when no room was left.
    TooMany,
}

impl DisconnectCause {
    /// The name of the counter.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Closed => "connections closed by peers",
            Self::Slow => "connections dropped: slow",
            Self::TooLong => "connections dropped: message too long",
            Self::NotPleach => "connections dropped: not a Pleach peer",
            Self::WrongSecret => "connections dropped: wrong secret",
            Self::BadMac => "connections dropped: bad MAC",
            Self::Malformed => "connections dropped: malformed message",
            Self::NotReading => "connections dropped: does not read",
            Self::Idle => "connections dropped: idle",
            Self::TooMany => "connections dropped: too many",
        }
    }
}

/// The end of a connection.
#[derive(Debug)]
pub(super) struct Disconnect {
    pub cause: DisconnectCause,
    /// The reason, for a log.
    pub why: String,
}

impl Disconnect {
    pub(super) fn new(cause: DisconnectCause, why: impl Into<String>) -> Self {
        Self { cause, why: why.into() }
    }
}

impl From<io::Error> for Disconnect {
    fn from(error: io::Error) -> Self {
        let cause = match error.kind() {
            io::ErrorKind::InvalidData => DisconnectCause::BadMac,
            _ => DisconnectCause::Closed,
        };
        Self::new(cause, error.to_string())
    }
}
