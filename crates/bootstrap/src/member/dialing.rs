//! Connections that this rank opens: further paths to its coordinator, a new coordinator, or only to see whether a rank lives, or
//! why its link has ended.
//!
//! A rank lives if it answers the offer with which every connection begins, and its process has ended if its kernel refuses the
//! connection. Nothing else that a stranger could cause tells either (P-101).

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::sys::epoll::{EpollEvent, EpollFlags};
use socket2::{Domain, Protocol, Socket, Type};

use super::super::attach_request::{AttachPurpose, AttachRequest, read_attached};
use super::super::framing::{FramedStream, ReadOutcome};
use super::super::join_request::MAX_HANDSHAKE_BYTES;
use super::super::link::Link;
use super::super::membership::LinkEnd;
use super::super::rendezvous_message::{MAX_READ_BYTES, RendezvousMessageKind, next_message};
use super::super::secure_channel::ChannelHandshake;
use super::super::stream_security::{accept_answer, offer};
use super::{ConnectionOwner, Member};

/// Time until the other host has accepted the connection, and then until its rank has answered the offer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A path whose connection failed is tried again after this time.
pub(super) const REDIAL_INTERVAL: Duration = Duration::from_secs(1);
/// Connections in progress, beyond which ranks are not checked.
const MAX_DIALS: usize = 256;
/// A rank that closes a connection has too many of them, or has just ended: it is asked again.
const MAX_ATTEMPTS: u32 = 5;
/// A new coordinator may take this much longer than it takes to notice that the old one is silent.
const ANSWER_MARGIN: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DialPurpose {
    Path,
    Takeover,
    Check,
    /// Whether its host is silent.
    Survey,
    /// The rank's link was closed.
    Confirm,
}

#[derive(Debug)]
pub(super) struct Dial {
    rank: u32,
    path: usize,
    purpose: DialPurpose,
    stream: FramedStream,
    deadline: Instant,
    attempts: u32,
    /// Until the other rank has answered the offer.
    handshake: Option<ChannelHandshake>,
    /// How many messages this end said it had received, in its request.
    told: u64,
}

impl Dial {
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// What an event of a connection in progress led to.
enum DialProgress {
    Waiting,
    /// The other rank lives, and the connection is encrypted.
    Answered,
    Attached {
        lacks: u64,
    },
    Refused,
    Failed(DialFailure),
}

/// Why a connection in progress failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DialFailure {
    /// The kernel of the other host refused it: the process has ended.
    PortClosed,
    /// It was closed, or something else than an answer arrived.
    Dropped,
    /// Nothing arrived.
    Silent,
}

