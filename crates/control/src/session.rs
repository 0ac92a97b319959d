//! One control connection, never blocking: frames of a length and that many bytes of JSON, in both directions.
//!
//! In: bytes, in whatever pieces. Out: messages, after both ends have greeted each other and, if there is a secret,
//! proved it. What a peer can make us keep is bounded: one frame of what it says, and a queue of what it does not read.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use manager::limits::MAX_MESSAGE_BYTES;
use nix::poll::{PollFd, PollFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use super::secret::{self, ClusterSecret, ConnectionSide, MacTag, MessageAuthenticator, SessionNonce};

/// Greetings are short; before them nobody gets more room.
const MAX_HANDSHAKE_BYTES: usize = 1024;
/// A peer that leaves more than this unread is dropped.
const MAX_QUEUED_BYTES: usize = 8 << 20;
/// Bytes that one connection may bring in one turn, so that it cannot keep others waiting.
const MAX_READ_BYTES_PER_POLL: usize = 256 << 10;
/// So long may a greeting, or a message once begun, take to come.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);
const TAG_BYTES: usize = size_of::<MacTag>();
const CONTROL_PROTOCOL_VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HandshakeMessage {
    Hello { pleach: u32, nonce: String, secret: bool },
    Proof { proof: String },
}

enum HandshakeState {
    /// Our hello is sent; theirs has not come.
    Greeting,
    /// Both hellos are known; their proof has not come.
    Proving {
        theirs: SessionNonce,
    },
    Open,
}

/// One end of a control connection.
pub(super) struct ControlSession {
    stream: TcpStream,
    side: ConnectionSide,
    secret: Option<ClusterSecret>,
    nonce: SessionNonce,
    stage: HandshakeState,
    seal_out: Option<MessageAuthenticator>,
    seal_in: Option<MessageAuthenticator>,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// How much of `outgoing` is gone.
    sent: usize,
    /// What was said before the greetings were done.
    early: Vec<Vec<u8>>,
    /// When what is half here must be whole.
    whole_by: Option<Instant>,
    heard_at: Instant,
    over: bool,
}

/// Why a connection ended, for whoever counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum DisconnectCause {
    /// The other end closed it, or the network did.
    Closed,
    /// What was begun did not come whole in time.
    Slow,
    /// It announced more than a message may have.
    TooLong,
    /// It is no peer of ours, or speaks another version.
    Stranger,
    /// It does not know the secret, or we do not know its.
    WrongSecret,
    /// A message whose seal does not fit.
    Forged,
    /// A message that is none.
    Malformed,
    /// It does not read what it is told.
    Unread,
    /// It said nothing for long and nobody knows it.
    Idle,
    /// There were too many that had not yet greeted, and it was the oldest of them.
    Crowded,
}

impl DisconnectCause {
    /// Always the same words, for counters.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Closed => "connections closed by peers",
            Self::Slow => "connections dropped: slow",
            Self::TooLong => "connections dropped: message too long",
            Self::Stranger => "connections dropped: no greeting of ours",
            Self::WrongSecret => "connections dropped: wrong secret",
            Self::Forged => "connections dropped: broken seal",
            Self::Malformed => "connections dropped: malformed message",
            Self::Unread => "connections dropped: nothing read",
            Self::Idle => "connections dropped: idle",
            Self::Crowded => "connections dropped: too many",
        }
    }
}

/// How a connection ended.
#[derive(Debug)]
pub(super) struct Disconnect {
    pub cause: DisconnectCause,
    /// In words, for a log.
    pub why: String,
}

impl From<io::Error> for Disconnect {
    fn from(error: io::Error) -> Self {
        Self { cause: DisconnectCause::Closed, why: error.to_string() }
    }
}

fn disconnect<T>(cause: DisconnectCause, why: &str) -> Result<T, Disconnect> {
    Err(Disconnect { cause, why: why.to_owned() })
}

