//! Operations, one after another: members enter, some of them late, and the observer gets the results.
//!
//! Where members multicast themselves, an acknowledgement barrier runs between two operations whenever it is due (P-51); the
//! observer does not see it. A member whose operation failed has left the group and sends nothing more, like its driver in the
//! runtime.

use protocol::Payload;
use protocol::aggregation::{AbortCause, Contribution, OperationMode, OperationStartError};
use units::{OpId, Rank, SimSpan};

use super::deferred_event::DeferredEvent;
use super::driver::CollectiveDriver;
use super::operation::{self, SimulatedOperation};
use super::parameters::{ContributionContents, OperationPacing};
use super::sequence_state::{OperationEvent, OperationRun, OperationSequence};
use super::{CollectiveObserver, CollectiveTiming, NoObserver, OperationFailure};
use crate::network::SimulatedNetwork;

/// Whether a member has entered an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StartOutcome {
    Started,
    /// Not yet: earlier operations are in flight.
    WindowFull,
}

impl CollectiveDriver {
    pub(super) fn is_hung(&self) -> bool {
        self.sequence.hung
    }

    /// Runs one operation of all members.
    pub(super) fn run_one(
        &mut self,
        network: &mut SimulatedNetwork,
        observer: &mut dyn CollectiveObserver,
    ) -> CollectiveTiming {
        if self.is_ack_barrier_due() {
            self.begin_ack_barrier(network);
            self.run_until_settled(network, &mut NoObserver);
        }
        self.begin_operation(network, observer);
        self.run_until_settled(network, observer);
        let run = &self.sequence.run;
        CollectiveTiming {
            reduce: run.reduced.map(|at| at.since(run.started)),
            complete: (run.completed == run.results).then(|| run.last.since(run.started)),
        }
    }

    /// Lets all members enter the next operation, those that are late by timer.
    pub(crate) fn begin_operation(&mut self, network: &mut SimulatedNetwork, observer: &mut dyn CollectiveObserver) {
        self.take_over(network);
        let (op, ranks, segments) = (self.sequence.next, self.ranks(), self.parameters.segments());
        let index = self.sequence.operations;
        self.sequence.next = OpId(op.0.wrapping_add(segments));
        self.sequence.operations = index.next();
        let posted = if segments > 1 { vec![0; ranks as usize] } else { Vec::new() };
        let finished = posted.clone();
        let results = u64::from(ranks) * u64::from(segments);
        let started = network.now();
        self.sequence.run = OperationRun { op, index, started, posted, finished, results, ..OperationRun::default() };
        if let Some(ack_barrier) = &mut self.sequence.ack_barrier {
            if self.parameters.operation.is_multicast_broadcast() {
                ack_barrier.note_multicast();
            } else {
                ack_barrier.note_contributions();
            }
        }
        // Members with late entries start with one segment; all others fill their windows at once.
        for rank in (0..ranks).map(Rank) {
            match self.arrival_delay(rank, op) {
                late if late == SimSpan::ZERO => self.post_segments(network, rank, observer),
                late => {
                    let own = self.payload_of(rank, op, observer);
                    self.note_posted(rank);
                    self.defer(network, network.now() + late, DeferredEvent::LateEntry { rank, own });
                }
            }
        }
    }

    /// Starts as many further segments on a member as its window allows.
    fn post_segments(&mut self, network: &mut SimulatedNetwork, rank: Rank, observer: &mut dyn CollectiveObserver) {
        let first = self.sequence.run.op;
        let Some(mut segment) = self.sequence.run.posted.get(rank.index()).copied() else {
            let own = self.payload_of(rank, first, observer);
            self.begin(network, rank, first, own); // A short vector has one segment, which is not counted.
            return;
        };
        while segment < self.parameters.segments() && self.sequence.run.in_flight(rank) < self.parameters.window {
            let op = OpId(first.0.wrapping_add(segment));
            let own = self.payload_of(rank, op, observer);
            if self.begin(network, rank, op, own) == StartOutcome::WindowFull {
                return; // A later segment has completed before an earlier one, which holds the window.
            }
            self.note_posted(rank);
            segment += 1;
        }
    }

    fn note_posted(&mut self, rank: Rank) {
        if let Some(posted) = self.sequence.run.posted.get_mut(rank.index()) {
            *posted += 1;
        }
    }

