//! The meeting of a job: every rank gives rank 0 its card, and gets the table of all.
//!
//! One TCP connection per rank, which then stays open as its [`FailureDetector`]. Everything is bounded in size and time; whoever does
//! not know the token learns nothing and delays nobody. Rank 0's side is `gather.rs`, the others' is `reach.rs`.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::endpoint_record::{
    EndpointRecord, MAX_EXTRA_BYTES, MAX_RANK_ADDRESSES, MAX_RECORD_BYTES, RankTable, RecordReader, RecordWriter,
};
use super::environment::{JobEnvironment, RendezvousPoint};
use super::failure_detector::FailureDetector;
use super::mac::{JoinNonce, MAC_BYTES, MacPurpose, TokenKey};
use super::rendezvous_file::RendezvousFileError;
use super::{rendezvous_client, rendezvous_server};

/// Raised when messages change their meaning.
pub(super) const RENDEZVOUS_VERSION: u32 = 1;
const MAGIC: [u8; 6] = *b"PLEACH";
/// A message before the table is no longer than this.
pub(super) const MAX_HANDSHAKE_BYTES: usize = MAX_RECORD_BYTES + 1024;
/// A message names at most so many missing ranks.
const MAX_MISSING_RANKS_NAMED: usize = 64;

/// What this process tells the others beyond who it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LocalEndpoint {
    /// Where it takes UDP packets, at most [`MAX_RANK_ADDRESSES`].
    pub addresses: Vec<SocketAddr>,
    /// Anything, at most [`MAX_EXTRA_BYTES`].
    pub extra: Vec<u8>,
}

/// How long things may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RendezvousTimeouts {
    /// For all ranks to come.
    pub patience: Duration,
    /// For the kernel to notice that another host is gone without a word; whole seconds, at least three.
    pub silence: Duration,
}

impl Default for RendezvousTimeouts {
    fn default() -> Self {
        Self { patience: Duration::from_secs(60), silence: Duration::from_secs(10) }
    }
}

impl RendezvousTimeouts {
    /// How long a connection may be silent before all are there: a rank that is slow to read a long table is not lost.
    pub(super) fn at_the_meeting(&self) -> Duration {
        self.patience.max(self.silence)
    }
}

/// A job whose ranks are all there.
#[derive(Debug)]
pub struct JoinedJob {
    /// Everybody's card.
    pub table: RankTable,
    /// The connection that tells of losses.
    pub lifeline: FailureDetector,
}

/// Why a rank was turned away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum JoinRejection {
    Token,
    Version(u32),
    Size(u32),
    Rank,
    Missing { count: u32, some: Vec<u32> },
}

/// Why this process is in no job.
#[derive(Debug)]
pub enum RendezvousError {
    /// More is offered than a card can hold.
    Offer(&'static str),
    /// The file by which ranks of one host meet.
    Notice(RendezvousFileError),
    /// Rank 0 cannot listen.
    Listen {
        /// Where.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// Rank 0 needs a connection for each rank, and this user may not have as many.
    TooManyConnections {
        /// How many are allowed.
        allowed: u64,
    },
    /// Rank 0 was not there, or did not answer.
    Unreachable {
        /// Where it was looked for.
        address: String,
        /// How long.
        waited: Duration,
        /// What went wrong at the last try.
        last: String,
    },
    /// Rank 0 answered that this process may not join.
    Refused(String),
    /// Some ranks did not come in time. Every rank that did come gets this.
    Missing {
        /// Which, or the first of them.
        ranks: Vec<u32>,
        /// How many.
        count: u32,
        /// Processes that were turned away meanwhile, and why; known to rank 0 only.
        turned_away: Vec<String>,
    },
    /// Rank 0 was gone before all were there.
    RankZeroLost,
    /// The system refused something else.
    Io(io::Error),
}

/// Meets the other ranks.
///
/// # Errors
/// The error says who did not come, or what to set.
pub fn join(
    place: &JobEnvironment,
    offer: LocalEndpoint,
    terms: &RendezvousTimeouts,
) -> Result<JoinedJob, RendezvousError> {
    if offer.addresses.len() > MAX_RANK_ADDRESSES {
        return Err(RendezvousError::Offer("more than 16 addresses"));
    }
    if offer.extra.len() > MAX_EXTRA_BYTES {
        return Err(RendezvousError::Offer("more than 4096 bytes"));
    }
    let card = EndpointRecord::own(place.rank, offer.addresses, offer.extra);
    match (&place.meeting, place.rank) {
        (RendezvousPoint::Alone, _) => Ok(JoinedJob {
            table: RankTable::new(vec![card]),
            lifeline: FailureDetector::alone().map_err(RendezvousError::Io)?,
        }),
        (_, 0) => rendezvous_server::serve_rendezvous(place, card, terms),
        _ => rendezvous_client::join_through_rank_zero(place, card, terms),
    }
}

/// How a rank presents itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct JoinRequest {
    pub(super) version: u32,
    pub(super) size: u32,
    /// For rank 0 to seal its welcome with.
    pub(super) nonce: JoinNonce,
    pub(super) card: EndpointRecord,
}

impl JoinRequest {
    pub(super) fn to_bytes(&self, key: &TokenKey, challenge: &JoinNonce) -> Vec<u8> {
        let mut writer = RecordWriter::default();
        writer.bytes.extend(MAGIC);
        writer.number(self.version);
        writer.number(self.size);
        writer.bytes.extend(self.nonce);
        self.card.write(&mut writer);
        let seal = key.seal(MacPurpose::Hello, challenge, &writer.bytes);
        writer.bytes.extend(seal);
        writer.bytes
    }

