//! Connections that this rank opens: further paths to its coordinator, a new coordinator, or only to see whether a rank lives.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::sys::epoll::{EpollEvent, EpollFlags};
use socket2::{Domain, Protocol, Socket, Type};

use super::super::attach_request::{AttachPurpose, AttachRequest, is_refused, read_attached};
use super::super::auth::{Nonce, random_nonce};
use super::super::framing::{FramedStream, ReadOutcome};
use super::super::join_request::MAX_HANDSHAKE_BYTES;
use super::super::link::{Link, end_of};
use super::super::membership::LinkEnd;
use super::super::rendezvous_message::{MAX_READ_BYTES, RendezvousMessageKind, peek_message};
use super::super::secure_channel::ChannelHandshake;
use super::super::stream_security::{accept_answer, offer};
use super::{ConnectionOwner, Member};

/// Time until the other rank has sent its challenge.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A path whose connection failed is tried again after this time.
pub(super) const REDIAL_INTERVAL: Duration = Duration::from_secs(1);
/// Connections in progress, beyond which ranks are not checked.
const MAX_DIALS: usize = 256;
/// A rank that closes the connection after its challenge is there: it had too many connections, and is asked again.
const MAX_TAKEOVER_ATTEMPTS: u32 = 5;
/// A new coordinator may take this much longer than it takes to notice that the old one is silent.
const ANSWER_MARGIN: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DialPurpose {
    Path,
    Takeover,
    Check,
}

#[derive(Debug)]
pub(super) struct Dial {
    rank: u32,
    path: usize,
    purpose: DialPurpose,
    stream: FramedStream,
    deadline: Instant,
    attempts: u32,
    /// The other rank has sent its challenge: its process lives.
    is_alive: bool,
    /// The challenge of the other rank, and the handshake that encrypts the connection, until it is answered.
    challenged: Option<(Nonce, ChannelHandshake)>,
    /// After the request: its nonce, and how many messages this end said it had received.
    request: Option<(Nonce, u64)>,
}

impl Dial {
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// What an event of a connection in progress led to.
enum DialProgress {
    Waiting,
    Challenged(Nonce),
    /// The connection is encrypted; the challenge that came before.
    Secured(Nonce),
    Attached {
        lacks: u64,
    },
    Refused,
    Failed(LinkEnd),
}

impl Member {
    /// Opens the paths to the coordinator that have no connection, where there is more than one path.
    pub(super) fn dial_paths(&mut self, now: Instant) {
        let Some(coordinator) = self.membership.coordinator().filter(|rank| self.links.contains_key(rank)) else {
            return;
        };
        let paths = self.config.ports[coordinator as usize].len();
        if paths < 2 || self.membership.is_coordinator() {
            return;
        }
        self.redial_at.resize(paths, now);
        for path in 0..paths {
            let is_dialed = self.dials.values().any(|dial| (dial.rank, dial.path) == (coordinator, path));
            let is_due = self.redial_at[path] <= now && !self.links[&coordinator].has_path(path);
            if is_due && !is_dialed {
                self.redial_at[path] = now + REDIAL_INTERVAL;
                let _ = self.dial(now, coordinator, path, DialPurpose::Path); // If that fails, it is tried again.
            }
        }
    }

    /// Asks a rank to become this one's coordinator, on all paths.
    pub(super) fn dial_takeover(&mut self, now: Instant, rank: u32) {
        self.redial_at.clear();
        self.failed_dials.remove(&rank);
        let mut last = LinkEnd::Silent;
        let mut is_any_open = false;
        for path in 0..self.config.ports[rank as usize].len() {
            match self.dial(now, rank, path, DialPurpose::Takeover) {
                Ok(()) => is_any_open = true,
                Err(error) => last = end_of(&error),
            }
        }
        if !is_any_open {
            self.membership.unreachable(now, rank, last);
        }
    }

    /// Connects to a rank on all paths to see whether it lives.
    pub(super) fn dial_check(&mut self, now: Instant, rank: u32) {
        let is_pending = |dial: &Dial| (dial.rank, dial.purpose) == (rank, DialPurpose::Check);
        if self.dials.len() >= MAX_DIALS || self.dials.values().any(is_pending) {
            return; // It is tried again.
        }
        for path in 0..self.config.ports[rank as usize].len() {
            if let Err(error) = self.dial(now, rank, path, DialPurpose::Check)
                && end_of(&error) == LinkEnd::Closed
            {
                self.membership.unreachable(now, rank, LinkEnd::Closed);
            }
        }
    }

    fn dial(&mut self, now: Instant, rank: u32, path: usize, purpose: DialPurpose) -> io::Result<()> {
        self.dial_again(now, (rank, path), purpose, 1)
    }

