//! One control connection: frames of JSON in both directions, authenticated if the cluster has a secret. Never blocks.
//!
//! In: frames. Out: messages, after both sides have exchanged hellos and, if there is a secret, proofs. A peer can make this side
//! buffer only one frame of input and a bounded queue of output.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use bootstrap::auth::{Nonce, constant_time_eq, from_hex, random_nonce, to_hex};
use bootstrap::framing::{FramedStream, LENGTH_BYTES, ReadOutcome, encode_frame};
use manager::limits::MAX_MESSAGE_BYTES;
use nix::poll::PollFd;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

use super::disconnect::{Disconnect, DisconnectCause};
use super::secret::{ClusterSecret, ConnectionSide, MacTag, MessageAuthenticator};

/// Handshake messages are short; an unauthenticated peer gets no more room.
const MAX_HANDSHAKE_BYTES: usize = 1024;
/// A peer that leaves more than this unread is dropped.
const MAX_QUEUED_BYTES: usize = 8 << 20;
/// Messages that may be queued before the handshake is done.
const MAX_EARLY_MESSAGES: usize = 64;
/// Bytes that are read from one connection per poll, so that it cannot delay others.
const MAX_READ_BYTES_PER_POLL: usize = 256 << 10;
/// Bytes of one read.
const READ_BYTES: usize = 16 << 10;
/// Time for the handshake, and for a message from its first to its last byte.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// The kernel detects a vanished host after 10 s and three probes, even if the connection is idle.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const TAG_BYTES: usize = size_of::<MacTag>();
const CONTROL_PROTOCOL_VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HandshakeMessage {
    Hello { pleach: u32, nonce: String, secret: bool },
    Proof { proof: String },
}

#[derive(Clone, Copy)]
enum HandshakeState {
    /// The own hello is sent; the peer's has not come.
    AwaitingHello,
    /// Both hellos are exchanged; the peer's proof has not come.
    AwaitingProof {
        peer_nonce: Nonce,
    },
    Open,
}

