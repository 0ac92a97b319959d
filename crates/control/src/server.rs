//! A control listener with its accepted connections.
//!
//! In: connections, bytes, time. Out: messages of authenticated peers. An unauthenticated connection gets little memory and
//! little time (P-84): if there are too many, the oldest are closed, so that a flood of connections keeps no peer out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use manager::{ControlPeer, PeerId};
use nix::poll::PollFd;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::connection_set::{ConnectionSet, Interest, ReadyDescriptor};
use super::disconnect::{Disconnect, DisconnectCause};
use super::listener::{AcceptOutcome, AccessPolicy, ControlListener};
use super::secret::ClusterSecret;
use super::session::{AcceptedPeers, ControlSession};

/// Connections whose handshake is not done.
const MAX_UNAUTHENTICATED: usize = 256;
/// Pause of accepting after the process ran out of descriptors: an immediate retry would only spin.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// The listener and its connections.
pub(super) struct ControlServer {
    listener: ControlListener,
    secret: Option<ClusterSecret>,
    accepted: AcceptedPeers,
    max_connections: usize,
    sessions: BTreeMap<PeerId, ControlSession>,
    /// The descriptors of the listener and of all sessions.
    descriptors: ConnectionSet,
    /// Sessions with queued output, for which the kernel reports room.
    writing: BTreeSet<PeerId>,
    /// Sessions with a deadline: few, since a handshake or a message is seldom incomplete.
    timed: BTreeSet<PeerId>,
    /// Connections whose handshake was not done at the last check, oldest first.
    unauthenticated: VecDeque<PeerId>,
    next: u64,
    paused_until: Option<Instant>,
    /// Ended connections that the caller has not processed yet.
    disconnected: Vec<(PeerId, Disconnect)>,
}

impl ControlServer {
    pub(super) fn bind(
        at: SocketAddr,
        secret: Option<ClusterSecret>,
        access: AccessPolicy,
        accepted: AcceptedPeers,
        max_connections: usize,
    ) -> io::Result<Self> {
        let listener = ControlListener::bind(at, secret.as_ref(), access)?;
        Ok(Self {
            descriptors: ConnectionSet::new(listener.as_fd())?,
            listener,
            secret,
            accepted,
            max_connections,
            sessions: BTreeMap::new(),
            writing: BTreeSet::new(),
            timed: BTreeSet::new(),
            unauthenticated: VecDeque::new(),
            next: 1,
            paused_until: None,
            disconnected: Vec::new(),
        })
    }

