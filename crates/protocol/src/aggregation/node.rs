//! An aggregation node: folds its children's contributions, passes the fold to its parents, the result to those below.
//!
//! In: frames, multicasts and damage, each with the edge it came over. Out: duties. Rules: P-10 to P-26, P-94 to P-97.

use units::{ChildIndex, PathId, Time};
use wire::aggregation::AggregationMessageKind;

use super::operation_mode::is_member_multicast;
use super::seat::Seat;
use super::slot::ContributionOutcome;
use super::{
    AbortCause, AggregationAction, AggregationMessage, Damage, DownwardDelivery, EdgeIndex, ImplicitAck, Outbox,
    SeatConfig,
};
use crate::connection::{
    AckRequest, Connection, ConnectionPolicy, DamageOutcome, Frame, FramePath, OutgoingFrame, Paths,
};

/// What a node dropped, by cause. Dropping costs no memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NodeCounters {
    /// The end-to-end code did not fit.
    pub corrupt: u64,
    /// No seat for that group, plane or epoch.
    pub foreign: u64,
    /// A child index that may not speak over that edge.
    pub impostor: u64,
    /// Not an operation that can be in flight.
    pub out_of_window: u64,
    /// Contributions that were there already.
    pub duplicate: u64,
    /// Results that were known already.
    pub known_result: u64,
    /// Frames from neighbours that had been given up.
    pub from_the_lost: u64,
}

/// What a node has done, and what it holds now.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NodeLoad {
    /// Operations folded so far.
    pub folded: u64,
    /// Operations that are being collected, or that were folded and whose result has not come down.
    pub in_flight: u32,
    /// Bytes of payload kept for them.
    pub bytes: u64,
    /// How often connections moved to another path.
    pub migrations: u64,
}

#[derive(Debug)]
struct Edge {
    connection: Connection<AggregationMessage>,
    /// The neighbour's number among the fabric's nodes, for naming it.
    peer: u32,
    lost: bool,
}

/// The machine of one aggregation node.
#[derive(Debug)]
pub struct AggregationNode {
    policy: ConnectionPolicy,
    edges: Vec<Edge>,
    seats: Vec<Seat>,
    wake_at: Time,
    counters: NodeCounters,
    folded: u64,
    #[cfg(feature = "sabotage")]
    sabotage: Option<super::SlotMutation>,
}

/// How a result reached this node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ResultArrival {
    /// To everyone below as well.
    ByMulticast,
    /// To this node alone: those below still need it.
    OverEdge,
}

impl AggregationNode {
    /// A node with one edge to each of these neighbours.
    pub fn new(policy: ConnectionPolicy, peers: &[u32]) -> Self {
        let edges = peers.iter().map(|peer| Edge { connection: Connection::new(policy), peer: *peer, lost: false });
        Self {
            policy,
            edges: edges.collect(),
            seats: Vec::new(),
            wake_at: Time::NEVER,
            counters: NodeCounters::default(),
            folded: 0,
            #[cfg(feature = "sabotage")]
            sabotage: None,
        }
    }

    /// Takes a seat in a group's tree.
    pub fn take_seat(&mut self, plan: SeatConfig) {
        self.seats.push(Seat::new(plan));
    }

    /// Breaks the machine on purpose.
    #[cfg(feature = "sabotage")]
    pub fn set_sabotage(&mut self, sabotage: super::SlotMutation) {
        self.sabotage = Some(sabotage);
    }

    /// What was dropped so far.
    pub fn counters(&self) -> &NodeCounters {
        &self.counters
    }

    /// Operations folded so far.
    pub fn folded(&self) -> u64 {
        self.folded
    }

    /// What was done so far, and what is held. Looks at every slot.
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

    /// A neighbour that was given up, if there is one.
    pub fn lost_peer(&self) -> Option<u32> {
        self.edges.iter().find(|edge| edge.lost).map(|edge| edge.peer)
    }

