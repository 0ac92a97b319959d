//! The request of a rank to join, and the reason for which rank 0 rejects it.

use std::fmt;
use std::time::Duration;

use super::endpoint_record::{EndpointRecord, MAX_RECORD_BYTES, RecordReader, RecordWriter};
use super::rejected_process::{JoinMismatch, RejectedConnections};

/// Raised when messages change their meaning.
pub(super) const RENDEZVOUS_VERSION: u32 = 3;
/// Longest message before the table.
pub(super) const MAX_HANDSHAKE_BYTES: usize = MAX_RECORD_BYTES + 1024;
/// Longest reason of a rank that cannot join.
const MAX_REASON_BYTES: usize = 512;
/// A rejection names at most this many missing ranks.
const MAX_MISSING_RANKS_NAMED: usize = 64;

/// Why rank 0 rejects a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum JoinRejection {
    Token,
    Version(u32),
    Size(u32),
    Rank,
    Missing {
        count: u32,
        some: Vec<u32>,
        rejected: RejectedConnections,
    },
    /// A rank cannot join, and says why.
    Withdrawn(Withdrawal),
}

/// How long a rank that cannot join tries to say so, and how long rank 0 then waits for ranks that have not come yet: it must return with the
/// error itself.
pub(super) const WITHDRAWAL_TIME: Duration = Duration::from_secs(5);

/// For this long, a process that has the rank of another may have been started in its place, and the other died a moment ago.
pub(super) const DUPLICATE_RANK_GRACE: Duration = Duration::from_secs(1);

/// A rank that cannot join the job, and why (P-129).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Withdrawal {
    pub(super) rank: u32,
    pub(super) why: String,
}

/// A rank's request to join.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct JoinRequest {
    pub(super) size: u32,
    pub(super) record: EndpointRecord,
}

impl JoinRequest {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut writer = RecordWriter::default();
        writer.number(self.size);
        self.record.write(&mut writer);
        writer.bytes
    }

    /// Decodes a request; none if it is malformed.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = RecordReader { rest: bytes };
        let size = reader.number()?;
        let record = EndpointRecord::read(&mut reader).filter(|_| reader.rest.is_empty())?;
        Some(Self { size, record })
    }
}

impl Withdrawal {
    /// The reason is cut if it is too long.
    pub(super) fn new(rank: u32, why: &str) -> Self {
        let end = (0..=MAX_REASON_BYTES.min(why.len())).rev().find(|end| why.is_char_boundary(*end)).unwrap_or(0);
        Self { rank, why: why[..end].to_owned() }
    }

    pub(super) fn write(&self, writer: &mut RecordWriter) {
        writer.number(self.rank);
        writer.bytes_with_length(self.why.as_bytes());
    }

    /// Decodes it; none if it is malformed.
    pub(super) fn read(reader: &mut RecordReader<'_>) -> Option<Self> {
        let rank = reader.number()?;
        let why = std::str::from_utf8(reader.bytes_with_length(MAX_REASON_BYTES)?).ok()?;
        let is_plain = !why.chars().any(char::is_control) && reader.rest.is_empty();
        is_plain.then(|| Self { rank, why: why.to_owned() })
    }
}

impl fmt::Display for Withdrawal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "rank {} cannot join: {}", self.rank, self.why)
    }
}