    /// What these bytes say, if they are a greeting, and sealed. Greetings of all versions begin and end alike.
    pub(super) fn read(bytes: &[u8], key: &TokenKey, challenge: &JoinNonce) -> Result<Self, Option<JoinRejection>> {
        let (text, seal) = bytes.split_last_chunk::<MAC_BYTES>().ok_or(None)?;
        let mut reader = RecordReader { rest: text };
        if reader.take() != Some(MAGIC) {
            return Err(None);
        }
        if !key.is_sealed(MacPurpose::Hello, challenge, text, seal) {
            return Err(Some(JoinRejection::Token));
        }
        let version = reader.number().ok_or(None)?;
        if version != RENDEZVOUS_VERSION {
            return Err(Some(JoinRejection::Version(RENDEZVOUS_VERSION)));
        }
        let (size, nonce) = (reader.number().ok_or(None)?, reader.take().ok_or(None)?);
        let card = EndpointRecord::read(&mut reader).filter(|_| reader.rest.is_empty()).ok_or(None)?;
        Ok(Self { version, size, nonce, card })
    }
}

impl JoinRejection {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut writer = RecordWriter::default();
        match self {
            Self::Token => writer.number(1),
            Self::Version(version) => [2, *version].into_iter().for_each(|number| writer.number(number)),
            Self::Size(size) => [3, *size].into_iter().for_each(|number| writer.number(number)),
            Self::Rank => writer.number(4),
            Self::Missing { count, some } => {
                let some = &some[..some.len().min(MAX_MISSING_RANKS_NAMED)];
                let named = u32::try_from(some.len()).expect("few");
                [5, *count, named].iter().chain(some).for_each(|number| writer.number(*number));
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
                Self::Missing { count, some: (0..named).map(|_| reader.number()).collect::<Option<_>>()? }
            }
            _ => return None,
        })
    }
}

impl fmt::Display for JoinRejection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token => formatter.write_str(
                "the token is wrong: another job meets at this address, or PLEACH_TOKEN or PLEACH_JOB are not the same \
                 in all processes",
            ),
            Self::Version(version) => {
                write!(formatter, "rank 0 speaks version {version} of the rendezvous, this process {RENDEZVOUS_VERSION}")
            }
            Self::Size(size) => write!(formatter, "rank 0 expects {size} ranks, this process another number"),
            Self::Rank => formatter.write_str("another process has this rank already, or there is no such rank"),
            Self::Missing { count, some } => write_missing(formatter, some, *count),
        }
    }
}

