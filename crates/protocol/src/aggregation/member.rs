//! A member: contributes to a group's operations and takes the results, from a host at the edge of the tree.
//!
//! In: operations to start; frames, multicasts, damage and time. Out: duties, among them [`Duty::Complete`] exactly
//! once for each operation, or [`Duty::Failed`]. Rules: P-10 to P-26.

use std::collections::VecDeque;
use std::fmt;

use units::{Epoch, GroupId, OpId, PathId, Psn, SegmentIndex, Span, Time};
use wire::aggregation::{AggregationHeader, ElementCode, Kind, OperatorCode};

use super::node::transmit;
use super::{AbortCause, Damage, Duty, EdgeIndex, Message, Outbox, ResultProves, Upward, Voice, Wish};
use crate::Payload;
use crate::connection::{Arrival, Ask, Connection, DamageOutcome, Frame, Paths, Policy};

/// What a member must know to take part.
#[derive(Clone, Debug)]
pub struct MemberPlan {
    /// The group.
    pub group: GroupId,
    /// Its incarnation.
    pub epoch: Epoch,
    /// The ways up: one, or one per lane of a split adapter. Edge `n` is the `n`-th of these.
    pub parents: Vec<Upward>,
    /// The numbers of the nodes at the other ends, for naming them.
    pub peers: Vec<u32>,
    /// What a result tells about the contribution sent up.
    pub result_proves: ResultProves,
    /// Operations that may be in flight at once.
    pub window: u32,
    /// A result that has not come after so long is asked for.
    pub repair_after: Span,
    /// Whether that time is longer where operations usually take longer.
    pub patience: Patience,
}

/// How long a member waits for a result before it asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// As long as its plan says.
    Fixed,
    /// At least that long, and several times what operations took of late: whoever shares a processor is often late.
    Measured,
}

/// What a member brings to an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contribution {
    /// The type of the elements.
    pub element: ElementCode,
    /// How they are folded.
    pub operator: OperatorCode,
    /// How many.
    pub element_count: u16,
    /// What it is among the others.
    pub voice: Voice,
    /// What the member wants to hear of the result.
    pub wish: Wish,
    /// Which piece of the user's vector they are; all members must agree on it.
    pub segment: SegmentIndex,
    /// Their bytes.
    pub payload: Payload,
}

/// Why an operation cannot be started now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartError {
    /// As many operations are in flight as the window allows: take a result first.
    WindowFull,
    /// Every way up is lost.
    NoWayUp(AbortCause),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WindowFull => f.write_str("all operations of the window are in flight; wait for one to complete"),
            Self::NoWayUp(cause) => write!(f, "no way up is left: {cause}"),
        }
    }
}

impl std::error::Error for StartError {}

#[derive(Debug)]
struct Flight {
    op: OpId,
    header: AggregationHeader,
    /// The number of the contribution, if there is only one way up.
    sent: Option<Psn>,
    started: Time,
    ask_at: Time,
    /// How often the result has been asked for; an answer may be on its way.
    asked: u8,
    done: bool,
}

/// The pause between two questions for one result doubles so many times.
const MOST_PATIENCE: u8 = 6;
/// Most ways up that a member uses.
const MAX_WAYS: usize = 64;

/// The machine of one member.
#[derive(Debug)]
pub struct Member {
    plan: MemberPlan,
    policy: Policy,
    edges: Vec<Connection<Message>>,
    /// Edges whose other end has been given up, one bit each.
    lost_edges: u64,
    lost: Option<AbortCause>,
    /// Operations in flight, oldest first, without gaps.
    flights: VecDeque<Flight>,
    next: OpId,
    wake_at: Time,
    corrupt: u64,
    heard: u64,
    unheard: u32,
    /// What an operation took of late.
    usual: Span,
}

impl Member {
    /// A member that has not yet started anything.
    pub fn new(policy: Policy, plan: MemberPlan) -> Self {
        let window = plan.window.clamp(1, units::limits::MAX_WINDOW).next_power_of_two();
        Self {
            edges: plan.parents.iter().take(MAX_WAYS).map(|_| Connection::new(policy)).collect(),
            plan: MemberPlan { window, parents: plan.parents.into_iter().take(MAX_WAYS).collect(), ..plan },
            policy,
            lost_edges: 0,
            lost: None,
            flights: VecDeque::new(),
            next: OpId(0),
            wake_at: Time::NEVER,
            corrupt: 0,
            heard: 0,
            unheard: 0,
            usual: Span::ZERO,
        }
    }

    /// When [`Self::handle_timeout`] wants to be called; [`Time::NEVER`] if it need not be.
    pub fn deadline(&self) -> Time {
        self.wake_at
    }

    /// Messages whose end-to-end code did not fit.
    pub fn corrupt(&self) -> u64 {
        self.corrupt
    }

    /// Multicasts that came, also those whose result was known already.
    pub fn heard(&self) -> u64 {
        self.heard
    }

    /// Results that came over an edge since the last multicast.
    pub fn unheard(&self) -> u32 {
        self.unheard
    }

