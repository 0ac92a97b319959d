//! A member: contributes to a group's operations and receives the results, from a host at the edge of the tree.
//!
//! In: operations to start; frames, multicasts, damage and time. Out: actions, among them exactly one
//! [`AggregationAction::Complete`] or [`AggregationAction::Failed`] for each operation. Rules: P-29 to P-46; for
//! multicasts and polled barriers P-50 to P-53. `member/results.rs` handles results, `member/repair.rs` requests
//! missing ones, `member/polled_barrier.rs` polls.

mod config;
mod polled_barrier;
mod repair;
mod results;

use std::collections::VecDeque;

use units::{OpId, PathId, Psn, Span, Time};
use wire::aggregation::{AggregationHeader, AggregationMessageKind};

use super::member_multicast::{MemberMulticasts, MulticastOrigin};
use super::operation_mode::{MEMBER_MULTICAST, is_member_multicast};
use super::outbox::transmit;
use super::retry_extension::extend_retries;
use super::{
    AbortCause, AggregationAction, AggregationMessage, ContributionRole, Damage, EdgeIndex, ImplicitAck,
    OperationMode, Outbox, PollRole,
};
use crate::Payload;
use crate::connection::{AckRequest, Connection, ConnectionPolicy, DamageOutcome, Frame, FramePath, Paths};
pub use config::{Contribution, MemberConfig, OperationStartError, RepairTimeoutMode};
use polled_barrier::BarrierPollState;
use repair::MULTICAST_REPAIR_FACTOR;

#[derive(Debug)]
struct InFlightOperation {
    op: OpId,
    header: AggregationHeader,
    mode: OperationMode,
    /// The contribution, until it is sent.
    payload: Option<Payload>,
    /// The sequence number of the contribution, if the result acknowledges it.
    sent: Option<Psn>,
    started: Time,
    ask_at: Time,
    /// How often the result was requested; a reply may be on its way.
    asked: u8,
    done: bool,
}

/// The largest number of parents that a member uses.
const MAX_PARENTS: usize = 64;

/// The state machine of one member.
#[derive(Debug)]
pub struct AggregationMember {
    config: MemberConfig,
    policy: ConnectionPolicy,
    edges: Vec<Connection<AggregationMessage>>,
    /// Lost edges, one bit each.
    lost_edges: u64,
    lost: Option<AbortCause>,
    /// Operations in flight, oldest first, without gaps.
    operations: VecDeque<InFlightOperation>,
    next: OpId,
    wake_at: Time,
    corrupt: u64,
    multicasts_received: u64,
    results_without_multicast: u32,
    /// Moving average of the duration of operations.
    recent_duration: Span,
    multicasts: MemberMulticasts,
    polling: Option<Box<BarrierPollState>>,
}

impl AggregationMember {
    /// A member without operations.
    pub fn new(policy: ConnectionPolicy, config: MemberConfig) -> Self {
        let window = config.window.clamp(1, units::limits::MAX_GROUP_WINDOW).next_power_of_two();
        Self {
            edges: config.parents.iter().take(MAX_PARENTS).map(|_| Connection::new(policy)).collect(),
            config: MemberConfig {
                window,
                parents: config.parents.into_iter().take(MAX_PARENTS).collect(),
                ..config
            },
            policy,
            lost_edges: 0,
            lost: None,
            operations: VecDeque::new(),
            next: OpId(0),
            wake_at: Time::NEVER,
            corrupt: 0,
            multicasts_received: 0,
            results_without_multicast: 0,
            recent_duration: Span::ZERO,
            multicasts: MemberMulticasts::new(window),
            polling: None,
        }
    }

    /// When to call [`Self::handle_timeout`]; [`Time::NEVER`] if no timer is set.
    pub fn deadline(&self) -> Time {
        self.wake_at
    }

    /// Messages whose end-to-end checksum did not match.
    pub fn corrupt(&self) -> u64 {
        self.corrupt
    }

