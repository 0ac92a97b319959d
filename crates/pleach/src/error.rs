//! Errors of operations and of joining a job.

use std::fmt;
use std::io;
use std::time::Duration;

use bootstrap::{EnvironmentError, RendezvousError};
use engine::network::LeaderNetworkError;
use hostmem::team;

/// Why an operation failed.
#[derive(Clone, PartialEq, Eq)]
pub enum Error {
    /// Ranks of the job are gone. Communicators that contain one of them are unusable; others still work. Every rank that is left
    /// gets the same error.
    RanksLost {
        /// The ranks of the communicator that are lost, in the communicator of all ranks.
        ranks: Vec<u32>,
    },
    /// Packets of one rank do not reach another, although both are alive. The communicator is unusable; every rank of it gets the
    /// same error.
    Unreachable {
        /// The rank that reported it, in the communicator of all ranks.
        from: u32,
        /// The rank that it cannot reach.
        to: u32,
        /// For how long that rank has not answered.
        silence: Duration,
    },
    /// More ranks of the job do not answer than do: this process is on the smaller side of a partition of the network.
    CutOff {
        /// Ranks that do not answer, in the communicator of all ranks.
        ranks: Vec<u32>,
    },
    /// A rank has revoked the communicator ([`crate::Communicator::revoke`]).
    Revoked {
        /// Why, in its words.
        why: String,
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

    /// A failure between hosts, as rank `me` sees it.
    pub(crate) fn between_hosts(error: LeaderNetworkError, me: u32) -> Self {
        match error {
            LeaderNetworkError::RankLost(rank) => Self::Unreachable { from: me, to: rank.0, silence: Duration::ZERO },
            LeaderNetworkError::Silent { rank, silence } => {
                Self::Unreachable { from: me, to: rank.0, silence: Duration::from_nanos(silence.as_nanos()) }
            }
            LeaderNetworkError::Mismatch => Self::Mismatch { what: error.to_string() },
            LeaderNetworkError::TooLong => Self::invalid(error.to_string()),
            LeaderNetworkError::ProtocolError | LeaderNetworkError::Corrupted => Self::internal(error),
        }
    }

    /// The ranks that this error says are gone or do not answer, in the communicator of all ranks.
    pub fn lost_ranks(&self) -> &[u32] {
        match self {
            Self::RanksLost { ranks } | Self::CutOff { ranks } => ranks,
            Self::Unreachable { to, .. } => std::slice::from_ref(to),
            Self::Revoked { .. } | Self::Mismatch { .. } | Self::InvalidArgument { .. } | Self::Internal { .. } => {
                &[]
            }
        }
    }
}

/// Ranks as text: "rank 3", "ranks 1 and 3", "ranks 1, 3, 4 and 12 more".
struct RankNames<'a>(&'a [u32]);

/// Ranks that a text names before it only counts them.
const MAX_NAMED: usize = 8;

impl fmt::Display for RankNames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().take(MAX_NAMED).map(u32::to_string).collect();
        match (&names[..], self.0.len().saturating_sub(MAX_NAMED)) {
            ([], _) => f.write_str("no rank"),
            ([rank], 0) => write!(f, "rank {rank}"),
            ([ranks @ .., last], 0) => write!(f, "ranks {} and {last}", ranks.join(", ")),
            (ranks, more) => write!(f, "ranks {} and {more} more", ranks.join(", ")),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RanksLost { ranks } => {
                write!(f, "{} {} lost", RankNames(ranks), if ranks.len() == 1 { "is" } else { "are" })
            }
            Self::Unreachable { from, to, silence } => {
                write!(
                    f,
                    "rank {from} cannot reach rank {to}, although both are alive: no path carries their packets"
                )?;
                if *silence > Duration::ZERO {
                    write!(f, " (no answer for {:.1} s)", silence.as_secs_f64())?;
                }
                Ok(())
            }
            Self::CutOff { ranks } => write!(
                f,
                "this process is cut off from most of its job: {} {} not answer; check the network between their hosts",
                RankNames(ranks),
                if ranks.len() == 1 { "does" } else { "do" }
            ),
            Self::Revoked { why } => write!(f, "a rank revoked the communicator: {why}"),
            Self::Mismatch { what } => write!(f, "the ranks called different operations: {what}"),
            Self::InvalidArgument { what } => f.write_str(what),
            Self::Internal { what } => write!(f, "internal error: {what} (please report this)"),
        }
    }
}

