//! What can go wrong, as every rank hears it.

use std::fmt;
use std::io;

use bootstrap::{EnvironmentError, RendezvousError as MeetError};
use engine::network::LeaderNetworkError;
use hostmem::team;

/// Why an operation did not come to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// A rank of the job is gone. Its communicators cannot be used any more; others can.
    RankLost {
        /// The rank, in the communicator of all ranks.
        rank: u32,
    },
    /// The ranks do not call the same operation with the same type, operator, root and length. The communicator cannot be
    /// used any more.
    Disagree {
        /// Who differs in what, where that is known.
        what: String,
    },
    /// This call makes no sense by itself; nothing has happened.
    Argument {
        /// What is wrong with it.
        what: String,
    },
    /// Something here does not work as it must.
    Broken {
        /// What.
        what: String,
    },
}

impl Error {
    pub(crate) fn argument(what: impl Into<String>) -> Self {
        Self::Argument { what: what.into() }
    }

    pub(crate) fn broken(what: impl fmt::Display) -> Self {
        Self::Broken { what: what.to_string() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RankLost { rank } => write!(f, "rank {rank} is lost"),
            Self::Disagree { what } => write!(f, "the ranks do not agree on the operation: {what}"),
            Self::Argument { what } => f.write_str(what),
            Self::Broken { what } => write!(f, "this does not work as it must: {what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<LeaderNetworkError> for Error {
    fn from(error: LeaderNetworkError) -> Self {
        match error {
            LeaderNetworkError::RankLost(rank) => Self::RankLost { rank: rank.0 },
            LeaderNetworkError::Disagree => Self::Disagree { what: error.to_string() },
            LeaderNetworkError::TooLong => Self::argument(error.to_string()),
            LeaderNetworkError::Confused => Self::broken(error),
        }
    }
}

impl From<team::TeamError> for Error {
    fn from(error: team::TeamError) -> Self {
        match error {
            team::TeamError::Mismatch { .. } => Self::Disagree { what: error.to_string() },
            team::TeamError::NoSuchRoot { .. }
            | team::TeamError::PartOfElement { .. }
            | team::TeamError::TooLong { .. } => Self::argument(error.to_string()),
            _ => Self::broken(error),
        }
    }
}

/// Why this process is in no job.
#[derive(Debug)]
pub enum JoinError {
    /// The environment does not say which process of which job this is.
    Environment(EnvironmentError),
    /// The others were not met.
    Meet(MeetError),
    /// The ranks of this host do not come together in shared memory.
    Memory(team::TeamJoinError),
    /// A setting makes no sense.
    Setting {
        /// The variable.
        name: &'static str,
        /// What is wrong.
        what: String,
    },
    /// The system refused something.
    Io {
        /// What was tried.
        doing: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The first words with the others failed.
    First(Error),
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
            Self::Meet(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
            Self::Setting { name, what } => write!(f, "{name}: {what}"),
            Self::Io { doing, source } => write!(f, "{doing}: {source}"),
            Self::First(error) => write!(f, "the ranks have met, but: {error}"),
        }
    }
}

impl std::error::Error for JoinError {}

impl From<Error> for JoinError {
    fn from(error: Error) -> Self {
        Self::First(error)
    }
}
