//! The rendezvous of a rank other than 0: connect to rank 0, send the join request, wait for the table.
//!
//! Rank 0 may start late, and another program may use its address; so this retries until the join timeout.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::detector_ports::DetectorPorts;
use super::endpoint_record::{EndpointRecord, MAX_RECORD_BYTES, RankTable, RecordReader, RecordWriter};
use super::environment::{JobEnvironment, RendezvousPoint};
use super::framing::{FramedStream, ReadOutcome};
use super::join_request::{
    DUPLICATE_RANK_GRACE, JoinRejection, JoinRequest, MAX_HANDSHAKE_BYTES, WITHDRAWAL_TIME, Withdrawal,
};
use super::rank_connections::RankConnections;
use super::rendezvous::{RendezvousError, RendezvousTimeouts};
use super::rendezvous_file;
use super::rendezvous_message::{MAX_READ_BYTES, RendezvousMessageKind, encode_message, next_message, peek_message};
use super::retry::RetryBackoff;
use super::stream_security::{accept_answer, offer};
use super::token_key::TokenKey;

/// Limit for one connection attempt, and for rank 0's first messages.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// A rank that connects at the very end of rank 0's join timeout still receives the result.
const VERDICT_GRACE: Duration = Duration::from_secs(5);

const NOT_A_RENDEZVOUS_SERVER: &str = "the program there is not a Pleach rendezvous server";
const OLDER_VERSION: &str = "rank 0 runs an older version of Pleach; run the same Pleach version on all hosts";

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
    let mut request = JoinRequest { size: environment.size, record };
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
        Ok(Some((RendezvousMessageKind::Rejected, body))) => return Err(rejected(body, began)),
        _ => None,
    };
    let Some(table) = table else {
        return Err(AttemptError::Fatal(RendezvousError::Rejected("its table of ranks is malformed".to_owned())));
    };
    stream.consume_frame();
    Ok((table, key, stream))
}

/// Connects, encrypts the connection, and exchanges request and welcome.
fn handshake(
    environment: &JobEnvironment,
    addresses: &[SocketAddr],
    key: &TokenKey,
    (request, ports): (&mut JoinRequest, &mut DetectorPorts),
    timeouts: &RendezvousTimeouts,
    began: Instant,
) -> Result<FramedStream, AttemptError> {
    let deadline = (began + timeouts.join).min(Instant::now() + ATTEMPT_TIMEOUT);
    let mut stream = connect_securely(environment, addresses, key, timeouts, deadline)?;
    ports.open().clone_into(&mut request.record.ports);
    stream.queue(encode_message(RendezvousMessageKind::Hello, &[&request.to_bytes()]));
    match receive_message(&mut stream, deadline)? {
        (RendezvousMessageKind::Welcome, _) => Ok(stream),
        (RendezvousMessageKind::Rejected, body) => Err(rejected(&body, began)),
        _ => Err(retry(NOT_A_RENDEZVOUS_SERVER)),
    }
}

/// Tells rank 0 that this rank cannot join; it tells the others. Tries for a while.
pub(super) fn withdraw_from_rank_zero(
    environment: &JobEnvironment,
    withdrawal: &Withdrawal,
    timeouts: &RendezvousTimeouts,
) {
    let deadline = Instant::now() + WITHDRAWAL_TIME.min(timeouts.join);
    let mut backoff = RetryBackoff::for_late_server();
    while Instant::now() < deadline {
        match attempt_withdrawal(environment, withdrawal, timeouts, deadline) {
            Ok(()) | Err(AttemptError::Fatal(_)) => return,
            Err(AttemptError::Retry(_) | AttemptError::RankTaken) => std::thread::sleep(backoff.next_delay()),
        }
    }
}

fn attempt_withdrawal(
    environment: &JobEnvironment,
    withdrawal: &Withdrawal,
    timeouts: &RendezvousTimeouts,
    deadline: Instant,
) -> Result<(), AttemptError> {
    let (addresses, secret) = resolve_rank_zero(environment)?;
    let key = TokenKey::new(&environment.token, &secret);
    let mut stream = connect_securely(environment, &addresses, &key, timeouts, deadline)?;
    let mut writer = RecordWriter::default();
    withdrawal.write(&mut writer);
    stream.queue(encode_message(RendezvousMessageKind::Withdraw, &[&writer.bytes]));
    // The answer shows that it was read.
    receive_message(&mut stream, deadline).map(drop)
}

fn connect_securely(
    environment: &JobEnvironment,
    addresses: &[SocketAddr],
    key: &TokenKey,
    timeouts: &RendezvousTimeouts,
    deadline: Instant,
) -> Result<FramedStream, AttemptError> {
    let tcp = connect(addresses, deadline)?;
    let mut stream = FramedStream::new(tcp).map_err(retry)?;
    stream.set_peer_timeout(timeouts.peer_while_joining()).map_err(retry)?;
    let (channel, offered) = offer(key, 0).map_err(retry)?;
    stream.queue(offered);
    match receive_message(&mut stream, deadline)? {
        (RendezvousMessageKind::Secure, body) => {
            accept_answer(&mut stream, channel, &body).map_err(|_| retry(NOT_A_RENDEZVOUS_SERVER))?;
            Ok(stream)
        }
        (RendezvousMessageKind::Rejected, body) => Err(rejected_in_clear(environment, &body)),
        (RendezvousMessageKind::Challenge, _) => Err(mismatch(environment, OLDER_VERSION)),
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
            // Nothing gets better by waiting: this process itself holds the files.
            Err(error) if error.raw_os_error() == Some(Errno::EMFILE as i32) => {
                return Err(AttemptError::Fatal(RendezvousError::Io(error)));
            }
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

/// Rank 0 and this process do not fit together, as far as whoever is there says. A rendezvous file may be stale and lead to a
/// stranger; rank 0 will write a new one.
fn mismatch(environment: &JobEnvironment, why: impl ToString) -> AttemptError {
    match environment.rendezvous {
        RendezvousPoint::File => retry(why),
        RendezvousPoint::Address { .. } | RendezvousPoint::Singleton => {
            AttemptError::Fatal(RendezvousError::Rejected(why.to_string()))
        }
    }
}

/// The offer was rejected, perhaps by a stranger: only the reasons for which rank 0 cannot encrypt its answer are believed.
fn rejected_in_clear(environment: &JobEnvironment, body: &[u8]) -> AttemptError {
    match JoinRejection::read(body) {
        Some(rejection @ (JoinRejection::Token | JoinRejection::Version(_))) => mismatch(environment, rejection),
        _ => retry(NOT_A_RENDEZVOUS_SERVER),
    }
}

/// Rank 0 rejected the request, or the rendezvous failed.
fn rejected(body: &[u8], began: Instant) -> AttemptError {
    match JoinRejection::read(body) {
        Some(JoinRejection::Missing { count, some, rejected }) => {
            AttemptError::Fatal(RendezvousError::Missing { ranks: some, count, waited: began.elapsed(), rejected })
        }
        Some(JoinRejection::Withdrawn(Withdrawal { rank, why })) => {
            AttemptError::Fatal(RendezvousError::Withdrawn { rank, why })
        }
        Some(JoinRejection::Rank) => AttemptError::RankTaken,
        Some(rejection) => AttemptError::Fatal(RendezvousError::Rejected(rejection.to_string())),
        None => AttemptError::Fatal(RendezvousError::Rejected("its reason is malformed".to_owned())),
    }
}