    fn dial_again(
        &mut self,
        now: Instant,
        (rank, path): (u32, usize),
        purpose: DialPurpose,
        attempts: u32,
    ) -> io::Result<()> {
        let to = self.config.ports[rank as usize][path];
        let own = &self.config.ports[self.config.rank as usize];
        let from = own.get(path).filter(|from| from.is_ipv4() == to.is_ipv4()).copied();
        let stream = connect(from, to)?;
        stream.set_peer_timeout(self.config.peer_timeout)?;
        let id = self.new_id(ConnectionOwner::Dial);
        if let Err(error) = self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, id)) {
            self.owners.remove(&id);
            return Err(error.into());
        }
        let deadline = now + CONNECT_TIMEOUT;
        let (is_alive, challenged, request) = (false, None, None);
        let dial = Dial { rank, path, purpose, stream, deadline, attempts, is_alive, challenged, request };
        self.dials.insert(id, dial);
        Ok(())
    }

    pub(super) fn receive_dial(&mut self, now: Instant, id: u64) {
        let Some(dial) = self.dials.get_mut(&id) else { return };
        let was_writing = dial.stream.queued_bytes() > 0;
        let progress = dial.receive(&self.config.key);
        if was_writing && dial.stream.queued_bytes() == 0 {
            let _ = self.epoll.modify(&dial.stream, &mut EpollEvent::new(EpollFlags::EPOLLIN, id));
        }
        match progress {
            DialProgress::Waiting => {}
            DialProgress::Challenged(challenge) => self.secure_dial(now, id, challenge),
            DialProgress::Secured(challenge) => self.answer_challenge(now, id, &challenge),
            DialProgress::Attached { lacks } => self.finish_dial(id, lacks),
            DialProgress::Refused => self.dial_refused(id),
            DialProgress::Failed(end) => self.dial_failed(now, id, end),
        }
    }

    /// The other rank lives; unless that was the question, the connection is encrypted.
    fn secure_dial(&mut self, now: Instant, id: u64, challenge: Nonce) {
        let Some(dial) = self.dials.get_mut(&id) else { return };
        dial.is_alive = true;
        if dial.purpose == DialPurpose::Check {
            let rank = dial.rank;
            return self.drop_dials(rank, DialPurpose::Check);
        }
        let Ok((handshake, offered)) = offer(&self.config.key) else {
            return self.dial_failed(now, id, LinkEnd::Silent);
        };
        dial.challenged = Some((challenge, handshake));
        dial.stream.queue(offered);
        if let Err(error) = dial.stream.flush() {
            self.dial_failed(now, id, end_of(&error));
        }
    }

    /// Sends the request that a connection is for.
    fn answer_challenge(&mut self, now: Instant, id: u64, challenge: &Nonce) {
        let Some(dial) = self.dials.get_mut(&id) else { return };
        let received = self.links.get(&dial.rank).map_or(0, Link::received);
        let (purpose, told) = match dial.purpose {
            DialPurpose::Path => (AttachPurpose::Path { received }, received),
            DialPurpose::Takeover => (AttachPurpose::Takeover(self.membership.history().clone()), 0),
            DialPurpose::Check => return,
        };
        let Ok(nonce) = random_nonce() else { return self.dial_failed(now, id, LinkEnd::Silent) };
        let request = AttachRequest { rank: self.config.rank, nonce, purpose };
        dial.stream.queue(request.encode(&self.config.key, challenge));
        dial.deadline = match dial.purpose {
            DialPurpose::Takeover => now + self.config.peer_timeout + ANSWER_MARGIN,
            DialPurpose::Path | DialPurpose::Check => now + CONNECT_TIMEOUT,
        };
        dial.request = Some((nonce, told));
        // A request is short, and the socket is empty; a longer one is written when the connection is polled.
        if let Err(error) = dial.stream.flush() {
            return self.dial_failed(now, id, end_of(&error));
        }
        if dial.stream.queued_bytes() > 0 {
            let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT, id);
            let _ = self.epoll.modify(&dial.stream, &mut { event });
        }
    }

    /// The connection becomes part of the link to the coordinator.
    fn finish_dial(&mut self, id: u64, lacks: u64) {
        let Some(Dial { rank, path, purpose, stream, request: Some((_, told)), .. }) = self.take_dial(id) else {
            return;
        };
        match purpose {
            DialPurpose::Takeover => {
                self.drop_dials(rank, DialPurpose::Takeover);
                self.links.insert(rank, Link::new(self.has_paths()));
                self.membership.attached_to(rank);
            }
            DialPurpose::Path if self.membership.coordinator() == Some(rank) => {}
            DialPurpose::Path | DialPurpose::Check => return,
        }
        let Some(link) = self.links.get_mut(&rank) else { return };
        if link.attach(id, path, stream, told, lacks) {
            self.owners.insert(id, ConnectionOwner::Link(rank));
        }
        self.flush(rank);
        self.touched.insert(rank); // Messages that arrived with the answer cause no event.
    }

    fn dial_refused(&mut self, id: u64) {
        let Some(dial) = self.take_dial(id) else { return };
        if dial.purpose == DialPurpose::Takeover {
            self.drop_dials(dial.rank, DialPurpose::Takeover);
            self.membership.refused_by(dial.rank);
        }
    }

    fn dial_failed(&mut self, now: Instant, id: u64, end: LinkEnd) {
        let Some(Dial { rank, path, purpose, attempts, is_alive, .. }) = self.take_dial(id) else { return };
        if purpose == DialPurpose::Path {
            return; // It is tried again.
        }
        if purpose == DialPurpose::Check {
            // If it is silent, its process may be stopped: it has time until the coordinator decides.
            if end == LinkEnd::Closed && !is_alive {
                self.drop_dials(rank, DialPurpose::Check);
                self.membership.unreachable(now, rank, end);
            }
            return;
        }
        let may_retry = is_alive && attempts < MAX_TAKEOVER_ATTEMPTS && end == LinkEnd::Closed;
        if may_retry && self.dial_again(now, (rank, path), purpose, attempts + 1).is_ok() {
            return;
        }
        // A host that refuses the connection is there, and its process is not.
        let known = self.failed_dials.entry(rank).or_insert(end);
        *known = (*known).min(end);
        let end = *known;
        if !self.dials.values().any(|dial| (dial.rank, dial.purpose) == (rank, purpose)) {
            self.failed_dials.remove(&rank);
            self.membership.unreachable(now, rank, end);
        }
    }

    fn take_dial(&mut self, id: u64) -> Option<Dial> {
        let dial = self.dials.remove(&id)?;
        self.owners.remove(&id);
        let _ = self.epoll.delete(&dial.stream);
        Some(dial)
    }

    fn drop_dials(&mut self, rank: u32, purpose: DialPurpose) {
        let is_it = |dial: &Dial| (dial.rank, dial.purpose) == (rank, purpose);
        let ids: Vec<u64> = self.dials.iter().filter(|(_, dial)| is_it(dial)).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| drop(self.take_dial(id)));
    }

    /// Gives up connections that take too long.
    pub(super) fn expire(&mut self, now: Instant) {
        self.expire_accepted(now);
        let overdue: Vec<u64> =
            self.dials.iter().filter(|(_, dial)| dial.deadline <= now).map(|(id, _)| *id).collect();
        overdue.into_iter().for_each(|id| self.dial_failed(now, id, LinkEnd::Silent));
    }
}