    /// Whether an acknowledgement barrier must come before the next operation, which is a multicast.
    pub(crate) fn is_ack_barrier_due(&self) -> bool {
        self.parameters.operation.is_multicast_broadcast()
            && self.sequence.ack_barrier.is_some_and(|ack_barrier| ack_barrier.is_due())
    }

    /// Lets all members enter an acknowledgement barrier: afterwards every member has every earlier multicast.
    pub(crate) fn begin_ack_barrier(&mut self, network: &mut SimulatedNetwork) {
        self.take_over(network);
        self.sequence.ack_barriers += 1;
        let results = u64::from(self.ranks());
        self.sequence.run = OperationRun { started: network.now(), results, ..OperationRun::default() };
        for rank in (0..self.ranks()).map(Rank) {
            let op = self.sequence.run.op;
            self.start(network, rank, op, operation::ack_barrier_contribution(), OperationMode::Aggregated);
        }
        if let Some(ack_barrier) = &mut self.sequence.ack_barrier {
            ack_barrier.note_contributions();
        }
    }

    /// Runs until the operation has ended on every member, or no event can end it.
    fn run_until_settled(&mut self, network: &mut SimulatedNetwork, observer: &mut dyn CollectiveObserver) {
        let is_long = !self.sequence.run.posted.is_empty();
        let segments = if is_long { self.parameters.segments() } else { 1 };
        let hung_at = self.sequence.run.started + self.parameters.hang_timeout.times(u64::from(segments));
        let mut settled = false;
        while !settled {
            network.run(self, |driver, network| {
                driver.has_events() || driver.is_settled(network) || network.now() > hung_at
            });
            let quiet = !self.has_events();
            self.take_over(network);
            self.report_events(network, observer);
            // With no event left, an operation that has not completed never will: the observer misses its result.
            settled = self.is_settled(network) || quiet || network.now() > hung_at;
        }
        self.sequence.hung |= !self.is_over();
    }

    /// Whether there is something to tell the observer.
    pub(crate) fn has_events(&self) -> bool {
        !self.sequence.run.events.is_empty()
    }

    /// Tells the observer what happened since the last call, and starts the segments for which there is room now.
    pub(crate) fn report_events(&mut self, network: &mut SimulatedNetwork, observer: &mut dyn CollectiveObserver) {
        // Two lists take turns, so that neither is allocated again.
        let spare = std::mem::take(&mut self.sequence.spare_events);
        let mut events = std::mem::replace(&mut self.sequence.run.events, spare);
        for event in events.drain(..) {
            let over = match event {
                OperationEvent::Started(rank, op) => {
                    observer.started(rank, op);
                    continue;
                }
                OperationEvent::Delivered(rank, op, result) => {
                    observer.delivered(rank, op, &result);
                    rank
                }
                OperationEvent::Failed(rank, op, cause) => {
                    observer.failed(rank, op, OperationFailure::Aborted(cause));
                    rank
                }
            };
            if let Some(finished) = self.sequence.run.finished.get_mut(over.index()) {
                *finished += 1;
                self.post_segments(network, over, observer);
            }
        }
        self.sequence.spare_events = events;
    }

    /// Whether the operation has ended at every member.
    pub(crate) fn is_over(&self) -> bool {
        self.sequence.run.completed + self.sequence.run.failed >= self.sequence.run.results
    }

    /// Whether the present operation has failed at a member.
    pub(crate) fn has_failed(&self) -> bool {
        self.sequence.run.failed > 0
    }

    /// Sets the position of the next operation, which determines its root.
    pub(crate) fn set_position(&mut self, position: OpId) {
        self.sequence.operations = position;
    }

    /// The observer's number of the first segment of the next operation.
    pub(crate) fn next_number(&self) -> OpId {
        self.sequence.next
    }

    /// The observer's number of the first segment of the present operation.
    pub(crate) fn first_number(&self) -> OpId {
        self.sequence.run.op
    }

    fn is_settled(&self, network: &SimulatedNetwork) -> bool {
        match self.parameters.pace {
            OperationPacing::BackToBack => self.is_over(),
            OperationPacing::Drained => self.is_over() && self.is_at_rest(network),
        }
    }