impl DialFailure {
    fn of(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionRefused => Self::PortClosed,
            ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::InvalidData => Self::Dropped,
            _ => Self::Silent,
        }
    }

    fn end(self) -> LinkEnd {
        match self {
            Self::PortClosed => LinkEnd::Closed,
            Self::Dropped | Self::Silent => LinkEnd::Silent,
        }
    }

    /// What it tells about a rank whose link was closed: only silence contradicts that its process has ended.
    fn end_of_closed_link(self) -> LinkEnd {
        match self {
            Self::PortClosed | Self::Dropped => LinkEnd::Closed,
            Self::Silent => LinkEnd::Silent,
        }
    }
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
                Err(error) => last = DialFailure::of(&error).end(),
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
                && DialFailure::of(&error) == DialFailure::PortClosed
            {
                self.membership.unreachable(now, rank, LinkEnd::Closed);
            }
        }
    }

    /// Connects to a rank on all paths to see whether its host is silent.
    pub(super) fn dial_survey(&mut self, now: Instant, rank: u32) {
        let is_pending = |dial: &Dial| (dial.rank, dial.purpose) == (rank, DialPurpose::Survey);
        if self.dials.len() >= MAX_DIALS || self.dials.values().any(is_pending) {
            return; // When the candidate is silent, too, it is asked for again.
        }
        self.failed_dials.remove(&rank);
        let mut last = LinkEnd::Silent;
        let mut is_any_open = false;
        for path in 0..self.config.ports[rank as usize].len() {
            match self.dial(now, rank, path, DialPurpose::Survey) {
                Ok(()) => is_any_open = true,
                Err(error) if is_local_shortage(&error) => return,
                Err(error) => last = DialFailure::of(&error).end(),
            }
        }
        if !is_any_open {
            self.membership.surveyed(rank, last);
        }
    }

    /// A rank's link was closed: connects to it on all paths, to see whether its process has ended (P-106).
    pub(super) fn confirm_end(&mut self, now: Instant, rank: u32) {
        if self.dials.len() >= MAX_DIALS {
            self.unconfirmed.insert(rank);
            return;
        }
        self.failed_dials.remove(&rank);
        let mut end = LinkEnd::Silent;
        let mut is_any_open = false;
        for path in 0..self.config.ports[rank as usize].len() {
            match self.dial(now, rank, path, DialPurpose::Confirm) {
                Ok(()) => is_any_open = true,
                Err(error) if is_local_shortage(&error) => end = LinkEnd::Closed,
                Err(error) => end = end.min(DialFailure::of(&error).end_of_closed_link()),
            }
        }
        if !is_any_open {
            self.membership.link_ended(now, rank, end);
        }
    }

    /// True while it is not known why the link of this rank, or of any if none is named, was closed.
    pub(super) fn is_confirming(&self, rank: Option<u32>) -> bool {
        let is_it = |dial: &Dial| dial.purpose == DialPurpose::Confirm && rank.is_none_or(|rank| rank == dial.rank);
        let is_waiting = rank.map_or(!self.unconfirmed.is_empty(), |rank| self.unconfirmed.contains(&rank));
        is_waiting || self.dials.values().any(is_it)
    }

    fn end_confirmed(&mut self, now: Instant, rank: u32, end: LinkEnd) {
        self.drop_dials(rank, DialPurpose::Confirm);
        self.failed_dials.remove(&rank);
        self.membership.link_ended(now, rank, end);
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
        let mut stream = connect(from, to)?;
        stream.set_peer_timeout(self.config.peer_timeout)?;
        let (handshake, offered) = offer(&self.config.key, rank)?;
        stream.queue(offered);
        let id = self.new_id(ConnectionOwner::Dial);
        // The offer is written when the connection is there.
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT, id);
        if let Err(error) = self.epoll.add(&stream, event) {
            self.owners.remove(&id);
            return Err(error.into());
        }
        let (deadline, handshake, told) = (now + CONNECT_TIMEOUT, Some(handshake), 0);
        self.dials.insert(id, Dial { rank, path, purpose, stream, deadline, attempts, handshake, told });
        Ok(())
    }

    pub(super) fn receive_dial(&mut self, now: Instant, id: u64) {
        let Some(dial) = self.dials.get_mut(&id) else { return };
        let was_writing = dial.stream.queued_bytes() > 0;
        let progress = dial.receive();
        if was_writing && dial.stream.queued_bytes() == 0 {
            dial.note_accepted(now, self.config.peer_timeout);
            if dial.purpose == DialPurpose::Survey && !matches!(progress, DialProgress::Failed(_)) {
                let rank = dial.rank;
                return self.drop_dials(rank, DialPurpose::Survey); // The host has accepted the connection.
            }
            let _ = self.epoll.modify(&dial.stream, &mut EpollEvent::new(EpollFlags::EPOLLIN, id));
        }
        match progress {
            DialProgress::Waiting => {}
            DialProgress::Answered => self.dial_answered(now, id),
            DialProgress::Attached { lacks } => self.finish_dial(id, lacks),
            DialProgress::Refused => self.dial_refused(id),
            DialProgress::Failed(failure) => self.dial_failed(now, id, failure),
        }
    }

    /// The other rank lives; unless that was the question, it gets the request that the connection is for.
    fn dial_answered(&mut self, now: Instant, id: u64) {
        let Some(dial) = self.dials.get_mut(&id) else { return };
        let received = self.links.get(&dial.rank).map_or(0, Link::received);
        let (purpose, told) = match dial.purpose {
            DialPurpose::Path => (AttachPurpose::Path { received }, received),
            DialPurpose::Takeover => (AttachPurpose::Takeover(self.membership.history().clone()), 0),
            purpose @ (DialPurpose::Check | DialPurpose::Survey) => {
                let rank = dial.rank;
                return self.drop_dials(rank, purpose);
            }
            DialPurpose::Confirm => {
                // It lives and has closed the link: it has another coordinator, and counts as out of reach.
                let rank = dial.rank;
                return self.end_confirmed(now, rank, LinkEnd::Silent);
            }
        };
        dial.stream.queue(AttachRequest { rank: self.config.rank, purpose }.encode());
        dial.told = told;
        dial.deadline = match dial.purpose {
            DialPurpose::Takeover => now + self.config.peer_timeout + ANSWER_MARGIN,
            DialPurpose::Path | DialPurpose::Check | DialPurpose::Survey | DialPurpose::Confirm => {
                now + CONNECT_TIMEOUT
            }
        };
        // A request is short, and the socket is empty; a longer one is written when the connection is polled.
        if let Err(error) = dial.stream.flush() {
            return self.dial_failed(now, id, DialFailure::of(&error));
        }
        if dial.stream.queued_bytes() > 0 {
            let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT, id);
            let _ = self.epoll.modify(&dial.stream, &mut { event });
        }
    }

    /// The connection becomes part of the link to the coordinator.
    fn finish_dial(&mut self, id: u64, lacks: u64) {
        let Some(Dial { rank, path, purpose, stream, told, .. }) = self.take_dial(id) else { return };
        match purpose {
            DialPurpose::Takeover => {
                self.drop_dials(rank, DialPurpose::Takeover);
                self.links.insert(rank, Link::new(self.has_paths()));
                self.membership.attached_to(rank);
            }
            DialPurpose::Path if self.membership.coordinator() == Some(rank) => {}
            DialPurpose::Path | DialPurpose::Check | DialPurpose::Survey | DialPurpose::Confirm => return,
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

    fn dial_failed(&mut self, now: Instant, id: u64, mut failure: DialFailure) {
        let Some(Dial { rank, path, purpose, attempts, .. }) = self.take_dial(id) else { return };
        if purpose == DialPurpose::Path {
            return; // It is tried again.
        }
        if purpose == DialPurpose::Survey && failure == DialFailure::Dropped {
            return self.drop_dials(rank, purpose); // The host is there.
        }
        if failure == DialFailure::Dropped && attempts < MAX_ATTEMPTS {
            match self.dial_again(now, (rank, path), purpose, attempts + 1) {
                Ok(()) => return,
                Err(error) => failure = DialFailure::of(&error),
            }
        }
        let end = failure.end();
        if purpose == DialPurpose::Check {
            // If it is silent, its process may be stopped: it has time until the coordinator decides.
            if end == LinkEnd::Closed {
                self.drop_dials(rank, DialPurpose::Check);
                self.membership.unreachable(now, rank, end);
            }
            return;
        }
        let is_confirming = purpose == DialPurpose::Confirm;
        let end = if is_confirming { failure.end_of_closed_link() } else { end };
        // A host that refuses the connection is there, and its process is not.
        let known = self.failed_dials.entry(rank).or_insert(end);
        *known = (*known).min(end);
        let end = *known;
        let is_last = !self.dials.values().any(|dial| (dial.rank, dial.purpose) == (rank, purpose));
        if is_confirming && (is_last || end == LinkEnd::Closed) {
            self.end_confirmed(now, rank, end);
        } else if is_last {
            self.failed_dials.remove(&rank);
            match purpose {
                DialPurpose::Survey => self.membership.surveyed(rank, end),
                _ => self.membership.unreachable(now, rank, end),
            }
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
        overdue.into_iter().for_each(|id| self.dial_failed(now, id, DialFailure::Silent));
        while self.dials.len() < MAX_DIALS
            && let Some(rank) = self.unconfirmed.pop_first()
        {
            if self.membership.can_lose(rank) {
                self.confirm_end(now, rank);
            }
        }
    }
}

impl Dial {
    /// The other kernel has accepted the connection: the host is within reach. A process that has not answered yet may be waiting for a
    /// processor. As a coordinator it gets the time that a silent host gets: a rank that takes it for silent names it in its verdict.
    fn note_accepted(&mut self, now: Instant, peer_timeout: Duration) {
        if self.purpose == DialPurpose::Takeover && self.handshake.is_some() {
            self.deadline = now + peer_timeout;
        }
    }

    fn receive(&mut self) -> DialProgress {
        if let Err(error) = self.stream.flush() {
            return DialProgress::Failed(DialFailure::of(&error));
        }
        let outcome = match self.stream.fill(MAX_READ_BYTES) {
            Ok(outcome) => outcome,
            Err(error) => return DialProgress::Failed(DialFailure::of(&error)),
        };
        let malformed = DialProgress::Failed(DialFailure::Dropped);
        let (kind, body) = match next_message(&mut self.stream, MAX_HANDSHAKE_BYTES) {
            Ok(Some(message)) => message,
            Ok(None) if outcome != ReadOutcome::Closed => return DialProgress::Waiting,
            Ok(None) | Err(_) => return malformed,
        };
        // Until the connection is encrypted, only the answer to our handshake is accepted.
        match (kind, self.handshake.take()) {
            (RendezvousMessageKind::Secure, Some(handshake)) => {
                accept_answer(&mut self.stream, handshake, &body).map_or(malformed, |()| DialProgress::Answered)
            }
            (RendezvousMessageKind::Attached, None) => {
                read_attached(&body).map_or(malformed, |lacks| DialProgress::Attached { lacks })
            }
            (RendezvousMessageKind::Rejected, None) => DialProgress::Refused,
            _ => malformed,
        }
    }
}

/// True if this process, not the network, is the reason that no connection could be opened.
fn is_local_shortage(error: &io::Error) -> bool {
    use nix::errno::Errno;
    let shortages = [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM];
    shortages.into_iter().any(|errno| error.raw_os_error() == Some(errno as i32))
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
