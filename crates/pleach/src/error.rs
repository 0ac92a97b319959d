//! Errors of operations and of joining a job.

use std::fmt;
use std::io;

use bootstrap::{EnvironmentError, RendezvousError};
use engine::network::LeaderNetworkError;
use hostmem::team;

/// Why an operation failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// A rank of the job is gone. Communicators that contain it are unusable; others still work.
    RankLost {
        /// The rank, in the communicator of all ranks.
        rank: u32,
    },
    /// The ranks called different operations, or the same with different type, operator, root or length. The communicator is
    /// unusable.
    Mismatch {
        /// Which rank differs in what, as far as known.
        what: String,
    },
    /// The arguments of this call are invalid. Nothing happened; the communicator still works.
    InvalidArgument {
        /// What is wrong with them.
        what: String,
    },
    /// An internal error: a bug in Pleach, or a system call that failed unexpectedly. The communicator is unusable.
    Internal {
        /// What failed.
        what: String,
    },
}

impl Error {
    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::InvalidArgument { what: what.into() }
    }

    pub(crate) fn internal(what: impl fmt::Display) -> Self {
        Self::Internal { what: what.to_string() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RankLost { rank } => write!(f, "rank {rank} is lost"),
            Self::Mismatch { what } => write!(f, "the ranks called different operations: {what}"),
            Self::InvalidArgument { what } => f.write_str(what),
            Self::Internal { what } => write!(f, "internal error: {what} (please report this)"),
        }
    }
}

impl std::error::Error for Error {}

impl From<LeaderNetworkError> for Error {
    fn from(error: LeaderNetworkError) -> Self {
        match error {
            LeaderNetworkError::RankLost(rank) => Self::RankLost { rank: rank.0 },
            LeaderNetworkError::Mismatch => Self::Mismatch { what: error.to_string() },
            LeaderNetworkError::TooLong => Self::invalid(error.to_string()),
            LeaderNetworkError::ProtocolError | LeaderNetworkError::Corrupted => Self::internal(error),
        }
    }
}

impl From<team::TeamError> for Error {
    fn from(error: team::TeamError) -> Self {
        match error {
            team::TeamError::Mismatch { .. } => Self::Mismatch { what: error.to_string() },
            team::TeamError::NoSuchRoot { .. }
            | team::TeamError::PartialElement { .. }
            | team::TeamError::TooLong { .. } => Self::invalid(error.to_string()),
            _ => Self::internal(error),
        }
    }
}

/// Why this process could not join its job, or could not form a communicator.
#[derive(Debug)]
pub enum JoinError {
    /// The environment does not describe this process's place in a job.
    Environment(EnvironmentError),
    /// The rendezvous with the other ranks failed.
    Rendezvous(RendezvousError),
    /// The ranks of this host could not set up shared memory.
    SharedMemory(team::TeamJoinError),
    /// A setting is invalid.
    InvalidSetting {
        /// The variable.
        name: &'static str,
        /// What is wrong.
        what: String,
    },
    /// A rank runs another version of Pleach.
    VersionMismatch,
    /// A system call failed.
    Io {
        /// What was attempted.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The ranks met, but an operation that sets up the communicator failed.
    Setup(Error),
    /// Another rank cannot join the communicator.
    Peer {
        /// The rank, in the communicator of all ranks.
        rank: u32,
        /// Why.
        what: String,
    },
}

impl JoinError {
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment(error) => error.fmt(f),
            Self::Rendezvous(error) => error.fmt(f),
            Self::SharedMemory(error) => error.fmt(f),
            Self::InvalidSetting { name, what } => write!(f, "{name}: {what}"),
            Self::VersionMismatch => {
                f.write_str("a rank runs another version of Pleach; install the same version on all hosts")
            }
            Self::Io { doing, source } => write!(f, "{doing}: {source}"),
            Self::Setup(error) => write!(f, "the ranks met, but setting up the communicator failed: {error}"),
            Self::Peer { rank, what } => write!(f, "rank {rank} cannot join: {what}"),
        }
    }
}

impl std::error::Error for JoinError {}

impl From<Error> for JoinError {
    fn from(error: Error) -> Self {
        Self::Setup(error)
    }
}
