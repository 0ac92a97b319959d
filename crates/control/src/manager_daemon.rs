//! The manager's daemon: its machine, its listener and its connections, turned by one thread.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use manager::message::ToManager;
use manager::{AuthKey, Manager, ManagerAction, ManagerSettings, PeerId};
use nix::poll::{PollFd, PollTimeout, poll};
use units::Time;

use super::event_log::{self, DisconnectLog};
use super::listener::AccessPolicy;
use super::metrics::{MetricsServer, pages};
use super::secret::{self, ClusterSecret};
use super::server::ControlServer;
use transport::Clock;

/// Connections at a time: more are closed at once.
const MAX_CONNECTIONS: usize = 4096;
/// A connection that speaks for no node and no job is closed when it has been silent for so long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How often idle ones are looked for.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// A manager that listens.
pub struct ManagerDaemon {
    machine: Manager,
    callers: ControlServer,
    metrics: Option<MetricsServer>,
    clock: Clock,
    began: Instant,
    swept_at: Instant,
    partings: DisconnectLog,
}

impl ManagerDaemon {
    /// Listens at an address.
    ///
    /// # Errors
    /// If the address cannot be had, or would let strangers in.
    pub fn bind(
        at: SocketAddr,
        settings: ManagerSettings,
        secret: Option<ClusterSecret>,
        openness: AccessPolicy,
    ) -> io::Result<Self> {
        Ok(Self {
            machine: Manager::new(settings, AuthKey(secret::random_nonce()?)),
            callers: ControlServer::bind(at, secret, openness, MAX_CONNECTIONS)?,
            metrics: None,
            clock: Clock::new(),
            began: Instant::now(),
            swept_at: Instant::now(),
            partings: DisconnectLog::default(),
        })
    }

    /// Shows metrics to whoever asks at an address; where that is.
    ///
    /// # Errors
    /// If the address cannot be had.
    pub fn show_metrics(&mut self, at: SocketAddr) -> io::Result<SocketAddr> {
        let port = MetricsServer::bind(at)?;
        let local = port.local();
        self.metrics = Some(port);
        Ok(local)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.callers.local()
    }

    /// The machine, to look at.
    pub fn machine(&self) -> &Manager {
        &self.machine
    }

    /// Does all that can be done, after waiting at most so long for something to do.
    ///
    /// # Errors
    /// If the machine it runs on fails it: no random numbers, no polling.
    pub fn turn(&mut self, wait: Duration) -> io::Result<()> {
        let ready = self.wait(wait)?;
        self.callers.accept();
        let mut messages: Vec<ToManager> = Vec::new();
        for peer in ready {
            self.callers.turn(peer, &mut messages);
            for message in messages.drain(..) {
                self.machine.handle_message(self.clock.now(), peer, message, AuthKey(secret::random_nonce()?));
            }
            self.carry_out();
        }
        if self.swept_at.elapsed() >= IDLE_CHECK_INTERVAL {
            self.swept_at = Instant::now();
            let since = self.swept_at.checked_sub(IDLE_TIMEOUT).unwrap_or(self.began);
            self.callers.drop_idle(since, |peer| self.machine.knows(peer));
        }
        if self.machine.deadline() <= self.clock.now() {
            self.machine.handle_timeout(self.clock.now());
        }
        self.carry_out();
        if let Some(metrics) = &mut self.metrics {
            let (machine, began, callers) = (&self.machine, self.began, &self.callers);
            metrics.turn(|| pages::manager_page(&machine.status(), began.elapsed(), callers.len()));
        }
        Ok(())
    }

    /// Those whose connections have something to do.
    fn wait(&self, most: Duration) -> io::Result<Vec<PeerId>> {
        let mut wait = most;
        if self.machine.deadline() != Time::NEVER {
            wait = wait.min(self.clock.until(self.machine.deadline()));
        }
        let due = self.callers.deadline().into_iter().chain(self.metrics.as_ref().and_then(MetricsServer::deadline));
        wait = due.min().map_or(wait, |time| wait.min(time.saturating_duration_since(Instant::now())));
        let mut fds: Vec<PollFd<'_>> = self.callers.poll_fds().collect();
        fds.extend(self.metrics.iter().flat_map(MetricsServer::poll_fds));
        poll_descriptors(&mut fds, wait)?;
        Ok(self.callers.ready(&fds))
    }

    /// Does what the machine wants, and tells it who has gone, until neither is left.
    fn carry_out(&mut self) {
        loop {
            while let Some(duty) = self.machine.poll_duty() {
                match duty {
                    ManagerAction::Send { to, message } => self.callers.send(to, &*message),
                    ManagerAction::Close(peer) => self.callers.close(peer),
                    ManagerAction::Log(event) => event_log::manager_event(&event),
                }
            }
            let Some((peer, ended)) = self.callers.next_ended() else { return };
            self.machine.count(ended.cause.words());
            self.partings.tell(peer, &ended);
            self.machine.handle_lost(self.clock.now(), peer);
        }
    }
}

/// Waits for any of these, to the next whole millisecond, so that a deadline is not waited for in vain.
pub(super) fn poll_descriptors(fds: &mut [PollFd<'_>], wait: Duration) -> io::Result<()> {
    let millis = wait.as_micros().div_ceil(1_000).min(60_000) as u16;
    match poll(fds, PollTimeout::from(millis)) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