    /// The listener's address.
    pub(super) fn local(&self) -> SocketAddr {
        self.listener.local()
    }

    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// The descriptor to wait for; then ask who is [`Self::ready`].
    pub(super) fn poll_fd(&self) -> PollFd<'_> {
        self.descriptors.poll_fd()
    }

    /// When to poll although no descriptor is ready.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let timed = self.timed.iter().filter_map(|peer| self.sessions.get(peer)?.deadline());
        timed.chain(self.paused_until).min()
    }

    /// The connections with work to do. Accepts new ones.
    pub(super) fn ready(&mut self) -> Vec<PeerId> {
        let now = Instant::now();
        let mut ready = Vec::new();
        let mut has_callers = self.paused_until.is_some_and(|until| until <= now);
        for descriptor in self.descriptors.ready() {
            match descriptor {
                ReadyDescriptor::Listener => has_callers = true,
                ReadyDescriptor::Connection(peer) => ready.push(peer),
            }
        }
        let is_due = |peer: &&PeerId| {
            let deadline = self.sessions.get(peer).and_then(ControlSession::deadline);
            deadline.is_some_and(|time| time <= now) && !ready.contains(peer)
        };
        let due: Vec<PeerId> = self.timed.iter().filter(is_due).copied().collect();
        ready.extend(due);
        if has_callers {
            self.accept();
        }
        ready
    }

    fn accept(&mut self) {
        let now = Instant::now();
        if self.paused_until.is_some_and(|until| now < until) {
            return;
        }
        if self.paused_until.take().is_some() {
            self.descriptors.resume_listener(self.listener.as_fd()).expect("the listener is in the set");
        }
        let (secret, sessions, unauthenticated) = (&self.secret, &mut self.sessions, &mut self.unauthenticated);
        let (next, disconnected, max) = (&mut self.next, &mut self.disconnected, self.max_connections);
        let (peers, descriptors) = (self.accepted, &self.descriptors);
        let (writing, timed) = (&mut self.writing, &mut self.timed);
        let accepted = self.listener.accept(|stream| {
            let peer = PeerId(*next);
            *next += 1;
            if sessions.len() >= max {
                return disconnected.push((peer, too_many_connections("the limit of connections is reached")));
            }
            // A connection that breaks before the hello is ignored.
            let session = ControlSession::accept(stream, secret.clone(), peers);
            let watched = session
                .and_then(|session| descriptors.add(peer, session.fd(), Interest::InputAndOutput).map(|()| session));
            if let Ok(session) = watched {
                sessions.insert(peer, session);
                unauthenticated.push_back(peer);
                writing.insert(peer); // Its hello is queued.
                timed.insert(peer);
            }
        });
        self.unauthenticated.retain(|peer| self.sessions.get(peer).is_some_and(|session| !session.is_open()));
        while self.unauthenticated.len() > MAX_UNAUTHENTICATED {
            self.drop_oldest_unauthenticated("too many connections have not completed the handshake");
        }
        if let AcceptOutcome::NoDescriptor = accepted {
            for _ in 0..self.unauthenticated.len().div_ceil(2) {
                self.drop_oldest_unauthenticated("the process has no file descriptors left");
            }
            self.paused_until = Some(now + ACCEPT_BACKOFF);
            // The listener stays ready: the kernel would report it at once and for ever.
            self.descriptors.pause_listener(self.listener.as_fd()).expect("the listener is in the set");
        }
    }

    fn drop_oldest_unauthenticated(&mut self, why: &str) {
        if let Some(peer) = self.unauthenticated.pop_front() {
            self.disconnect(peer, too_many_connections(why));
        }
    }

    /// Sends and receives without waiting; whole messages are appended. Returns who sent them, also if it has disconnected since.
    pub(super) fn poll<T: DeserializeOwned>(&mut self, id: PeerId, messages: &mut Vec<T>) -> ControlPeer {
        let Some(session) = self.sessions.get_mut(&id) else { return ControlPeer { id, credential: None } };
        let result = session.poll(messages);
        let credential = session.peer_credential();
        self.settle(id, result);
        ControlPeer { id, credential }
    }

    /// Sends a message, if the connection is still open.
    pub(super) fn send(&mut self, peer: PeerId, message: &impl Serialize) {
        let Some(session) = self.sessions.get_mut(&peer) else { return };
        let result = session.send(message).and_then(|()| session.flush());
        self.settle(peer, result);
    }

    /// After every use of a session: notes what it waits for, or that it has ended.
    fn settle(&mut self, peer: PeerId, result: Result<(), Disconnect>) {
        let watched = result.and_then(|()| Ok(self.watch(peer)?));
        if let Err(disconnect) = watched {
            self.disconnect(peer, disconnect);
        }
    }

    fn watch(&mut self, peer: PeerId) -> io::Result<()> {
        let Some(session) = self.sessions.get(&peer) else { return Ok(()) };
        match session.deadline() {
            Some(_) => self.timed.insert(peer),
            None => self.timed.remove(&peer),
        };
        let interest = session.interest();
        let is_new = match interest {
            Interest::Input => self.writing.remove(&peer),
            Interest::InputAndOutput => self.writing.insert(peer),
        };
        if is_new { self.descriptors.change(peer, session.fd(), interest) } else { Ok(()) }
    }

    /// Closes a connection without reporting it.
    pub(super) fn close(&mut self, peer: PeerId) {
        self.forget(peer);
    }

    fn forget(&mut self, peer: PeerId) -> Option<ControlSession> {
        self.writing.remove(&peer);
        self.timed.remove(&peer);
        self.sessions.remove(&peer)
    }

    /// Closes authenticated connections that have been silent since a time and are not registered.
    pub(super) fn drop_idle(&mut self, since: Instant, is_registered: impl Fn(PeerId) -> bool) {
        let is_idle = |session: &ControlSession| session.is_open() && session.last_received_at() < since;
        let idle = self.sessions.iter().filter(|(peer, session)| is_idle(session) && !is_registered(**peer));
        for peer in idle.map(|(peer, _)| *peer).collect::<Vec<_>>() {
            let why = "idle and not registered as a node or a job";
            self.disconnect(peer, Disconnect::new(DisconnectCause::Idle, why));
        }
    }

    fn disconnect(&mut self, peer: PeerId, disconnect: Disconnect) {
        if self.forget(peer).is_some() {
            self.disconnected.push((peer, disconnect));
        }
    }

    /// The next connection that ended by itself, and why.
    pub(super) fn next_disconnect(&mut self) -> Option<(PeerId, Disconnect)> {
        self.disconnected.pop()
    }
}

