//! Vocabulary of the failure detector: events about other ranks, and out-of-band messages.

/// Longest out-of-band message.
pub const MAX_OOB_MESSAGE_BYTES: usize = 65_536;
/// Longest body of an encoded message: the target or source rank, and the message.
pub(super) const MAX_BODY_BYTES: usize = MAX_OOB_MESSAGE_BYTES + 4;
/// With this much queued for a rank, further messages to it must wait.
pub(super) const SEND_QUEUE_LIMIT_BYTES: usize = 1 << 20;
/// With this many events queued for the application, nothing more is read.
pub(super) const MAX_QUEUED_EVENTS: usize = 4096;
/// Stands for all other ranks in a message.
pub(super) const ALL_RANKS: u32 = u32::MAX;

/// An event about another rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RankEvent {
    /// Ranks ended without a goodbye, or do not answer. Every rank that is not lost gets the same events of this kind in the same
    /// order.
    Lost {
        /// The ranks, in order.
        ranks: Vec<u32>,
    },
    /// More ranks do not answer than do: this process is on the smaller side of a partition. Or the others do not hear this process, and
    /// take it for lost. No more events follow.
    CutOff {
        /// Those ranks, in order.
        ranks: Vec<u32>,
    },
    /// Another rank coordinates the job from now on, perhaps this one. Messages on their way through the old coordinator may be lost.
    NewCoordinator {
        /// The rank.
        rank: u32,
    },
    /// It left cleanly.
    Left {
        /// The rank.
        rank: u32,
    },
    /// It sent an out-of-band message.
    Message {
        /// The sender.
        from: u32,
        /// The message.
        bytes: Vec<u8>,
    },
}

/// The target of an out-of-band message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OobTarget {
    /// One rank; the own rank is allowed.
    Rank(u32),
    /// All other ranks.
    All,
    /// The rank that coordinates the job, perhaps the own one: rank 0 unless it is lost.
    Coordinator,
}

/// Why an out-of-band message was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OobSendError {
    /// It is longer than [`MAX_OOB_MESSAGE_BYTES`].
    TooLong,
    /// The job has no such rank.
    NoSuchRank,
    /// The rank has left or is lost.
    RankGone,
    /// Earlier messages are still queued: poll and try again.
    WouldBlock,
    /// This process is cut off.
    Disconnected,
}

impl std::fmt::Display for OobSendError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::TooLong => "the message is longer than 65536 bytes",
            Self::NoSuchRank => "the job has no such rank",
            Self::RankGone => "the rank has left or is lost",
            Self::WouldBlock => "earlier messages are still queued; poll and try again",
            Self::Disconnected => "this process is cut off, so messages cannot be forwarded",
        })
    }
}

impl std::error::Error for OobSendError {}
