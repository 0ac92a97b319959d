//! The control side of a node: its connection to the manager, and those to its parent and child nodes. The loop that drives the
//! node's data plane polls it; it never waits.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bootstrap::retry::RetryBackoff;
use manager::limits::MAX_MESSAGE_BYTES;
use manager::message::{
    FromManager, HeldSeat, NodeCommand, NodeDescriptor, NodeReply, RequestId, SeatHeartbeat, ToManager,
};
use manager::{AggregationNodeId, CommandSource, NodeAgent, NodeAgentAction};
use nix::poll::PollFd;
use tracing::{info, warn};
use units::Time;

use super::credential::ControlCredential;
use super::data_plane::DataPlane;
use super::disconnect::DisconnectCause;
use super::event_log::DisconnectLog;
use super::listener::AccessPolicy;
use super::metrics::{MetricsServer, pages};
use super::secret::ClusterSecret;
use super::server::ControlServer;
use super::session::{AcceptedPeers, ControlSession};
use transport::Clock;

/// Connections of other nodes at a time.
const MAX_NODE_CONNECTIONS: usize = 1024;
/// First and largest delay before a lost manager is called again.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);
/// The node reconnects to a manager that has not answered a heartbeat for this long.
const MANAGER_TIMEOUT: Duration = Duration::from_secs(5);
/// Target of a node's log lines.
const NODE_TARGET: &str = "pleach::node";

/// The control side of a node.
pub struct NodeControl {
    descriptor: NodeDescriptor,
    manager: SocketAddr,
    secret: Option<ClusterSecret>,
    agent: NodeAgent,
    clock: Clock,
    link: ManagerLink,
    /// Connections of parent nodes.
    server: ControlServer,
    disconnects: DisconnectLog,
    /// Closed connections, by cause.
    closed: BTreeMap<&'static str, u64>,
    /// Connections to child nodes.
    children: BTreeMap<SocketAddr, ControlSession>,
    metrics: Option<MetricsServer>,
}

/// The connection to the manager.
struct ManagerLink {
    session: Option<ControlSession>,
    node_id: Option<AggregationNodeId>,
    heartbeat_interval: Duration,
    next_heartbeat_at: Instant,
    /// Heartbeats since the registration; the first of each `heartbeats_per_report` has a report.
    heartbeats: u32,
    heartbeats_per_report: u32,
    last_received_at: Instant,
    retry_at: Instant,
    backoff: RetryBackoff,
}