fn too_many_connections(why: &str) -> Disconnect {
    Disconnect::new(DisconnectCause::TooMany, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use manager::message::ToManager;
    use std::io::Write;
    use std::net::TcpStream;

    fn connected(server: &mut ControlServer) -> TcpStream {
        let hello = r#"{"hello":{"pleach":3,"secret":false}}"#;
        let mut stream = TcpStream::connect(server.local()).expect("the server listens");
        stream.write_all(&(hello.len() as u32).to_le_bytes()).expect("written");
        stream.write_all(hello.as_bytes()).expect("written");
        let began = Instant::now();
        let before = server.sessions.values().filter(|session| session.is_open()).count();
        while server.sessions.values().filter(|session| session.is_open()).count() == before {
            assert!(began.elapsed() < Duration::from_secs(5), "the handshake is not done");
            for peer in server.ready() {
                server.poll::<ToManager>(peer, &mut Vec::new());
            }
        }
        stream
    }

    #[test]
    fn an_idle_unregistered_connection_is_closed() {
        let at = "127.0.0.1:0".parse().expect("valid");
        let mut server = ControlServer::bind(at, None, AccessPolicy::LoopbackOnly, AcceptedPeers::Cluster, 10)
            .expect("a free port");
        let _streams = [connected(&mut server), connected(&mut server)];
        server.drop_idle(Instant::now() - Duration::from_secs(60), |_| false);
        assert_eq!(server.len(), 2, "they are not idle yet");
        server.drop_idle(Instant::now(), |peer| peer == PeerId(1));
        assert_eq!(server.sessions.keys().copied().collect::<Vec<_>>(), [PeerId(1)]);
        let closed = server.next_disconnect().map(|(peer, disconnect)| (peer, disconnect.cause));
        assert_eq!(closed, Some((PeerId(2), DisconnectCause::Idle)));
    }

    /// A wake-up must not cost as much as is connected.
    #[test]
    fn only_connections_with_work_are_ready() {
        let at = "127.0.0.1:0".parse().expect("valid");
        let mut server = ControlServer::bind(at, None, AccessPolicy::LoopbackOnly, AcceptedPeers::Cluster, 100)
            .expect("a free port");
        let mut streams: Vec<TcpStream> = (0..20).map(|_| connected(&mut server)).collect();
        let began = Instant::now();
        while !server.ready().is_empty() {
            assert!(began.elapsed() < Duration::from_secs(5), "a hello is written, so there is nothing to do");
        }
        assert!(server.timed.is_empty() && server.deadline().is_none());
        let status = br#"{"status":{"request":1}}"#;
        streams[7].write_all(&(status.len() as u32).to_le_bytes()).expect("written");
        while server.ready().is_empty() {
            assert!(began.elapsed() < Duration::from_secs(5), "bytes have come");
        }
        assert_eq!(server.ready(), [PeerId(8)]);
        let mut messages: Vec<ToManager> = Vec::new();
        server.poll(PeerId(8), &mut messages);
        assert!(messages.is_empty() && server.deadline().is_some(), "the message must be complete in time");
        streams[7].write_all(status).expect("written");
        while messages.is_empty() {
            assert!(began.elapsed() < Duration::from_secs(5), "the message is complete");
            for peer in server.ready() {
                server.poll(peer, &mut messages);
            }
        }
        assert!(server.deadline().is_none() && server.ready().is_empty());
    }

    #[test]
    fn connections_beyond_the_limit_are_closed() {
        let at = "127.0.0.1:0".parse().expect("valid");
        let mut server = ControlServer::bind(at, None, AccessPolicy::LoopbackOnly, AcceptedPeers::Cluster, 1)
            .expect("a free port");
        let _first = connected(&mut server);
        let _second = TcpStream::connect(server.local()).expect("the server listens");
        let began = Instant::now();
        while server.disconnected.is_empty() {
            assert!(began.elapsed() < Duration::from_secs(5), "it was accepted");
            server.ready();
        }
        assert_eq!(
            (server.len(), server.next_disconnect().map(|(_, disconnect)| disconnect.cause)),
            (1, Some(DisconnectCause::TooMany))
        );
    }
}
