//! A node's control side: its connection to the manager, and those to and from the nodes around it. It is turned by the
//! loop that also turns the node's data plane, and never waits.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::poll::PollFd;
use protocol::manager::limits::MAX_MESSAGE_BYTES;
use protocol::manager::message::{Answer, FromManager, GroupKey, HeldSeat, NodeCard, Order, RequestId, ToManager};
use protocol::manager::{NodeNumber, PeerId, Refusal, Source, Steward, StewardDuty};
use units::Time;

use super::listener::{Listener, Openness};
use super::seats::Seats;
use super::secret::Secret;
use super::session::Session;
use crate::Clock;

/// Other nodes that may be connected at a time.
const MOST_CALLERS: usize = 1024;
/// How soon a lost manager is called again, first and at most.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MOST: Duration = Duration::from_secs(2);
/// A manager that has not answered a beat for so long is called anew.
const MANAGER_SILENCE: Duration = Duration::from_secs(5);

/// Something for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeNote {
    /// The manager knows the node.
    Registered {
        /// Under this number.
        node: NodeNumber,
    },
    /// The manager does not want the node; it is asked again in a while.
    Unwelcome {
        /// Why.
        refusal: Refusal,
    },
    /// The manager cannot be reached; what runs goes on.
    ManagerLost {
        /// Why, in words.
        why: String,
    },
    /// A seat was taken.
    Seated {
        /// Of this group.
        group: GroupKey,
    },
    /// A seat could not be taken.
    NotSeated {
        /// Of this group.
        group: GroupKey,
        /// Why.
        refusal: Refusal,
    },
    /// A seat was given up.
    Left {
        /// Of this group.
        group: GroupKey,
    },
    /// A group ran into trouble here.
    Trouble {
        /// Which.
        group: GroupKey,
        /// What, in words.
        what: String,
    },
}

impl fmt::Display for NodeNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registered { .. } => f.write_str("the manager knows this node"),
            Self::Unwelcome { refusal } => write!(f, "the manager refuses this node: {refusal}"),
            Self::ManagerLost { why } => write!(f, "no manager: {why}; groups that run go on"),
            Self::Seated { group } => write!(f, "took a seat of {group}"),
            Self::NotSeated { group, refusal } => write!(f, "took no seat of {group}: {refusal}"),
            Self::Left { group } => write!(f, "gave up the seat of {group}"),
            Self::Trouble { group, what } => write!(f, "trouble in {group}: {what}"),
        }
    }
}

/// The control side of a node.
pub struct NodeControl {
    card: NodeCard,
    manager: SocketAddr,
    secret: Option<Secret>,
    listener: Listener,
    steward: Steward,
    clock: Clock,
    link: Link,
    /// Nodes above that called us.
    callers: BTreeMap<PeerId, Session>,
    next_caller: u64,
    /// Nodes below that we called.
    below: BTreeMap<SocketAddr, Session>,
    notes: Vec<NodeNote>,
}

