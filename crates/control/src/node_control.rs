//! A node's control side: its connection to the manager, and those to and from the nodes around it. It is turned by the
//! loop that also turns the node's data plane, and never waits.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use manager::limits::MAX_MESSAGE_BYTES;
use manager::message::{
    FromManager, HeldSeat, NodeCommand, NodeDescriptor, NodeReply, RequestId, SeatHeartbeat, ToManager,
};
use manager::{AggregationNodeId, CommandSource, NodeAgent, NodeAgentAction};
use nix::poll::PollFd;
use tracing::{info, warn};
use units::Time;

use super::data_plane::DataPlane;
use super::event_log::DisconnectLog;
use super::listener::AccessPolicy;
use super::metrics::{MetricsServer, pages};
use super::secret::ClusterSecret;
use super::server::ControlServer;
use super::session::ControlSession;
use transport::Clock;

/// Other nodes that may be connected at a time.
const MAX_NODE_CONNECTIONS: usize = 1024;
/// How soon a lost manager is called again, first and at most.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);
/// A manager that has not answered a beat for so long is called anew.
const MANAGER_TIMEOUT: Duration = Duration::from_secs(5);
/// Where a node's lines come from.
const NODE_TARGET: &str = "pleach::node";

/// The control side of a node.
pub struct NodeControl {
    card: NodeDescriptor,
    manager: SocketAddr,
    secret: Option<ClusterSecret>,
    steward: NodeAgent,
    clock: Clock,
    link: ManagerLink,
    /// Nodes above that called us.
    callers: ControlServer,
    /// Why their connections ended, by cause.
    partings: DisconnectLog,
    ended: BTreeMap<&'static str, u64>,
    /// Nodes below that we called.
    below: BTreeMap<SocketAddr, ControlSession>,
    metrics: Option<MetricsServer>,
}

/// The connection to the manager.
struct ManagerLink {
    session: Option<ControlSession>,
    number: Option<AggregationNodeId>,
    beat_every: Duration,
    beat_at: Instant,
    heard_at: Instant,
    retry_at: Instant,
    retry_after: Duration,
}