    /// When [`Self::handle_timeout`] wants to be called; [`Time::NEVER`] if it need not be.
    pub fn deadline(&self) -> Time {
        self.wake_at
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
        if self.edges[edge.index()].lost {
            self.counters.from_the_lost += 1; // P-9: unanswered, so that the other end finds out too.
            return;
        }
        if let Frame::Data { message, .. } = frame {
            // P-12: looked at before it is numbered as received, so that a spoiled one is sent again.
            if !message.is_intact() {
                self.counters.corrupt += 1;
                return self.handle_damage(now, edge, Damage::Here, out);
            }
        }
        let connection = &mut self.edges[edge.index()].connection;
        let delivered = connection.handle_frame(now, came, frame, &mut transmit(edge, out));
        self.note_deadline(edge);
        let Some(message) = delivered else { return };
        // What comes from a parent is for the seat that has that parent: the parent does not know our planes.
        let below =
            (0..self.seats.len()).find(|seat| self.serves_group(*seat, message) && self.seats[*seat].is_parent(edge));
        let Some(seat) = below.or_else(|| self.seat_of(message)) else {
            self.counters.foreign += 1;
            return;
        };
        match (message.header.kind, below.is_some()) {
            // P-94: to a cast nobody contributes, so this is the answer to a question, and goes to everyone who asked.
            (AggregationMessageKind::Abort, false) if self.seats[seat].slot(message.op()).is_sought(message.op()) => {
                self.result(now, message, ResultArrival::OverEdge, out);
            }
            (AggregationMessageKind::Contribution | AggregationMessageKind::Abort, false) => {
                self.contribution(now, seat, edge, message, out)
            }
            (AggregationMessageKind::Result, _) | (AggregationMessageKind::Abort, true) => {
                self.result(now, message, ResultArrival::OverEdge, out);
            }
            (AggregationMessageKind::Repair, _) if is_member_multicast(&message.header) => {
                self.seek(now, seat, edge, message, out)
            }
            (AggregationMessageKind::Repair, true) => self.nudge(now, seat, message, out),
            (AggregationMessageKind::Repair, false) => self.repair(now, seat, edge, message, out),
            (AggregationMessageKind::Late, false) => self.late(now, seat, edge, message, out),
            (AggregationMessageKind::Contribution | AggregationMessageKind::Late, true)
            | (AggregationMessageKind::Test, _) => self.counters.impostor += 1,
        }
    }

    /// A contribution of a child reached this node by another way than its connection. Being named, it is folded once
    /// whichever way comes first.
    pub fn handle_shared(&mut self, now: Time, edge: EdgeIndex, message: &AggregationMessage, out: &mut Outbox) {
        if let Some(seat) = self.seat_of(message) {
            self.contribution(now, seat, edge, message, out);
        }
    }

    /// A sound multicast came down over a parent's edge.
    pub fn handle_multicast(&mut self, now: Time, edge: EdgeIndex, message: &AggregationMessage, out: &mut Outbox) {
        if matches!(message.header.kind, AggregationMessageKind::Test | AggregationMessageKind::Late) {
            return; // Members ask members.
        }
        if !message.is_intact() {
            self.counters.corrupt += 1;
            return self.handle_damage(now, edge, Damage::Here, out);
        }
        let fresh = self.result(now, message, ResultArrival::ByMulticast, out);
        let connection = &mut self.edges[edge.index()].connection;
        if fresh {
            connection.expect_echoes(self.policy.copies - 1);
        } else {
            connection.note_echo();
        }
    }

    /// A packet came over an edge and was beyond use.
    pub fn handle_damage(&mut self, now: Time, edge: EdgeIndex, damage: Damage, out: &mut Outbox) {
        if self.edges[edge.index()].lost {
            return;
        }
        let connection = &mut self.edges[edge.index()].connection;
        if connection.handle_damage(damage, &mut transmit(edge, out)) == DamageOutcome::Reported {
            self.ask_for_oldest(now, edge, out);
        }
    }

    /// Gives an edge several paths to its neighbour.
    pub fn set_paths(&mut self, edge: EdgeIndex, paths: Paths) {
        self.edges[edge.index()].connection.set_paths(paths);
        self.note_deadline(edge);
    }