    /// The payload of a rank, if it has one in this operation.
    fn payload_of(&self, rank: Rank, op: OpId, observer: &mut dyn CollectiveObserver) -> Option<Payload> {
        let run = &self.sequence.run;
        if !self.parameters.operation.uses_payload_of(rank, run.index, self.ranks()) {
            return None;
        }
        let segment = op.0.wrapping_sub(run.op.0);
        Some(match self.parameters.contents {
            ContributionContents::SizeOnly { .. } => {
                Payload::SizeOnly { bytes: self.parameters.segment_bytes(segment) }
            }
            ContributionContents::Real { .. } => observer.contribution(rank, op),
        })
    }

    /// The delay of a rank's entry after the first rank's.
    fn arrival_delay(&self, rank: Rank, op: OpId) -> SimSpan {
        let most = self.parameters.arrival_skew.as_picos();
        let draw = u64::from(op.0) * u64::from(self.ranks()) + u64::from(rank.0);
        SimSpan::from_picos(if most == 0 { 0 } else { self.sequence.lateness.below(draw, most + 1) })
    }

    /// A rank enters the first operation of the run, late.
    pub(super) fn begin_late(&mut self, network: &mut SimulatedNetwork, rank: Rank, own: Option<Payload>) {
        self.begin(network, rank, self.sequence.run.op, own);
    }

    /// A rank enters an operation.
    fn begin(&mut self, network: &mut SimulatedNetwork, rank: Rank, op: OpId, own: Option<Payload>) -> StartOutcome {
        self.sequence.run.events.push(OperationEvent::Started(rank, op));
        let root = SimulatedOperation::broadcast_root(self.sequence.run.index, self.ranks());
        let parameters = &self.parameters;
        let (contribution, manner) = parameters.operation.contribution(rank, root, own, &parameters.contents);
        let outcome = self.start(network, rank, op, contribution, manner);
        if outcome == StartOutcome::WindowFull {
            self.sequence.run.events.pop(); // It has not entered.
        }
        outcome
    }

    fn start(
        &mut self,
        network: &mut SimulatedNetwork,
        rank: Rank,
        op: OpId,
        contribution: Contribution,
        manner: OperationMode,
    ) -> StartOutcome {
        if let Some(cause) = self.sequence.left.get(rank.index()).copied().flatten() {
            self.note_failure(rank, op, cause);
            return StartOutcome::Started;
        }
        let mut outbox = std::mem::take(&mut self.outbox);
        match self.wiring.members[rank.index()].start_with_mode(
            network.machine_time(),
            contribution,
            manner,
            &mut outbox,
        ) {
            Ok(_) => {}
            Err(OperationStartError::ParentsLost(cause)) => self.note_failure(rank, op, cause),
            Err(OperationStartError::WindowFull) => {
                self.outbox = outbox;
                return StartOutcome::WindowFull;
            }
            Err(OperationStartError::OperationsPending) => {
                unreachable!("only operations by multicast need an idle group, and they have one segment")
            }
        }
        let participant = self.wiring.nodes.len() as u32 + rank.0;
        self.perform_actions(network, participant, outbox);
        StartOutcome::Started
    }

    /// An operation has completed on a member.
    pub(super) fn note_completion(&mut self, network: &SimulatedNetwork, rank: Rank, op: OpId, result: Payload) {
        let at = network.now() + network.parameters().adapter_delay;
        let OperationSequence { run, ack_barriers, .. } = &mut self.sequence;
        run.completed += 1;
        run.last = run.last.max(at);
        run.events.push(OperationEvent::Delivered(rank, OpId(op.0.wrapping_sub(*ack_barriers)), result));
    }

    /// An operation has failed on a member.
    pub(super) fn note_machine_failure(&mut self, rank: Rank, op: OpId, cause: AbortCause) {
        let op = OpId(op.0.wrapping_sub(self.sequence.ack_barriers));
        self.note_failure(rank, op, cause);
    }

    fn note_failure(&mut self, rank: Rank, op: OpId, cause: AbortCause) {
        let OperationSequence { run, left, .. } = &mut self.sequence;
        run.failed += 1;
        run.events.push(OperationEvent::Failed(rank, op, cause));
        // A member with further segments in flight leaves when they have ended too: its machine ends them.
        if let Some(left) = left.get_mut(rank.index()).filter(|_| run.posted.is_empty()) {
            left.get_or_insert(cause);
        }
    }
}