impl NodeControl {
    /// Listens for the nodes above at `control` and calls the manager at the first turn. The card's control address is
    /// set to where it listens.
    ///
    /// # Errors
    /// If the address cannot be had, would let strangers in, or is one that nobody can call.
    pub fn bind(
        card: NodeDescriptor,
        manager: SocketAddr,
        control: SocketAddr,
        secret: Option<ClusterSecret>,
        openness: AccessPolicy,
    ) -> io::Result<Self> {
        if control.ip().is_unspecified() {
            let what = format!("other nodes cannot call {control}: give --control an address of this machine");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let callers = ControlServer::bind(control, secret.clone(), openness, MAX_NODE_CONNECTIONS)?;
        let now = Instant::now();
        Ok(Self {
            steward: NodeAgent::new(&card.name, card.capacity.seats),
            card: NodeDescriptor { control: callers.local(), ..card },
            manager,
            secret,
            clock: Clock::new(),
            link: ManagerLink {
                session: None,
                number: None,
                beat_every: Duration::from_millis(500),
                beat_at: now,
                heard_at: now,
                retry_at: now,
                retry_after: FIRST_RETRY_DELAY,
            },
            callers,
            partings: DisconnectLog::default(),
            ended: BTreeMap::new(),
            below: BTreeMap::new(),
            metrics: None,
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

    /// Where other nodes call it.
    pub fn address(&self) -> SocketAddr {
        self.callers.local()
    }

    /// The number that the manager gave it, while it knows it.
    pub fn number(&self) -> Option<AggregationNodeId> {
        self.link.number
    }

    /// What to wait on, beside the data plane's own.
    pub fn poll_fds(&self) -> Vec<PollFd<'_>> {
        let sessions = self.link.session.iter().chain(self.below.values()).map(ControlSession::poll_fd);
        let metrics = self.metrics.iter().flat_map(MetricsServer::poll_fds);
        sessions.chain(self.callers.poll_fds()).chain(metrics).collect()
    }

    /// How long nothing is to be done if nothing comes.
    pub fn patience(&self) -> Duration {
        let now = Instant::now();
        let sessions = self.link.session.iter().chain(self.below.values()).filter_map(ControlSession::deadline);
        let link = if self.link.session.is_some() { self.link.beat_at } else { self.link.retry_at };
        let callers = self.callers.deadline().into_iter();
        let metrics = self.metrics.as_ref().and_then(MetricsServer::deadline);
        let soonest = sessions.chain(callers).chain(metrics).fold(link, Instant::min);
        let wait = soonest.saturating_duration_since(now);
        match self.steward.deadline() {
            Time::NEVER => wait,
            deadline => wait.min(self.clock.until(deadline)),
        }
    }

    /// Does all that can be done now.
    pub fn turn(&mut self, seats: &mut impl DataPlane) {
        self.callers.accept();
        self.turn_callers();
        self.turn_below();
        self.turn_link();
        self.turn_beat(seats);
        while let Some(trouble) = seats.next_trouble() {
            let (group, what) = (trouble.group, trouble.what);
            warn!(target: NODE_TARGET, group = group.group.0, epoch = group.epoch.0, what = %what, "trouble in {group}: {what}");
            self.tell(&ToManager::NodeTrouble { group, what });
        }
        if self.steward.deadline() <= self.clock.now() {
            self.steward.handle_timeout(self.clock.now());
        }
        self.carry_out(seats);
        while let Some((peer, ended)) = self.callers.next_ended() {
            *self.ended.entry(ended.cause.words()).or_default() += 1;
            self.partings.tell(peer, &ended);
        }
        if let Some(metrics) = &mut self.metrics {
            let side = pages::NodeControlMetrics {
                name: &self.card.name,
                capacity: self.card.capacity,
                seats: self.steward.seats().len(),
                has_manager: self.link.number.is_some(),
                control_drops: &self.ended,
            };
            metrics.turn(|| pages::node_page(&side, &seats.report()));
        }
    }

    fn turn_callers(&mut self) {
        let now = self.clock.now();
        let mut orders = Vec::<NodeCommand>::new();
        for peer in self.callers.peers() {
            self.callers.turn(peer, &mut orders);
            orders.drain(..).for_each(|order| self.steward.handle_order(now, CommandSource::Node(peer), order));
        }
    }

    fn turn_below(&mut self) {
        let now = self.clock.now();
        let (steward, mut answers) = (&mut self.steward, Vec::<NodeReply>::new());
        self.below.retain(|node, session| {
            let outcome = session.turn(&mut answers);
            answers.drain(..).for_each(|answer| steward.handle_answer(now, *node, answer));
            if outcome.is_err() {
                steward.handle_unreachable(now, *node);
            }
            outcome.is_ok()
        });
    }

    fn turn_link(&mut self) {
        if self.link.session.is_none() && self.link.retry_at <= Instant::now() {
            match ControlSession::call(self.manager, self.secret.clone()) {
                Ok(session) => {
                    self.link.session = Some(session);
                    self.link.heard_at = Instant::now();
                    self.link.beat_at = Instant::now() + MANAGER_TIMEOUT;
                    let version = env!("CARGO_PKG_VERSION").to_owned();
                    self.tell(&ToManager::Register {
                        request: REGISTRATION_REQUEST,
                        card: self.card.clone(),
                        version,
                    });
                }
                Err(error) => self.lose_manager(&error.to_string()),
            }
        }
        let Some(session) = &mut self.link.session else { return };
        let mut messages: Vec<FromManager> = Vec::new();
        let outcome = session.turn(&mut messages);
        for message in messages {
            self.link.heard_at = Instant::now();
            match message {
                FromManager::Registered { node, beat_ms, .. } => self.registered(node, beat_ms),
                FromManager::Refused { request, refusal } if request == REGISTRATION_REQUEST => {
                    warn!(target: NODE_TARGET, cause = refusal.cause(), "the manager refuses this node: {refusal}");
                    self.link.retry_after = MAX_RETRY_DELAY;
                    return self.hang_up();
                }
                FromManager::Order(order) => {
                    self.steward.handle_order(self.clock.now(), CommandSource::Manager, order)
                }
                _ => {}
            }
        }
        if let Err(ended) = outcome {
            self.lose_manager(&ended.why);
        }
    }

    fn registered(&mut self, node: AggregationNodeId, beat_ms: u32) {
        self.link.number = Some(node);
        self.link.retry_after = FIRST_RETRY_DELAY;
        self.link.beat_every = Duration::from_millis(beat_ms.clamp(10, 60_000).into());
        self.link.beat_at = Instant::now();
        for seats in split_into_messages(self.steward.held()) {
            self.tell(&ToManager::Holding { seats });
        }
        info!(target: NODE_TARGET, manager = %self.manager, number = node.0, "the manager knows this node");
    }

    fn turn_beat(&mut self, seats: &impl DataPlane) {
        let now = Instant::now();
        if self.link.session.is_none() || now < self.link.beat_at {
            return;
        }
        if now.duration_since(self.link.heard_at) >= MANAGER_TIMEOUT {
            return self.lose_manager("it does not answer");
        }
        self.link.beat_at = now + self.link.beat_every;
        if self.link.number.is_some() {
            let beat = |group| SeatHeartbeat { group, operations: seats.operations(group) };
            let held = self.steward.seats().into_iter().map(beat).collect();
            self.tell(&ToManager::Beat { seats: held, report: seats.report() });
        }
    }

    fn lose_manager(&mut self, why: &str) {
        // Said once, not with every attempt.
        if self.link.number.is_some() || self.link.retry_after == FIRST_RETRY_DELAY {
            warn!(target: NODE_TARGET, manager = %self.manager, why, "no manager: {why}; groups that run go on");
        }
        self.hang_up();
    }

    fn hang_up(&mut self) {
        self.link.session = None;
        self.link.number = None;
        self.link.retry_at = Instant::now() + self.link.retry_after;
        self.link.retry_after = (self.link.retry_after * 2).min(MAX_RETRY_DELAY);
    }

    fn tell(&mut self, message: &ToManager) {
        let Some(session) = &mut self.link.session else { return };
        let said = session.send(message).and_then(|()| session.flush());
        if let Err(ended) = said {
            self.lose_manager(&ended.why);
        }
    }

    fn carry_out(&mut self, seats: &mut impl DataPlane) {
        while let Some(duty) = self.steward.poll_duty() {
            match duty {
                NodeAgentAction::Install(spec) => {
                    let group = spec.key_of_group();
                    let outcome = seats.install(&spec);
                    let (number, epoch) = (group.group.0, group.epoch.0);
                    match &outcome {
                        Ok(()) => info!(target: NODE_TARGET, group = number, epoch, "took a seat of {group}"),
                        Err(refusal) => {
                            let cause = refusal.cause();
                            warn!(target: NODE_TARGET, group = number, epoch, cause, "took no seat of {group}: {refusal}");
                        }
                    }
                    self.steward.handle_installed(self.clock.now(), group, outcome);
                }
                NodeAgentAction::Remove(group) => {
                    seats.remove(group);
                    info!(target: NODE_TARGET, group = group.group.0, epoch = group.epoch.0, "gave up the seat of {group}");
                }
                NodeAgentAction::Answer { to: CommandSource::Manager, answer } => {
                    self.tell(&ToManager::Answer(answer))
                }
                NodeAgentAction::Answer { to: CommandSource::Node(peer), answer } => self.callers.send(peer, &answer),
                NodeAgentAction::Order { to, order } => self.pass_on(to, &order),
            }
        }
    }

    fn pass_on(&mut self, to: SocketAddr, order: &NodeCommand) {
        if !self.below.contains_key(&to)
            && let Ok(session) = ControlSession::call(to, self.secret.clone())
        {
            self.below.insert(to, session);
        }
        let said = self.below.get_mut(&to).map(|session| session.send(order).and_then(|()| session.flush()));
        if !matches!(said, Some(Ok(()))) {
            self.below.remove(&to);
            self.steward.handle_unreachable(self.clock.now(), to);
        }
    }
}

/// The number of the only request that a node makes.
const REGISTRATION_REQUEST: RequestId = RequestId(1);

/// Cuts a list of seats into pieces that fit into messages.
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
        batches.last_mut().expect("one was pushed").push(seat);
    }
    batches
}
