//! The other ranks' side of the meeting: find rank 0, show the card, wait for the table.
//!
//! Rank 0 may start late, and whoever answers first may be somebody else; so this tries again until patience ends.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::endpoint_record::{EndpointRecord, MAX_RECORD_BYTES, RankTable, RecordReader};
use super::environment::{JobEnvironment, RendezvousPoint};
use super::failure_detector::FailureDetector;
use super::mac::{MacPurpose, TokenKey, random_nonce};
use super::message_stream::{MessageStream, ReadOutcome, RendezvousMessageKind, encode_message};
use super::rendezvous::{
    JoinRejection, JoinRequest, JoinedJob, MAX_HANDSHAKE_BYTES, RENDEZVOUS_VERSION, RendezvousError,
    RendezvousTimeouts,
};
use super::rendezvous_file;
use super::spoke::Spoke;

/// One connection attempt, and the wait for rank 0's first word.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(5);
const MAX_RETRY_DELAY: Duration = Duration::from_millis(200);
/// A rank that came in the same breath as rank 0's patience ended still hears the verdict.
const VERDICT_GRACE: Duration = Duration::from_secs(5);
/// How long a rank that is said to be there already may be one that died a moment ago.
const DUPLICATE_RANK_GRACE: Duration = Duration::from_secs(1);

const NOT_A_RENDEZVOUS_SERVER: &str = "whoever is there speaks another language";

/// How one attempt ended without the table.
enum AttemptError {
    /// Perhaps rank 0 is not there yet.
    Again(String),
    /// Rank 0 has another process in this seat.
    Taken,
    Final(RendezvousError),
}

pub(super) fn join_through_rank_zero(
    place: &JobEnvironment,
    card: EndpointRecord,
    terms: &RendezvousTimeouts,
) -> Result<JoinedJob, RendezvousError> {
    let began = Instant::now();
    let deadline = began + terms.patience;
    let hello = JoinRequest { version: RENDEZVOUS_VERSION, size: place.size, nonce: random_nonce(), card };
    let mut pause = FIRST_RETRY_DELAY;
    let mut taken_since = None;
    loop {
        let last = match attempt(place, &hello, terms, deadline) {
            Ok(joined) => return Ok(joined),
            Err(AttemptError::Final(error)) => return Err(error),
            Err(AttemptError::Again(why)) => why,
            Err(AttemptError::Taken) => {
                if taken_since.get_or_insert_with(Instant::now).elapsed() >= DUPLICATE_RANK_GRACE {
                    return Err(RendezvousError::Refused(JoinRejection::Rank.to_string()));
                }
                JoinRejection::Rank.to_string()
            }
        };
        if Instant::now() + pause >= deadline {
            let address = match &place.meeting {
                RendezvousPoint::Address { host, port } => format!("{host}:{port}"),
                RendezvousPoint::Alone | RendezvousPoint::Notice => "its port on this host".to_owned(),
            };
            return Err(RendezvousError::Unreachable { address, waited: began.elapsed(), last });
        }
        std::thread::sleep(pause);
        pause = (pause * 3 / 2).min(MAX_RETRY_DELAY);
    }
}

fn attempt(
    place: &JobEnvironment,
    hello: &JoinRequest,
    terms: &RendezvousTimeouts,
    deadline: Instant,
) -> Result<JoinedJob, AttemptError> {
    let (addresses, secret) = resolve_rank_zero(place)?;
    let key = TokenKey::new(&place.token, &secret);
    let one_try = deadline.min(Instant::now() + ATTEMPT_TIMEOUT);
    let tcp = connect(&addresses, one_try)?;
    let mut stream =
        MessageStream::new(tcp, terms.at_the_meeting()).map_err(|error| AttemptError::Again(error.to_string()))?;
    let (RendezvousMessageKind::Challenge, challenge) = receive_message(&mut stream, one_try)? else {
        return Err(AttemptError::Again(NOT_A_RENDEZVOUS_SERVER.to_owned()));
    };
    let challenge = challenge[..].try_into().map_err(|_| AttemptError::Again(NOT_A_RENDEZVOUS_SERVER.to_owned()))?;
    stream.queue(encode_message(RendezvousMessageKind::Hello, &[&hello.to_bytes(&key, &challenge)]));
    match receive_message(&mut stream, one_try)? {
        // Whoever does not know the token is not rank 0.
        (RendezvousMessageKind::Welcome, seal) if key.is_sealed(MacPurpose::Welcome, &hello.nonce, &[], &seal) => {}
        (RendezvousMessageKind::Refused, body) => return Err(rejected(place, &body)),
        _ => return Err(AttemptError::Again(NOT_A_RENDEZVOUS_SERVER.to_owned())),
    }
    // From here on rank 0 decides: its patience began before this one's, or now at the latest.
    let verdict = Instant::now() + terms.patience + VERDICT_GRACE;
    let most = (place.size as usize).saturating_mul(MAX_RECORD_BYTES);
    if !matches!(wait_for_message(&mut stream, most, verdict), Ok(true)) {
        return Err(AttemptError::Final(RendezvousError::RankZeroLost));
    }
    let table = match stream.peek(most) {
        Ok(Some((RendezvousMessageKind::Cards, body))) => {
            (RankTable::read(&mut RecordReader { rest: body }, place.size), body.len())
        }
        Ok(Some((RendezvousMessageKind::Refused, body))) => return Err(rejected(place, body)),
        _ => (None, 0),
    };
    let (Some(table), length) = table else {
        return Err(AttemptError::Final(RendezvousError::Refused("its table cannot be read".to_owned())));
    };
    stream.consume(length);
    let spoke = stream.set_silence(terms.silence).and_then(|()| Spoke::new(place.rank, place.size, stream));
    let lifeline =
        spoke.map(FailureDetector::of_spoke).map_err(|error| AttemptError::Final(RendezvousError::Io(error)))?;
    Ok(JoinedJob { table, lifeline })
}

