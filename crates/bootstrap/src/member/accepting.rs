//! Connections that other ranks open: another path of a link, or a rank that has lost its coordinator.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use nix::sys::epoll::{EpollEvent, EpollFlags};

use super::super::attach_request::{
    AttachPurpose, AttachRequest, encode_attached, encode_left, encode_refused, encode_verdict, max_body_bytes,
};
use super::super::framing::{FramedStream, ReadOutcome};
use super::super::join_request::MAX_HANDSHAKE_BYTES;
use super::super::link::{Link, NO_PATH};
use super::super::membership::LinkEnd;
use super::super::rendezvous_message::{MAX_READ_BYTES, RendezvousMessageKind, next_message};
use super::super::stream_security::accept_offer;
use super::{ConnectionOwner, Member};

/// Time for a new connection to send a valid request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections without a valid request, beyond one for each rank and path; then the oldest is closed. Real ranks retry.
const MAX_UNAUTHENTICATED: usize = 64;
/// When no more files can be opened, the listeners rest for this long.
const LISTENER_REST: Duration = Duration::from_millis(100);
/// Connections that one call accepts.
const MAX_ACCEPTED: usize = 256;

/// A connection that belongs to no link yet.
#[derive(Debug)]
pub(super) struct AcceptedConnection {
    stream: FramedStream,
    since: Instant,
    is_secure: bool,
    /// The rank that wants to follow this one, and how many verdicts it knows.
    takeover: Option<(u32, usize)>,
}

