//! An aggregation node: folds its children's contributions, sends the fold to its parents and the result to its
//! children.
//!
//! In: frames, multicasts and damage, each with its edge. Out: actions. Rules: P-29 to P-46, P-50 to P-53.
//! `node/results.rs` distributes results, `node/repair.rs` answers requests for missing messages.

mod repair;
mod results;

use units::{PathId, Span, Time};
use wire::aggregation::AggregationMessageKind;

use super::collection::ContributionOutcome;
use super::operation_mode::is_member_multicast;
use super::outbox::transmit;
use super::retry_extension::extend_retries;
use super::seat::Seat;
use super::{
    AbortCause, AggregationAction, AggregationMessage, ChildLateness, Damage, EdgeIndex, ImplicitAck, OperationTimes,
    Outbox, SeatConfig,
};
use crate::connection::{AckRequest, Connection, ConnectionPolicy, DamageOutcome, Frame, FramePath, Paths};
#[cfg(feature = "sabotage")]
use crate::sabotage::MachineSabotage;
use results::ResultArrival;

/// Messages that a node dropped, by cause. Dropping allocates nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NodeCounters {
    /// The end-to-end checksum does not match.
    pub corrupt: u64,
    /// No seat for that group, plane or epoch.
    pub foreign: u64,
    /// A message that this child may not send over that edge.
    pub unauthorized_child: u64,
    /// An operation that cannot be in flight.
    pub out_of_window: u64,
    /// Duplicate contributions.
    pub duplicate: u64,
    /// Duplicate results.
    pub duplicate_result: u64,
    /// Frames from lost neighbours.
    pub from_lost_peer: u64,
}

/// The load of a node.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NodeLoad {
    /// Operations folded so far.
    pub folded: u64,
    /// Operations in collection, or folded and without a result yet.
    pub in_flight: u32,
    /// Payload bytes held for them.
    pub bytes: u64,
    /// How often connections moved to another path.
    pub migrations: u64,
}

#[derive(Debug)]
struct Edge {
    connection: Connection<AggregationMessage>,
    /// The neighbour's node number, for abort causes.
    peer: u32,
    lost: bool,
    /// How long it had not responded when it was lost.
    silence: Span,
}

/// A neighbour that no longer responds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostNeighbour {
    /// Its node number.
    pub peer: u32,
    /// How long it had not responded when the node gave it up.
    pub silence: Span,
}

/// The state machine of one aggregation node.
#[derive(Debug)]
pub struct AggregationNode {
    policy: ConnectionPolicy,
    edges: Vec<Edge>,
    seats: Vec<Seat>,
    wake_at: Time,
    counters: NodeCounters,
    folded: u64,
}

impl AggregationNode {
    /// A node with one edge to each of these neighbours.
    pub fn new(policy: ConnectionPolicy, peers: &[u32]) -> Self {
        let edge =
            |peer: &u32| Edge { connection: Connection::new(policy), peer: *peer, lost: false, silence: Span::ZERO };
        let edges = peers.iter().map(edge);
        Self {
            policy,
            edges: edges.collect(),
            seats: Vec::new(),
            wake_at: Time::NEVER,
            counters: NodeCounters::default(),
            folded: 0,
        }
    }

    /// Adds a seat in a group's tree.
    pub fn take_seat(&mut self, config: SeatConfig) {
        self.seats.push(Seat::new(config));
    }

    /// The messages dropped so far.
    pub fn counters(&self) -> &NodeCounters {
        &self.counters
    }

    /// Operations folded so far.
    pub fn folded(&self) -> u64 {
        self.folded
    }

    /// The current load. Visits every slot.
    pub fn load(&self) -> NodeLoad {
        let paths = self.edges.iter().filter_map(|edge| edge.connection.paths());
        let migrations = paths.map(|paths| u64::from(paths.migrations())).sum();
        let held = self.seats.iter().flat_map(Seat::held);
        held.fold(NodeLoad { folded: self.folded, migrations, ..NodeLoad::default() }, |load, bytes| NodeLoad {
            in_flight: load.in_flight + 1,
            bytes: load.bytes + bytes,
            ..load
        })
    }

    /// Counts how long operations have waited for children that are still missing. Visits every slot.
    pub fn count_waiting(&mut self, now: Time) {
        self.seats.iter_mut().for_each(|seat| seat.count_waiting(now));
    }

