//! The meeting of a job: every rank gives rank 0 its card, and gets the table of all.
//!
//! One TCP connection per rank, which then stays open as its [`Lifeline`]. Everything is bounded in size and time; whoever does
//! not know the token learns nothing and delays nobody. Rank 0's side is `gather.rs`, the others' is `reach.rs`.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::card::{Card, MOST_ADDRESSES, MOST_CARD_BYTES, MOST_EXTRA_BYTES, Reader, Table, Writer};
use super::environment::{Meeting, Place};
use super::lifeline::Lifeline;
use super::notice::NoticeError;
use super::seal::{Key, Nonce, Purpose, SEAL_BYTES};
use super::{gather, reach};

/// Raised when messages change their meaning.
pub(super) const VERSION: u32 = 1;
const MAGIC: [u8; 6] = *b"PLEACH";
/// A message before the table is no longer than this.
pub(super) const MOST_MESSAGE_BYTES: usize = MOST_CARD_BYTES + 1024;
/// A message names at most so many missing ranks.
const MOST_NAMED: usize = 64;

/// What this process tells the others beyond who it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Offer {
    /// Where it takes UDP packets, at most [`MOST_ADDRESSES`].
    pub addresses: Vec<SocketAddr>,
    /// Anything, at most [`MOST_EXTRA_BYTES`].
    pub extra: Vec<u8>,
}

/// How long things may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// For all ranks to come.
    pub patience: Duration,
    /// For the kernel to notice that another host is gone without a word; whole seconds, at least three.
    pub silence: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Self { patience: Duration::from_secs(60), silence: Duration::from_secs(10) }
    }
}

impl Terms {
    /// How long a connection may be silent before all are there: a rank that is slow to read a long table is not lost.
    pub(super) fn at_the_meeting(&self) -> Duration {
        self.patience.max(self.silence)
    }
}

/// A job whose ranks are all there.
#[derive(Debug)]
pub struct Joined {
    /// Everybody's card.
    pub table: Table,
    /// The connection that tells of losses.
    pub lifeline: Lifeline,
}

/// Why a rank was turned away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    Token,
    Version(u32),
    Size(u32),
    Rank,
    Missing { count: u32, some: Vec<u32> },
}

/// Why this process is in no job.
#[derive(Debug)]
pub enum JoinError {
    /// More is offered than a card can hold.
    Offer(&'static str),
    /// The file by which ranks of one host meet.
    Notice(NoticeError),
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
pub fn join(place: &Place, offer: Offer, terms: &Terms) -> Result<Joined, JoinError> {
    if offer.addresses.len() > MOST_ADDRESSES {
        return Err(JoinError::Offer("more than 16 addresses"));
    }
    if offer.extra.len() > MOST_EXTRA_BYTES {
        return Err(JoinError::Offer("more than 4096 bytes"));
    }
    let card = Card::own(place.rank, offer.addresses, offer.extra);
    match (&place.meeting, place.rank) {
        (Meeting::Alone, _) => {
            Ok(Joined { table: Table::new(vec![card]), lifeline: Lifeline::alone().map_err(JoinError::Io)? })
        }
        (_, 0) => gather::gather(place, card, terms),
        _ => reach::reach(place, card, terms),
    }
}

/// How a rank presents itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    pub(super) version: u32,
    pub(super) size: u32,
    /// For rank 0 to seal its welcome with.
    pub(super) nonce: Nonce,
    pub(super) card: Card,
}

impl Hello {
    pub(super) fn to_bytes(&self, key: &Key, challenge: &Nonce) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.bytes.extend(MAGIC);
        writer.number(self.version);
        writer.number(self.size);
        writer.bytes.extend(self.nonce);
        self.card.write(&mut writer);
        let seal = key.seal(Purpose::Hello, challenge, &writer.bytes);
        writer.bytes.extend(seal);
        writer.bytes
    }