    /// Contributes to the next operation.
    ///
    /// # Errors
    /// If the window is full or no way up is left; nothing has happened then.
    pub fn start(&mut self, now: Time, own: Contribution, out: &mut Outbox) -> Result<OpId, StartError> {
        if self.flights.len() >= self.plan.window as usize {
            return Err(StartError::WindowFull);
        }
        if let Some(cause) = self.lost {
            return Err(StartError::NoWayUp(cause));
        }
        let op = self.next;
        self.next = op.next();
        let header = AggregationHeader {
            kind: Kind::Contribution,
            element: own.element,
            operator: own.operator,
            flags: 0,
            group: self.plan.group,
            epoch: self.plan.epoch,
            operation: op,
            segment: own.segment,
            child: units::ChildIndex(0),
            element_count: own.element_count,
            detail: own.voice.code() | own.wish.code(),
        };
        let mut sent = None;
        for (edge, parent) in self.plan.parents.iter().enumerate() {
            if self.is_lost(EdgeIndex(edge as u16)) {
                continue;
            }
            let header = AggregationHeader { child: parent.child, flags: parent.plane.0, ..header };
            let message = Message::new(header, own.payload.clone());
            sent = self.edges[edge].send(now, message, Ask::InTurn, &mut transmit(EdgeIndex(edge as u16), out));
        }
        let ask_at = now + self.patience();
        let sent = sent.filter(|_| self.edges.len() == 1 && self.plan.result_proves == ResultProves::Arrival);
        self.flights.push_back(Flight { op, header, sent, started: now, ask_at, asked: 0, done: false });
        let deadlines = self.edges.iter().filter_map(Connection::deadline);
        let deadline = deadlines.min().unwrap_or(Time::NEVER);
        self.note_deadline(deadline.min(ask_at));
        Ok(op)
    }

    /// A sound frame came over an edge.
    pub fn handle_frame(
        &mut self,
        now: Time,
        edge: EdgeIndex,
        came: Arrival,
        frame: &Frame<Message>,
        out: &mut Outbox,
    ) {
        if self.is_lost(edge) {
            return; // P-9: unanswered, so that the other end finds out too.
        }
        if let Frame::Data { message, .. } = frame
            && !message.is_intact()
        {
            self.corrupt += 1;
            return self.handle_damage(now, edge, Damage::Here, out);
        }
        let connection = &mut self.edges[edge.index()];
        let delivered = connection.handle_frame(now, came, frame, &mut transmit(edge, out));
        if let Some(deadline) = connection.deadline() {
            self.note_deadline(deadline);
        }
        // A parent that asks for our contribution (P-24) has its answer: the acknowledgement shows that we live, and
        // the contribution is under way if there is one.
        if let Some(message) = delivered.filter(|message| message.header.kind != Kind::Repair)
            && self.result(now, message, out)
        {
            self.unheard = self.unheard.saturating_add(1);
        }
    }

    /// A sound multicast came down over an edge.
    pub fn handle_multicast(&mut self, now: Time, edge: EdgeIndex, message: &Message, out: &mut Outbox) {
        (self.heard, self.unheard) = (self.heard + 1, 0);
        // Several roots multicast the same result: what comes after the first is dropped before anything is looked at.
        if self.flights.is_empty() && self.policy.copies == 1 {
            return;
        }
        if !message.is_intact() {
            self.corrupt += 1;
            return self.handle_damage(now, edge, Damage::Here, out);
        }
        if self.result(now, message, out) {
            self.edges[edge.index()].expect_echoes(self.policy.copies - 1);
        } else {
            self.edges[edge.index()].note_echo();
        }
    }

    /// A packet came over an edge and was beyond use.
    pub fn handle_damage(&mut self, now: Time, edge: EdgeIndex, damage: Damage, out: &mut Outbox) {
        if self.is_lost(edge) {
            return;
        }
        if self.edges[edge.index()].handle_damage(damage, &mut transmit(edge, out)) == DamageOutcome::Reported {
            // P-20: once, until the timer says that no answer came; or every damaged answer would bring more.
            if let Some(flight) = self.flights.front().filter(|flight| flight.asked == 0) {
                let header = flight.header;
                self.ask(now, edge, header, out);
            }
        }
    }

    /// Repeats what is overdue, asks for results that are late, gives up when no way up is left.
    pub fn handle_timeout(&mut self, now: Time, out: &mut Outbox) {
        for (index, connection) in self.edges.iter_mut().enumerate() {
            let edge = EdgeIndex(index as u16);
            if connection.handle_timeout(now, &mut transmit(edge, out)).is_err() {
                connection.abandon();
                self.lost_edges |= 1 << index;
            }
        }
        if self.lost_edges.count_ones() as usize == self.edges.len() {
            return self.give_up(AbortCause::LostPeer(self.plan.peers[0]), out);
        }
        let late: Vec<AggregationHeader> = self
            .flights
            .iter()
            .filter(|flight| !flight.done && flight.ask_at <= now)
            .map(|flight| flight.header)
            .collect();
        for header in late {
            for edge in 0..self.edges.len() {
                self.ask(now, EdgeIndex(edge as u16), header, out);
            }
        }
        self.wake_at = Time::NEVER;
        let edges = self.edges.iter().filter_map(Connection::deadline);
        let flights = self.flights.iter().filter(|flight| !flight.done).map(|flight| flight.ask_at);
        if let Some(deadline) = edges.chain(flights).min() {
            self.note_deadline(deadline);
        }
    }