    /// All children, by their node numbers, with how late they were up to the last [`Self::count_waiting`].
    pub fn children(&self) -> impl Iterator<Item = (u32, ChildLateness)> + '_ {
        self.seats.iter().flat_map(|seat| {
            seat.config.children.iter().enumerate().filter_map(|(position, edges)| {
                let edge = edges.first()?;
                Some((self.edges[edge.index()].peer, seat.pace.of_child(position)))
            })
        })
    }

    /// Operations that were folded, or aborted because a child was lost.
    pub fn collected(&self) -> u64 {
        self.folded + self.seats.iter().map(|seat| seat.pace.abandoned).sum::<u64>()
    }

    /// How long operations took.
    pub fn operation_times(&self) -> OperationTimes {
        let mut times = OperationTimes::default();
        self.seats.iter().for_each(|seat| times.add(&seat.pace.times));
        times
    }

    /// Messages that neighbours have not acknowledged, or that wait for a connection's window.
    pub fn unacknowledged(&self) -> usize {
        self.edges.iter().map(|edge| edge.connection.outstanding()).sum()
    }

    /// A lost neighbour, if there is one.
    pub fn lost_peer(&self) -> Option<LostNeighbour> {
        let lost = self.edges.iter().find(|edge| edge.lost);
        lost.map(|edge| LostNeighbour { peer: edge.peer, silence: edge.silence })
    }

    /// When to call [`Self::handle_timeout`]; [`Time::NEVER`] if no timer is set.
    pub fn deadline(&self) -> Time {
        self.wake_at
    }

    /// Handles a frame from an edge.
    pub fn handle_frame(
        &mut self,
        now: Time,
        edge: EdgeIndex,
        path: FramePath,
        frame: &Frame<AggregationMessage>,
        out: &mut Outbox,
    ) {
        if self.edges[edge.index()].lost {
            self.counters.from_lost_peer += 1; // P-9: not answered, so that the peer detects the loss too.
            return;
        }
        if let Frame::Data { message, .. } = frame {
            // P-31: verified before the connection acknowledges it, so that a corrupted message is sent again.
            if !message.is_intact() {
                self.counters.corrupt += 1;
                return self.handle_damage(now, edge, Damage::Here, out);
            }
        }
        let connection = &mut self.edges[edge.index()].connection;
        let delivered = connection.handle_frame(now, path, frame, &mut transmit(edge, out));
        self.note_deadline(edge);
        let Some(message) = delivered else { return };
        // A parent's message goes to the seat with that parent, because the parent does not know our planes.
        let from_parent =
            (0..self.seats.len()).find(|seat| self.serves_group(*seat, message) && self.seats[*seat].is_parent(edge));
        let Some(seat) = from_parent.or_else(|| self.seat_of(message)) else {
            self.counters.foreign += 1;
            return;
        };
        match (message.header.kind, from_parent.is_some()) {
            // P-50: a multicast has no contributions, so this abort replies to a repair request; it goes to all
            // requesters.
            (AggregationMessageKind::Abort, false)
                if self.seats[seat].slot(message.op()).is_multicast_requested(message.op()) =>
            {
                self.handle_result(now, message, ResultArrival::OverEdge, out);
            }
            (AggregationMessageKind::Contribution | AggregationMessageKind::Abort, false) => {
                self.handle_contribution(now, seat, edge, message, out)
            }
            (AggregationMessageKind::Result, _) | (AggregationMessageKind::Abort, true) => {
                self.handle_result(now, message, ResultArrival::OverEdge, out);
            }
            (AggregationMessageKind::Repair, _) if is_member_multicast(&message.header) => {
                self.handle_multicast_request(now, seat, edge, message, out)
            }
            (AggregationMessageKind::Repair, true) => self.ask_missing_children(now, seat, message, out),
            (AggregationMessageKind::Repair, false) => self.handle_repair_request(now, seat, edge, message, out),
            (AggregationMessageKind::NotEntered, false) => self.handle_not_entered(now, seat, edge, message, out),
            (AggregationMessageKind::Contribution | AggregationMessageKind::NotEntered, true)
            | (AggregationMessageKind::Poll, _) => self.counters.unauthorized_child += 1,
        }
    }

    /// Handles a copy of a contribution that did not come over its child's connection. Contributions are identified,
    /// so only the first copy is folded.
    pub fn handle_contribution_copy(
        &mut self,
        now: Time,
        edge: EdgeIndex,
        message: &AggregationMessage,
        out: &mut Outbox,
    ) {
        if let Some(seat) = self.seat_of(message) {
            self.handle_contribution(now, seat, edge, message, out);
        }
    }

    /// Handles a multicast from a parent's edge.
    pub fn handle_multicast(&mut self, now: Time, edge: EdgeIndex, message: &AggregationMessage, out: &mut Outbox) {
        if matches!(message.header.kind, AggregationMessageKind::Poll | AggregationMessageKind::NotEntered) {
            return; // Between members only.
        }
        if !message.is_intact() {
            self.counters.corrupt += 1;
            return self.handle_damage(now, edge, Damage::Here, out);
        }
        let is_new = self.handle_result(now, message, ResultArrival::ByMulticast, out);
        let connection = &mut self.edges[edge.index()].connection;
        if is_new {
            connection.expect_copies(self.policy.copies - 1);
        } else {
            connection.note_copy();
        }
    }

    /// Handles a report of a damaged packet from an edge.
    pub fn handle_damage(&mut self, now: Time, edge: EdgeIndex, damage: Damage, out: &mut Outbox) {
        if self.edges[edge.index()].lost {
            return;
        }
        let connection = &mut self.edges[edge.index()].connection;
        if connection.handle_damage(damage, &mut transmit(edge, out)) == DamageOutcome::Reported {
            self.ask_for_oldest(now, edge, out);
        }
    }

    /// Sets several paths for an edge.
    pub fn set_paths(&mut self, edge: EdgeIndex, paths: Paths) {
        self.edges[edge.index()].connection.set_paths(paths);
        self.note_deadline(edge);
    }

    /// The paths of an edge, if it has several.
    pub fn paths(&self, edge: EdgeIndex) -> Option<&Paths> {
        self.edges[edge.index()].connection.paths()
    }

    /// Handles the driver's report that a path of an edge is down.
    pub fn handle_path_down(&mut self, now: Time, edge: EdgeIndex, path: PathId, out: &mut Outbox) {
        let target = &mut self.edges[edge.index()];
        if !target.lost {
            target.connection.handle_path_down(now, path, &mut transmit(edge, out));
            self.note_deadline(edge);
        }
    }

    /// Handles the driver's report that a path of an edge is up again.
    pub fn handle_path_up(&mut self, now: Time, edge: EdgeIndex, path: PathId) {
        self.edges[edge.index()].connection.handle_path_up(now, path);
        self.note_deadline(edge);
    }

    /// Puts off the loss of neighbours that are silent here and have responded elsewhere since then: call it before [`Self::handle_timeout`] (P-131).
    pub fn extend_retries(&mut self, now: Time, mut has_responded: impl FnMut(EdgeIndex, Time) -> bool) {
        for (index, edge) in self.edges.iter_mut().enumerate() {
            extend_retries(&mut edge.connection, now, |since| has_responded(EdgeIndex(index as u16), since));
        }
    }

    /// Retransmits overdue frames and drops neighbours that never answer.
    pub fn handle_timeout(&mut self, now: Time, out: &mut Outbox) {
        for index in 0..self.edges.len() {
            let edge = EdgeIndex(index as u16);
            let connection = &mut self.edges[index].connection;
            if connection.handle_timeout(now, &mut transmit(edge, out)).is_err() {
                self.lose_edge(now, edge, out);
            }
        }
        let deadlines = self.edges.iter().filter_map(|edge| edge.connection.deadline());
        self.wake_at = deadlines.min().unwrap_or(Time::NEVER);
    }

    fn note_deadline(&mut self, edge: EdgeIndex) {
        if let Some(deadline) = self.edges[edge.index()].connection.deadline() {
            self.wake_at = self.wake_at.min(deadline);
        }
    }

    fn seat_of(&self, message: &AggregationMessage) -> Option<usize> {
        self.seats.iter().position(|seat| seat.serves(message) && seat.config.epoch == message.header.epoch)
    }

    fn serves_group(&self, seat: usize, message: &AggregationMessage) -> bool {
        let config = &self.seats[seat].config;
        (config.group, config.epoch) == (message.header.group, message.header.epoch)
    }

    fn handle_contribution(
        &mut self,
        now: Time,
        seat: usize,
        edge: EdgeIndex,
        message: &AggregationMessage,
        out: &mut Outbox,
    ) {
        let (op, child) = (message.op(), message.header.child);
        let state = &mut self.seats[seat];
        if !state.is_authorized(child, edge) {
            self.counters.unauthorized_child += 1;
            return;
        }
        let (children, window, lost_child) = (state.config.children.len(), state.config.window, state.lost_child);
        let slot = state.slot(op);
        match slot.contribute(message, child, children, window) {
            ContributionOutcome::Keep => {
                slot.note_contribution(now);
                // P-45: with a lost child, waiting for the others is useless.
                if let Some(cause) = lost_child {
                    self.count_abandoned(now, seat);
                    if let Some(abort) = self.seats[seat].slot(op).abort(cause, None) {
                        return self.forward(now, seat, abort, out);
                    }
                }
                self.report_missing(now, seat, message, out);
            }
            ContributionOutcome::Fold => {
                #[cfg(feature = "sabotage")]
                if let Some(MachineSabotage::Fold(sabotage)) = self.policy.sabotage {
                    slot.sabotage(sabotage);
                }
                let first_at = slot.note_contribution(now);
                let folded = slot.fold();
                state.pace.note_last(child, children, first_at, now);
                self.folded += 1;
                self.forward(now, seat, folded, out);
            }
            ContributionOutcome::Duplicate => self.counters.duplicate += 1,
            ContributionOutcome::OutOfWindow => self.counters.out_of_window += 1,
        }
    }

    /// Sends a fold, or the abort that replaces it, to the parents; a root makes it the result.
    fn forward(&mut self, now: Time, seat: usize, folded: AggregationMessage, out: &mut Outbox) {
        #[cfg(feature = "sabotage")]
        if folded.header.kind == AggregationMessageKind::Abort
            && self.policy.sabotage == Some(MachineSabotage::SwallowAborts)
        {
            return;
        }
        let config = &self.seats[seat].config;
        if config.parents.is_empty() {
            out.push(AggregationAction::Reduced { op: folded.op() });
            return self.distribute(now, &folded, out);
        }
        if let Some(cause) = self.seats[seat].lost_parents {
            return self.distribute(now, &folded.aborted(cause), out);
        }
        let kind = if folded.header.kind == AggregationMessageKind::Abort {
            AggregationMessageKind::Abort
        } else {
            AggregationMessageKind::Contribution
        };
        let is_acked_by_result = config.implicit_ack == ImplicitAck::ByResult && config.parents.len() == 1;
        for parent in config.parents.clone() {
            let message = folded.addressed(kind, parent.child, parent.plane);
            let psn = self.send(now, parent.edge, message, out);
            if is_acked_by_result {
                *self.seats[seat].sent(folded.op()) = psn;
            }
        }
    }

    fn send(
        &mut self,
        now: Time,
        edge: EdgeIndex,
        message: AggregationMessage,
        out: &mut Outbox,
    ) -> Option<units::Psn> {
        #[cfg(feature = "sabotage")]
        if message.header.kind == AggregationMessageKind::Abort
            && self.policy.sabotage == Some(MachineSabotage::SwallowAborts)
        {
            return None;
        }
        let target = &mut self.edges[edge.index()];
        let is_requested = || target.connection.is_unacknowledged(|carried| carried.is_same_request(&message));
        if target.lost || message.header.kind == AggregationMessageKind::Repair && is_requested() {
            return None;
        }
        let psn = target.connection.send(now, message, AckRequest::Periodic, &mut transmit(edge, out));
        self.note_deadline(edge);
        psn
    }

    /// Marks a neighbour as lost: operations that depend on it fail with a cause that every member gets (P-45).
    fn lose_edge(&mut self, now: Time, edge: EdgeIndex, out: &mut Outbox) {
        let target = &mut self.edges[edge.index()];
        (target.lost, target.silence) = (true, target.connection.silence(now));
        target.connection.abandon();
        let cause = AbortCause::LostPeer(target.peer);
        for seat in 0..self.seats.len() {
            let config = &self.seats[seat].config;
            let is_lost = |edge: &EdgeIndex| self.edges[edge.index()].lost;
            let lost_parents =
                !config.parents.is_empty() && config.parents.iter().all(|parent| is_lost(&parent.edge));
            let lost_child = config.children.iter().any(|edges| edges.contains(&edge) && edges.iter().all(is_lost));
            if lost_parents {
                self.seats[seat].lost_parents.get_or_insert(cause);
            }
            if lost_child {
                self.seats[seat].lost_child.get_or_insert(cause);
            }
            if lost_parents || lost_child {
                self.abort_all(now, seat, cause, out);
            }
        }
    }

    fn count_abandoned(&mut self, now: Time, seat: usize) {
        let edges = &self.edges;
        self.seats[seat].count_abandoned(now, |of_child| of_child.iter().all(|edge| edges[edge.index()].lost));
    }

    fn abort_all(&mut self, now: Time, seat: usize, cause: AbortCause, out: &mut Outbox) {
        self.count_abandoned(now, seat);
        let lost_parents = self.seats[seat].lost_parents.is_some();
        // While a parent is left, a fold that was sent can still get its result; only collections cannot complete.
        let slots = self.seats[seat].slots().filter(|slot| lost_parents || slot.awaiting().is_none());
        let aborts: Vec<AggregationMessage> = slots.filter_map(|slot| slot.abort(cause, None)).collect();
        for abort in aborts {
            self.forward(now, seat, abort, out);
        }
    }
}
