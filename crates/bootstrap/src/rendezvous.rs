//! Vocabulary of the rendezvous, in which every rank sends its endpoint to rank 0 and receives the table of all ranks.
//!
//! Each rank has one TCP connection to rank 0, which stays open for its [`FailureDetector`]. Everything is bounded in size and
//! time; a process without the token learns nothing and delays no rank. Rank 0's side is `rendezvous_server.rs`, that of the
//! other ranks is `rendezvous_client.rs`.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::endpoint_record::RankTable;
use super::failure_detector::FailureDetector;
use super::join_request::write_missing_ranks;
use super::rejected_process::RejectedConnections;
use super::rendezvous_file::RendezvousFileError;

/// The data that this process publishes to the other ranks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LocalEndpoint {
    /// Its UDP addresses, at most [`crate::MAX_RANK_ADDRESSES`].
    pub addresses: Vec<SocketAddr>,
    /// Data of the caller, at most [`crate::MAX_EXTRA_BYTES`].
    pub extra: Vec<u8>,
}

/// Timeouts of rendezvous and failure detection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RendezvousTimeouts {
    /// For all ranks to join.
    pub join: Duration,
    /// For the kernel to detect the silent loss of a host; whole seconds, at least three.
    pub peer: Duration,
}

impl Default for RendezvousTimeouts {
    fn default() -> Self {
        Self { join: Duration::from_secs(60), peer: Duration::from_secs(10) }
    }
}

impl RendezvousTimeouts {
    /// The peer timeout until all ranks have joined: a rank that reads a long table slowly is not lost.
    pub(super) fn peer_while_joining(&self) -> Duration {
        self.join.max(self.peer)
    }
}

/// A job whose ranks have all joined.
#[derive(Debug)]
pub struct JoinedJob {
    /// The endpoints of all ranks.
    pub table: RankTable,
    /// Reports lost ranks.
    pub failure_detector: FailureDetector,
}

/// Why this process could not join its job.
pub enum RendezvousError {
    /// The local endpoint exceeds a limit.
    EndpointTooLarge(&'static str),
    /// The rendezvous file could not be used.
    File(RendezvousFileError),
    /// Rank 0 cannot listen.
    Listen {
        /// The address.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// Rank 0 needs one connection per rank, and the process may not open as many files.
    TooManyConnections {
        /// The limit.
        allowed: u64,
    },
    /// Rank 0 was not there, or did not answer.
    Unreachable {
        /// Where this process tried to reach it.
        address: String,
        /// For how long.
        waited: Duration,
        /// Failure of the last attempt.
        last: String,
    },
    /// Rank 0 rejected this process.
    Rejected(String),
    /// Some ranks did not join in time. Every rank that did join gets this error.
    Missing {
        /// The missing ranks, or the first of them.
        ranks: Vec<u32>,
        /// Number of missing ranks.
        count: u32,
        /// How long this process waited.
        waited: Duration,
        /// The connections that rank 0 rejected meanwhile.
        rejected: RejectedConnections,
    },
    /// A rank cannot join, for a cause on its own host.
    Withdrawn {
        /// The rank.
        rank: u32,
        /// Why, in its words.
        why: String,
    },
    /// Rank 0 ended before all ranks had joined.
    RankZeroLost,
    /// Another system error.
    Io(io::Error),
}

impl fmt::Display for RendezvousError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EndpointTooLarge(what) => write!(formatter, "the local endpoint has {what}"),
            Self::File(error) => error.fmt(formatter),
            Self::Listen { address, source } => {
                write!(formatter, "rank 0 cannot listen at {address}: {source}; ")?;
                if source.kind() == io::ErrorKind::AddrInUse {
                    formatter.write_str(
                        "if another process of the job has PLEACH_RANK=0 too, give every process its own; otherwise ",
                    )?;
                }
                formatter.write_str("choose another address with PLEACH_RENDEZVOUS=host:port")
            }
            Self::TooManyConnections { allowed } => {
                write!(
                    formatter,
                    "rank 0 needs one connection per rank, but may open only {allowed} files; raise the limit (ulimit -n)"
                )
            }
            Self::Unreachable { address, waited, last } => write!(
                formatter,
                "rank 0 could not be reached at {address} in {:.1} s: {last}; if it runs elsewhere, set \
                 PLEACH_RENDEZVOUS=host:port in every process",
                waited.as_secs_f64()
            ),
            Self::Rejected(why) => write!(formatter, "rank 0 rejected this process: {why}"),
            Self::Missing { ranks, count, waited, rejected } => {
                write_missing_ranks(formatter, ranks, *count)?;
                write!(formatter, " did not join within {:.1} s", waited.as_secs_f64())?;
                if rejected.mismatches.is_empty() {
                    write!(formatter, "; {} running?", if *count == 1 { "is it" } else { "are they" })?;
                }
                rejected.fmt(formatter)
            }
            Self::Withdrawn { rank, why } => write!(formatter, "rank {rank} cannot join: {why}"),
            Self::RankZeroLost => formatter.write_str("rank 0 ended before all ranks had joined"),
            Self::Io(error) => error.fmt(formatter),
        }
    }
}

/// As [`Display`](fmt::Display): a `main` that returns the error prints `Debug`.
impl fmt::Debug for RendezvousError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl RendezvousError {
    /// True if the cause is on this host, so that no other rank can know it: see [`crate::withdraw`].
    pub fn is_local(&self) -> bool {
        match self {
            Self::EndpointTooLarge(_)
            | Self::File(_)
            | Self::Listen { .. }
            | Self::TooManyConnections { .. }
            | Self::Io(_) => true,
            Self::Unreachable { .. }
            | Self::Rejected(_)
            | Self::Missing { .. }
            | Self::Withdrawn { .. }
            | Self::RankZeroLost => false,
        }
    }
}

impl std::error::Error for RendezvousError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File(error) => Some(error),
            Self::Listen { source, .. } | Self::Io(source) => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rejected_process::JoinMismatch;
    use super::*;

    #[test]
    fn missing_ranks_are_named() {
        let waited = Duration::from_secs(30);
        let missing = |ranks, count, rejected| RendezvousError::Missing { ranks, count, waited, rejected };
        let text = |ranks, count| missing(ranks, count, RejectedConnections::default()).to_string();
        assert_eq!(text(vec![3], 1), "rank 3 did not join within 30.0 s; is it running?");
        let many = text((0..64).collect(), 100);
        assert!(many.contains("14, 15 and 84 more did not join within 30.0 s; are they running?"), "{many}");
        let mut rejected = RejectedConnections::default();
        rejected.count(JoinMismatch::Token);
        assert_eq!(
            missing(vec![3], 1, rejected).to_string(),
            "rank 3 did not join within 30.0 s; 1 connection was rejected because of another PLEACH_TOKEN or PLEACH_JOB"
        );
    }
}