/// As [`Display`](fmt::Display): a `main` that returns the error prints `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

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
    /// Two ranks have different settings for the protection of packets. Every rank gets the same error.
    SecurityMismatch {
        /// A rank and its setting.
        first: (u32, String),
        /// Another one.
        other: (u32, String),
    },
    /// A system call failed.
    Io {
        /// What was attempted.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The ranks met, but an operation that sets up the communicator failed.
    Setup(Error),
    /// The job has no aggregation nodes, and requires them (`PLEACH_MANAGER_REQUIRED`).
    NoNodes {
        /// Why it has none.
        reason: String,
    },
    /// Another rank cannot join the communicator.
    Peer {
        /// The rank, in the communicator of all ranks.
        rank: u32,
        /// Why.
        what: String,
    },
}

impl JoinError {
    /// True if every rank that met rank 0 gets the same error as rank 0: then it is enough if rank 0 prints it. Ranks that a user started by
    /// hand on several terminals should print it nevertheless.
    pub fn is_same_at_all_ranks(&self) -> bool {
        matches!(
            self,
            Self::NoNodes { .. }
                | Self::SecurityMismatch { .. }
                | Self::Rendezvous(RendezvousError::Missing { .. } | RendezvousError::Withdrawn { .. })
        )
    }

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
            Self::SecurityMismatch { first, other } => write!(
                f,
                "PLEACH_SECURITY differs: rank {} has {}, rank {} has {}; set it to the same for all ranks",
                first.0, first.1, other.0, other.1
            ),
            Self::Io { doing, source } => write!(f, "{doing}: {source}"),
            Self::Setup(error) => write!(f, "the ranks met, but setting up the communicator failed: {error}"),
            Self::NoNodes { reason } => write!(
                f,
                "the job has no aggregation nodes, and PLEACH_MANAGER_REQUIRED is set: {reason}; check the cluster with `pleach doctor`"
            ),
            Self::Peer { rank, what } => write!(f, "rank {rank} cannot join: {what}"),
        }
    }
}

/// As [`Display`](fmt::Display): a `main` that returns the error prints `Debug`.
impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for JoinError {}

impl From<Error> for JoinError {
    fn from(error: Error) -> Self {
        Self::Setup(error)
    }
}

#[cfg(test)]
mod tests {
    use units::Rank;

    use super::*;
    use crate::tagged_endpoint::{MessageFailure, TaggedEndpointError};

    #[test]
    fn errors_name_the_ranks() {
        let lost = |ranks: &[u32]| Error::RanksLost { ranks: ranks.to_vec() }.to_string();
        assert_eq!(lost(&[3]), "rank 3 is lost");
        assert_eq!(lost(&[3, 5, 9]), "ranks 3, 5 and 9 are lost");
        let many: Vec<u32> = (0..20).collect();
        assert_eq!(lost(&many), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more are lost");
        let silent = |silence| LeaderNetworkError::Silent { rank: Rank(5), silence };
        let text = Error::between_hosts(silent(units::Span::from_micros(8_250_000)), 2).to_string();
        assert!(
            text.starts_with("rank 2 cannot reach rank 5, although") && text.ends_with("(no answer for 8.2 s)"),
            "{text}"
        );
        let cut_off = Error::CutOff { ranks: vec![0] }.to_string();
        assert!(cut_off.contains("cut off") && cut_off.contains("rank 0 does not answer"), "{cut_off}");
    }

    #[test]
    fn a_main_that_returns_an_error_prints_what_display_prints() {
        let lost = Error::RanksLost { ranks: vec![3] };
        assert_eq!(format!("{lost:?}"), "rank 3 is lost");
        let missing = RendezvousError::Missing {
            ranks: vec![1],
            count: 1,
            waited: Duration::from_secs(30),
            rejected: bootstrap::RejectedConnections::default(),
        };
        assert_eq!(format!("{missing:?}"), "rank 1 did not join within 30.0 s; is it running?");
        let failure = MessageFailure::Truncated { source: Rank(2), tag: 7, length: 9 };
        let errors: [Box<dyn std::error::Error>; 6] = [
            Box::new(JoinError::Environment(EnvironmentError::NoJobName)),
            Box::new(JoinError::Rendezvous(missing)),
            Box::new(JoinError::NoNodes { reason: "no connection".to_owned() }),
            Box::new(JoinError::Setup(lost)),
            Box::new(TaggedEndpointError::Failed(failure)),
            Box::new(TaggedEndpointError::Io(io::Error::from(io::ErrorKind::BrokenPipe))),
        ];
        for error in errors {
            assert_eq!(format!("{error:?}"), error.to_string());
        }
    }
}