impl Dial {
    fn receive(&mut self, key: &super::TokenKey) -> DialProgress {
        if let Err(error) = self.stream.flush() {
            return DialProgress::Failed(end_of(&error));
        }
        let outcome = match self.stream.fill(MAX_READ_BYTES) {
            Ok(outcome) => outcome,
            Err(error) => return DialProgress::Failed(end_of(&error)),
        };
        let message = match peek_message(&self.stream, MAX_HANDSHAKE_BYTES) {
            Ok(message) => message.map(|(kind, body)| (kind, body.to_vec())),
            Err(_) => return DialProgress::Failed(LinkEnd::Closed),
        };
        let Some((kind, body)) = message else {
            return match outcome {
                ReadOutcome::Closed => DialProgress::Failed(LinkEnd::Closed),
                ReadOutcome::Received | ReadOutcome::WouldBlock => DialProgress::Waiting,
            };
        };
        self.stream.consume_frame();
        let malformed = DialProgress::Failed(LinkEnd::Closed);
        match (kind, self.request) {
            (RendezvousMessageKind::Challenge, None) if self.challenged.is_none() => {
                Nonce::try_from(&body[..]).map_or(malformed, DialProgress::Challenged)
            }
            (RendezvousMessageKind::Secure, None) => {
                let Some((challenge, handshake)) = self.challenged.take() else { return malformed };
                let secured = accept_answer(&mut self.stream, handshake, &body);
                secured.map_or(malformed, |()| DialProgress::Secured(challenge))
            }
            (RendezvousMessageKind::Attached, Some((nonce, _))) => {
                read_attached(&body, key, &nonce).map_or(malformed, |lacks| DialProgress::Attached { lacks })
            }
            (RendezvousMessageKind::Rejected, Some((nonce, _))) if is_refused(&body, key, &nonce) => {
                DialProgress::Refused
            }
            _ => malformed,
        }
    }
}

/// Starts to connect, from an address of this host if one belongs to the path.
fn connect(from: Option<SocketAddr>, to: SocketAddr) -> io::Result<FramedStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    if let Some(from) = from {
        // Without that address the kernel chooses one.
        let _ = socket.bind(&SocketAddr::new(from.ip(), 0).into());
    }
    match socket.connect(&to.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EINPROGRESS as i32) => {}
        Err(error) => return Err(error),
    }
    FramedStream::new(socket.into())
}