impl JoinRejection {
    /// What of the process does not fit; none if it is not the reason.
    pub(super) fn mismatch(&self) -> Option<JoinMismatch> {
        match self {
            Self::Token => Some(JoinMismatch::Token),
            Self::Version(_) => Some(JoinMismatch::Version),
            Self::Size(_) => Some(JoinMismatch::Size),
            Self::Rank => Some(JoinMismatch::Rank),
            Self::Missing { .. } | Self::Withdrawn(_) => None,
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut writer = RecordWriter::default();
        match self {
            Self::Token => writer.number(1),
            Self::Version(version) => [2, *version].into_iter().for_each(|number| writer.number(number)),
            Self::Size(size) => [3, *size].into_iter().for_each(|number| writer.number(number)),
            Self::Rank => writer.number(4),
            Self::Missing { count, some, rejected } => {
                let some = &some[..some.len().min(MAX_MISSING_RANKS_NAMED)];
                let named = u32::try_from(some.len()).expect("at most 64");
                [5, *count, named].iter().chain(some).for_each(|number| writer.number(*number));
                rejected.write(&mut writer);
            }
            Self::Withdrawn(withdrawal) => {
                writer.number(6);
                withdrawal.write(&mut writer);
            }
        }
        writer.bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = RecordReader { rest: bytes };
        Some(match reader.number()? {
            1 => Self::Token,
            2 => Self::Version(reader.number()?),
            3 => Self::Size(reader.number()?),
            4 => Self::Rank,
            5 => {
                let (count, named) = (reader.number()?, reader.number()? as usize);
                if named > MAX_MISSING_RANKS_NAMED {
                    return None;
                }
                let some = (0..named).map(|_| reader.number()).collect::<Option<_>>()?;
                Self::Missing { count, some, rejected: RejectedConnections::read(&mut reader) }
            }
            6 => Self::Withdrawn(Withdrawal::read(&mut reader)?),
            _ => return None,
        })
    }
}

impl fmt::Display for JoinRejection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token => formatter.write_str(
                "wrong token: PLEACH_TOKEN, or without one PLEACH_JOB, is not that of rank 0, or another job uses this address; set the \
                 same in every process",
            ),
            Self::Version(version) => {
                write!(formatter, "rank 0 uses rendezvous version {version}, this process {RENDEZVOUS_VERSION}; run the same Pleach version on all hosts")
            }
            Self::Size(size) => write!(
                formatter,
                "rank 0 expects {size} ranks, this process another number; set the same PLEACH_SIZE in every process"
            ),
            Self::Rank => formatter.write_str(
                "another process has this rank already, or the job has no such rank; give every process a PLEACH_RANK of its own",
            ),
            Self::Missing { count, some, rejected } => {
                write_missing_ranks(formatter, some, *count)?;
                write!(formatter, " did not join in time{rejected}")
            }
            Self::Withdrawn(withdrawal) => withdrawal.fmt(formatter),
        }
    }
}

/// Writes "rank 3" or "ranks 1, 3, 4 and 12 more".
pub(super) fn write_missing_ranks(formatter: &mut fmt::Formatter<'_>, ranks: &[u32], count: u32) -> fmt::Result {
    let shown = &ranks[..ranks.len().min(16)];
    let list = shown.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    write!(formatter, "{} {list}", if count == 1 { "rank" } else { "ranks" })?;
    let more = (count as usize).saturating_sub(shown.len());
    if more > 0 {
        write!(formatter, " and {more} more")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_are_read_as_they_were_written() {
        let mut rejected = RejectedConnections::default();
        rejected.count(JoinMismatch::Size);
        let missing = JoinRejection::Missing { count: 3, some: vec![1, 5, 9], rejected };
        let withdrawn = JoinRejection::Withdrawn(Withdrawal::new(2, &"é".repeat(MAX_REASON_BYTES)));
        for rejection in [
            JoinRejection::Token,
            JoinRejection::Version(7),
            JoinRejection::Size(3),
            JoinRejection::Rank,
            missing,
            withdrawn,
        ] {
            assert_eq!(JoinRejection::read(&rejection.to_bytes()), Some(rejection));
        }
        assert_eq!(JoinRejection::read(&[5, 0, 0, 0, 1, 0, 0, 0, 255, 255, 255, 255]), None);
    }

    #[test]
    fn a_request_is_read_as_it_was_written_and_a_truncated_one_is_rejected() {
        let record = EndpointRecord::own(1, Vec::new(), Vec::new(), b"extra".to_vec());
        let request = JoinRequest { size: 2, record };
        let mut bytes = request.to_bytes();
        for length in 0..bytes.len() {
            assert_eq!(JoinRequest::read(&bytes[..length]), None, "{length}");
        }
        assert_eq!(JoinRequest::read(&bytes), Some(request));
        bytes.push(0);
        assert_eq!(JoinRequest::read(&bytes), None, "too long");
    }
}
