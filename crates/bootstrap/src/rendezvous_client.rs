//! The rendezvous of a rank other than 0: connect to rank 0, send the join request, wait for the table.
//!
//! Rank 0 may start late, and another program may use its address; so this retries until the join timeout.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::auth::random_nonce;
use super::detector_ports::DetectorPorts;
use super::endpoint_record::{EndpointRecord, MAX_RECORD_BYTES, RankTable, RecordReader};
use super::environment::{JobEnvironment, RendezvousPoint};
use super::framing::{FramedStream, ReadOutcome};
use super::join_request::{JoinRejection, JoinRequest, MAX_HANDSHAKE_BYTES, RENDEZVOUS_VERSION};
use super::rank_connections::RankConnections;
use super::rendezvous::{RendezvousError, RendezvousTimeouts};
use super::rendezvous_file;
use super::rendezvous_message::{MAX_READ_BYTES, RendezvousMessageKind, encode_message, next_message, peek_message};
use super::retry::RetryBackoff;
use super::stream_security::{accept_answer, offer};
use super::token_key::{MacPurpose, TokenKey};

/// Limit for one connection attempt, and for rank 0's first messages.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// A rank that connects at the very end of rank 0's join timeout still receives the result.
const VERDICT_GRACE: Duration = Duration::from_secs(5);
/// For this long, a process that has the own rank may be one that died a moment ago.
const DUPLICATE_RANK_GRACE: Duration = Duration::from_secs(1);

const NOT_A_RENDEZVOUS_SERVER: &str = "the program there is not a Pleach rendezvous server";

/// Why one attempt did not yield the table.
enum AttemptError {
    /// Rank 0 may not have started yet.
    Retry(String),
    /// Another process has this rank.
    RankTaken,
    Fatal(RendezvousError),
}

fn retry(why: impl ToString) -> AttemptError {
    AttemptError::Retry(why.to_string())
}

pub(super) fn join_through_rank_zero(
    environment: &JobEnvironment,
    record: EndpointRecord,
    mut ports: DetectorPorts,
    timeouts: &RendezvousTimeouts,
) -> Result<RankConnections, RendezvousError> {
    let began = Instant::now();
    let deadline = began + timeouts.join;
    let nonce = random_nonce().map_err(RendezvousError::Io)?;
    let mut request = JoinRequest { version: RENDEZVOUS_VERSION, size: environment.size, nonce, record };
    let mut backoff = RetryBackoff::for_late_server();
    let mut taken_since = None;
    loop {
        let last = match attempt(environment, &mut request, &mut ports, timeouts, began) {
            Ok((table, key, stream)) => {
                let (streams, listeners) = (BTreeMap::from([(0, stream)]), ports.into_listeners());
                return Ok(RankConnections { table, key, streams, listeners });
            }
            Err(AttemptError::Fatal(error)) => return Err(error),
            Err(AttemptError::Retry(why)) => why,
            Err(AttemptError::RankTaken) => {
                if taken_since.get_or_insert_with(Instant::now).elapsed() >= DUPLICATE_RANK_GRACE {
                    return Err(RendezvousError::Rejected(JoinRejection::Rank.to_string()));
                }
                JoinRejection::Rank.to_string()
            }
        };
        let delay = backoff.next_delay();
        if Instant::now() + delay >= deadline {
            let address = match &environment.rendezvous {
                RendezvousPoint::Address { host, port } => format!("{host}:{port}"),
                RendezvousPoint::Singleton | RendezvousPoint::File => "its port on this host".to_owned(),
            };
            return Err(RendezvousError::Unreachable { address, waited: began.elapsed(), last });
        }
        std::thread::sleep(delay);
    }
}

fn attempt(
    environment: &JobEnvironment,
    request: &mut JoinRequest,
    ports: &mut DetectorPorts,
    timeouts: &RendezvousTimeouts,
    began: Instant,
) -> Result<(RankTable, TokenKey, FramedStream), AttemptError> {
    let (addresses, secret) = resolve_rank_zero(environment)?;
    let key = TokenKey::new(&environment.token, &secret);
    let mut stream = handshake(environment, &addresses, &key, (request, ports), timeouts, began)?;
    // From here on rank 0 decides: its join timeout began before this rank's, or now at the latest.
    let verdict = Instant::now() + timeouts.join + VERDICT_GRACE;
    let max_bytes = (environment.size as usize).saturating_mul(MAX_RECORD_BYTES);
    if !matches!(wait_for_message(&mut stream, max_bytes, verdict), Ok(true)) {
        return Err(AttemptError::Fatal(RendezvousError::RankZeroLost));
    }
    let table = match peek_message(&stream, max_bytes) {
        Ok(Some((RendezvousMessageKind::Table, body))) => {
            RankTable::read(&mut RecordReader { rest: body }, environment.size)
        }
        Ok(Some((RendezvousMessageKind::Rejected, body))) => return Err(rejected(environment, body, began)),
        _ => None,
    };
    let Some(table) = table else {
        return Err(AttemptError::Fatal(RendezvousError::Rejected("its table of ranks is malformed".to_owned())));
    };
    stream.consume_frame();
    Ok((table, key, stream))
}

