//! One control connection: frames of JSON in both directions, encrypted if the cluster has a secret. Never blocks.
//!
//! In: frames. Out: messages, after both sides have exchanged hellos and, if there is a secret, a handshake that only works with the
//! same one. A peer can make this side buffer only one frame of input and a bounded queue of output.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use bootstrap::framing::{FramedStream, LENGTH_BYTES, ReadOutcome, encode_frame};
use bootstrap::secure_channel::{self, ChannelHandshake, SECRET_KEY_BYTES};
use manager::CredentialId;
use manager::limits::MAX_MESSAGE_BYTES;
use nix::poll::PollFd;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

use super::connection_set::Interest;
use super::credential::{ControlCredential, CredentialClaim};
use super::disconnect::{Disconnect, DisconnectCause};
use super::secret::ClusterSecret;

/// Handshake messages are short; an unauthenticated peer gets no more room.
const MAX_HANDSHAKE_BYTES: usize = 1024;
/// A peer that leaves more than this unread is dropped.
const MAX_QUEUED_BYTES: usize = 8 << 20;
/// Messages that may be queued before the handshake is done.
const MAX_EARLY_MESSAGES: usize = 64;
/// Bytes that are read from one connection per poll, so that it cannot delay others.
const MAX_READ_BYTES_PER_POLL: usize = 256 << 10;
/// What encryption adds to the bytes that are received and not complete yet.
const MAX_RECORD_OVERHEAD: usize = 64;
/// Time for the handshake, and for a message from its first to its last byte.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// The kernel detects a vanished host after 10 s and three probes, even if the connection is idle.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const CONTROL_PROTOCOL_VERSION: u32 = 3;
/// What the side that made the connection says about the other.
const OTHER_SECRET: &str = "it has another one: set --secret-file or PLEACH_SECRET to the cluster's";
const REFUSED_CREDENTIAL: &str = "it refused the job's credential, which is of another cluster or has expired: start the job anew, with the cluster's PLEACH_SECRET";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HandshakeMessage {
    Hello {
        pleach: u32,
        secret: bool,
        /// What the initiator will prove instead of the secret.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        credential: Option<CredentialClaim>,
    },
    /// One half of the handshake that encrypts the connection.
    Secure { noise: Vec<u8> },
    /// The initiator's first encrypted message. Its half of the handshake may be a repeated recording; this cannot.
    Ready,
}

enum HandshakeState {
    /// The own hello is sent; the peer's has not come.
    AwaitingHello,
    /// Both hellos are exchanged; the initiator's half of the handshake, under this key, has not come.
    AwaitingOffer([u8; SECRET_KEY_BYTES]),
    /// The own half is sent; the responder's has not come.
    AwaitingAnswer(ChannelHandshake),
    /// Both halves are exchanged; the initiator has not shown yet that it can encrypt.
    AwaitingReady,
    Open,
}

/// One side of a connection.
#[derive(Debug)]
enum ConnectionSide {
    /// Made the connection; what it has to prove that it may.
    Initiator(Option<ControlCredential>),
    /// Accepted the connection; the secret, and who may connect.
    Responder(Option<ClusterSecret>, AcceptedPeers),
}

impl ConnectionSide {
    fn has_secret(&self) -> bool {
        match self {
            Self::Initiator(credential) => credential.is_some(),
            Self::Responder(secret, _) => secret.is_some(),
        }
    }

    fn claim(&self) -> Option<CredentialClaim> {
        match self {
            Self::Initiator(Some(ControlCredential::Job(job))) => Some(job.claim()),
            _ => None,
        }
    }
}

/// Who may connect to a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AcceptedPeers {
    /// Holders of the cluster's secret.
    Cluster,
    /// Holders of a job's credential as well.
    ClusterAndJobs,
}

/// One side of a control connection.
pub(super) struct ControlSession {
    stream: FramedStream,
    side: ConnectionSide,
    state: HandshakeState,
    /// What the peer claims; it is proven when the connection is open.
    peer_claim: Option<CredentialClaim>,
    /// Messages that were sent before the handshake was done.
    early: Vec<Vec<u8>>,
    /// When the handshake, or a partly received message, must be complete.
    frame_deadline: Option<Instant>,
    last_received_at: Instant,
}

fn disconnect<T>(cause: DisconnectCause, why: &str) -> Result<T, Disconnect> {
    Err(Disconnect::new(cause, why))
}

