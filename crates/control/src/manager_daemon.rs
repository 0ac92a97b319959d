//! The manager's daemon: the state machine, the control server and the metrics server, driven by one thread.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bootstrap::auth::random_bytes;
use manager::message::ToManager;
use manager::{AuthKey, Manager, ManagerAction, ManagerSettings, PeerId};
use nix::poll::PollFd;
use units::Time;

use super::event_log::{self, DisconnectLog};
use super::listener::AccessPolicy;
use super::manager_observer::{ManagerObserver, ManagerSnapshot};
use super::metrics::{MetricsServer, pages};
use super::poll::poll_descriptors;
use super::secret::ClusterSecret;
use super::server::ControlServer;
use super::session::AcceptedPeers;
use transport::Clock;

/// Connections beyond this are closed at once.
const MAX_CONNECTIONS: usize = 4096;
/// A silent connection without a registered node or job is closed after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between checks for idle connections.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// A manager with its listeners.
pub struct ManagerDaemon {
    machine: Manager,
    server: ControlServer,
    metrics: Option<MetricsServer>,
    clock: Clock,
    began: Instant,
    idle_checked_at: Instant,
    disconnects: DisconnectLog,
    observer: Option<Box<dyn ManagerObserver>>,
}

impl ManagerDaemon {
    /// Listens at an address.
    ///
    /// # Errors
    /// If the address cannot be bound, or the access policy forbids it.
    pub fn bind(
        at: SocketAddr,
        settings: ManagerSettings,
        secret: Option<ClusterSecret>,
        access: AccessPolicy,
    ) -> io::Result<Self> {
        Ok(Self {
            machine: Manager::new(settings, AuthKey(random_bytes()?)),
            server: ControlServer::bind(at, secret, access, AcceptedPeers::ClusterAndJobs, MAX_CONNECTIONS)?,
            metrics: None,
            clock: Clock::new(),
            began: Instant::now(),
            idle_checked_at: Instant::now(),
            disconnects: DisconnectLog::default(),
            observer: None,
        })
    }

    /// Serves metrics over HTTP at an address, and returns the bound address.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn serve_metrics(&mut self, at: SocketAddr) -> io::Result<SocketAddr> {
        let port = MetricsServer::bind(at)?;
        let local = port.local();
        self.metrics = Some(port);
        Ok(local)
    }

    /// Passes every event and, at an interval, the status to an observer.
    pub fn observe(&mut self, observer: Box<dyn ManagerObserver>) {
        self.observer = Some(observer);
    }

    /// The address of the control listener.
    pub fn address(&self) -> SocketAddr {
        self.server.local()
    }

    /// The state machine, for inspection.
    pub fn machine(&self) -> &Manager {
        &self.machine
    }

    /// Waits at most `wait` for events, then processes them.
    ///
    /// # Errors
    /// If the kernel has no random numbers, or `poll` fails.
    pub fn turn(&mut self, wait: Duration) -> io::Result<()> {
        let ready = self.wait(wait)?;
        let mut messages: Vec<ToManager> = Vec::new();
        for peer in ready {
            let peer = self.server.poll(peer, &mut messages);
            for message in messages.drain(..) {
                self.machine.handle_message(self.clock.now(), peer, message, AuthKey(random_bytes()?));
            }
            self.run_actions();
        }
        if self.idle_checked_at.elapsed() >= IDLE_CHECK_INTERVAL {
            self.idle_checked_at = Instant::now();
            let since = self.idle_checked_at.checked_sub(IDLE_TIMEOUT).unwrap_or(self.began);
            self.server.drop_idle(since, |peer| self.machine.is_registered(peer));
        }
        if self.machine.deadline() <= self.clock.now() {
            self.machine.handle_timeout(self.clock.now());
        }
        self.run_actions();
        if let Some(metrics) = &mut self.metrics {
            let (machine, began, server) = (&self.machine, self.began, &self.server);
            metrics.poll(|| pages::manager_page(&machine.whole_status(), began.elapsed(), server.len()));
        }
        if let Some(observer) = &mut self.observer
            && observer.status_due() <= Instant::now()
        {
            observer.observe_status(ManagerSnapshot {
                status: self.machine.whole_status(),
                uptime: self.began.elapsed(),
                connections: self.server.len(),
            });
        }
        Ok(())
    }

    /// Waits for events; returns the connections with work to do.
    fn wait(&mut self, max: Duration) -> io::Result<Vec<PeerId>> {
        let mut wait = max;
        if self.machine.deadline() != Time::NEVER {
            wait = wait.min(self.clock.until(self.machine.deadline()));
        }
        let due = self.server.deadline().into_iter().chain(self.metrics.as_ref().and_then(MetricsServer::deadline));
        let due = due.chain(self.observer.as_ref().map(|observer| observer.status_due()));
        wait = due.min().map_or(wait, |time| wait.min(time.saturating_duration_since(Instant::now())));
        let mut fds: Vec<PollFd<'_>> = vec![self.server.poll_fd()];
        fds.extend(self.metrics.iter().flat_map(MetricsServer::poll_fds));
        poll_descriptors(&mut fds, wait)?;
        drop(fds);
        Ok(self.server.ready())
    }

    /// Runs the machine's actions and reports closed connections to it, until neither is left.
    fn run_actions(&mut self) {
        loop {
            while let Some(action) = self.machine.poll_action() {
                match action {
                    ManagerAction::Send { to, message } => self.server.send(to, &*message),
                    ManagerAction::Close(peer) => self.server.close(peer),
                    ManagerAction::Log(event) => {
                        event_log::manager_event(&event);
                        if let Some(observer) = &mut self.observer {
                            observer.observe_event(&event);
                        }
                    }
                }
            }
            let Some((peer, disconnect)) = self.server.next_disconnect() else { return };
            self.machine.count(disconnect.cause.label());
            self.disconnects.note(peer, &disconnect);
            self.machine.handle_disconnect(self.clock.now(), peer);
        }
    }
}