    /// The paths of an edge, if it has several.
    pub fn paths(&self, edge: EdgeIndex) -> Option<&Paths> {
        self.edges[edge.index()].connection.paths()
    }

    /// The driver knows that one of an edge's paths is down.
    pub fn handle_path_down(&mut self, now: Time, edge: EdgeIndex, path: PathId, out: &mut Outbox) {
        let place = &mut self.edges[edge.index()];
        if !place.lost {
            place.connection.handle_path_down(now, path, &mut transmit(edge, out));
            self.note_deadline(edge);
        }
    }

    /// The driver knows that one of an edge's paths is up again.
    pub fn handle_path_up(&mut self, now: Time, edge: EdgeIndex, path: PathId) {
        self.edges[edge.index()].connection.handle_path_up(now, path);
        self.note_deadline(edge);
    }

    /// Repeats what is overdue and gives up on those who never answer.
    pub fn handle_timeout(&mut self, now: Time, out: &mut Outbox) {
        for index in 0..self.edges.len() {
            let edge = EdgeIndex(index as u16);
            let connection = &mut self.edges[index].connection;
            if connection.handle_timeout(now, &mut transmit(edge, out)).is_err() {
                self.lose(now, edge, out);
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
        self.seats.iter().position(|seat| seat.serves(message) && seat.plan.epoch == message.header.epoch)
    }

    fn serves_group(&self, seat: usize, message: &AggregationMessage) -> bool {
        let plan = &self.seats[seat].plan;
        (plan.group, plan.epoch) == (message.header.group, message.header.epoch)
    }

    fn contribution(
        &mut self,
        now: Time,
        seat: usize,
        edge: EdgeIndex,
        message: &AggregationMessage,
        out: &mut Outbox,
    ) {
        let (op, child) = (message.op(), message.header.child);
        let place = &mut self.seats[seat];
        if !place.may_speak(child, edge) {
            self.counters.impostor += 1;
            return;
        }
        let (children, window, childless) = (place.plan.children.len(), place.plan.window, place.childless);
        let slot = place.slot(op);
        match slot.contribute(message, child, children, window) {
            ContributionOutcome::Keep => {
                // P-25: with a child lost for good, waiting for the others is no use.
                if let Some(abort) = childless.and_then(|cause| slot.abort(cause, None)) {
                    return self.pass_on(now, seat, abort, out);
                }
                self.tell_who_is_late(now, seat, message, out);
            }
            ContributionOutcome::Fold => {
                #[cfg(feature = "sabotage")]
                if let Some(sabotage) = self.sabotage {
                    slot.sabotage(sabotage);
                }
                let folded = slot.fold();
                self.folded += 1;
                self.pass_on(now, seat, folded, out);
            }
            ContributionOutcome::Duplicate => self.counters.duplicate += 1,
            ContributionOutcome::OutOfWindow => self.counters.out_of_window += 1,
        }
    }

    /// Sends a fold (or the abort in its place) to the parents; a root makes it the result.
    fn pass_on(&mut self, now: Time, seat: usize, folded: AggregationMessage, out: &mut Outbox) {
        let plan = &self.seats[seat].plan;
        if plan.parents.is_empty() {
            out.push(AggregationAction::Reduced { op: folded.op() });
            return self.distribute(now, &folded, out);
        }
        if let Some(cause) = self.seats[seat].orphaned {
            return self.distribute(now, &folded.aborted(cause), out);
        }
        let kind = if folded.header.kind == AggregationMessageKind::Abort {
            AggregationMessageKind::Abort
        } else {
            AggregationMessageKind::Contribution
        };
        let provable = plan.result_proves == ImplicitAck::Arrival && plan.parents.len() == 1;
        for parent in plan.parents.clone() {
            let message = folded.addressed(kind, parent.child, parent.plane);
            let psn = self.send(now, parent.edge, message, out);
            if provable {
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
        let place = &mut self.edges[edge.index()];
        let is_asked = || place.connection.is_carrying(|carried| carried.asks_the_same(&message));
        if place.lost || message.header.kind == AggregationMessageKind::Repair && is_asked() {
            return None;
        }
        let psn = place.connection.send(now, message, AckRequest::InTurn, &mut transmit(edge, out));
        self.note_deadline(edge);
        psn
    }

    /// Makes a fold the operation's result and sends it to everyone below.
    fn distribute(&mut self, now: Time, folded: &AggregationMessage, out: &mut Outbox) {
        let kind = if folded.header.kind == AggregationMessageKind::Abort {
            AggregationMessageKind::Abort
        } else {
            AggregationMessageKind::Result
        };
        let message = folded.addressed(kind, folded.header.child, folded.plane());
        self.result(now, &message, ResultArrival::OverEdge, out);
    }

    /// A result is here. The plane of a result is that of its root, so every seat of the group takes it; true if one of
    /// them did not know it.
    fn result(&mut self, now: Time, message: &AggregationMessage, came: ResultArrival, out: &mut Outbox) -> bool {
        let mut fresh = false;
        for seat in 0..self.seats.len() {
            if self.serves_group(seat, message) {
                fresh |= self.finish(now, seat, message, out);
            }
        }
        // With both, a result that came by multicast went to those below as well: the connections make sure of it.
        let is_new_below = fresh || self.distribution(message) == DownwardDelivery::Multicast;
        if came == ResultArrival::OverEdge && self.distribution(message).has_multicast() && is_new_below {
            // P-21: those below need it, even if the operation is past for us.
            out.push(AggregationAction::Multicast { message: message.clone(), copies: self.policy.copies });
        }
        if came == ResultArrival::OverEdge && self.distribution(message).has_connections() {
            self.hand_down(now, message, out);
        }
        fresh
    }

    fn distribution(&self, message: &AggregationMessage) -> DownwardDelivery {
        let seat = (0..self.seats.len()).find(|seat| self.serves_group(*seat, message));
        seat.map_or(DownwardDelivery::Multicast, |seat| self.seats[seat].plan.distribution)
    }

    /// Sends a result to every child over its connection, once (P-60); to those who want to hear no more than that it is there,
    /// where nothing else brings it, no more than that (P-64).
    fn hand_down(&mut self, now: Time, message: &AggregationMessage, out: &mut Outbox) {
        let op = message.op();
        for seat in 0..self.seats.len() {
            if !self.serves_group(seat, message) || !self.seats[seat].slot(op).take_turn_down(op) {
                continue;
            }
            let alone = self.seats[seat].plan.distribution == DownwardDelivery::Connections;
            let content = self.seats[seat].slot(op).take_content();
            let content: &[ChildIndex] =
                if alone && message.header.kind == AggregationMessageKind::Result { &content } else { &[] };
            for position in 0..self.seats[seat].plan.children.len() {
                let Some(edge) = self.seats[seat].plan.children[position].first().copied() else { continue };
                let told = if content.contains(&ChildIndex::from_position(position)) {
                    message.about(AggregationMessageKind::Result, message.header.child, message.plane())
                } else {
                    message.clone()
                };
                self.send(now, edge, told, out);
            }
            if alone {
                self.seats[seat].release(op);
            }
        }
    }

    /// A seat takes a result and hands it to those who asked for it; true if it was not known.
    fn finish(&mut self, now: Time, seat: usize, message: &AggregationMessage, out: &mut Outbox) -> bool {
        let op = message.op();
        let place = &mut self.seats[seat];
        let window = place.plan.window;
        if !place.slot(op).finish(message, window) {
            self.counters.known_result += 1;
            return false;
        }
        let mut wanted_by = std::mem::take(&mut place.slot(op).wanted_by);
        if place.plan.distribution.has_connections() {
            wanted_by.clear(); // Everyone gets it anyway.
        }
        // P-5: a result proves that the contribution came; an abort proves nothing.
        let proof = place.sent(op).take().filter(|_| message.header.kind == AggregationMessageKind::Result);
        if let Some(psn) = proof {
            let parent = place.plan.parents[0].edge;
            self.edges[parent.index()].connection.confirm(now, psn, &mut transmit(parent, out));
        }
        for edge in wanted_by {
            self.send(now, edge, message.clone(), out);
        }
        true
    }

    /// A child misses a result: it gets it, or whoever may have it is asked (P-20, P-21).
    fn repair(&mut self, now: Time, seat: usize, edge: EdgeIndex, request: &AggregationMessage, out: &mut Outbox) {
        let (op, orphaned, window) = (request.op(), self.seats[seat].orphaned, self.seats[seat].plan.window);
        let slot = self.seats[seat].slot(op);
        // P-97: whoever is to be tested asks before it contributes, so this may be the first that is heard of the operation.
        slot.come_to(op, window);
        if let Some(result) = slot.result_of(op) {
            let result = result.clone();
            self.send(now, edge, result, out);
            return;
        }
        if slot.op() == op && slot.is_over() {
            return; // P-60: it is under way on the connection.
        }
        if slot.op() == op && !slot.wanted_by.contains(&edge) {
            slot.wanted_by.push(edge);
        }
        if slot.op() == op && slot.awaiting().is_none() {
            self.nudge(now, seat, request, out);
        } else if let Some(cause) = orphaned {
            // P-25: it is past here and its result never came by; those who may have it are gone.
            self.send(now, edge, request.aborted(cause), out);
        } else if slot.may_ask(now, self.policy.timeout) {
            self.ask_parents(now, seat, request, out);
        }
    }

    /// Somebody misses a cast. Whoever told it may be anywhere, and so may those who heard it: it is asked for on all other
    /// edges, and what comes goes to all who asked (P-94).
    fn seek(&mut self, now: Time, seat: usize, from: EdgeIndex, request: &AggregationMessage, out: &mut Outbox) {
        let (op, patience) = (request.op(), self.policy.timeout);
        let place = &mut self.seats[seat];
        let (window, plane) = (place.plan.window, place.plan.plane);
        let broken = place.childless.or(place.orphaned);
        let slot = place.slot(op);
        if let Some(result) = slot.result_of(op).cloned() {
            self.send(now, from, result, out);
            return;
        }
        let may_ask = slot.seek(op, from, window, now, patience);
        if let Some(cause) = broken {
            // Whoever told it may be who is lost.
            self.send(now, from, request.aborted(cause), out);
            return;
        }
        if !may_ask {
            return;
        }
        for position in 0..self.seats[seat].plan.children.len() {
            let child = ChildIndex::from_position(position);
            for edge in self.seats[seat].plan.children[position].clone() {
                if edge != from {
                    self.send(now, edge, request.about(AggregationMessageKind::Repair, child, plane), out);
                }
            }
        }
        for parent in self.seats[seat].plan.parents.clone() {
            if parent.edge != from {
                self.send(
                    now,
                    parent.edge,
                    request.about(AggregationMessageKind::Repair, parent.child, parent.plane),
                    out,
                );
            }
        }
    }

    /// A child, or somebody below it, has not come to what is tested (P-97).
    fn late(&mut self, now: Time, seat: usize, edge: EdgeIndex, message: &AggregationMessage, out: &mut Outbox) {
        let place = &mut self.seats[seat];
        let (op, child) = (message.op(), message.header.child);
        if !place.may_speak(child, edge) {
            self.counters.impostor += 1;
            return;
        }
        let window = place.plan.window;
        place.slot(op).note_late(op, child, message.header.detail, window);
        self.tell_who_is_late(now, seat, message, out);
    }

    /// When all children have answered a test, the worst of their answers goes on: up, and from the root to everyone.
    fn tell_who_is_late(&mut self, now: Time, seat: usize, about: &AggregationMessage, out: &mut Outbox) {
        let place = &mut self.seats[seat];
        let (children, window, plane) = (place.plan.children.len(), place.plan.window, place.plan.plane);
        let Some(test) = place.slot(about.op()).take_verdict(children, window) else { return };
        if place.plan.parents.is_empty() {
            let message = about.late(test, ChildIndex(0), plane);
            out.push(AggregationAction::Multicast { message, copies: self.policy.copies });
        }
        for parent in self.seats[seat].plan.parents.clone() {
            self.send(now, parent.edge, about.late(test, parent.child, parent.plane), out);
        }
    }

    fn ask_parents(&mut self, now: Time, seat: usize, about: &AggregationMessage, out: &mut Outbox) {
        for parent in self.seats[seat].plan.parents.clone() {
            let request = about.about(AggregationMessageKind::Repair, parent.child, parent.plane);
            self.send(now, parent.edge, request, out);
        }
    }

    /// Asks the children whose contributions are missing whether they are still there (P-24); with one lost for good,
    /// says so instead.
    fn nudge(&mut self, now: Time, seat: usize, about: &AggregationMessage, out: &mut Outbox) {
        let op = about.op();
        let place = &mut self.seats[seat];
        let (children, window, plane, childless) =
            (place.plan.children.len(), place.plan.window, place.plan.plane, place.childless);
        let slot = place.slot(op);
        let missing = slot.missing(op, children, window);
        if missing.is_empty() || !slot.may_ask(now, self.policy.timeout) {
            return;
        }
        if let Some(abort) = childless.and_then(|cause| slot.abort(cause, Some(about))) {
            return self.pass_on(now, seat, abort, out);
        }
        for child in missing {
            for edge in self.seats[seat].plan.children[child.index()].clone() {
                self.send(now, edge, about.about(AggregationMessageKind::Repair, child, plane), out);
            }
        }
    }

    /// All copies of something from a parent were beyond use: if a result is due, it may have been that.
    fn ask_for_oldest(&mut self, now: Time, edge: EdgeIndex, out: &mut Outbox) {
        for seat in 0..self.seats.len() {
            let Some(parent) = self.seats[seat].plan.parents.iter().find(|parent| parent.edge == edge).copied()
            else {
                continue;
            };
            let awaiting = self.seats[seat].slots().filter(|slot| slot.awaiting().is_some());
            let Some(slot) = awaiting.min_by(|a, b| a.op().steps_from(b.op()).cmp(&0)) else {
                continue;
            };
            if !slot.may_ask(now, self.policy.timeout) {
                continue;
            }
            let request = slot
                .awaiting()
                .map(|sample| sample.about(AggregationMessageKind::Repair, parent.child, parent.plane));
            self.send(now, edge, request.expect("it was chosen for it"), out);
        }
    }

    /// A neighbour is lost for good: what depends on it fails, with a cause that every member hears (P-25).
    fn lose(&mut self, now: Time, edge: EdgeIndex, out: &mut Outbox) {
        let place = &mut self.edges[edge.index()];
        place.lost = true;
        place.connection.abandon();
        let cause = AbortCause::LostPeer(place.peer);
        for seat in 0..self.seats.len() {
            let plan = &self.seats[seat].plan;
            let gone = |edge: &EdgeIndex| self.edges[edge.index()].lost;
            let orphaned = !plan.parents.is_empty() && plan.parents.iter().all(|parent| gone(&parent.edge));
            let childless = plan.children.iter().any(|edges| edges.contains(&edge) && edges.iter().all(gone));
            if orphaned {
                self.seats[seat].orphaned.get_or_insert(cause);
            }
            if childless {
                self.seats[seat].childless.get_or_insert(cause);
            }
            if orphaned || childless {
                self.abort_all(now, seat, cause, out);
            }
        }
    }

    fn abort_all(&mut self, now: Time, seat: usize, cause: AbortCause, out: &mut Outbox) {
        let orphaned = self.seats[seat].orphaned.is_some();
        // With parents left, what has gone up can still come down; only what is being collected cannot complete.
        let slots = self.seats[seat].slots().filter(|slot| orphaned || slot.awaiting().is_none());
        let aborts: Vec<AggregationMessage> = slots.filter_map(|slot| slot.abort(cause, None)).collect();
        for abort in aborts {
            self.pass_on(now, seat, abort, out);
        }
    }
}

/// Puts what a connection sends into the outbox.
pub(super) fn transmit(edge: EdgeIndex, out: &mut Outbox) -> impl FnMut(OutgoingFrame<AggregationMessage>) + '_ {
    move |outgoing| out.push(AggregationAction::Transmit { edge, outgoing })
}