/// Connects, encrypts the connection, and exchanges challenge, request and welcome.
fn handshake(
    environment: &JobEnvironment,
    addresses: &[SocketAddr],
    key: &TokenKey,
    (request, ports): (&mut JoinRequest, &mut DetectorPorts),
    timeouts: &RendezvousTimeouts,
    began: Instant,
) -> Result<FramedStream, AttemptError> {
    let deadline = (began + timeouts.join).min(Instant::now() + ATTEMPT_TIMEOUT);
    let tcp = connect(addresses, deadline)?;
    let mut stream = FramedStream::new(tcp).map_err(retry)?;
    stream.set_peer_timeout(timeouts.peer_while_joining()).map_err(retry)?;
    let (RendezvousMessageKind::Challenge, challenge) = receive_message(&mut stream, deadline)? else {
        return Err(retry(NOT_A_RENDEZVOUS_SERVER));
    };
    let challenge = challenge[..].try_into().map_err(|_| retry(NOT_A_RENDEZVOUS_SERVER))?;
    let (channel, offered) = offer(key).map_err(retry)?;
    stream.queue(offered);
    match receive_message(&mut stream, deadline)? {
        (RendezvousMessageKind::Secure, body) => {
            accept_answer(&mut stream, channel, &body).map_err(|_| retry(NOT_A_RENDEZVOUS_SERVER))?;
        }
        (RendezvousMessageKind::Rejected, body) => return Err(rejected(environment, &body, began)),
        _ => return Err(retry(NOT_A_RENDEZVOUS_SERVER)),
    }
    ports.open().clone_into(&mut request.record.ports);
    stream.queue(encode_message(RendezvousMessageKind::Hello, &[&request.to_bytes(key, &challenge)]));
    match receive_message(&mut stream, deadline)? {
        // A server that does not know the token is not rank 0.
        (RendezvousMessageKind::Welcome, mac) if key.verify(MacPurpose::Welcome, &request.nonce, &[], &mac) => {
            Ok(stream)
        }
        (RendezvousMessageKind::Rejected, body) => Err(rejected(environment, &body, began)),
        _ => Err(retry(NOT_A_RENDEZVOUS_SERVER)),
    }
}

fn receive_message(
    stream: &mut FramedStream,
    deadline: Instant,
) -> Result<(RendezvousMessageKind, Vec<u8>), AttemptError> {
    match wait_for_message(stream, MAX_HANDSHAKE_BYTES, deadline) {
        Ok(true) => {
            next_message(stream, MAX_HANDSHAKE_BYTES).ok().flatten().ok_or_else(|| retry(NOT_A_RENDEZVOUS_SERVER))
        }
        Ok(false) => Err(retry("the program there does not answer")),
        Err(why) => Err(AttemptError::Retry(why)),
    }
}

/// The possible addresses of rank 0, and the secret of its rendezvous file.
fn resolve_rank_zero(environment: &JobEnvironment) -> Result<(Vec<SocketAddr>, String), AttemptError> {
    let RendezvousPoint::Address { host, port } = &environment.rendezvous else {
        return match rendezvous_file::read(&environment.job) {
            Ok(Some(record)) => Ok((vec![(Ipv4Addr::LOCALHOST, record.port).into()], record.secret)),
            Ok(None) => Err(retry("rank 0 has not written its rendezvous file")),
            Err(error) => Err(AttemptError::Fatal(RendezvousError::File(error))),
        };
    };
    match (host.as_str(), *port).to_socket_addrs() {
        Ok(addresses) => Ok((addresses.collect(), String::new())),
        Err(error) => Err(retry(format!("cannot resolve {host}: {error}"))),
    }
}

fn connect(addresses: &[SocketAddr], deadline: Instant) -> Result<TcpStream, AttemptError> {
    let mut last = "the host has no address".to_owned();
    for address in addresses {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(address, left) {
            // Without a listener, TCP may connect a socket to itself and so keep rank 0 from its port.
            Ok(tcp) if tcp.local_addr().ok() == tcp.peer_addr().ok() => {
                "no program listens there".clone_into(&mut last);
            }
            Ok(tcp) => return Ok(tcp),
            Err(error) => last = error.to_string(),
        }
    }
    Err(AttemptError::Retry(last))
}

/// Waits for a whole message; false after the deadline.
fn wait_for_message(stream: &mut FramedStream, max_bytes: usize, deadline: Instant) -> Result<bool, String> {
    loop {
        stream.flush().map_err(|error| error.to_string())?;
        let outcome = match stream.fill(MAX_READ_BYTES) {
            Ok(outcome) => outcome,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => ReadOutcome::Closed,
            Err(error) => return Err(error.to_string()),
        };
        match peek_message(stream, max_bytes) {
            Ok(Some(_)) => return Ok(true),
            Ok(None) if outcome == ReadOutcome::Closed => return Err("the connection was closed".to_owned()),
            Ok(None) => {}
            Err(_) => return Err(NOT_A_RENDEZVOUS_SERVER.to_owned()),
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        stream.wait(deadline).map_err(|error| error.to_string())?;
    }
}

fn rejected(environment: &JobEnvironment, body: &[u8], began: Instant) -> AttemptError {
    match JoinRejection::read(body) {
        Some(JoinRejection::Missing { count, some }) => AttemptError::Fatal(RendezvousError::Missing {
            ranks: some,
            count,
            waited: began.elapsed(),
            rejected: Vec::new(),
        }),
        Some(JoinRejection::Rank) => AttemptError::RankTaken,
        // A stale rendezvous file may lead to another job's port; rank 0 will write a new one.
        Some(JoinRejection::Token) if environment.rendezvous == RendezvousPoint::File => retry(JoinRejection::Token),
        Some(rejection) => AttemptError::Fatal(RendezvousError::Rejected(rejection.to_string())),
        None => AttemptError::Fatal(RendezvousError::Rejected("its reason is malformed".to_owned())),
    }
}
