//! A member: contributes to a group's operations and takes the results, from a host at the edge of the tree.
//!
//! In: operations to start; frames, multicasts, damage and time. Out: duties, among them [`AggregationAction::Complete`] exactly
//! once for each operation, or [`AggregationAction::Failed`]. Rules: P-10 to P-26; for operations that are cast or tested
//! (`member/tested.rs`) P-94 to P-97.

mod polled_barrier;

use std::collections::VecDeque;
use std::fmt;

use units::{Epoch, GroupId, OpId, PathId, Psn, SegmentIndex, Span, Time};
use wire::aggregation::{AggregationHeader, AggregationMessageKind, ElementCode, OperatorCode};

use super::member_multicast::{MemberMulticasts, MulticastOrigin};
use super::node::transmit;
use super::operation_mode::{MEMBER_MULTICAST, is_member_multicast};
use super::{
    AbortCause, AggregationAction, AggregationMessage, ContributionRole, Damage, EdgeIndex, ImplicitAck,
    OperationMode, Outbox, ParentLink, PollRole, ResultDisposition,
};
use crate::Payload;
use crate::connection::{AckRequest, Connection, ConnectionPolicy, DamageOutcome, Frame, FramePath, Paths};
use polled_barrier::BarrierPollState;

/// What a member must know to take part.
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// The group.
    pub group: GroupId,
    /// Its incarnation.
    pub epoch: Epoch,
    /// The ways up: one, or one per lane of a split adapter. Edge `n` is the `n`-th of these.
    pub parents: Vec<ParentLink>,
    /// The numbers of the nodes at the other ends, for naming them.
    pub peers: Vec<u32>,
    /// What a result tells about the contribution sent up.
    pub result_proves: ImplicitAck,
    /// Operations that may be in flight at once.
    pub window: u32,
    /// A result that has not come after so long is asked for.
    pub repair_after: Span,
    /// Whether that time is longer where operations usually take longer.
    pub patience: RepairTimeoutMode,
}

/// How long a member waits for a result before it asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RepairTimeoutMode {
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
    pub voice: ContributionRole,
    /// What the member wants to hear of the result.
    pub wish: ResultDisposition,
    /// Which piece of the user's vector they are; all members must agree on it.
    pub segment: SegmentIndex,
    /// Their bytes.
    pub payload: Payload,
}

/// Why an operation cannot be started now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationStartError {
    /// As many operations are in flight as the window allows: take a result first.
    WindowFull,
    /// Casts before it have not come, or one that is tested is not over: what all contribute to waits for them.
    Behind,
    /// Every way up is lost.
    NoWayUp(AbortCause),
}

impl fmt::Display for OperationStartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WindowFull => f.write_str("all operations of the window are in flight; wait for one to complete"),
            Self::Behind => f.write_str("operations before it are not over; wait for them"),
            Self::NoWayUp(cause) => write!(f, "no way up is left: {cause}"),
        }
    }
}

impl std::error::Error for OperationStartError {}

#[derive(Debug)]
struct InFlightOperation {
    op: OpId,
    header: AggregationHeader,
    manner: OperationMode,
    /// What is contributed when somebody asks.
    held: Option<Payload>,
    /// The number of the contribution, if there is only one way up.
    sent: Option<Psn>,
    started: Time,
    ask_at: Time,
    /// How often the result has been asked for; an answer may be on its way.
    asked: u8,
    done: bool,
}

/// The pause between two questions for one result doubles so many times.
const MAX_REPAIR_BACKOFF_SHIFT: u8 = 6;
/// How much longer a cast is waited for than a result.
const MULTICAST_REPAIR_FACTOR: u64 = 4;
/// A cast that another one overtook is asked for after so small a part of the usual time.
const GAP_REPAIR_DIVISOR: u64 = 8;
/// Most ways up that a member uses.
const MAX_PARENTS: usize = 64;

/// The machine of one member.
#[derive(Debug)]
pub struct AggregationMember {
    plan: MemberConfig,
    policy: ConnectionPolicy,
    edges: Vec<Connection<AggregationMessage>>,
    /// Edges whose other end has been given up, one bit each.
    lost_edges: u64,
    lost: Option<AbortCause>,
    /// Operations in flight, oldest first, without gaps.
    flights: VecDeque<InFlightOperation>,
    next: OpId,
    wake_at: Time,
    corrupt: u64,
    heard: u64,
    unheard: u32,
    /// What an operation took of late.
    usual: Span,
    casts: MemberMulticasts,
    testing: Option<Box<BarrierPollState>>,
}