    /// Multicasts received, including duplicates.
    pub fn multicasts_received(&self) -> u64 {
        self.multicasts_received
    }

    /// Results received over an edge since the last multicast.
    pub fn results_without_multicast(&self) -> u32 {
        self.results_without_multicast
    }

    /// Multicasts in memory: own ones that are not acknowledged by all members, and early ones of others.
    pub fn multicasts_retained(&self) -> usize {
        self.multicasts.retained()
    }

    /// Messages that parents have not acknowledged, or that wait for a connection's window.
    pub fn unacknowledged(&self) -> usize {
        self.edges.iter().map(Connection::outstanding).sum()
    }

    /// True if no node or member can still need a message from this member.
    pub fn is_settled(&self) -> bool {
        let is_acknowledged = |connection: &Connection<AggregationMessage>| connection.outstanding() == 0;
        self.lost.is_some() || self.multicasts.is_settled() && self.edges.iter().all(is_acknowledged)
    }

    /// Contributes to the next operation.
    ///
    /// # Errors
    /// If the window is full or all parents are lost. Nothing changes then.
    pub fn start(&mut self, now: Time, own: Contribution, out: &mut Outbox) -> Result<OpId, OperationStartError> {
        self.start_with_mode(now, own, OperationMode::Aggregated, out)
    }

    /// Starts the next operation in a mode. It completes at once if this member multicasts, or if the multicast
    /// arrived early.
    ///
    /// # Errors
    /// If it must wait, or all parents are lost. Nothing changes then.
    pub fn start_with_mode(
        &mut self,
        now: Time,
        own: Contribution,
        mode: OperationMode,
        out: &mut Outbox,
    ) -> Result<OpId, OperationStartError> {
        self.check_start(mode)?;
        let op = self.next;
        self.next = op.next();
        let mark = if mode == OperationMode::Multicast { MEMBER_MULTICAST } else { 0 };
        let header = AggregationHeader {
            kind: AggregationMessageKind::Contribution,
            element: own.element,
            operator: own.operator,
            flags: 0,
            group: self.config.group,
            epoch: self.config.epoch,
            operation: op,
            segment: own.segment,
            child: units::ChildIndex(0),
            element_count: own.element_count,
            detail: own.role.code() | own.disposition.code() | mark,
        };
        // The next multicast reveals a lost one (see `expect_missed_before`). Without it, most likely none was sent
        // yet.
        let ask_at = now
            + if mode == OperationMode::Multicast {
                self.repair_timeout().times(MULTICAST_REPAIR_FACTOR)
            } else {
                self.repair_timeout()
            };
        self.operations.push_back(InFlightOperation {
            op,
            header,
            mode,
            payload: Some(own.payload),
            sent: None,
            started: now,
            ask_at,
            asked: 0,
            done: false,
        });
        self.note_deadline(ask_at);
        if mode == OperationMode::Multicast {
            self.multicasts.start(op);
        }
        match mode {
            OperationMode::Aggregated | OperationMode::Polled(PollRole::Poller) => self.contribute(now, op, out),
            OperationMode::Polled(PollRole::Responder) => {}
            OperationMode::Multicast if own.role == ContributionRole::Sole => self.multicast(now, op, out),
            OperationMode::Multicast => {
                if let Some(early) = self.multicasts.take_early(op) {
                    self.handle_result(now, &early, out);
                }
            }
        }
        if mode == OperationMode::Polled(PollRole::Poller) {
            self.start_polling(now, out);
        }
        #[cfg(feature = "sabotage")]
        if self.policy.sabotage == Some(crate::sabotage::MachineSabotage::CompleteEarly) && own.element_count == 0 {
            out.push(AggregationAction::Complete { op, result: Payload::EMPTY });
        }
        Ok(op)
    }