fn receive_message(
    stream: &mut MessageStream,
    deadline: Instant,
) -> Result<(RendezvousMessageKind, Vec<u8>), AttemptError> {
    match wait_for_message(stream, MAX_HANDSHAKE_BYTES, deadline) {
        Ok(true) => stream
            .next(MAX_HANDSHAKE_BYTES)
            .ok()
            .flatten()
            .ok_or_else(|| AttemptError::Again(NOT_A_RENDEZVOUS_SERVER.to_owned())),
        Ok(false) => Err(AttemptError::Again("whoever is there does not answer".to_owned())),
        Err(why) => Err(AttemptError::Again(why)),
    }
}

/// Where rank 0 should be, and the secret of its notice.
fn resolve_rank_zero(place: &JobEnvironment) -> Result<(Vec<SocketAddr>, String), AttemptError> {
    let RendezvousPoint::Address { host, port } = &place.meeting else {
        return match rendezvous_file::read(&place.job) {
            Ok(Some(posting)) => Ok((vec![(Ipv4Addr::LOCALHOST, posting.port).into()], posting.secret)),
            Ok(None) => Err(AttemptError::Again("it has not said where it is".to_owned())),
            Err(error) => Err(AttemptError::Final(RendezvousError::Notice(error))),
        };
    };
    match (host.as_str(), *port).to_socket_addrs() {
        Ok(addresses) => Ok((addresses.collect(), String::new())),
        Err(error) => Err(AttemptError::Again(error.to_string())),
    }
}

fn connect(addresses: &[SocketAddr], deadline: Instant) -> Result<TcpStream, AttemptError> {
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
    Err(AttemptError::Again(last))
}

/// Waits for a whole message; false if the time is over.
fn wait_for_message(stream: &mut MessageStream, most: usize, deadline: Instant) -> Result<bool, String> {
    loop {
        stream.flush().map_err(|error| error.to_string())?;
        let ear = match stream.fill() {
            Ok(ear) => ear,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => ReadOutcome::Ended,
            Err(error) => return Err(error.to_string()),
        };
        match stream.peek(most) {
            Ok(Some(_)) => return Ok(true),
            Ok(None) if ear == ReadOutcome::Ended => return Err("the connection was closed".to_owned()),
            Ok(None) => {}
            Err(_) => return Err(NOT_A_RENDEZVOUS_SERVER.to_owned()),
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        stream.wait(deadline).map_err(|error| error.to_string())?;
    }
}

fn rejected(place: &JobEnvironment, body: &[u8]) -> AttemptError {
    match JoinRejection::read(body) {
        Some(JoinRejection::Missing { count, some }) => {
            AttemptError::Final(RendezvousError::Missing { ranks: some, count, turned_away: Vec::new() })
        }
        Some(JoinRejection::Rank) => AttemptError::Taken,
        // An old notice may lead to another job's port; rank 0 will post a new one.
        Some(JoinRejection::Token) if place.meeting == RendezvousPoint::Notice => {
            AttemptError::Again(JoinRejection::Token.to_string())
        }
        Some(refusal) => AttemptError::Final(RendezvousError::Refused(refusal.to_string())),
        None => AttemptError::Final(RendezvousError::Refused("for a reason that cannot be read".to_owned())),
    }
}