    /// Gives an edge several paths to its parent.
    pub fn set_paths(&mut self, edge: EdgeIndex, paths: Paths) {
        let connection = &mut self.edges[edge.index()];
        connection.set_paths(paths);
        if let Some(deadline) = connection.deadline() {
            self.note_deadline(deadline);
        }
    }

    /// The paths of an edge, if it has several.
    pub fn paths(&self, edge: EdgeIndex) -> Option<&Paths> {
        self.edges[edge.index()].paths()
    }

    /// The driver knows that one of an edge's paths is down.
    pub fn handle_path_down(&mut self, now: Time, edge: EdgeIndex, path: PathId, out: &mut Outbox) {
        if self.is_lost(edge) {
            return;
        }
        let connection = &mut self.edges[edge.index()];
        connection.handle_path_down(now, path, &mut transmit(edge, out));
        if let Some(deadline) = connection.deadline() {
            self.note_deadline(deadline);
        }
    }

    /// The driver knows that one of an edge's paths is up again.
    pub fn handle_path_up(&mut self, now: Time, edge: EdgeIndex, path: PathId) {
        let connection = &mut self.edges[edge.index()];
        connection.handle_path_up(now, path);
        if let Some(deadline) = connection.deadline() {
            self.note_deadline(deadline);
        }
    }

    /// How long a result is waited for.
    fn patience(&self) -> Span {
        match self.plan.patience {
            Patience::Fixed => self.plan.repair_after,
            Patience::Measured => self.plan.repair_after.max(self.usual.times(4)),
        }
    }

    fn is_lost(&self, edge: EdgeIndex) -> bool {
        self.lost_edges >> edge.0 & 1 == 1
    }

    fn note_deadline(&mut self, deadline: Time) {
        self.wake_at = self.wake_at.min(deadline);
    }

    /// Asks over one edge for the result of an operation (P-20).
    fn ask(&mut self, now: Time, edge: EdgeIndex, header: AggregationHeader, out: &mut Outbox) {
        if self.is_lost(edge) {
            return;
        }
        let parent = self.plan.parents[edge.index()];
        let request = Message::new(header, Payload::EMPTY).about(Kind::Repair, parent.child, parent.plane);
        let connection = &mut self.edges[edge.index()];
        if !connection.is_carrying(|carried| carried.asks_the_same(&request)) {
            connection.send(now, request, Ask::InTurn, &mut transmit(edge, out));
        }
        if let Some(deadline) = self.edges[edge.index()].deadline() {
            self.note_deadline(deadline);
        }
        let (patience, most) = match self.plan.patience {
            Patience::Fixed => (self.patience(), 1),
            Patience::Measured => (self.patience(), MOST_PATIENCE),
        };
        let flight = self.flights.iter_mut().find(|flight| flight.op == header.operation);
        if let Some(flight) = flight {
            // Most likely someone is only late: the longer it takes, the less often anyone is asked.
            flight.asked = (flight.asked + 1).min(most);
            flight.ask_at = now + patience.times(1 << flight.asked);
        }
    }

    /// Takes a result; true if it was due.
    fn result(&mut self, now: Time, message: &Message, out: &mut Outbox) -> bool {
        let header = &message.header;
        if (header.group, header.epoch) != (self.plan.group, self.plan.epoch) {
            return false;
        }
        let op = header.operation;
        let Some(flight) = self.flights.iter_mut().find(|flight| flight.op == op && !flight.done) else {
            return false; // P-18: known already, or never asked for.
        };
        flight.done = true;
        // What was asked for took as long as we waited before we asked: waiting longer for that would have no end.
        if flight.asked == 0 {
            let took = now.since(flight.started);
            self.usual = Span::from_picos(self.usual.as_picos() / 8 * 7 + took.as_picos() / 8);
        }
        // P-5: a result proves that the contribution came; an abort proves nothing.
        if let Some(psn) = flight.sent.take().filter(|_| header.kind == Kind::Result) {
            self.edges[0].confirm(now, psn, &mut transmit(EdgeIndex(0), out));
        }
        out.push(match header.kind {
            Kind::Abort => Duty::Failed { op, cause: AbortCause::from_code(header.detail) },
            _ => Duty::Complete { op, result: message.payload.clone() },
        });
        while self.flights.front().is_some_and(|flight| flight.done) {
            self.flights.pop_front();
        }
        true
    }

    fn give_up(&mut self, cause: AbortCause, out: &mut Outbox) {
        self.lost = Some(cause);
        self.wake_at = Time::NEVER;
        for flight in self.flights.drain(..).filter(|flight| !flight.done) {
            out.push(Duty::Failed { op: flight.op, cause });
        }
    }
}