fn write_missing(formatter: &mut fmt::Formatter<'_>, ranks: &[u32], count: u32) -> fmt::Result {
    let shown = &ranks[..ranks.len().min(16)];
    let list = shown.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    write!(formatter, "{} {list}", if count == 1 { "rank" } else { "ranks" })?;
    let more = (count as usize).saturating_sub(shown.len());
    if more > 0 {
        write!(formatter, " and {more} more")?;
    }
    formatter.write_str(" did not come")
}

impl fmt::Display for RendezvousError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offer(what) => write!(formatter, "a card cannot hold {what}"),
            Self::Notice(error) => error.fmt(formatter),
            Self::Listen { address, source } => {
                write!(
                    formatter,
                    "rank 0 cannot listen at {address}: {source}; PLEACH_RENDEZVOUS=host:port chooses another place"
                )
            }
            Self::TooManyConnections { allowed } => {
                write!(
                    formatter,
                    "rank 0 needs a connection for each rank, and only {allowed} files may be open (ulimit -n)"
                )
            }
            Self::Unreachable { address, waited, last } => write!(
                formatter,
                "rank 0 could not be reached at {address} in {:.1} s: {last}; if it is elsewhere, set \
                 PLEACH_RENDEZVOUS=host:port in every process",
                waited.as_secs_f64()
            ),
            Self::Refused(why) => write!(formatter, "rank 0 does not let this process join: {why}"),
            Self::Missing { ranks, count, turned_away } => {
                write_missing(formatter, ranks, *count)?;
                turned_away.iter().try_for_each(|why| write!(formatter, "; turned away: {why}"))
            }
            Self::RankZeroLost => formatter.write_str("rank 0 was gone before all ranks were there"),
            Self::Io(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for RendezvousError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Notice(error) => Some(error),
            Self::Listen { source, .. } | Self::Io(source) => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::environment::JobToken;
    use super::super::mac::random_nonce;
    use super::*;

    #[test]
    fn refusals_are_read_as_they_were_written() {
        let missing = JoinRejection::Missing { count: 3, some: vec![1, 5, 9] };
        for refusal in
            [JoinRejection::Token, JoinRejection::Version(7), JoinRejection::Size(3), JoinRejection::Rank, missing]
        {
            assert_eq!(JoinRejection::read(&refusal.to_bytes()), Some(refusal));
        }
        assert_eq!(JoinRejection::read(&[5, 0, 0, 0, 1, 0, 0, 0, 255, 255, 255, 255]), None);
    }

    #[test]
    fn a_greeting_is_judged_by_its_seal_first() {
        let key = |token: &str| TokenKey::new(&JobToken(token.as_bytes().to_vec()), "");
        let (open, shut, challenge) = (key("open"), key("shut"), random_nonce());
        let card = EndpointRecord::own(1, Vec::new(), b"extra".to_vec());
        let hello = JoinRequest { version: RENDEZVOUS_VERSION, size: 2, nonce: random_nonce(), card };
        let bytes = hello.to_bytes(&open, &challenge);
        assert_eq!(JoinRequest::read(&bytes, &open, &challenge), Ok(hello.clone()));
        assert_eq!(JoinRequest::read(&bytes, &shut, &challenge), Err(Some(JoinRejection::Token)));
        assert_eq!(
            JoinRequest::read(&bytes, &open, &random_nonce()),
            Err(Some(JoinRejection::Token)),
            "a recording is of no use"
        );
        let newer = JoinRequest { version: RENDEZVOUS_VERSION + 1, ..hello };
        let newer = newer.to_bytes(&open, &challenge);
        assert_eq!(
            JoinRequest::read(&newer, &open, &challenge),
            Err(Some(JoinRejection::Version(RENDEZVOUS_VERSION)))
        );
        for length in 0..bytes.len() {
            let cut = JoinRequest::read(&bytes[..length], &open, &challenge);
            assert!(matches!(cut, Err(None | Some(JoinRejection::Token))), "{length}");
        }
    }

    #[test]
    fn missing_ranks_are_named() {
        let text =
            |ranks: Vec<u32>, count| RendezvousError::Missing { ranks, count, turned_away: Vec::new() }.to_string();
        assert_eq!(text(vec![3], 1), "rank 3 did not come");
        assert!(text((0..64).collect(), 100).ends_with("14, 15 and 84 more did not come"));
    }
}
