//! What can go wrong among the ranks of one host.

use std::{fmt, io};

use super::descriptor::{CallSignature, TeamVerb};

/// Why a rank could not map the region of its team.
#[derive(Debug)]
pub enum TeamJoinError {
    /// The kernel refused.
    Io(io::Error),
    /// Names have up to 128 letters, digits, `-`, `_` and `.`, and do not begin with a dot.
    BadName(String),
    /// A team has at least one rank, and not too many.
    TooManyRanks {
        /// Asked for.
        ranks: u16,
        /// Allowed.
        most: u16,
    },
    /// Rank 0 creates; the others join.
    NoSuchRank {
        /// Who wanted to join.
        rank: u16,
        /// Of how many.
        ranks: u16,
    },
    /// Nobody made the region within the time given.
    NobodyMadeIt,
    /// The file of this name belongs to another user, or others may open it.
    NotOurs,
    /// The file has another size than a team of this many ranks needs.
    OtherSize {
        /// Bytes of the file.
        found: u64,
        /// Bytes needed.
        expected: u64,
    },
    /// Version, size or number of ranks are not what this rank expects.
    OtherLayout {
        /// In the region.
        found: [u64; 3],
        /// Here.
        expected: [u64; 3],
    },
    /// Another process is this rank already.
    SeatTaken {
        /// The rank.
        rank: u16,
    },
}

impl From<io::Error> for TeamJoinError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for TeamJoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "shared memory: {error}"),
            Self::BadName(name) => write!(f, "{name:?} is no name for shared memory"),
            Self::TooManyRanks { ranks, most } => write!(f, "{ranks} ranks on one host; 1 to {most} are possible"),
            Self::NoSuchRank { rank, ranks } => {
                write!(f, "rank {rank} cannot join a team of {ranks} that rank 0 made")
            }
            Self::NobodyMadeIt => f.write_str("nobody made the shared memory of this team"),
            Self::NotOurs => f.write_str("the shared memory of this name is not ours alone"),
            Self::OtherSize { found, expected } => {
                write!(f, "the shared memory of this name has {found} bytes, not {expected}")
            }
            Self::OtherLayout { found, expected } => {
                write!(f, "version, size and ranks of the shared memory are {found:?}, not {expected:?}")
            }
            Self::SeatTaken { rank } => write!(f, "rank {rank} of this team is taken"),
        }
    }
}

impl std::error::Error for TeamJoinError {}

/// Why an operation did not happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TeamError {
    /// The ranks do not agree on what to do. All of them get this, with the same contents.
    Mismatch {
        /// Which operation of the team, counted from 1.
        operation: u64,
        /// What rank 0 claimed.
        first: CallSignature,
        /// The first rank that claimed something else.
        rank: u16,
        /// What that was.
        other: CallSignature,
    },
    /// The process of a rank is gone, or has left the team.
    Lost {
        /// The rank, as counted on this host.
        rank: u16,
    },
    /// This rank gave up in the middle of an operation, and is out of step with the others.
    Abandoned {
        /// Which operation of the team.
        operation: u64,
    },
    /// Shared memory holds what no rank of ours writes.
    Garbled {
        /// Which operation of the team.
        operation: u64,
    },
    /// There is no such root.
    NoSuchRoot {
        /// Asked for.
        root: u16,
        /// How many ranks there are.
        ranks: u16,
    },
    /// The length is no whole number of elements.
    PartOfElement {
        /// Bytes given.
        length: usize,
        /// Bytes of one element.
        element_size: usize,
    },
    /// More than a claim can say.
    TooLong {
        /// Bytes given.
        length: usize,
    },
    /// This rank's part in the operation takes other buffers than were given.
    WrongBuffers {
        /// The operation.
        verb: TeamVerb,
    },
    /// Input and output are not equally long, or not as long as when the operation began.
    LengthsDiffer {
        /// Bytes expected.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
}

impl fmt::Display for TeamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch { operation, first, rank, other } => {
                write!(f, "operation {operation} is {first} for local rank 0 but {other} for local rank {rank}")
            }
            Self::Lost { rank } => write!(f, "local rank {rank} is gone"),
            Self::Abandoned { operation } => write!(f, "operation {operation} was given up here"),
            Self::Garbled { operation } => write!(f, "shared memory is garbled in operation {operation}"),
            Self::NoSuchRoot { root, ranks } => write!(f, "there is no local rank {root} among {ranks}"),
            Self::PartOfElement { length, element_size } => {
                write!(f, "{length} bytes are no whole number of {element_size}-byte elements")
            }
            Self::TooLong { length } => write!(f, "{length} bytes are too many"),
            Self::WrongBuffers { verb } => write!(f, "wrong buffers for this rank's part in a {verb}"),
            Self::LengthsDiffer { expected, found } => write!(f, "a buffer of {found} bytes instead of {expected}"),
        }
    }
}

impl std::error::Error for TeamError {}

/// Why a wait ended without a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TeamWaitError<E> {
    /// The operation failed.
    Team(TeamError),
    /// The caller's check ended the wait. The operation is still under way.
    Check(E),
}

impl<E: fmt::Display> fmt::Display for TeamWaitError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Team(error) => error.fmt(f),
            Self::Check(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error> std::error::Error for TeamWaitError<E> {}

impl fmt::Display for TeamVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllReduce => "allreduce",
        })
    }
}

impl fmt::Display for CallSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.verb() {
            Some(verb) => write!(f, "a {verb} of {} bytes", self.length())?,
            None => return f.write_str("something unknown"),
        }
        if let (Some(element), Some(operator)) = (self.element(), self.operator()) {
            write!(f, " ({element} {operator})")?;
        }
        if self.is_rooted() {
            write!(f, " with root {}", self.root())?;
        }
        Ok(())
    }
}