impl NodeControl {
    /// Listens for parent nodes at `control`, and connects to the manager at the first poll. The descriptor's control address is
    /// set to the bound address.
    ///
    /// # Errors
    /// If the address cannot be bound, is unspecified, or the access policy forbids it.
    pub fn bind(
        descriptor: NodeDescriptor,
        manager: SocketAddr,
        control: SocketAddr,
        secret: Option<ClusterSecret>,
        access: AccessPolicy,
    ) -> io::Result<Self> {
        if control.ip().is_unspecified() {
            let what = format!("other nodes cannot connect to {control}: give --control an address of this host");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let server =
            ControlServer::bind(control, secret.clone(), access, AcceptedPeers::Cluster, MAX_NODE_CONNECTIONS)?;
        let now = Instant::now();
        Ok(Self {
            agent: NodeAgent::new(&descriptor.name, descriptor.capacity.seats),
            descriptor: NodeDescriptor { control: server.local(), ..descriptor },
            manager,
            secret,
            clock: Clock::new(),
            link: ManagerLink {
                session: None,
                node_id: None,
                heartbeat_interval: Duration::from_millis(500),
                next_heartbeat_at: now,
                heartbeats: 0,
                heartbeats_per_report: 1,
                last_received_at: now,
                retry_at: now,
                backoff: RetryBackoff::new(FIRST_RETRY_DELAY, MAX_RETRY_DELAY),
            },
            server,
            disconnects: DisconnectLog::default(),
            closed: BTreeMap::new(),
            children: BTreeMap::new(),
            metrics: None,
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

    /// The address of the control listener.
    pub fn address(&self) -> SocketAddr {
        self.server.local()
    }

    /// The number from the manager, while the node is registered.
    pub fn node_id(&self) -> Option<AggregationNodeId> {
        self.link.node_id
    }

    /// The descriptors to wait for, besides those of the data plane.
    pub fn poll_fds(&self) -> Vec<PollFd<'_>> {
        let sessions = self.link.session.iter().chain(self.children.values()).map(ControlSession::poll_fd);
        let metrics = self.metrics.iter().flat_map(MetricsServer::poll_fds);
        sessions.chain([self.server.poll_fd()]).chain(metrics).collect()
    }

    /// The longest wait if no descriptor becomes ready.
    pub fn patience(&self) -> Duration {
        let now = Instant::now();
        let sessions = self.link.session.iter().chain(self.children.values()).filter_map(ControlSession::deadline);
        let link = if self.link.session.is_some() { self.link.next_heartbeat_at } else { self.link.retry_at };
        let server = self.server.deadline().into_iter();
        let metrics = self.metrics.as_ref().and_then(MetricsServer::deadline);
        let soonest = sessions.chain(server).chain(metrics).fold(link, Instant::min);
        let wait = soonest.saturating_duration_since(now);
        match self.agent.deadline() {
            Time::NEVER => wait,
            deadline => wait.min(self.clock.until(deadline)),
        }
    }

    /// Processes everything that is ready.
    pub fn turn(&mut self, seats: &mut impl DataPlane) {
        self.poll_server();
        self.poll_children();
        self.poll_link();
        self.send_heartbeat(seats);
        while let Some(failure) = seats.next_failure() {
            let (group, what) = (failure.group, failure.what);
            warn!(target: NODE_TARGET, group = group.group.0, epoch = group.epoch.0, what = %what, "{group} failed: {what}");
            self.send_to_manager(&ToManager::NodeFailure { group, what });
        }
        if self.agent.deadline() <= self.clock.now() {
            self.agent.handle_timeout(self.clock.now());
        }
        self.run_actions(seats);
        while let Some((peer, disconnect)) = self.server.next_disconnect() {
            *self.closed.entry(disconnect.cause.label()).or_default() += 1;
            self.disconnects.note(peer, &disconnect);
        }
        if let Some(metrics) = &mut self.metrics {
            let side = pages::NodeControlMetrics {
                name: &self.descriptor.name,
                capacity: self.descriptor.capacity,
                seats: self.agent.seats().len(),
                has_manager: self.link.node_id.is_some(),
                closed_connections: &self.closed,
            };
            metrics.poll(|| pages::node_page(&side, &seats.report()));
        }
    }

    fn poll_server(&mut self) {
        let now = self.clock.now();
        let mut commands = Vec::<NodeCommand>::new();
        for peer in self.server.ready() {
            self.server.poll(peer, &mut commands);
            commands.drain(..).for_each(|command| self.agent.handle_command(now, CommandSource::Node(peer), command));
        }
    }

    fn poll_children(&mut self) {
        let now = self.clock.now();
        let (agent, mut replies) = (&mut self.agent, Vec::<NodeReply>::new());
        self.children.retain(|node, session| {
            let outcome = session.poll(&mut replies);
            replies.drain(..).for_each(|reply| agent.handle_reply(now, *node, reply));
            if outcome.is_err() {
                agent.handle_unreachable(now, *node);
            }
            outcome.is_ok()
        });
    }

    fn poll_link(&mut self) {
        if self.link.session.is_none() && self.link.retry_at <= Instant::now() {
            match ControlSession::connect(self.manager, self.secret.clone().map(ControlCredential::Cluster)) {
                Ok(session) => {
                    self.link.session = Some(session);
                    self.link.last_received_at = Instant::now();
                    self.link.next_heartbeat_at = Instant::now() + MANAGER_TIMEOUT;
                    let version = env!("CARGO_PKG_VERSION").to_owned();
                    self.send_to_manager(&ToManager::Register {
                        request: REGISTRATION_REQUEST,
                        node: self.descriptor.clone(),
                        version,
                    });
                }
                Err(error) => self.lose_manager(&error.to_string()),
            }
        }
        let Some(session) = &mut self.link.session else { return };
        let mut messages: Vec<FromManager> = Vec::new();
        let outcome = session.poll(&mut messages);
        for message in messages {
            self.link.last_received_at = Instant::now();
            match message {
                FromManager::Registered { node, heartbeat_ms, heartbeats_per_report, .. } => {
                    self.registered(node, heartbeat_ms, heartbeats_per_report)
                }
                FromManager::Rejected { request, error } if request == REGISTRATION_REQUEST => {
                    warn!(target: NODE_TARGET, cause = error.cause(), "the manager rejected this node: {error}");
                    self.link.backoff.skip_to_max();
                    return self.close_link();
                }
                FromManager::Command(command) => {
                    self.agent.handle_command(self.clock.now(), CommandSource::Manager, command)
                }
                _ => {}
            }
        }
        if let Err(disconnect) = outcome {
            self.lose_manager(&match disconnect.cause {
                DisconnectCause::WrongSecret => format!("wrong secret: {}", disconnect.why),
                _ => disconnect.why,
            });
        }
    }

    fn registered(&mut self, node: AggregationNodeId, heartbeat_ms: u32, heartbeats_per_report: u32) {
        self.link.node_id = Some(node);
        self.link.backoff.reset();
        self.link.heartbeat_interval = Duration::from_millis(heartbeat_ms.clamp(10, 60_000).into());
        self.link.next_heartbeat_at = Instant::now();
        // The manager answers reports, and a node that gets no answer gives it up.
        let interval_ms = self.link.heartbeat_interval.as_millis().max(1);
        let most = (MANAGER_TIMEOUT.as_millis() / 2 / interval_ms).max(1) as u32;
        (self.link.heartbeats, self.link.heartbeats_per_report) = (0, heartbeats_per_report.clamp(1, most));
        for seats in split_into_messages(self.agent.held_seats()) {
            self.send_to_manager(&ToManager::HeldSeats { seats });
        }
        info!(target: NODE_TARGET, manager = %self.manager, number = node.0, "registered with the manager at {}", self.manager);
    }

    fn send_heartbeat(&mut self, seats: &mut impl DataPlane) {
        let now = Instant::now();
        if self.link.session.is_none() || now < self.link.next_heartbeat_at {
            return;
        }
        if now.duration_since(self.link.last_received_at) >= MANAGER_TIMEOUT {
            return self.lose_manager("it does not answer heartbeats");
        }
        self.link.next_heartbeat_at = now + self.link.heartbeat_interval;
        if self.link.node_id.is_some() {
            let heartbeat = |group| SeatHeartbeat { group, operations: seats.operations(group) };
            let held = self.agent.seats().into_iter().map(heartbeat).collect();
            let has_report = self.link.heartbeats.is_multiple_of(self.link.heartbeats_per_report);
            self.link.heartbeats = self.link.heartbeats.wrapping_add(1);
            let report = has_report.then(|| seats.report());
            self.send_to_manager(&ToManager::Heartbeat { seats: held, report });
        }
    }

    fn lose_manager(&mut self, why: &str) {
        // Logged once, not at every attempt.
        if self.link.node_id.is_some() {
            warn!(target: NODE_TARGET, manager = %self.manager, why, "lost the manager at {}: {why}; open groups continue", self.manager);
        } else if self.link.backoff.is_first() {
            warn!(target: NODE_TARGET, manager = %self.manager, why, "cannot register with the manager at {}: {why}; trying again", self.manager);
        }
        self.close_link();
    }

    fn close_link(&mut self) {
        self.link.session = None;
        self.link.node_id = None;
        self.link.retry_at = Instant::now() + self.link.backoff.next_delay();
    }

    fn send_to_manager(&mut self, message: &ToManager) {
        let Some(session) = &mut self.link.session else { return };
        let sent = session.send(message).and_then(|()| session.flush());
        if let Err(disconnect) = sent {
            self.lose_manager(&disconnect.why);
        }
    }

    fn run_actions(&mut self, seats: &mut impl DataPlane) {
        while let Some(action) = self.agent.poll_action() {
            match action {
                NodeAgentAction::Install(spec) => {
                    let group = spec.group_key();
                    let outcome = seats.install(&spec);
                    let (number, epoch) = (group.group.0, group.epoch.0);
                    match &outcome {
                        Ok(()) => info!(target: NODE_TARGET, group = number, epoch, "{group}: seat installed"),
                        Err(error) => {
                            let cause = error.cause();
                            warn!(target: NODE_TARGET, group = number, epoch, cause, "{group}: seat not installed: {error}");
                        }
                    }
                    self.agent.handle_installed(self.clock.now(), group, outcome);
                }
                NodeAgentAction::Remove(group) => {
                    seats.remove(group);
                    info!(target: NODE_TARGET, group = group.group.0, epoch = group.epoch.0, "{group}: seat removed");
                }
                NodeAgentAction::Reply { to: CommandSource::Manager, reply } => {
                    self.send_to_manager(&ToManager::Reply(reply))
                }
                NodeAgentAction::Reply { to: CommandSource::Node(peer), reply } => self.server.send(peer, &reply),
                NodeAgentAction::Command { to, command } => self.forward(to, &command),
            }
        }
    }

    fn forward(&mut self, to: SocketAddr, command: &NodeCommand) {
        if !self.children.contains_key(&to)
            && let Ok(session) = ControlSession::connect(to, self.secret.clone().map(ControlCredential::Cluster))
        {
            self.children.insert(to, session);
        }
        let sent = self.children.get_mut(&to).map(|session| session.send(command).and_then(|()| session.flush()));
        if !matches!(sent, Some(Ok(()))) {
            self.children.remove(&to);
            self.agent.handle_unreachable(self.clock.now(), to);
        }
    }
}

/// The number of a node's only request.
const REGISTRATION_REQUEST: RequestId = RequestId(1);

/// Splits a list of seats into messages.
fn split_into_messages(seats: Vec<HeldSeat>) -> Vec<Vec<HeldSeat>> {
    let mut batches: Vec<Vec<HeldSeat>> = Vec::new();
    let mut room = 0;
    for seat in seats {
        let bytes = 512 + 32 * seat.edges.len();
        if bytes > room || batches.is_empty() {
            batches.push(Vec::new());
            room = MAX_MESSAGE_BYTES / 2;
        }
        room = room.saturating_sub(bytes);
        batches.last_mut().expect("a batch was pushed").push(seat);
    }
    batches
}