/// One side of a control connection.
pub(super) struct ControlSession {
    stream: FramedStream,
    side: ConnectionSide,
    secret: Option<ClusterSecret>,
    nonce: Nonce,
    state: HandshakeState,
    send_mac: Option<MessageAuthenticator>,
    receive_mac: Option<MessageAuthenticator>,
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
    pub(super) fn connect(to: SocketAddr, secret: Option<ClusterSecret>) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        match socket.connect(&to.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EINPROGRESS as i32) => {}
            Err(error) => return Err(error),
        }
        Self::new(socket.into(), ConnectionSide::Initiator, secret)
    }

    /// Takes over an accepted connection.
    pub(super) fn accept(stream: TcpStream, secret: Option<ClusterSecret>) -> io::Result<Self> {
        Self::new(stream, ConnectionSide::Responder, secret)
    }

    fn new(stream: TcpStream, side: ConnectionSide, secret: Option<ClusterSecret>) -> io::Result<Self> {
        let stream = FramedStream::new(stream)?;
        stream.set_keepalive(KEEPALIVE_IDLE, KEEPALIVE_INTERVAL)?;
        let nonce = random_nonce()?;
        let hello = HandshakeMessage::Hello {
            pleach: CONTROL_PROTOCOL_VERSION,
            nonce: to_hex(&nonce),
            secret: secret.is_some(),
        };
        let mut session = Self {
            stream,
            side,
            secret,
            nonce,
            state: HandshakeState::AwaitingHello,
            send_mac: None,
            receive_mac: None,
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

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, HandshakeState::Open)
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
        let tag = self.send_mac.as_mut().map(|mac| mac.next_tag(bytes));
        self.stream.queue(encode_frame(&[bytes, tag.as_ref().map_or(&[], |tag| &tag[..])]));
    }

    /// Sends and receives without waiting, and hands over whole messages.
    pub(super) fn poll<T: DeserializeOwned>(&mut self, messages: &mut Vec<T>) -> Result<(), Disconnect> {
        self.flush()?;
        let is_closed = self.receive()?;
        while let Some(frame) = self.next_frame()? {
            match self.state {
                HandshakeState::Open => messages.push(self.decode(&frame)?),
                _ => self.handle_handshake(&frame)?,
            }
        }
        if is_closed {
            return match self.state {
                HandshakeState::AwaitingProof { .. } if self.side == ConnectionSide::Initiator => {
                    disconnect(DisconnectCause::WrongSecret, "the peer rejected the proof: it has another secret")
                }
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

    /// Reads the available bytes, up to the limit; true at the end of the stream. Frames before the end still count.
    fn receive(&mut self) -> Result<bool, Disconnect> {
        for _ in 0..MAX_READ_BYTES_PER_POLL / READ_BYTES {
            if self.stream.unread_bytes() > self.max_frame_bytes() + LENGTH_BYTES {
                break;
            }
            match self.stream.fill(READ_BYTES)? {
                ReadOutcome::Received => {}
                ReadOutcome::WouldBlock => break,
                ReadOutcome::Closed => return Ok(true),
            }
        }
        Ok(false)
    }

    fn max_frame_bytes(&self) -> usize {
        if self.is_open() { MAX_MESSAGE_BYTES + TAG_BYTES } else { MAX_HANDSHAKE_BYTES }
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

    /// Verifies the MAC and decodes a message.
    fn decode<T: DeserializeOwned>(&mut self, frame: &[u8]) -> Result<T, Disconnect> {
        let mut body = frame;
        if let Some(mac) = &mut self.receive_mac {
            let Some((bytes, tag)) = frame.split_at_checked(frame.len().saturating_sub(TAG_BYTES)) else {
                return disconnect(DisconnectCause::BadMac, "the peer sent a message without a MAC");
            };
            if !constant_time_eq(&mac.next_tag(bytes), tag) {
                return disconnect(DisconnectCause::BadMac, "the peer sent a message with a wrong MAC");
            }
            body = bytes;
        }
        serde_json::from_slice(body).map_err(|error| {
            Disconnect::new(DisconnectCause::Malformed, format!("the peer sent a malformed message: {error}"))
        })
    }

    fn handle_handshake(&mut self, frame: &[u8]) -> Result<(), Disconnect> {
        let Ok(message) = serde_json::from_slice::<HandshakeMessage>(frame) else {
            return disconnect(DisconnectCause::NotPleach, "the peer is not a Pleach program");
        };
        match (message, self.state) {
            (HandshakeMessage::Hello { pleach, nonce, secret }, HandshakeState::AwaitingHello) => {
                self.handle_hello(pleach, &nonce, secret)
            }
            (HandshakeMessage::Proof { proof }, HandshakeState::AwaitingProof { peer_nonce }) => {
                self.handle_proof(&proof, peer_nonce)
            }
            _ => disconnect(DisconnectCause::NotPleach, "the peer sent a handshake message out of order"),
        }
    }

    fn handle_hello(&mut self, version: u32, nonce: &str, peer_has_secret: bool) -> Result<(), Disconnect> {
        if version != CONTROL_PROTOCOL_VERSION {
            let why = format!(
                "the peer has version {version} of the control protocol, this process {CONTROL_PROTOCOL_VERSION}; run the \
                 same Pleach version everywhere"
            );
            return Err(Disconnect::new(DisconnectCause::NotPleach, why));
        }
        let Some(peer_nonce) = from_hex::<16>(nonce) else {
            return disconnect(DisconnectCause::NotPleach, "the peer's hello has no valid nonce");
        };
        match (&self.secret, peer_has_secret) {
            (None, false) => self.open(),
            (Some(secret), true) => {
                // The responder proves the secret last: an unauthenticated peer must not get a proof for offline guessing.
                if self.side == ConnectionSide::Initiator {
                    let proof = self.own_proof(secret, peer_nonce)?;
                    self.stream.queue(encode_frame(&[&proof]));
                }
                self.state = HandshakeState::AwaitingProof { peer_nonce };
            }
            (None, true) => {
                let why = match self.side {
                    ConnectionSide::Initiator => {
                        "it requires the cluster's secret: set --secret-file or PLEACH_SECRET"
                    }
                    ConnectionSide::Responder => "the peer has a secret, and this process has none",
                };
                return disconnect(DisconnectCause::WrongSecret, why);
            }
            (Some(_), false) => {
                return disconnect(
                    DisconnectCause::WrongSecret,
                    "the peer has no secret, but this cluster requires one",
                );
            }
        }
        Ok(())
    }

    fn handle_proof(&mut self, proof: &str, peer_nonce: Nonce) -> Result<(), Disconnect> {
        let (initiator, responder) = self.ordered(peer_nonce);
        let Some(secret) = &self.secret else {
            return disconnect(DisconnectCause::NotPleach, "the peer sent a proof without a secret");
        };
        let expected = secret.proof(self.side.other(), &initiator, &responder);
        if !from_hex::<32>(proof).is_some_and(|proof| constant_time_eq(&proof, &expected)) {
            return disconnect(DisconnectCause::WrongSecret, "the peer has another secret");
        }
        let [send_mac, receive_mac] =
            [self.side, self.side.other()].map(|side| secret.authenticator(side, &initiator, &responder));
        if self.side == ConnectionSide::Responder {
            let proof = self.own_proof(secret, peer_nonce)?;
            self.stream.queue(encode_frame(&[&proof]));
        }
        (self.send_mac, self.receive_mac) = (Some(send_mac), Some(receive_mac));
        self.open();
        Ok(())
    }

    fn own_proof(&self, secret: &ClusterSecret, peer_nonce: Nonce) -> io::Result<Vec<u8>> {
        let (initiator, responder) = self.ordered(peer_nonce);
        to_json(&HandshakeMessage::Proof { proof: to_hex(&secret.proof(self.side, &initiator, &responder)) })
    }

    /// The nonces of initiator and responder.
    fn ordered(&self, peer_nonce: Nonce) -> (Nonce, Nonce) {
        match self.side {
            ConnectionSide::Initiator => (self.nonce, peer_nonce),
            ConnectionSide::Responder => (peer_nonce, self.nonce),
        }
    }

    fn open(&mut self) {
        self.state = HandshakeState::Open;
        self.frame_deadline = None;
        for bytes in std::mem::take(&mut self.early) {
            self.queue_message(&bytes);
        }
    }
}

fn to_json(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let bytes = serde_json::to_vec(message).map_err(io::Error::other)?;
    if bytes.len() > MAX_MESSAGE_BYTES {
        let what = format!("internal error: a control message of {} bytes exceeds the limit", bytes.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(bytes)
}