impl ControlSession {
    /// Begins to call; nothing is waited for.
    pub(super) fn call(to: SocketAddr, secret: Option<ClusterSecret>) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        match socket.connect(&to.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EINPROGRESS as i32) => {}
            Err(error) => return Err(error),
        }
        Self::new(socket.into(), ConnectionSide::Caller, secret)
    }

    /// Somebody called.
    pub(super) fn called(stream: TcpStream, secret: Option<ClusterSecret>) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Self::new(stream, ConnectionSide::Called, secret)
    }

    fn new(stream: TcpStream, side: ConnectionSide, secret: Option<ClusterSecret>) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        // A host that vanished is noticed even if nobody has anything to say.
        let alive = TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(5));
        SockRef::from(&stream).set_tcp_keepalive(&alive.with_retries(3))?;
        let nonce = secret::random_nonce()?;
        let mut session = Self {
            stream,
            side,
            nonce,
            stage: HandshakeState::Greeting,
            seal_out: None,
            seal_in: None,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            sent: 0,
            early: Vec::new(),
            whole_by: Some(Instant::now() + MESSAGE_TIMEOUT),
            heard_at: Instant::now(),
            over: false,
            secret,
        };
        let hello = HandshakeMessage::Hello {
            pleach: CONTROL_PROTOCOL_VERSION,
            nonce: hex(&nonce),
            secret: session.secret.is_some(),
        };
        session.put(&to_json(&hello)?);
        Ok(session)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// What to wait for.
    pub(super) fn poll_fd(&self) -> PollFd<'_> {
        let writes = if self.sent < self.outgoing.len() { PollFlags::POLLOUT } else { PollFlags::empty() };
        PollFd::new(self.fd(), PollFlags::POLLIN | writes)
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.stage, HandshakeState::Open)
    }

    /// When the last whole message came.
    pub(super) fn heard_at(&self) -> Instant {
        self.heard_at
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.whole_by
    }

    /// Queues a message.
    pub(super) fn send(&mut self, message: &impl Serialize) -> Result<(), Disconnect> {
        let bytes = to_json(message)?;
        if self.outgoing.len() - self.sent + bytes.len() > MAX_QUEUED_BYTES {
            return disconnect(DisconnectCause::Unread, "it does not read what it is told");
        }
        if self.is_open() {
            self.put_sealed(&bytes);
        } else if self.early.len() < 64 {
            self.early.push(bytes);
        } else {
            return disconnect(DisconnectCause::Slow, "too much was said before it greeted");
        }
        Ok(())
    }

    fn put_sealed(&mut self, bytes: &[u8]) {
        let tag = self.seal_out.as_mut().map(|seal| seal.next_tag(bytes));
        let tag = tag.as_ref().map_or(&[][..], |tag| tag);
        self.outgoing.extend_from_slice(&((bytes.len() + tag.len()) as u32).to_le_bytes());
        self.outgoing.extend_from_slice(bytes);
        self.outgoing.extend_from_slice(tag);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.outgoing.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.outgoing.extend_from_slice(bytes);
    }

    /// Sends and receives what can be without waiting, and hands over whole messages.
    pub(super) fn turn<T: DeserializeOwned>(&mut self, messages: &mut Vec<T>) -> Result<(), Disconnect> {
        self.flush()?;
        self.receive()?;
        while let Some(frame) = self.next_frame()? {
            match self.stage {
                HandshakeState::Open => messages.push(self.open_frame(&frame)?),
                _ => self.greet(&frame)?,
            }
        }
        if self.over {
            return match self.stage {
                HandshakeState::Proving { .. } if self.side == ConnectionSide::Caller => disconnect(
                    DisconnectCause::WrongSecret,
                    "it hung up when we proved the secret: it has another one",
                ),
                _ => disconnect(DisconnectCause::Closed, "it closed the connection"),
            };
        }
        if self.is_open() {
            let begun = (!self.incoming.is_empty()).then(|| Instant::now() + MESSAGE_TIMEOUT);
            // A drop now and then does not buy more time.
            self.whole_by = begun.map(|begun| self.whole_by.unwrap_or(begun));
        }
        if self.whole_by.is_some_and(|time| time <= Instant::now()) {
            return disconnect(DisconnectCause::Slow, "it began to say something and did not finish in time");
        }
        self.flush()
    }

    pub(super) fn flush(&mut self) -> Result<(), Disconnect> {
        while self.sent < self.outgoing.len() {
            match self.stream.write(&self.outgoing[self.sent..]) {
                Ok(0) => return disconnect(DisconnectCause::Closed, "it closed the connection"),
                Ok(count) => self.sent += count,
                Err(error) if is_would_block(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        self.outgoing.clear();
        self.outgoing.shrink_to(4096);
        self.sent = 0;
        Ok(())
    }

    fn receive(&mut self) -> Result<(), Disconnect> {
        let mut buffer = [0; 16 << 10];
        let mut total = 0;
        while total < MAX_READ_BYTES_PER_POLL && self.incoming.len() <= self.most_bytes() + 4 {
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    self.over = true; // What came before still counts.
                    break;
                }
                Ok(count) => {
                    self.incoming.extend_from_slice(&buffer[..count]);
                    total += count;
                }
                Err(error) if is_would_block(&error) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn most_bytes(&self) -> usize {
        if self.is_open() { MAX_MESSAGE_BYTES + TAG_BYTES } else { MAX_HANDSHAKE_BYTES }
    }

    fn next_frame(&mut self) -> Result<Option<Vec<u8>>, Disconnect> {
        let Some(length) = self.incoming.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > self.most_bytes() {
            // Nobody who greets as we do begins like that: a browser, a scanner.
            let cause = if self.is_open() { DisconnectCause::TooLong } else { DisconnectCause::Stranger };
            return disconnect(cause, "it announced a message that is too long");
        }
        if self.incoming.len() < 4 + length {
            return Ok(None); // Nothing is set aside for what was only announced.
        }
        let frame = self.incoming[4..4 + length].to_vec();
        self.incoming.drain(..4 + length);
        self.incoming.shrink_to(64 << 10);
        if self.is_open() {
            self.whole_by = None;
            self.heard_at = Instant::now();
        }
        Ok(Some(frame))
    }

    fn open_frame<T: DeserializeOwned>(&mut self, frame: &[u8]) -> Result<T, Disconnect> {
        let mut body = frame;
        if let Some(seal) = &mut self.seal_in {
            let Some((bytes, tag)) = frame.split_at_checked(frame.len().saturating_sub(TAG_BYTES)) else {
                return disconnect(DisconnectCause::Forged, "a message without a seal");
            };
            if !secret::constant_time_eq(&seal.next_tag(bytes), tag) {
                return disconnect(DisconnectCause::Forged, "a message with a broken seal");
            }
            body = bytes;
        }
        serde_json::from_slice(body).map_err(|error| Disconnect {
            cause: DisconnectCause::Malformed,
            why: format!("it said something strange: {error}"),
        })
    }

    fn greet(&mut self, frame: &[u8]) -> Result<(), Disconnect> {
        let greeting: HandshakeMessage = match serde_json::from_slice(frame) {
            Ok(greeting) => greeting,
            Err(_) => return disconnect(DisconnectCause::Stranger, "it does not greet as pleach does"),
        };
        match (greeting, &self.stage) {
            (HandshakeMessage::Hello { pleach, nonce, secret }, HandshakeState::Greeting) => {
                if pleach != CONTROL_PROTOCOL_VERSION {
                    let why = format!(
                        "it speaks version {pleach} of the control protocol, we speak {CONTROL_PROTOCOL_VERSION}"
                    );
                    return Err(Disconnect { cause: DisconnectCause::Stranger, why });
                }
                let Some(theirs) = from_hex::<16>(&nonce) else {
                    return disconnect(DisconnectCause::Stranger, "a greeting without a number");
                };
                match (&self.secret, secret) {
                    (None, false) => self.open(),
                    (Some(ours), true) => {
                        // Whoever is called proves nothing to a stranger, who could guess at the secret with it at leisure.
                        let proof =
                            (self.side == ConnectionSide::Caller).then(|| self.proof(ours, theirs)).transpose()?;
                        self.stage = HandshakeState::Proving { theirs };
                        if let Some(proof) = proof {
                            self.put(&proof);
                        }
                    }
                    (None, true) => {
                        let why = match self.side {
                            ConnectionSide::Caller => {
                                "it wants the cluster's secret: give --secret-file or PLEACH_SECRET"
                            }
                            ConnectionSide::Called => "it has a secret, and we have none",
                        };
                        return disconnect(DisconnectCause::WrongSecret, why);
                    }
                    (Some(_), false) => {
                        return disconnect(
                            DisconnectCause::WrongSecret,
                            "it does not know that this cluster has a secret",
                        );
                    }
                }
            }
            (HandshakeMessage::Proof { proof }, HandshakeState::Proving { theirs }) => {
                let (caller, called) = self.ordered(*theirs);
                let Some(secret) = &self.secret else {
                    return disconnect(DisconnectCause::Stranger, "a proof of nothing");
                };
                let expected = secret.proof(self.side.other(), &caller, &called);
                if !from_hex::<32>(&proof).is_some_and(|proof| secret::constant_time_eq(&proof, &expected)) {
                    return disconnect(DisconnectCause::WrongSecret, "its secret is not ours");
                }
                let seals = [self.side, self.side.other()].map(|side| secret.seal(side, &caller, &called));
                let proof = (self.side == ConnectionSide::Called).then(|| self.proof(secret, *theirs)).transpose()?;
                if let Some(proof) = proof {
                    self.put(&proof);
                }
                let [out, into] = seals;
                (self.seal_out, self.seal_in) = (Some(out), Some(into));
                self.open();
            }
            _ => return disconnect(DisconnectCause::Stranger, "a greeting out of turn"),
        }
        Ok(())
    }

    fn proof(&self, secret: &ClusterSecret, theirs: SessionNonce) -> io::Result<Vec<u8>> {
        let (caller, called) = self.ordered(theirs);
        to_json(&HandshakeMessage::Proof { proof: hex(&secret.proof(self.side, &caller, &called)) })
    }

    fn ordered(&self, theirs: SessionNonce) -> (SessionNonce, SessionNonce) {
        match self.side {
            ConnectionSide::Caller => (self.nonce, theirs),
            ConnectionSide::Called => (theirs, self.nonce),
        }
    }

    fn open(&mut self) {
        self.stage = HandshakeState::Open;
        self.whole_by = None;
        for bytes in std::mem::take(&mut self.early) {
            self.put_sealed(&bytes);
        }
    }
}

fn is_would_block(error: &io::Error) -> bool {
    // A connection that is still being made is not connected yet; if it cannot be made, the error is another.
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::NotConnected)
}

fn to_json(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let bytes = serde_json::to_vec(message).map_err(io::Error::other)?;
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a message of ours is too long"));
    }
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}
