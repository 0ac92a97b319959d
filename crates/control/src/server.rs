//! A control listener with its accepted connections.
//!
//! In: connections, bytes, time. Out: messages of authenticated peers. An unauthenticated connection gets little memory and
//! little time (P-84): if there are too many, the oldest are closed, so that a flood of connections keeps no peer out.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use manager::{ControlPeer, PeerId};
use nix::poll::PollFd;
use serde::Serialize;
use serde::de::DeserializeOwned;

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
        Ok(Self {
            listener: ControlListener::bind(at, secret.as_ref(), access)?,
            secret,
            accepted,
            max_connections,
            sessions: BTreeMap::new(),
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

    /// The descriptors to wait for.
    pub(super) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let listener = self.paused_until.is_none().then(|| self.listener.poll_fd());
        self.sessions.values().map(ControlSession::poll_fd).chain(listener)
    }

    /// When to poll although no descriptor is ready.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.sessions.values().filter_map(ControlSession::deadline).chain(self.paused_until).min()
    }

    /// Accepts new connections.
    pub(super) fn accept(&mut self) {
        let now = Instant::now();
        if self.paused_until.is_some_and(|until| now < until) {
            return;
        }
        self.paused_until = None;
        let (secret, sessions, unauthenticated) = (&self.secret, &mut self.sessions, &mut self.unauthenticated);
        let (next, disconnected, max) = (&mut self.next, &mut self.disconnected, self.max_connections);
        let peers = self.accepted;
        let accepted = self.listener.accept(|stream| {
            let peer = PeerId(*next);
            *next += 1;
            if sessions.len() >= max {
                return disconnected.push((peer, too_many_connections("the limit of connections is reached")));
            }
            // A connection that breaks before the hello is ignored.
            if let Ok(session) = ControlSession::accept(stream, secret.clone(), peers) {
                sessions.insert(peer, session);
                unauthenticated.push_back(peer);
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
        }
    }

    fn drop_oldest_unauthenticated(&mut self, why: &str) {
        if let Some(peer) = self.unauthenticated.pop_front() {
            self.disconnect(peer, too_many_connections(why));
        }
    }

    /// All connections.
    pub(super) fn peers(&self) -> Vec<PeerId> {
        self.sessions.keys().copied().collect()
    }

    /// The connections with work to do; `fds` is in the order of [`Self::poll_fds`].
    pub(super) fn ready(&self, fds: &[PollFd<'_>]) -> Vec<PeerId> {
        let now = Instant::now();
        let is_due = |session: &ControlSession| session.deadline().is_some_and(|time| time <= now);
        let ready =
            self.sessions.iter().zip(fds).filter(|((_, session), fd)| fd.any() != Some(false) || is_due(session));
        ready.map(|((peer, _), _)| *peer).collect()
    }

    /// Sends and receives without waiting; whole messages are appended. Returns who sent them, also if it has disconnected since.
    pub(super) fn poll<T: DeserializeOwned>(&mut self, id: PeerId, messages: &mut Vec<T>) -> ControlPeer {
        let Some(session) = self.sessions.get_mut(&id) else { return ControlPeer { id, credential: None } };
        let result = session.poll(messages);
        let credential = session.peer_credential();
        if let Err(disconnect) = result {
            self.disconnect(id, disconnect);
        }
        ControlPeer { id, credential }
    }

    /// Sends a message, if the connection is still open.
    pub(super) fn send(&mut self, peer: PeerId, message: &impl Serialize) {
        let Some(session) = self.sessions.get_mut(&peer) else { return };
        if let Err(disconnect) = session.send(message).and_then(|()| session.flush()) {
            self.disconnect(peer, disconnect);
        }
    }

    /// Closes a connection without reporting it.
    pub(super) fn close(&mut self, peer: PeerId) {
        self.sessions.remove(&peer);
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
        if self.sessions.remove(&peer).is_some() {
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
            server.accept();
            for peer in server.peers() {
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
        assert_eq!(server.peers(), [PeerId(1)]);
        let closed = server.next_disconnect().map(|(peer, disconnect)| (peer, disconnect.cause));
        assert_eq!(closed, Some((PeerId(2), DisconnectCause::Idle)));
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
            server.accept();
        }
        assert_eq!(
            (server.len(), server.next_disconnect().map(|(_, disconnect)| disconnect.cause)),
            (1, Some(DisconnectCause::TooMany))
        );
    }
}