    fn check_start(&self, mode: OperationMode) -> Result<(), OperationStartError> {
        // First: a full window never empties without parents.
        if let Some(cause) = self.lost {
            return Err(OperationStartError::ParentsLost(cause));
        }
        if self.operations.len() >= self.config.window as usize || !self.multicasts.has_room_for(self.next) {
            return Err(OperationStartError::WindowFull);
        }
        let blocks = |operation: &InFlightOperation| match (operation.mode, mode) {
            // P-51: a contribution says that its member has every earlier multicast.
            (OperationMode::Multicast, OperationMode::Aggregated | OperationMode::Polled(_))
            | (OperationMode::Polled(_), OperationMode::Polled(_)) => !operation.done,
            _ => false,
        };
        if self.operations.iter().any(blocks) { Err(OperationStartError::OperationsPending) } else { Ok(()) }
    }

    /// Sends the contribution of an operation to every parent, once.
    fn contribute(&mut self, now: Time, op: OpId, out: &mut Outbox) {
        let Some(index) = self.operations.iter().rposition(|operation| operation.op == op) else { return };
        let Some(payload) = self.operations[index].payload.take() else { return };
        let header = self.operations[index].header;
        let mut sent = None;
        for (edge, parent) in self.config.parents.iter().enumerate() {
            if self.is_lost(EdgeIndex(edge as u16)) {
                continue;
            }
            let header = AggregationHeader { child: parent.child, flags: parent.plane.0, ..header };
            let message = AggregationMessage::new(header, payload.clone());
            sent =
                self.edges[edge].send(now, message, AckRequest::Periodic, &mut transmit(EdgeIndex(edge as u16), out));
        }
        self.operations[index].sent =
            sent.filter(|_| self.edges.len() == 1 && self.config.implicit_ack == ImplicitAck::ByResult);
        let deadlines = self.edges.iter().filter_map(Connection::deadline);
        self.note_deadline(deadlines.min().unwrap_or(Time::NEVER));
    }

    /// Multicasts the contribution of an operation to all members and retains it for repairs (P-50).
    fn multicast(&mut self, now: Time, op: OpId, out: &mut Outbox) {
        let Some(operation) = self.operations.iter_mut().find(|operation| operation.op == op) else { return };
        let Some(payload) = operation.payload.take() else { return };
        let message = AggregationMessage::new(
            AggregationHeader { kind: AggregationMessageKind::Result, ..operation.header },
            payload,
        );
        out.push(AggregationAction::Multicast { message: message.clone(), copies: self.policy.copies });
        self.handle_result(now, &message, out);
        self.multicasts.retain_own(message);
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
        if self.is_lost(edge) {
            return; // P-9: not answered, so that the peer detects the loss too.
        }
        if let Frame::Data { message, .. } = frame
            && !message.is_intact()
        {
            self.corrupt += 1;
            return self.handle_damage(now, edge, Damage::Here, out);
        }
        let connection = &mut self.edges[edge.index()];
        let delivered = connection.handle_frame(now, path, frame, &mut transmit(edge, out));
        if let Some(deadline) = connection.deadline() {
            self.note_deadline(deadline);
        }
        match delivered.map(|message| (message.header.kind, message)) {
            Some((AggregationMessageKind::Repair, message)) => self.handle_repair_request(now, edge, message, out),
            Some((AggregationMessageKind::Result | AggregationMessageKind::Abort, message)) => {
                if self.handle_result(now, message, out) {
                    self.results_without_multicast = self.results_without_multicast.saturating_add(1);
                }
            }
            Some((
                AggregationMessageKind::Contribution
                | AggregationMessageKind::Poll
                | AggregationMessageKind::NotEntered,
                _,
            ))
            | None => {}
        }
    }