impl Member {
    pub(super) fn accept(&mut self, now: Instant, listener: usize) {
        for _ in 0..MAX_ACCEPTED {
            let tcp = match self.listeners[listener].accept() {
                Ok((tcp, _)) => tcp,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.rest_listeners(now),
            };
            let Ok(stream) = FramedStream::new(tcp) else { continue };
            if stream.set_peer_timeout(self.config.peer_timeout).is_err() {
                continue;
            }
            let id = self.new_id(ConnectionOwner::Accepted);
            if self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, id)).is_ok() {
                let (is_secure, takeover) = (false, None);
                self.accepted.insert(id, AcceptedConnection { stream, since: now, is_secure, takeover });
                // The offer usually is there: its sender learns that this rank lives, however many strangers connect.
                self.receive_accepted(now, id);
            }
            self.close_surplus();
        }
    }

    /// No descriptor is left: epoll would report the listeners again and again.
    fn rest_listeners(&mut self, now: Instant) {
        self.listeners_rest_until = Some(now + LISTENER_REST);
        for listener in &self.listeners {
            let _ = self.epoll.delete(listener);
        }
    }

    /// Listens again after a rest.
    pub(super) fn wake_listeners(&mut self, now: Instant) {
        if self.listeners_rest_until.is_some_and(|until| until <= now) {
            self.listeners_rest_until = None;
            for (index, listener) in self.listeners.iter().enumerate() {
                // Listeners have the first numbers.
                let _ = self.epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, index as u64));
            }
        }
    }

    fn close_surplus(&mut self) {
        let unauthenticated = self.accepted.iter().filter(|(_, found)| found.takeover.is_none());
        let ids: Vec<u64> = unauthenticated.map(|(id, _)| *id).collect();
        let ranks = self.config.size as usize * self.listeners.len();
        if ids.len() > ranks + MAX_UNAUTHENTICATED {
            self.take_accepted(ids[0]);
        }
    }

    /// Removes a connection from those that belong to no link.
    fn take_accepted(&mut self, id: u64) -> Option<AcceptedConnection> {
        let connection = self.accepted.remove(&id)?;
        self.owners.remove(&id);
        let _ = self.epoll.delete(&connection.stream);
        Some(connection)
    }

    pub(super) fn receive_accepted(&mut self, now: Instant, id: u64) {
        let Some(connection) = self.accepted.get_mut(&id) else { return };
        let outcome = connection.stream.fill(MAX_READ_BYTES);
        let has_ended = !matches!(outcome, Ok(ReadOutcome::Received | ReadOutcome::WouldBlock));
        if let Some((rank, ..)) = connection.takeover {
            // A rank that waits for an answer sends nothing: it has given up. It may still wait on another path.
            drop(self.take_accepted(id));
            if !self.accepted.values().any(|other| other.takeover.is_some_and(|(asks, ..)| asks == rank)) {
                self.membership.request_ended(rank);
            }
            return;
        }
        if has_ended {
            drop(self.take_accepted(id));
            return;
        }
        let size = self.config.size;
        // Whoever has not shown that it knows the token gets little memory.
        let max_bytes = if connection.is_secure { max_body_bytes(size) } else { MAX_HANDSHAKE_BYTES };
        let request = match next_message(&mut connection.stream, max_bytes) {
            Ok(None) => return,
            Ok(Some((RendezvousMessageKind::Secure, body))) if !connection.is_secure => {
                connection.is_secure = true;
                return match accept_offer(&mut connection.stream, &self.config.key, self.config.rank, &body) {
                    Ok(()) => self.receive_accepted(now, id), // More may have arrived with it.
                    Err(_) => drop(self.take_accepted(id)),
                };
            }
            Ok(Some((RendezvousMessageKind::Attach, body))) if connection.is_secure => {
                AttachRequest::read(&body, size)
            }
            _ => None,
        };
        match request {
            // It has asked on another path as well, and was accepted there.
            Some(AttachRequest { rank, purpose: AttachPurpose::Takeover(_) })
                if self.membership.is_follower(rank) =>
            {
                drop(self.take_accepted(id));
            }
            Some(AttachRequest { rank, purpose: AttachPurpose::Takeover(history) }) => {
                connection.takeover = Some((rank, history.verdicts.len()));
                self.membership.attach_requested(now, rank, history);
            }
            Some(AttachRequest { rank, purpose: AttachPurpose::Path { received } }) => {
                let connection = self.take_accepted(id);
                if let Some(connection) = connection.filter(|_| self.membership.is_coordinator()) {
                    self.add_path(rank, received, connection.stream);
                }
            }
            None => drop(self.take_accepted(id)),
        }
    }

    /// Adds a connection to the link of a follower.
    fn add_path(&mut self, rank: u32, lacks: u64, mut stream: FramedStream) {
        let id = self.new_id(ConnectionOwner::Link(rank));
        let Some(link) = self.links.get_mut(&rank) else {
            self.owners.remove(&id);
            return;
        };
        let told = link.received();
        stream.queue(encode_attached(told));
        if !link.attach(id, NO_PATH, stream, told, lacks) {
            self.owners.remove(&id);
        }
        self.flush(rank);
    }

    /// Accepts a rank that has lost its coordinator.
    pub(super) fn accept_takeover(&mut self, now: Instant, rank: u32) {
        if self.links.contains_key(&rank) {
            return;
        }
        let Some((id, mut connection)) = self.next_takeover(rank) else {
            return self.membership.link_ended(now, rank, LinkEnd::Closed);
        };
        let Some((_, known)) = connection.takeover else { return };
        connection.stream.queue(encode_attached(0));
        self.owners.insert(id, ConnectionOwner::Link(rank));
        let mut link = Link::new(self.has_paths());
        link.attach(id, NO_PATH, connection.stream, 0, 0);
        self.links.insert(rank, link);
        let verdicts: Vec<_> = self.membership.history().verdicts.iter().cloned().enumerate().skip(known).collect();
        for (number, verdict) in verdicts {
            self.queue(rank, &encode_verdict(number, &verdict));
        }
        let left: Vec<u32> = self.membership.history().left.iter().copied().collect();
        if !left.is_empty() {
            self.queue(rank, &encode_left(left.into_iter()));
        }
        self.flush(rank);
        // Its requests on other paths: it opens those again.
        while self.next_takeover(rank).is_some() {}
    }

    pub(super) fn refuse_takeover(&mut self, rank: u32) {
        while let Some((_, mut connection)) = self.next_takeover(rank) {
            connection.stream.queue(encode_refused());
            let _ = connection.stream.flush();
            connection.stream.shutdown_write();
        }
    }

    fn next_takeover(&mut self, rank: u32) -> Option<(u64, AcceptedConnection)> {
        let is_it = |found: &AcceptedConnection| found.takeover.is_some_and(|(other, ..)| other == rank);
        let id = self.accepted.iter().find(|(_, found)| is_it(found)).map(|(id, _)| *id)?;
        Some((id, self.take_accepted(id)?))
    }

    /// Closes connections that sent no request in time.
    pub(super) fn expire_accepted(&mut self, now: Instant) {
        let is_overdue =
            |found: &AcceptedConnection| found.takeover.is_none() && found.since + REQUEST_TIMEOUT <= now;
        let overdue: Vec<u64> =
            self.accepted.iter().filter(|(_, found)| is_overdue(found)).map(|(id, _)| *id).collect();
        overdue.into_iter().for_each(|id| drop(self.take_accepted(id)));
    }
}
