//! The manager's daemon: its machine, its listener and its connections, turned by one thread.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollTimeout, poll};
use protocol::manager::message::ToManager;
use protocol::manager::{Duty, Event, Key, Manager, PeerId, Settings};
use units::Time;

use super::listener::{Listener, Openness};
use super::secret::{self, Secret};
use super::session::Session;
use crate::Clock;

/// Connections at a time: more are closed at once.
const MOST_PEERS: usize = 4096;

/// Something for the log.
#[derive(Debug)]
pub enum Note {
    /// The machine says so.
    Event(Event),
    /// A connection ended.
    Ended {
        /// Which.
        peer: PeerId,
        /// Why, in words.
        why: String,
    },
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Event(event) => event.fmt(f),
            Self::Ended { peer, why } => write!(f, "connection {} ended: {why}", peer.0),
        }
    }
}

/// A manager that listens.
pub struct ManagerDaemon {
    machine: Manager,
    listener: Listener,
    secret: Option<Secret>,
    sessions: BTreeMap<PeerId, Session>,
    next_peer: u64,
    clock: Clock,
    notes: Vec<Note>,
}

impl ManagerDaemon {
    /// Listens at an address.
    ///
    /// # Errors
    /// If the address cannot be had, or would let strangers in.
    pub fn bind(at: SocketAddr, settings: Settings, secret: Option<Secret>, openness: Openness) -> io::Result<Self> {
        Ok(Self {
            machine: Manager::new(settings, Key(secret::fresh()?)),
            listener: Listener::bind(at, secret.as_ref(), openness)?,
            secret,
            sessions: BTreeMap::new(),
            next_peer: 1,
            clock: Clock::new(),
            notes: Vec::new(),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.local()
    }

    /// The machine, to look at.
    pub fn machine(&self) -> &Manager {
        &self.machine
    }

    /// Does all that can be done, after waiting at most so long for something to do. What is worth a line in a log is
    /// handed over.
    ///
    /// # Errors
    /// If the machine it runs on fails it: no random numbers, no polling.
    pub fn turn(&mut self, wait: Duration) -> io::Result<Vec<Note>> {
        let ready = self.wait(wait)?;
        for stream in self.listener.accept() {
            if self.sessions.len() < MOST_PEERS
                && let Ok(session) = Session::called(stream, self.secret.clone())
            {
                self.sessions.insert(PeerId(self.next_peer), session);
                self.next_peer += 1;
            }
        }
        let mut messages: Vec<ToManager> = Vec::new();
        for peer in ready {
            let Some(session) = self.sessions.get_mut(&peer) else { continue };
            let outcome = session.turn(&mut messages);
            for message in messages.drain(..) {
                self.machine.handle_message(self.clock.now(), peer, message, Key(secret::fresh()?));
            }
            if let Err(ended) = outcome {
                self.end(peer, ended.0);
            }
        }
        if self.machine.deadline() <= self.clock.now() {
            self.machine.handle_timeout(self.clock.now());
        }
        self.carry_out();
        Ok(std::mem::take(&mut self.notes))
    }

    /// Those whose connections have something to do.
    fn wait(&self, most: Duration) -> io::Result<Vec<PeerId>> {
        let mut wait = most;
        if self.machine.deadline() != Time::NEVER {
            wait = wait.min(self.clock.until(self.machine.deadline()));
        }
        let due = self.sessions.values().filter_map(Session::deadline).min();
        wait = due.map_or(wait, |time| wait.min(time.saturating_duration_since(Instant::now())));
        let mut fds: Vec<PollFd<'_>> = self.sessions.values().map(Session::poll_fd).collect();
        fds.push(self.listener.poll_fd());
        wait_for(&mut fds, wait)?;
        let now = Instant::now();
        let is_due = |session: &Session| session.deadline().is_some_and(|time| time <= now);
        let each = self.sessions.iter().zip(&fds);
        let ready = each.filter(|((_, session), fd)| fd.any() != Some(false) || is_due(session));
        Ok(ready.map(|((peer, _), _)| *peer).collect())
    }

    fn end(&mut self, peer: PeerId, why: String) {
        if self.sessions.remove(&peer).is_some() {
            self.machine.handle_lost(self.clock.now(), peer);
            self.notes.push(Note::Ended { peer, why });
        }
    }

    fn carry_out(&mut self) {
        while let Some(duty) = self.machine.poll_duty() {
            match duty {
                Duty::Send { to, message } => {
                    let Some(session) = self.sessions.get_mut(&to) else { continue };
                    let sent = session.send(&*message).and_then(|()| session.flush());
                    if let Err(ended) = sent {
                        self.end(to, ended.0);
                    }
                }
                Duty::Close(peer) => {
                    self.sessions.remove(&peer);
                }
                Duty::Log(event) => self.notes.push(Note::Event(event)),
            }
        }
    }
}

/// Waits for any of these, to the next whole millisecond, so that a deadline is not waited for in vain.
pub(super) fn wait_for(fds: &mut [PollFd<'_>], wait: Duration) -> io::Result<()> {
    let millis = wait.as_micros().div_ceil(1_000).min(60_000) as u16;
    match poll(fds, PollTimeout::from(millis)) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
