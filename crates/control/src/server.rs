//! Those who called: a listener and the connections that came in over it.
//!
//! In: connections, bytes, time. Out: messages of whoever has greeted. Whoever has not yet greeted has little room and
//! little time (P-58): if too many come at once, the oldest of them go, so that a crowd of strangers keeps nobody out.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use manager::PeerId;
use nix::poll::PollFd;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::listener::{AcceptOutcome, AccessPolicy, ControlListener};
use super::secret::ClusterSecret;
use super::session::{ControlSession, Disconnect, DisconnectCause};

/// Connections at a time that have not yet greeted.
const MAX_UNAUTHENTICATED: usize = 256;
/// Nobody is taken for so long after the process ran out of descriptors: asking again at once would only spin.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// The connections that came in.
pub(super) struct ControlServer {
    listener: ControlListener,
    secret: Option<ClusterSecret>,
    most: usize,
    sessions: BTreeMap<PeerId, ControlSession>,
    /// Those that had not greeted when they were last looked at, oldest first.
    strangers: VecDeque<PeerId>,
    next: u64,
    paused_until: Option<Instant>,
    /// Why connections ended, until somebody asks.
    ended: Vec<(PeerId, Disconnect)>,
}

impl ControlServer {
    pub(super) fn bind(
        at: SocketAddr,
        secret: Option<ClusterSecret>,
        openness: AccessPolicy,
        most: usize,
    ) -> io::Result<Self> {
        Ok(Self {
            listener: ControlListener::bind(at, secret.as_ref(), openness)?,
            secret,
            most,
            sessions: BTreeMap::new(),
            strangers: VecDeque::new(),
            next: 1,
            paused_until: None,
            ended: Vec::new(),
        })
    }

    /// Where they call.
    pub(super) fn local(&self) -> SocketAddr {
        self.listener.local()
    }

    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// What to wait on.
    pub(super) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let listener = self.paused_until.is_none().then(|| self.listener.poll_fd());
        self.sessions.values().map(ControlSession::poll_fd).chain(listener)
    }

    /// When something is to be done although nothing comes.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.sessions.values().filter_map(ControlSession::deadline).chain(self.paused_until).min()
    }

    /// Takes those who called since.
    pub(super) fn accept(&mut self) {
        let now = Instant::now();
        if self.paused_until.is_some_and(|until| now < until) {
            return;
        }
        self.paused_until = None;
        let (secret, sessions, strangers) = (&self.secret, &mut self.sessions, &mut self.strangers);
        let (next, ended, most) = (&mut self.next, &mut self.ended, self.most);
        let accepted = self.listener.accept(|stream| {
            let peer = PeerId(*next);
            *next += 1;
            if sessions.len() >= most {
                return ended.push((peer, too_many_connections("too many are connected")));
            }
            // A connection that is broken before it is greeted was never there.
            if let Ok(session) = ControlSession::called(stream, secret.clone()) {
                sessions.insert(peer, session);
                strangers.push_back(peer);
            }
        });
        self.strangers.retain(|peer| self.sessions.get(peer).is_some_and(|session| !session.is_open()));
        while self.strangers.len() > MAX_UNAUTHENTICATED {
            self.drop_oldest_stranger("too many have not yet greeted");
        }
        if let AcceptOutcome::NoDescriptor = accepted {
            for _ in 0..self.strangers.len().div_ceil(2) {
                self.drop_oldest_stranger("there is no descriptor left");
            }
            self.paused_until = Some(now + ACCEPT_BACKOFF);
        }
    }

    fn drop_oldest_stranger(&mut self, why: &str) {
        if let Some(peer) = self.strangers.pop_front() {
            self.end(peer, too_many_connections(why));
        }
    }

    /// Everyone whose connection may have something to do.
    pub(super) fn peers(&self) -> Vec<PeerId> {
        self.sessions.keys().copied().collect()
    }

    /// Those of everyone, in the order of [`Self::poll_fds`], whose connections have something to do.
    pub(super) fn ready(&self, fds: &[PollFd<'_>]) -> Vec<PeerId> {
        let now = Instant::now();
        let is_due = |session: &ControlSession| session.deadline().is_some_and(|time| time <= now);
        let ready =
            self.sessions.iter().zip(fds).filter(|((_, session), fd)| fd.any() != Some(false) || is_due(session));
        ready.map(|((peer, _), _)| *peer).collect()
    }

    /// Sends and receives what can be; whole messages are added.
    pub(super) fn turn<T: DeserializeOwned>(&mut self, peer: PeerId, messages: &mut Vec<T>) {
        let Some(session) = self.sessions.get_mut(&peer) else { return };
        if let Err(ended) = session.turn(messages) {
            self.end(peer, ended);
        }
    }

    /// Says something to a caller that is still there.
    pub(super) fn send(&mut self, peer: PeerId, message: &impl Serialize) {
        let Some(session) = self.sessions.get_mut(&peer) else { return };
        if let Err(ended) = session.send(message).and_then(|()| session.flush()) {
            self.end(peer, ended);
        }
    }

    /// Hangs up; nothing is told of it.
    pub(super) fn close(&mut self, peer: PeerId) {
        self.sessions.remove(&peer);
    }

    /// Hangs up on those who greeted, have been silent since a time and are not known.
    pub(super) fn drop_idle(&mut self, since: Instant, is_known: impl Fn(PeerId) -> bool) {
        let is_idle = |session: &ControlSession| session.is_open() && session.heard_at() < since;
        let idle = self.sessions.iter().filter(|(peer, session)| is_idle(session) && !is_known(**peer));
        for peer in idle.map(|(peer, _)| *peer).collect::<Vec<_>>() {
            let why = "it said nothing for long and speaks for nobody".to_owned();
            self.end(peer, Disconnect { cause: DisconnectCause::Idle, why });
        }
    }

    fn end(&mut self, peer: PeerId, ended: Disconnect) {
        if self.sessions.remove(&peer).is_some() {
            self.ended.push((peer, ended));
        }
    }

    /// The next connection that ended by itself, and why.
    pub(super) fn next_ended(&mut self) -> Option<(PeerId, Disconnect)> {
        self.ended.pop()
    }
}

