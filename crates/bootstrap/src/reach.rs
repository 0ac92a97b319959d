//! The other ranks' side of the meeting: find rank 0, show the card, wait for the table.
//!
//! Rank 0 may start late, and whoever answers first may be somebody else; so this tries again until patience ends.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::card::{Card, MOST_CARD_BYTES, Reader, Table};
use super::environment::{Meeting, Place};
use super::lifeline::Lifeline;
use super::notice;
use super::rendezvous::{Hello, JoinError, Joined, MOST_MESSAGE_BYTES, Refusal, Terms, VERSION};
use super::seal::{Key, Purpose, nonce};
use super::spoke::Spoke;
use super::stream::{Ear, Kind, Stream, message};

/// One connection attempt, and the wait for rank 0's first word.
const ONE_TRY: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// A rank that came in the same breath as rank 0's patience ended still hears the verdict.
const VERDICT: Duration = Duration::from_secs(5);
/// How long a rank that is said to be there already may be one that died a moment ago.
const GHOST: Duration = Duration::from_secs(1);

const STRANGER: &str = "whoever is there speaks another language";

/// How one attempt ended without the table.
enum Attempt {
    /// Perhaps rank 0 is not there yet.
    Again(String),
    /// Rank 0 has another process in this seat.
    Taken,
    Final(JoinError),
}