    /// What these bytes say, if they are a greeting, and sealed. Greetings of all versions begin and end alike.
    pub(super) fn read(bytes: &[u8], key: &Key, challenge: &Nonce) -> Result<Self, Option<Refusal>> {
        let (text, seal) = bytes.split_last_chunk::<SEAL_BYTES>().ok_or(None)?;
        let mut reader = Reader { rest: text };
        if reader.take() != Some(MAGIC) {
            return Err(None);
        }
        if !key.is_sealed(Purpose::Hello, challenge, text, seal) {
            return Err(Some(Refusal::Token));
        }
        let version = reader.number().ok_or(None)?;
        if version != VERSION {
            return Err(Some(Refusal::Version(VERSION)));
        }
        let (size, nonce) = (reader.number().ok_or(None)?, reader.take().ok_or(None)?);
        let card = Card::read(&mut reader).filter(|_| reader.rest.is_empty()).ok_or(None)?;
        Ok(Self { version, size, nonce, card })
    }
}

impl Refusal {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        match self {
            Self::Token => writer.number(1),
            Self::Version(version) => [2, *version].into_iter().for_each(|number| writer.number(number)),
            Self::Size(size) => [3, *size].into_iter().for_each(|number| writer.number(number)),
            Self::Rank => writer.number(4),
            Self::Missing { count, some } => {
                let some = &some[..some.len().min(MOST_NAMED)];
                let named = u32::try_from(some.len()).expect("few");
                [5, *count, named].iter().chain(some).for_each(|number| writer.number(*number));
            }
        }
        writer.bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader { rest: bytes };
        Some(match reader.number()? {
            1 => Self::Token,
            2 => Self::Version(reader.number()?),
            3 => Self::Size(reader.number()?),
            4 => Self::Rank,
            5 => {
                let (count, named) = (reader.number()?, reader.number()? as usize);
                if named > MOST_NAMED {
                    return None;
                }
                Self::Missing { count, some: (0..named).map(|_| reader.number()).collect::<Option<_>>()? }
            }
            _ => return None,
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token => formatter.write_str(
                "the token is wrong: another job meets at this address, or PLEACH_TOKEN or PLEACH_JOB are not the same \
                 in all processes",
            ),
            Self::Version(version) => {
                write!(formatter, "rank 0 speaks version {version} of the rendezvous, this process {VERSION}")
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

impl fmt::Display for JoinError {
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

impl std::error::Error for JoinError {
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
    use super::super::environment::Token;
    use super::super::seal::nonce;
    use super::*;

    #[test]
    fn refusals_are_read_as_they_were_written() {
        let missing = Refusal::Missing { count: 3, some: vec![1, 5, 9] };
        for refusal in [Refusal::Token, Refusal::Version(7), Refusal::Size(3), Refusal::Rank, missing] {
            assert_eq!(Refusal::read(&refusal.to_bytes()), Some(refusal));
        }
        assert_eq!(Refusal::read(&[5, 0, 0, 0, 1, 0, 0, 0, 255, 255, 255, 255]), None);
    }

    #[test]
    fn a_greeting_is_judged_by_its_seal_first() {
        let key = |token: &str| Key::new(&Token(token.as_bytes().to_vec()), "");
        let (open, shut, challenge) = (key("open"), key("shut"), nonce());
        let card = Card::own(1, Vec::new(), b"extra".to_vec());
        let hello = Hello { version: VERSION, size: 2, nonce: nonce(), card };
        let bytes = hello.to_bytes(&open, &challenge);
        assert_eq!(Hello::read(&bytes, &open, &challenge), Ok(hello.clone()));
        assert_eq!(Hello::read(&bytes, &shut, &challenge), Err(Some(Refusal::Token)));
        assert_eq!(Hello::read(&bytes, &open, &nonce()), Err(Some(Refusal::Token)), "a recording is of no use");
        let newer = Hello { version: VERSION + 1, ..hello };
        let newer = newer.to_bytes(&open, &challenge);
        assert_eq!(Hello::read(&newer, &open, &challenge), Err(Some(Refusal::Version(VERSION))));
        for length in 0..bytes.len() {
            let cut = Hello::read(&bytes[..length], &open, &challenge);
            assert!(matches!(cut, Err(None | Some(Refusal::Token))), "{length}");
        }
    }

    #[test]
    fn missing_ranks_are_named() {
        let text = |ranks: Vec<u32>, count| JoinError::Missing { ranks, count, turned_away: Vec::new() }.to_string();
        assert_eq!(text(vec![3], 1), "rank 3 did not come");
        assert!(text((0..64).collect(), 100).ends_with("14, 15 and 84 more did not come"));
    }
}