    /// Handles a multicast from an edge.
    pub fn handle_multicast(&mut self, now: Time, edge: EdgeIndex, message: &AggregationMessage, out: &mut Outbox) {
        match message.header.kind {
            AggregationMessageKind::Poll | AggregationMessageKind::NotEntered => {
                return self.handle_poll_message(now, message, out);
            }
            AggregationMessageKind::Result if is_member_multicast(&message.header) && self.is_own_group(message) => {
                match self.multicasts.origin(message) {
                    MulticastOrigin::Own => return,
                    MulticastOrigin::Conflicting => return self.fail(message.op(), AbortCause::Mismatch, out),
                    MulticastOrigin::Other => {}
                }
            }
            _ => {}
        }
        (self.multicasts_received, self.results_without_multicast) = (self.multicasts_received + 1, 0);
        // Several roots multicast the same result; drop all but the first before verifying anything.
        if self.operations.is_empty() && self.policy.copies == 1 && !is_member_multicast(&message.header) {
            return;
        }
        if !message.is_intact() {
            self.corrupt += 1;
            return self.handle_damage(now, edge, Damage::Here, out);
        }
        if self.handle_result(now, message, out) {
            self.edges[edge.index()].expect_copies(self.policy.copies - 1);
        } else {
            self.edges[edge.index()].note_copy();
        }
    }

    /// Handles a report of a damaged packet from an edge.
    pub fn handle_damage(&mut self, now: Time, edge: EdgeIndex, damage: Damage, out: &mut Outbox) {
        if self.is_lost(edge) {
            return;
        }
        if self.edges[edge.index()].handle_damage(damage, &mut transmit(edge, out)) == DamageOutcome::Reported {
            // P-40: only once until the timer expires, otherwise every damaged reply would cause more requests.
            if let Some(operation) = self.operations.front().filter(|operation| operation.asked == 0) {
                let header = operation.header;
                self.request_repair(now, edge, header, out);
            }
        }
    }

    /// Puts off the loss of parents that are silent here and have responded elsewhere since then: call it before [`Self::handle_timeout`] (P-131).
    pub fn extend_retries(&mut self, now: Time, mut has_responded: impl FnMut(EdgeIndex, Time) -> bool) {
        for (index, connection) in self.edges.iter_mut().enumerate() {
            extend_retries(connection, now, |since| has_responded(EdgeIndex(index as u16), since));
        }
    }

    /// Retransmits overdue frames, requests overdue results, and fails all operations when all parents are lost.
    pub fn handle_timeout(&mut self, now: Time, out: &mut Outbox) {
        for (index, connection) in self.edges.iter_mut().enumerate() {
            let edge = EdgeIndex(index as u16);
            if connection.handle_timeout(now, &mut transmit(edge, out)).is_err() {
                connection.abandon();
                self.lost_edges |= 1 << index;
            }
        }
        if self.lost_edges.count_ones() as usize == self.edges.len() {
            return self.fail_all(AbortCause::LostPeer(self.config.peers[0]), out);
        }
        for header in self.overdue(now) {
            for edge in 0..self.edges.len() {
                self.request_repair(now, EdgeIndex(edge as u16), header, out);
            }
        }
        self.wake_at = Time::NEVER;
        self.handle_poll_timer(now, out);
        let edges = self.edges.iter().filter_map(Connection::deadline);
        let operations = self.operations.iter().filter(|operation| !operation.done).map(|operation| operation.ask_at);
        if let Some(deadline) = edges.chain(operations).min() {
            self.note_deadline(deadline);
        }
    }

    /// Sets several paths for an edge.
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

    /// Handles the driver's report that a path of an edge is down.
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

    /// Handles the driver's report that a path of an edge is up again.
    pub fn handle_path_up(&mut self, now: Time, edge: EdgeIndex, path: PathId) {
        let connection = &mut self.edges[edge.index()];
        connection.handle_path_up(now, path);
        if let Some(deadline) = connection.deadline() {
            self.note_deadline(deadline);
        }
    }

    fn is_lost(&self, edge: EdgeIndex) -> bool {
        self.lost_edges >> edge.0 & 1 == 1
    }

    fn note_deadline(&mut self, deadline: Time) {
        self.wake_at = self.wake_at.min(deadline);
    }

    fn is_own_group(&self, message: &AggregationMessage) -> bool {
        (message.header.group, message.header.epoch) == (self.config.group, self.config.epoch)
    }
}