impl ControlSession {
    /// Starts to connect, without waiting.
    pub(super) fn connect(to: SocketAddr, credential: Option<ControlCredential>) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        match socket.connect(&to.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EINPROGRESS as i32) => {}
            Err(error) => return Err(error),
        }
        Self::new(socket.into(), ConnectionSide::Initiator(credential))
    }

    /// Takes over an accepted connection.
    pub(super) fn accept(stream: TcpStream, secret: Option<ClusterSecret>, peers: AcceptedPeers) -> io::Result<Self> {
        Self::new(stream, ConnectionSide::Responder(secret, peers))
    }

    fn new(stream: TcpStream, side: ConnectionSide) -> io::Result<Self> {
        let stream = FramedStream::new(stream)?;
        stream.set_keepalive(KEEPALIVE_IDLE, KEEPALIVE_INTERVAL)?;
        let (secret, credential) = (side.has_secret(), side.claim());
        let hello = HandshakeMessage::Hello { pleach: CONTROL_PROTOCOL_VERSION, secret, credential };
        let mut session = Self {
            stream,
            side,
            state: HandshakeState::AwaitingHello,
            peer_claim: None,
            early: Vec::new(),
            frame_deadline: Some(Instant::now() + MESSAGE_TIMEOUT),
            last_received_at: Instant::now(),
        };
        session.stream.queue(encode_frame(&[&to_json(&hello)?]));
        Ok(session)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// The descriptor with the events to wait for.
    pub(super) fn poll_fd(&self) -> PollFd<'_> {
        self.stream.poll_fd()
    }

    /// The same for [`ConnectionSet`](super::connection_set::ConnectionSet).
    pub(super) fn interest(&self) -> Interest {
        if self.stream.queued_bytes() > 0 { Interest::InputAndOutput } else { Interest::Input }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, HandshakeState::Open)
    }

    /// The job's credential that the peer has; none if it has the cluster's secret. Proven once a message has come.
    pub(super) fn peer_credential(&self) -> Option<CredentialId> {
        self.peer_claim.map(|claim| claim.id)
    }

    /// True if the credential of the peer has expired since it connected.
    fn has_expired(&self) -> bool {
        self.peer_claim.is_some_and(CredentialClaim::has_expired)
    }

    /// When the last whole message came.
    pub(super) fn last_received_at(&self) -> Instant {
        self.last_received_at
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.frame_deadline
    }

    /// Queues a message.
    pub(super) fn send(&mut self, message: &impl Serialize) -> Result<(), Disconnect> {
        let bytes = to_json(message)?;
        if self.stream.queued_bytes() + bytes.len() > MAX_QUEUED_BYTES {
            return disconnect(DisconnectCause::NotReading, "the peer does not read its messages");
        }
        if self.is_open() {
            self.queue_message(&bytes);
        } else if self.early.len() < MAX_EARLY_MESSAGES {
            self.early.push(bytes);
        } else {
            return disconnect(DisconnectCause::Slow, "too many messages were queued before the handshake was done");
        }
        Ok(())
    }

    fn queue_message(&mut self, bytes: &[u8]) {
        self.stream.queue(encode_frame(&[bytes]));
    }

    /// Sends and receives without waiting, and hands over whole messages.
    pub(super) fn poll<T: DeserializeOwned>(&mut self, messages: &mut Vec<T>) -> Result<(), Disconnect> {
        if self.has_expired() {
            return disconnect(DisconnectCause::WrongSecret, "the peer's job credential has expired");
        }
        self.flush()?;
        let is_closed = self.receive()?;
        while let Some(frame) = self.next_frame()? {
            match self.state {
                HandshakeState::Open => messages.push(decode(&frame)?),
                _ => self.handle_handshake(&frame)?,
            }
        }
        if is_closed {
            return match self.state {
                HandshakeState::AwaitingAnswer(_) => disconnect(DisconnectCause::WrongSecret, self.refusal()),
                _ => disconnect(DisconnectCause::Closed, "the peer closed the connection"),
            };
        }
        if self.is_open() {
            let partial = (self.stream.unread_bytes() > 0).then(|| Instant::now() + MESSAGE_TIMEOUT);
            // Further bytes of the same message do not extend its deadline.
            self.frame_deadline = partial.map(|deadline| self.frame_deadline.unwrap_or(deadline));
        }
        if self.frame_deadline.is_some_and(|time| time <= Instant::now()) {
            return disconnect(DisconnectCause::Slow, "the peer did not complete a message within 5 s");
        }
        self.flush()
    }

    pub(super) fn flush(&mut self) -> Result<(), Disconnect> {
        Ok(self.stream.flush()?)
    }

    /// Reads the available bytes, up to the limit; true at the end of the stream. Frames before the end still count. What is left in the
    /// kernel makes the descriptor ready again.
    fn receive(&mut self) -> Result<bool, Disconnect> {
        let limit = self.max_frame_bytes() + LENGTH_BYTES + MAX_RECORD_OVERHEAD;
        // One more than any frame has, so that a longer one is noticed.
        let room = (limit + 1).saturating_sub(self.stream.unread_bytes());
        match room {
            0 => Ok(false),
            _ => Ok(self.stream.fill(room.min(MAX_READ_BYTES_PER_POLL))? == ReadOutcome::Closed),
        }
    }

    fn max_frame_bytes(&self) -> usize {
        if self.is_open() { MAX_MESSAGE_BYTES } else { MAX_HANDSHAKE_BYTES }
    }

    fn next_frame(&mut self) -> Result<Option<Vec<u8>>, Disconnect> {
        let is_open = self.is_open();
        let frame = self.stream.next_frame(self.max_frame_bytes()).map_err(|_| {
            // A handshake never begins like that: the peer is a browser or a scanner.
            let cause = if is_open { DisconnectCause::TooLong } else { DisconnectCause::NotPleach };
            Disconnect::new(cause, "the peer announced a message that is too long")
        })?;
        if frame.is_some() && is_open {
            self.frame_deadline = None;
            self.last_received_at = Instant::now();
        }
        Ok(frame)
    }

    fn handle_handshake(&mut self, frame: &[u8]) -> Result<(), Disconnect> {
        let Ok(message) = serde_json::from_slice::<HandshakeMessage>(frame) else {
            return disconnect(DisconnectCause::NotPleach, "the peer is not a Pleach program");
        };
        match (message, &self.state) {
            (HandshakeMessage::Hello { pleach, secret, credential }, HandshakeState::AwaitingHello) => {
                self.handle_hello(pleach, secret, credential)
            }
            (HandshakeMessage::Secure { noise }, HandshakeState::AwaitingOffer(key)) => {
                let key = *key;
                self.handle_offer(&key, &noise)
            }
            (HandshakeMessage::Secure { noise }, HandshakeState::AwaitingAnswer(_)) => self.handle_answer(&noise),
            (HandshakeMessage::Ready, HandshakeState::AwaitingReady) => {
                self.open();
                Ok(())
            }
            _ => disconnect(DisconnectCause::NotPleach, "the peer sent a handshake message out of order"),
        }
    }

    fn handle_hello(
        &mut self,
        version: u32,
        peer_has_secret: bool,
        claim: Option<CredentialClaim>,
    ) -> Result<(), Disconnect> {
        if version != CONTROL_PROTOCOL_VERSION {
            let why = format!(
                "the peer has version {version} of the control protocol, this process {CONTROL_PROTOCOL_VERSION}; run the \
                 same Pleach version everywhere"
            );
            return Err(Disconnect::new(DisconnectCause::NotPleach, why));
        }
        let wrong = |why| disconnect(DisconnectCause::WrongSecret, why);
        match (&self.side, peer_has_secret) {
            (ConnectionSide::Initiator(None) | ConnectionSide::Responder(None, _), false) => self.open(),
            // The responder answers last: an unauthenticated peer must not get anything for offline guessing.
            (ConnectionSide::Responder(Some(secret), peers), true) => {
                let key = key_of_peer(secret, *peers, claim)?;
                (self.state, self.peer_claim) = (HandshakeState::AwaitingOffer(key), claim);
            }
            (ConnectionSide::Initiator(Some(credential)), true) => {
                let key = match credential {
                    ControlCredential::Cluster(secret) => secret.channel_key(),
                    ControlCredential::Job(job) => job.channel_key(),
                };
                let (handshake, noise) =
                    secure_channel::begin(&key).map_err(|_| io::Error::other("no random numbers"))?;
                self.stream.queue(encode_frame(&[&to_json(&HandshakeMessage::Secure { noise })?]));
                self.state = HandshakeState::AwaitingAnswer(handshake);
            }
            (ConnectionSide::Initiator(None), true) => {
                return wrong("it requires the cluster's secret: set --secret-file or PLEACH_SECRET");
            }
            (ConnectionSide::Responder(None, _), true) => {
                return wrong("the peer has a secret, and this process has none");
            }
            (ConnectionSide::Initiator(Some(_)) | ConnectionSide::Responder(Some(_), _), false) => {
                return wrong("the peer has no secret, but this cluster requires one");
            }
        }
        Ok(())
    }

    /// What the other side meant by refusing the handshake.
    fn refusal(&self) -> &'static str {
        if self.side.claim().is_some() { REFUSED_CREDENTIAL } else { OTHER_SECRET }
    }

    /// The initiator's half of the handshake.
    fn handle_offer(&mut self, key: &[u8; SECRET_KEY_BYTES], noise: &[u8]) -> Result<(), Disconnect> {
        let Ok((channel, noise)) = secure_channel::answer(key, noise) else {
            return disconnect(DisconnectCause::WrongSecret, "the peer has another secret");
        };
        self.stream.queue(encode_frame(&[&to_json(&HandshakeMessage::Secure { noise })?]));
        self.flush()?;
        if self.stream.queued_bytes() > 0 {
            return disconnect(DisconnectCause::NotReading, "the peer does not read the handshake");
        }
        self.stream.secure(channel)?;
        self.state = HandshakeState::AwaitingReady;
        Ok(())
    }

    /// The responder's half.
    fn handle_answer(&mut self, noise: &[u8]) -> Result<(), Disconnect> {
        let state = std::mem::replace(&mut self.state, HandshakeState::AwaitingHello);
        let HandshakeState::AwaitingAnswer(handshake) = state else {
            return disconnect(DisconnectCause::NotPleach, "the peer sent a handshake message out of order");
        };
        let Ok(channel) = handshake.finish(noise) else {
            return disconnect(DisconnectCause::WrongSecret, self.refusal());
        };
        self.stream.secure(channel)?;
        self.queue_message(&to_json(&HandshakeMessage::Ready)?);
        self.open();
        Ok(())
    }

    fn open(&mut self) {
        self.state = HandshakeState::Open;
        self.frame_deadline = None;
        for bytes in std::mem::take(&mut self.early) {
            self.queue_message(&bytes);
        }
    }
}