pub(super) fn reach(place: &Place, card: Card, terms: &Terms) -> Result<Joined, JoinError> {
    let began = Instant::now();
    let deadline = began + terms.patience;
    let hello = Hello { version: VERSION, size: place.size, nonce: nonce(), card };
    let mut pause = FIRST_PAUSE;
    let mut taken_since = None;
    loop {
        let last = match attempt(place, &hello, terms, deadline) {
            Ok(joined) => return Ok(joined),
            Err(Attempt::Final(error)) => return Err(error),
            Err(Attempt::Again(why)) => why,
            Err(Attempt::Taken) => {
                if taken_since.get_or_insert_with(Instant::now).elapsed() >= GHOST {
                    return Err(JoinError::Refused(Refusal::Rank.to_string()));
                }
                Refusal::Rank.to_string()
            }
        };
        if Instant::now() + pause >= deadline {
            let address = match &place.meeting {
                Meeting::Address { host, port } => format!("{host}:{port}"),
                Meeting::Alone | Meeting::Notice => "its port on this host".to_owned(),
            };
            return Err(JoinError::Unreachable { address, waited: began.elapsed(), last });
        }
        std::thread::sleep(pause);
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

fn attempt(place: &Place, hello: &Hello, terms: &Terms, deadline: Instant) -> Result<Joined, Attempt> {
    let (addresses, secret) = whereabouts(place)?;
    let key = Key::new(&place.token, &secret);
    let one_try = deadline.min(Instant::now() + ONE_TRY);
    let tcp = connect(&addresses, one_try)?;
    let mut stream = Stream::new(tcp, terms.at_the_meeting()).map_err(|error| Attempt::Again(error.to_string()))?;
    let (Kind::Challenge, challenge) = first_words(&mut stream, one_try)? else {
        return Err(Attempt::Again(STRANGER.to_owned()));
    };
    let challenge = challenge[..].try_into().map_err(|_| Attempt::Again(STRANGER.to_owned()))?;
    stream.queue(message(Kind::Hello, &[&hello.to_bytes(&key, &challenge)]));
    match first_words(&mut stream, one_try)? {
        // Whoever does not know the token is not rank 0.
        (Kind::Welcome, seal) if key.is_sealed(Purpose::Welcome, &hello.nonce, &[], &seal) => {}
        (Kind::Refused, body) => return Err(refused(place, &body)),
        _ => return Err(Attempt::Again(STRANGER.to_owned())),
    }
    // From here on rank 0 decides: its patience began before this one's, or now at the latest.
    let verdict = Instant::now() + terms.patience + VERDICT;
    let most = (place.size as usize).saturating_mul(MOST_CARD_BYTES);
    if !matches!(hear(&mut stream, most, verdict), Ok(true)) {
        return Err(Attempt::Final(JoinError::RankZeroLost));
    }
    let table = match stream.peek(most) {
        Ok(Some((Kind::Cards, body))) => (Table::read(&mut Reader { rest: body }, place.size), body.len()),
        Ok(Some((Kind::Refused, body))) => return Err(refused(place, body)),
        _ => (None, 0),
    };
    let (Some(table), length) = table else {
        return Err(Attempt::Final(JoinError::Refused("its table cannot be read".to_owned())));
    };
    stream.consume(length);
    let spoke = stream.set_silence(terms.silence).and_then(|()| Spoke::new(place.rank, place.size, stream));
    let lifeline = spoke.map(Lifeline::of_spoke).map_err(|error| Attempt::Final(JoinError::Io(error)))?;
    Ok(Joined { table, lifeline })
}

fn first_words(stream: &mut Stream, deadline: Instant) -> Result<(Kind, Vec<u8>), Attempt> {
    match hear(stream, MOST_MESSAGE_BYTES, deadline) {
        Ok(true) => stream.next(MOST_MESSAGE_BYTES).ok().flatten().ok_or_else(|| Attempt::Again(STRANGER.to_owned())),
        Ok(false) => Err(Attempt::Again("whoever is there does not answer".to_owned())),
        Err(why) => Err(Attempt::Again(why)),
    }
}

/// Where rank 0 should be, and the secret of its notice.
fn whereabouts(place: &Place) -> Result<(Vec<SocketAddr>, String), Attempt> {
    let Meeting::Address { host, port } = &place.meeting else {
        return match notice::read(&place.job) {
            Ok(Some(posting)) => Ok((vec![(Ipv4Addr::LOCALHOST, posting.port).into()], posting.secret)),
            Ok(None) => Err(Attempt::Again("it has not said where it is".to_owned())),
            Err(error) => Err(Attempt::Final(JoinError::Notice(error))),
        };
    };
    match (host.as_str(), *port).to_socket_addrs() {
        Ok(addresses) => Ok((addresses.collect(), String::new())),
        Err(error) => Err(Attempt::Again(error.to_string())),
    }
}

fn connect(addresses: &[SocketAddr], deadline: Instant) -> Result<TcpStream, Attempt> {
    let mut last = "it has no address".to_owned();
    for address in addresses {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(address, left) {
            // Where nobody listens, TCP may connect a socket to itself, and so keep rank 0 from its port.
            Ok(tcp) if tcp.local_addr().ok() == tcp.peer_addr().ok() => "nobody is there".clone_into(&mut last),
            Ok(tcp) => return Ok(tcp),
            Err(error) => last = error.to_string(),
        }
    }
    Err(Attempt::Again(last))
}

/// Waits for a whole message; false if the time is over.
fn hear(stream: &mut Stream, most: usize, deadline: Instant) -> Result<bool, String> {
    loop {
        stream.flush().map_err(|error| error.to_string())?;
        let ear = match stream.fill() {
            Ok(ear) => ear,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ear::Ended,
            Err(error) => return Err(error.to_string()),
        };
        match stream.peek(most) {
            Ok(Some(_)) => return Ok(true),
            Ok(None) if ear == Ear::Ended => return Err("the connection was closed".to_owned()),
            Ok(None) => {}
            Err(_) => return Err(STRANGER.to_owned()),
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        stream.wait(deadline).map_err(|error| error.to_string())?;
    }
}

fn refused(place: &Place, body: &[u8]) -> Attempt {
    match Refusal::read(body) {
        Some(Refusal::Missing { count, some }) => {
            Attempt::Final(JoinError::Missing { ranks: some, count, turned_away: Vec::new() })
        }
        Some(Refusal::Rank) => Attempt::Taken,
        // An old notice may lead to another job's port; rank 0 will post a new one.
        Some(Refusal::Token) if place.meeting == Meeting::Notice => Attempt::Again(Refusal::Token.to_string()),
        Some(refusal) => Attempt::Final(JoinError::Refused(refusal.to_string())),
        None => Attempt::Final(JoinError::Refused("for a reason that cannot be read".to_owned())),
    }
}