impl AggregationMember {
    /// A member that has not yet started anything.
    pub fn new(policy: ConnectionPolicy, plan: MemberConfig) -> Self {
        let window = plan.window.clamp(1, units::limits::MAX_GROUP_WINDOW).next_power_of_two();
        Self {
            edges: plan.parents.iter().take(MAX_PARENTS).map(|_| Connection::new(policy)).collect(),
            plan: MemberConfig { window, parents: plan.parents.into_iter().take(MAX_PARENTS).collect(), ..plan },
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
            casts: MemberMulticasts::new(window),
            testing: None,
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

    /// Casts that are kept: told and not known to be everywhere, or come before their operation has begun.
    pub fn casts_kept(&self) -> usize {
        self.casts.kept()
    }

    /// True if nobody above or beside can still need anything of this member.
    pub fn is_settled(&self) -> bool {
        let has_spoken = |connection: &Connection<AggregationMessage>| connection.outstanding() == 0;
        self.lost.is_some() || self.casts.is_settled() && self.edges.iter().all(has_spoken)
    }

    /// Contributes to the next operation.
    ///
    /// # Errors
    /// If the window is full or no way up is left; nothing has happened then.
    pub fn start(&mut self, now: Time, own: Contribution, out: &mut Outbox) -> Result<OpId, OperationStartError> {
        self.start_as(now, own, OperationMode::Folded, out)
    }

    /// Begins the next operation in some manner. Whoever casts, or whose cast has come early, is done at once.
    ///
    /// # Errors
    /// If it must wait, or no way up is left; nothing has happened then.
    pub fn start_as(
        &mut self,
        now: Time,
        own: Contribution,
        manner: OperationMode,
        out: &mut Outbox,
    ) -> Result<OpId, OperationStartError> {
        self.may_start(manner)?;
        let op = self.next;
        self.next = op.next();
        let mark = if manner == OperationMode::Cast { MEMBER_MULTICAST } else { 0 };
        let header = AggregationHeader {
            kind: AggregationMessageKind::Contribution,
            element: own.element,
            operator: own.operator,
            flags: 0,
            group: self.plan.group,
            epoch: self.plan.epoch,
            operation: op,
            segment: own.segment,
            child: units::ChildIndex(0),
            element_count: own.element_count,
            detail: own.voice.code() | own.wish.code() | mark,
        };
        // Who waits for a cast is told by the next one that it is lost: without that, most likely nobody has told it yet.
        let ask_at = now
            + if manner == OperationMode::Cast {
                self.patience().times(MULTICAST_REPAIR_FACTOR)
            } else {
                self.patience()
            };
        self.flights.push_back(InFlightOperation {
            op,
            header,
            manner,
            held: Some(own.payload),
            sent: None,
            started: now,
            ask_at,
            asked: 0,
            done: false,
        });
        self.note_deadline(ask_at);
        if manner == OperationMode::Cast {
            self.casts.begin(op);
        }
        match manner {
            OperationMode::Folded | OperationMode::Tested(PollRole::Asks) => self.contribute(now, op, out),
            OperationMode::Tested(PollRole::Answers) => {}
            OperationMode::Cast if own.voice == ContributionRole::Sole => self.cast(now, op, out),
            OperationMode::Cast => {
                if let Some(early) = self.casts.take_early(op) {
                    self.result(now, &early, out);
                }
            }
        }
        if manner == OperationMode::Tested(PollRole::Asks) {
            self.begin_to_test(now, out);
        }
        Ok(op)
    }

    fn may_start(&self, manner: OperationMode) -> Result<(), OperationStartError> {
        if self.flights.len() >= self.plan.window as usize || !self.casts.has_room_for(self.next) {
            return Err(OperationStartError::WindowFull);
        }
        if let Some(cause) = self.lost {
            return Err(OperationStartError::NoWayUp(cause));
        }
        let blocks = |flight: &InFlightOperation| match (flight.manner, manner) {
            // P-95: whoever contributes says with it that it has every cast before.
            (OperationMode::Cast, OperationMode::Folded | OperationMode::Tested(_))
            | (OperationMode::Tested(_), OperationMode::Tested(_)) => !flight.done,
            _ => false,
        };
        if self.flights.iter().any(blocks) { Err(OperationStartError::Behind) } else { Ok(()) }
    }

    /// Sends what a flight holds up every way, once.
    fn contribute(&mut self, now: Time, op: OpId, out: &mut Outbox) {
        let Some(place) = self.flights.iter().rposition(|flight| flight.op == op) else { return };
        let Some(payload) = self.flights[place].held.take() else { return };
        let header = self.flights[place].header;
        let mut sent = None;
        for (edge, parent) in self.plan.parents.iter().enumerate() {
            if self.is_lost(EdgeIndex(edge as u16)) {
                continue;
            }
            let header = AggregationHeader { child: parent.child, flags: parent.plane.0, ..header };
            let message = AggregationMessage::new(header, payload.clone());
            sent =
                self.edges[edge].send(now, message, AckRequest::InTurn, &mut transmit(EdgeIndex(edge as u16), out));
        }
        self.flights[place].sent =
            sent.filter(|_| self.edges.len() == 1 && self.plan.result_proves == ImplicitAck::Arrival);
        let deadlines = self.edges.iter().filter_map(Connection::deadline);
        self.note_deadline(deadlines.min().unwrap_or(Time::NEVER));
    }

    /// Tells all what a flight holds, by multicast, and keeps it for those who miss it (P-94).
    fn cast(&mut self, now: Time, op: OpId, out: &mut Outbox) {
        let Some(flight) = self.flights.iter_mut().find(|flight| flight.op == op) else { return };
        let Some(payload) = flight.held.take() else { return };
        let told = AggregationMessage::new(
            AggregationHeader { kind: AggregationMessageKind::Result, ..flight.header },
            payload,
        );
        out.push(AggregationAction::Multicast { message: told.clone(), copies: self.policy.copies });
        self.result(now, &told, out);
        self.casts.keep_own(told);
    }

    /// A sound frame came over an edge.
    pub fn handle_frame(
        &mut self,
        now: Time,
        edge: EdgeIndex,
        came: FramePath,
        frame: &Frame<AggregationMessage>,
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
        match delivered.map(|message| (message.header.kind, message)) {
            Some((AggregationMessageKind::Repair, message)) => self.asked(now, edge, message, out),
            Some((AggregationMessageKind::Result | AggregationMessageKind::Abort, message)) => {
                if self.result(now, message, out) {
                    self.unheard = self.unheard.saturating_add(1);
                }
            }
            Some((
                AggregationMessageKind::Contribution | AggregationMessageKind::Test | AggregationMessageKind::Late,
                _,
            ))
            | None => {}
        }
    }

    /// A parent asks (P-24). That we live the acknowledgement has shown, and a contribution is under way if there is one; but
    /// what we cast we may be asked for (P-94), and whoever is tested takes this for the test (P-97).
    fn asked(&mut self, now: Time, edge: EdgeIndex, question: &AggregationMessage, out: &mut Outbox) {
        let op = question.op();
        if let Some(own) = self.casts.own(op) {
            let told = own.clone();
            self.edges[edge.index()].send(now, told, AckRequest::InTurn, &mut transmit(edge, out));
            if let Some(deadline) = self.edges[edge.index()].deadline() {
                self.note_deadline(deadline);
            }
            return;
        }
        self.answer(now, question, out);
    }

    /// A sound multicast came down over an edge.
    pub fn handle_multicast(&mut self, now: Time, edge: EdgeIndex, message: &AggregationMessage, out: &mut Outbox) {
        match message.header.kind {
            AggregationMessageKind::Test | AggregationMessageKind::Late => {
                return self.handle_test(now, message, out);
            }
            AggregationMessageKind::Result if is_member_multicast(&message.header) && self.is_of_ours(message) => {
                match self.casts.origin(message) {
                    MulticastOrigin::Own => return,
                    MulticastOrigin::Rival => return self.fail(message.op(), AbortCause::Mismatch, out),
                    MulticastOrigin::Other => {}
                }
            }
            _ => {}
        }
        (self.heard, self.unheard) = (self.heard + 1, 0);
        // Several roots multicast the same result: what comes after the first is dropped before anything is looked at.
        if self.flights.is_empty() && self.policy.copies == 1 && !is_member_multicast(&message.header) {
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
        self.test_again(now, out);
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
            RepairTimeoutMode::Fixed => self.plan.repair_after,
            RepairTimeoutMode::Measured => self.plan.repair_after.max(self.usual.times(4)),
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
        let request = AggregationMessage { header, payload: Payload::EMPTY, seal: 0 }.about(
            AggregationMessageKind::Repair,
            parent.child,
            parent.plane,
        );
        let connection = &mut self.edges[edge.index()];
        if !connection.is_carrying(|carried| carried.asks_the_same(&request)) {
            connection.send(now, request, AckRequest::InTurn, &mut transmit(edge, out));
        }
        if let Some(deadline) = self.edges[edge.index()].deadline() {
            self.note_deadline(deadline);
        }
        let (patience, most) = match self.plan.patience {
            RepairTimeoutMode::Fixed => (self.patience(), 1),
            RepairTimeoutMode::Measured => (self.patience(), MAX_REPAIR_BACKOFF_SHIFT),
        };
        let flight = self.flights.iter_mut().find(|flight| flight.op == header.operation);
        if let Some(flight) = flight {
            // Most likely someone is only late: the longer it takes, the less often anyone is asked.
            flight.asked = (flight.asked + 1).min(most);
            flight.ask_at = now + patience.times(1 << flight.asked);
        }
    }

    /// Takes a result; true if it was due.
    fn result(&mut self, now: Time, message: &AggregationMessage, out: &mut Outbox) -> bool {
        let header = &message.header;
        if !self.is_of_ours(message) {
            return false;
        }
        let op = header.operation;
        if is_member_multicast(header) {
            self.miss_before(now, op);
        }
        let Some(flight) = self.flights.iter_mut().find(|flight| flight.op == op && !flight.done) else {
            // P-18: known already, or never asked for; unless it is what we shall want to hear (P-94).
            return is_member_multicast(header) && self.casts.keep_early(self.next, message);
        };
        let is_alike = is_member_multicast(header) == (flight.manner == OperationMode::Cast)
            && header.segment == flight.header.segment;
        if header.kind == AggregationMessageKind::Result && !is_alike {
            self.fail(op, AbortCause::Mismatch, out);
            return true;
        }
        flight.done = true;
        // What was asked for took as long as we waited before we asked: waiting longer for that would have no end.
        if flight.asked == 0 {
            let took = now.since(flight.started);
            self.usual = Span::from_picos(self.usual.as_picos() / 8 * 7 + took.as_picos() / 8);
        }
        // P-5: a result proves that the contribution came; an abort proves nothing.
        if let Some(psn) = flight.sent.take().filter(|_| header.kind == AggregationMessageKind::Result) {
            self.edges[0].confirm(now, psn, &mut transmit(EdgeIndex(0), out));
        }
        match flight.manner {
            OperationMode::Cast => {}
            OperationMode::Folded => self.note_contributions(header.kind, op),
            OperationMode::Tested(_) => {
                self.note_contributions(header.kind, op);
                self.end_test();
            }
        }
        out.push(match header.kind {
            AggregationMessageKind::Abort => {
                AggregationAction::Failed { op, cause: AbortCause::from_code(header.detail) }
            }
            _ => AggregationAction::Complete { op, result: message.payload.clone() },
        });
        self.forget_done();
        true
    }

    /// An operation to which members contribute is over. Only a result shows that all have.
    fn note_contributions(&mut self, end: AggregationMessageKind, op: OpId) {
        if end == AggregationMessageKind::Result {
            self.casts.reach(op);
        }
    }

    /// A cast is here: those before it that have not come are lost, or will come at any moment.
    fn miss_before(&mut self, now: Time, op: OpId) {
        let soon = now + self.plan.repair_after.divided_by(GAP_REPAIR_DIVISOR);
        let is_missed = |flight: &&mut InFlightOperation| {
            flight.manner == OperationMode::Cast && !flight.done && flight.asked == 0 && op.steps_from(flight.op) > 0
        };
        let mut is_any = false;
        for flight in self.flights.iter_mut().filter(is_missed) {
            flight.ask_at = flight.ask_at.min(soon);
            is_any = true;
        }
        if is_any {
            self.note_deadline(soon);
        }
    }

    fn forget_done(&mut self) {
        while self.flights.front().is_some_and(|flight| flight.done) {
            self.flights.pop_front();
        }
    }

    fn is_of_ours(&self, message: &AggregationMessage) -> bool {
        (message.header.group, message.header.epoch) == (self.plan.group, self.plan.epoch)
    }

    /// An operation cannot be what the others take it for.
    fn fail(&mut self, op: OpId, cause: AbortCause, out: &mut Outbox) {
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.op == op) {
            flight.done = true;
        }
        self.forget_done();
        out.push(AggregationAction::Failed { op, cause });
    }

    fn give_up(&mut self, cause: AbortCause, out: &mut Outbox) {
        self.lost = Some(cause);
        self.wake_at = Time::NEVER;
        for flight in self.flights.drain(..).filter(|flight| !flight.done) {
            out.push(AggregationAction::Failed { op: flight.op, cause });
        }
    }
}