/// The key under which a peer that claims this connects.
fn key_of_peer(
    secret: &ClusterSecret,
    peers: AcceptedPeers,
    claim: Option<CredentialClaim>,
) -> Result<[u8; SECRET_KEY_BYTES], Disconnect> {
    match claim {
        None => Ok(secret.channel_key()),
        Some(_) if peers == AcceptedPeers::Cluster => {
            disconnect(DisconnectCause::WrongSecret, "the peer has a job's credential, which gives no access here")
        }
        Some(claim) if claim.has_expired() => {
            disconnect(DisconnectCause::WrongSecret, "the peer's job credential has expired")
        }
        Some(claim) => Ok(secret.job_key(claim)),
    }
}

fn decode<T: DeserializeOwned>(frame: &[u8]) -> Result<T, Disconnect> {
    serde_json::from_slice(frame).map_err(|error| {
        Disconnect::new(DisconnectCause::Malformed, format!("the peer sent a malformed message: {error}"))
    })
}

fn to_json(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let bytes = serde_json::to_vec(message).map_err(io::Error::other)?;
    if bytes.len() > MAX_MESSAGE_BYTES {
        let what = format!("internal error: a control message of {} bytes exceeds the limit", bytes.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::credential::JobCredential;
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn secret(text: &str) -> Option<ClusterSecret> {
        Some(ClusterSecret::new(text).expect("long enough"))
    }

    /// Polls until a session has ended or both have got a message; the messages, and why each ended.
    fn exchange(one: &mut ControlSession, other: &mut ControlSession) -> [Result<Vec<String>, DisconnectCause>; 2] {
        let mut results = [Ok(Vec::new()), Ok(Vec::new())];
        let began = Instant::now();
        while results.iter().any(|result| matches!(result, Ok(messages) if messages.is_empty())) {
            assert!(began.elapsed() < Duration::from_secs(10), "{results:?}");
            for (session, result) in [&mut *one, &mut *other].into_iter().zip(&mut results) {
                if let Ok(messages) = result
                    && let Err(disconnect) = session.poll(messages)
                {
                    *result = Err(disconnect.cause);
                }
            }
        }
        results
    }

    /// The two ends of a connection whose bytes pass a tap, and what it has seen.
    fn tapped(
        credential: Option<ControlCredential>,
        secret: Option<ClusterSecret>,
    ) -> ([ControlSession; 2], std::sync::Arc<std::sync::Mutex<Vec<u8>>>) {
        let [server, tap] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("loopback"));
        let one = ControlSession::connect(tap.local_addr().expect("bound"), credential).expect("connects");
        let (near, _) = tap.accept().expect("accepts");
        let far = TcpStream::connect(server.local_addr().expect("bound")).expect("connects");
        let accepted = server.accept().expect("accepts").0;
        let other = ControlSession::accept(accepted, secret, AcceptedPeers::ClusterAndJobs).expect("options");
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        for (mut from, mut to) in
            [(near.try_clone().expect("a descriptor"), far.try_clone().expect("a descriptor")), (far, near)]
        {
            let seen = std::sync::Arc::clone(&seen);
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = from.read(&mut bytes) {
                    seen.lock().expect("no panic").extend_from_slice(&bytes[..count]);
                    if to.write_all(&bytes[..count]).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(std::net::Shutdown::Write);
            });
        }
        ([one, other], seen)
    }

    #[test]
    fn with_a_secret_an_eavesdropper_sees_no_message() {
        let ours = secret("correct horse");
        let job = ours.as_ref().map(|secret| JobCredential::issue(secret, Duration::from_secs(60)));
        let job = job.map(|issued| ControlCredential::Job(issued.expect("random numbers")));
        let cluster = ours.clone().map(ControlCredential::Cluster);
        for (credential, secret, is_in_clear) in
            [(cluster, ours.clone(), false), (job, ours, false), (None, None, true)]
        {
            let ([mut one, mut other], seen) = tapped(credential, secret);
            one.send(&"the key of a group").expect("queued");
            other.send(&"the ticket of a job").expect("queued");
            let results = exchange(&mut one, &mut other);
            assert_eq!(results[0], Ok(vec!["the ticket of a job".to_owned()]));
            assert_eq!(results[1], Ok(vec!["the key of a group".to_owned()]));
            let seen = String::from_utf8_lossy(&seen.lock().expect("no panic")).into_owned();
            assert_eq!(seen.contains("the key of a group") || seen.contains("the ticket of a job"), is_in_clear);
        }
    }

    #[test]
    fn two_secrets_do_not_open_a_connection() {
        let ([mut one, mut other], _) = tapped(secret("correct horse").map(Into::into), secret("battery staple"));
        one.send(&"hello").expect("queued");
        assert_eq!(exchange_until_end(&mut one, &mut other), [DisconnectCause::WrongSecret; 2]);
        let ([mut one, mut other], _) = tapped(None, secret("battery staple"));
        assert!(exchange_until_end(&mut one, &mut other).contains(&DisconnectCause::WrongSecret));
    }

    /// Regression: whoever repeated a recorded handshake occupied one of the connections that are for authenticated peers.
    #[test]
    fn a_repeated_recording_of_the_handshake_does_not_open_a_connection() {
        let ours = ClusterSecret::new("correct horse").expect("long enough");
        let server = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let mut attacker = TcpStream::connect(server.local_addr().expect("bound")).expect("connects");
        let accepted = server.accept().expect("accepts").0;
        let mut session =
            ControlSession::accept(accepted, Some(ours.clone()), AcceptedPeers::Cluster).expect("options");
        let hello = HandshakeMessage::Hello { pleach: CONTROL_PROTOCOL_VERSION, secret: true, credential: None };
        // What an eavesdropper has recorded: it does not know the ephemeral key behind it.
        let (_, noise) = secure_channel::begin(&ours.channel_key()).expect("random numbers");
        for message in [hello, HandshakeMessage::Secure { noise }] {
            attacker.write_all(&encode_frame(&[&to_json(&message).expect("short")])).expect("written");
        }
        let began = Instant::now();
        while !matches!(session.state, HandshakeState::AwaitingReady) {
            assert!(began.elapsed() < Duration::from_secs(10));
            session.poll(&mut Vec::<String>::new()).expect("the recording is authentic");
        }
        assert!(!session.is_open() && session.deadline().is_some(), "it counts as unauthenticated, and not for long");
        attacker.write_all(&encode_frame(&[&to_json(&HandshakeMessage::Ready).expect("short")])).expect("written");
        let ended = loop {
            assert!(began.elapsed() < Duration::from_secs(10));
            if let Err(ended) = session.poll(&mut Vec::<String>::new()) {
                break ended;
            }
        };
        assert_eq!(ended.cause, DisconnectCause::BadMac);
    }

    fn exchange_until_end(one: &mut ControlSession, other: &mut ControlSession) -> [DisconnectCause; 2] {
        let mut causes = [None, None];
        let began = Instant::now();
        while causes.iter().any(Option::is_none) {
            assert!(began.elapsed() < Duration::from_secs(10), "{causes:?}");
            for (session, cause) in [&mut *one, &mut *other].into_iter().zip(&mut causes) {
                if cause.is_none()
                    && let Err(disconnect) = session.poll(&mut Vec::<String>::new())
                {
                    *cause = Some(disconnect.cause);
                    session.stream.shutdown_write();
                }
            }
        }
        causes.map(|cause| cause.expect("both have ended"))
    }
}
