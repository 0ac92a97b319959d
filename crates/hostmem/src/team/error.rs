//! Errors of a team.

use std::{fmt, io};

use super::descriptor::{CallSignature, TeamVerb};

/// Why a rank could not map the shared memory of its team.
#[derive(Debug)]
pub enum TeamJoinError {
    /// A system call failed.
    Io(io::Error),
    /// Names have up to 128 letters, digits, `-`, `_` and `.`, and do not begin with a dot.
    BadName(String),
    /// The number of ranks is out of range.
    TooManyRanks {
        /// Requested.
        ranks: u16,
        /// The maximum.
        most: u16,
    },
    /// Rank 0 creates; the others join.
    NoSuchRank {
        /// The rank that wanted to join.
        rank: u16,
        /// The size of the team.
        ranks: u16,
    },
    /// Rank 0 did not create the region within the timeout.
    Timeout,
    /// Rank 0 is known not to create the region.
    Cancelled,
    /// The file belongs to another user, or other users may open it.
    WrongOwner,
    /// The file has another size than a team of this many ranks needs.
    SizeMismatch {
        /// Bytes of the file.
        found: u64,
        /// Bytes needed.
        expected: u64,
    },
    /// Version, size or number of ranks differ from what this rank expects.
    LayoutMismatch {
        /// In the region.
        found: [u64; 3],
        /// Expected here.
        expected: [u64; 3],
    },
    /// Another process has joined as this rank.
    RankTaken {
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
            Self::Io(error) if error.kind() == io::ErrorKind::StorageFull => {
                write!(f, "/dev/shm is full ({error}); free some of it, enlarge it, or set PLEACH_SHARED_MEMORY=off")
            }
            Self::Io(error) => write!(f, "shared memory: {error}"),
            Self::BadName(name) => {
                write!(f, "invalid name for shared memory: {name:?} (up to 128 letters, digits, '-', '_' and '.')")
            }
            Self::TooManyRanks { ranks, most } => write!(f, "{ranks} ranks on one host; the limit is 1 to {most}"),
            Self::NoSuchRank { rank, ranks } => {
                write!(f, "local rank {rank} cannot join a team of {ranks} ranks that rank 0 creates")
            }
            Self::Timeout => {
                f.write_str("local rank 0 did not create the shared memory of the team in time; is it running?")
            }
            Self::Cancelled => f.write_str("local rank 0 cannot create the shared memory of the team"),
            Self::WrongOwner => {
                f.write_str("the shared memory of the team has a wrong owner or mode (expected this user, 0600)")
            }
            Self::SizeMismatch { found, expected } => {
                write!(
                    f,
                    "the shared memory of the team has {found} bytes, expected {expected}; do all ranks run the same version?"
                )
            }
            Self::LayoutMismatch { found, expected } => {
                write!(
                    f,
                    "version, size and ranks of the shared memory are {found:?}, expected {expected:?}; do all ranks run the same version?"
                )
            }
            Self::RankTaken { rank } => write!(f, "another process has joined the team as local rank {rank}"),
        }
    }
}

impl std::error::Error for TeamJoinError {}

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TeamError {
    /// The ranks called different operations. All of them get this error, with the same contents.
    Mismatch {
        /// The number of the operation in the team, from 1.
        operation: u64,
        /// The signature of rank 0.
        first: CallSignature,
        /// The first rank with another signature.
        rank: u16,
        /// The signature of that rank.
        other: CallSignature,
    },
    /// The process of a rank has ended, or has left the team.
    RankLost {
        /// The local rank.
        rank: u16,
    },
    /// This rank abandoned an operation, and is out of step with the others.
    Abandoned {
        /// The number of the operation.
        operation: u64,
    },
    /// Shared memory holds what no correct rank writes.
    CorruptMemory {
        /// The number of the operation.
        operation: u64,
    },
    /// The root is not a rank of the team.
    NoSuchRoot {
        /// Requested.
        root: u16,
        /// The number of ranks.
        ranks: u16,
    },
    /// The length is not a multiple of the element size.
    PartialElement {
        /// Bytes given.
        length: usize,
        /// Bytes of one element.
        element_size: usize,
    },
    /// Longer than a signature can express.
    TooLong {
        /// Bytes given.
        length: usize,
    },
    /// The input of an exchange is too long; it can be exchanged piece by piece.
    ExchangeTooLong {
        /// Bytes given.
        length: usize,
    },
    /// The buffers do not suit this rank's part in the operation.
    WrongBuffers {
        /// The operation.
        verb: TeamVerb,
    },
    /// Input and output differ in length, or from when the operation began.
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
            Self::RankLost { rank } => write!(f, "local rank {rank} is gone: its process has ended or left the team"),
            Self::Abandoned { operation } => {
                write!(f, "this rank abandoned operation {operation}; the team is out of step")
            }
            Self::CorruptMemory { operation } => write!(f, "shared memory is corrupt in operation {operation}"),
            Self::NoSuchRoot { root, ranks } => write!(f, "root {root} is out of range: the team has {ranks} ranks"),
            Self::PartialElement { length, element_size } => {
                write!(f, "{length} bytes are not a multiple of the element size of {element_size} bytes")
            }
            Self::TooLong { length } => write!(f, "{length} bytes exceed the limit of 1 TiB"),
            Self::ExchangeTooLong { length } => {
                write!(f, "{length} bytes are too long for one exchange; they can be exchanged piece by piece")
            }
            Self::WrongBuffers { verb } => write!(f, "these buffers do not suit the part of this rank in a {verb}"),
            Self::LengthsDiffer { expected, found } => write!(f, "a buffer has {found} bytes, expected {expected}"),
        }
    }
}

impl std::error::Error for TeamError {}

/// Why a wait ended without a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TeamWaitError<E> {
    /// The operation failed.
    Team(TeamError),
    /// The caller's check ended the wait. The operation is still in progress.
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
            Self::Exchange => "exchange",
        })
    }
}

impl fmt::Display for CallSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.verb() {
            Some(verb) => write!(f, "a {verb} of {} bytes", self.length())?,
            None => return f.write_str("an unknown operation"),
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