fn too_many_connections(why: &str) -> Disconnect {
    Disconnect { cause: DisconnectCause::Crowded, why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manager::message::ToManager;
    use std::io::Write;
    use std::net::TcpStream;

    fn greeted(callers: &mut ControlServer) -> TcpStream {
        let hello = r#"{"hello":{"pleach":1,"nonce":"00112233445566778899aabbccddeeff","secret":false}}"#;
        let mut stream = TcpStream::connect(callers.local()).expect("it listens");
        stream.write_all(&(hello.len() as u32).to_le_bytes()).expect("written");
        stream.write_all(hello.as_bytes()).expect("written");
        let began = Instant::now();
        let before = callers.sessions.values().filter(|session| session.is_open()).count();
        while callers.sessions.values().filter(|session| session.is_open()).count() == before {
            assert!(began.elapsed() < Duration::from_secs(5), "it does not greet");
            callers.accept();
            callers.peers().into_iter().for_each(|peer| callers.turn::<ToManager>(peer, &mut Vec::new()));
        }
        stream
    }

    #[test]
    fn who_speaks_for_nobody_is_not_kept_for_ever() {
        let at = "127.0.0.1:0".parse().expect("an address");
        let mut callers = ControlServer::bind(at, None, AccessPolicy::Guarded, 10).expect("a free port");
        let _streams = [greeted(&mut callers), greeted(&mut callers)];
        callers.drop_idle(Instant::now() - Duration::from_secs(60), |_| false);
        assert_eq!(callers.len(), 2, "they have just spoken");
        callers.drop_idle(Instant::now(), |peer| peer == PeerId(1));
        assert_eq!(callers.peers(), [PeerId(1)]);
        let ended = callers.next_ended().map(|(peer, ended)| (peer, ended.cause));
        assert_eq!(ended, Some((PeerId(2), DisconnectCause::Idle)));
    }

    #[test]
    fn no_more_are_taken_than_there_is_room_for() {
        let at = "127.0.0.1:0".parse().expect("an address");
        let mut callers = ControlServer::bind(at, None, AccessPolicy::Guarded, 1).expect("a free port");
        let _first = greeted(&mut callers);
        let _second = TcpStream::connect(callers.local()).expect("it listens");
        let began = Instant::now();
        while callers.ended.is_empty() {
            assert!(began.elapsed() < Duration::from_secs(5), "it was taken");
            callers.accept();
        }
        assert_eq!(
            (callers.len(), callers.next_ended().map(|(_, ended)| ended.cause)),
            (1, Some(DisconnectCause::Crowded))
        );
    }
}