/// The connection to the manager.
struct Link {
    session: Option<Session>,
    number: Option<NodeNumber>,
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
        card: NodeCard,
        manager: SocketAddr,
        control: SocketAddr,
        secret: Option<Secret>,
        openness: Openness,
    ) -> io::Result<Self> {
        if control.ip().is_unspecified() {
            let what = format!("other nodes cannot call {control}: give --control an address of this machine");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let listener = Listener::bind(control, secret.as_ref(), openness)?;
        let now = Instant::now();
        Ok(Self {
            steward: Steward::new(&card.name, card.capacity.seats),
            card: NodeCard { control: listener.local(), ..card },
            manager,
            secret,
            listener,
            clock: Clock::new(),
            link: Link {
                session: None,
                number: None,
                beat_every: Duration::from_millis(500),
                beat_at: now,
                heard_at: now,
                retry_at: now,
                retry_after: RETRY_FIRST,
            },
            callers: BTreeMap::new(),
            next_caller: 1,
            below: BTreeMap::new(),
            notes: Vec::new(),
        })
    }

    /// Where other nodes call it.
    pub fn address(&self) -> SocketAddr {
        self.listener.local()
    }

    /// The number that the manager gave it, while it knows it.
    pub fn number(&self) -> Option<NodeNumber> {
        self.link.number
    }

    /// What to wait on, beside the data plane's own.
    pub fn poll_fds(&self) -> Vec<PollFd<'_>> {
        let sessions = self.link.session.iter().chain(self.callers.values()).chain(self.below.values());
        sessions.map(Session::poll_fd).chain([self.listener.poll_fd()]).collect()
    }

    /// How long nothing is to be done if nothing comes.
    pub fn patience(&self) -> Duration {
        let now = Instant::now();
        let sessions = self.link.session.iter().chain(self.callers.values()).chain(self.below.values());
        let link = if self.link.session.is_some() { self.link.beat_at } else { self.link.retry_at };
        let soonest = sessions.filter_map(Session::deadline).chain([link]).min().unwrap_or(link);
        let wait = soonest.saturating_duration_since(now);
        match self.steward.deadline() {
            Time::NEVER => wait,
            deadline => wait.min(self.clock.until(deadline)),
        }
    }

    /// Does all that can be done now. What is worth a line in a log is handed over.
    pub fn turn(&mut self, seats: &mut impl Seats) -> Vec<NodeNote> {
        for stream in self.listener.accept() {
            if self.callers.len() < MOST_CALLERS
                && let Ok(session) = Session::called(stream, self.secret.clone())
            {
                self.callers.insert(PeerId(self.next_caller), session);
                self.next_caller += 1;
            }
        }
        self.turn_callers();
        self.turn_below();
        self.turn_link();
        self.turn_beat(seats);
        while let Some(trouble) = seats.next_trouble() {
            let (group, what) = (trouble.group, trouble.what);
            self.tell(&ToManager::NodeTrouble { group, what: what.clone() });
            self.notes.push(NodeNote::Trouble { group, what });
        }
        if self.steward.deadline() <= self.clock.now() {
            self.steward.handle_timeout(self.clock.now());
        }
        self.carry_out(seats);
        std::mem::take(&mut self.notes)
    }

    fn turn_callers(&mut self) {
        let now = self.clock.now();
        let (steward, mut orders) = (&mut self.steward, Vec::<Order>::new());
        self.callers.retain(|peer, session| {
            let outcome = session.turn(&mut orders);
            orders.drain(..).for_each(|order| steward.handle_order(now, Source::Node(*peer), order));
            outcome.is_ok()
        });
    }

    fn turn_below(&mut self) {
        let now = self.clock.now();
        let (steward, mut answers) = (&mut self.steward, Vec::<Answer>::new());
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
            match Session::call(self.manager, self.secret.clone()) {
                Ok(session) => {
                    self.link.session = Some(session);
                    self.link.heard_at = Instant::now();
                    self.link.beat_at = Instant::now() + MANAGER_SILENCE;
                    self.tell(&ToManager::Register { request: REGISTRATION, card: self.card.clone() });
                }
                Err(error) => self.lose_manager(error.to_string()),
            }
        }
        let Some(session) = &mut self.link.session else { return };
        let mut messages: Vec<FromManager> = Vec::new();
        let outcome = session.turn(&mut messages);
        for message in messages {
            self.link.heard_at = Instant::now();
            match message {
                FromManager::Registered { node, beat_ms, .. } => self.registered(node, beat_ms),
                FromManager::Refused { request, refusal } if request == REGISTRATION => {
                    self.notes.push(NodeNote::Unwelcome { refusal });
                    self.link.retry_after = RETRY_MOST;
                    return self.hang_up();
                }
                FromManager::Order(order) => self.steward.handle_order(self.clock.now(), Source::Manager, order),
                _ => {}
            }
        }
        if let Err(ended) = outcome {
            self.lose_manager(ended.0);
        }
    }

    fn registered(&mut self, node: NodeNumber, beat_ms: u32) {
        self.link.number = Some(node);
        self.link.retry_after = RETRY_FIRST;
        self.link.beat_every = Duration::from_millis(beat_ms.clamp(10, 60_000).into());
        self.link.beat_at = Instant::now();
        for seats in batches(self.steward.held()) {
            self.tell(&ToManager::Holding { seats });
        }
        self.notes.push(NodeNote::Registered { node });
    }

    fn turn_beat(&mut self, seats: &impl Seats) {
        let now = Instant::now();
        if self.link.session.is_none() || now < self.link.beat_at {
            return;
        }
        if now.duration_since(self.link.heard_at) >= MANAGER_SILENCE {
            return self.lose_manager("it does not answer".to_owned());
        }
        self.link.beat_at = now + self.link.beat_every;
        if self.link.number.is_some() {
            self.tell(&ToManager::Beat { seats: self.steward.seats(), report: seats.report() });
        }
    }

    fn lose_manager(&mut self, why: String) {
        // Said once, not with every attempt.
        if self.link.number.is_some() || self.link.retry_after == RETRY_FIRST {
            self.notes.push(NodeNote::ManagerLost { why });
        }
        self.hang_up();
    }

    fn hang_up(&mut self) {
        self.link.session = None;
        self.link.number = None;
        self.link.retry_at = Instant::now() + self.link.retry_after;
        self.link.retry_after = (self.link.retry_after * 2).min(RETRY_MOST);
    }

    fn tell(&mut self, message: &ToManager) {
        let Some(session) = &mut self.link.session else { return };
        let said = session.send(message).and_then(|()| session.flush());
        if let Err(ended) = said {
            self.lose_manager(ended.0);
        }
    }

    fn carry_out(&mut self, seats: &mut impl Seats) {
        while let Some(duty) = self.steward.poll_duty() {
            match duty {
                StewardDuty::Install(spec) => {
                    let group = spec.key_of_group();
                    let outcome = seats.install(&spec);
                    self.notes.push(match &outcome {
                        Ok(()) => NodeNote::Seated { group },
                        Err(refusal) => NodeNote::NotSeated { group, refusal: refusal.clone() },
                    });
                    self.steward.handle_installed(self.clock.now(), group, outcome);
                }
                StewardDuty::Remove(group) => {
                    seats.remove(group);
                    self.notes.push(NodeNote::Left { group });
                }
                StewardDuty::Answer { to: Source::Manager, answer } => self.tell(&ToManager::Answer(answer)),
                StewardDuty::Answer { to: Source::Node(peer), answer } => {
                    let Some(session) = self.callers.get_mut(&peer) else { continue };
                    if session.send(&answer).and_then(|()| session.flush()).is_err() {
                        self.callers.remove(&peer);
                    }
                }
                StewardDuty::Order { to, order } => self.pass_on(to, &order),
            }
        }
    }

    fn pass_on(&mut self, to: SocketAddr, order: &Order) {
        if !self.below.contains_key(&to)
            && let Ok(session) = Session::call(to, self.secret.clone())
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
const REGISTRATION: RequestId = RequestId(1);

/// Cuts a list of seats into pieces that fit into messages.
fn batches(seats: Vec<HeldSeat>) -> Vec<Vec<HeldSeat>> {
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
