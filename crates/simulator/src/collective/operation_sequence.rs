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
use super::operation;
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
        self.run_ack_barrier(network);
        let (op, ranks, segments) = (self.sequence.next, self.ranks(), self.parameters.segments());
        self.sequence.next = OpId(op.0.wrapping_add(segments));
        let posted = if segments > 1 { vec![0; ranks as usize] } else { Vec::new() };
        let finished = posted.clone();
        self.sequence.run = OperationRun { op, started: network.now(), posted, finished, ..OperationRun::default() };
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
        self.run_until_settled(network, observer);
        let run = &self.sequence.run;
        CollectiveTiming {
            reduce: run.reduced.map(|at| at.since(run.started)),
            complete: (run.completed == u64::from(ranks) * u64::from(segments)).then(|| run.last.since(run.started)),
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

    /// Runs an acknowledgement barrier if one is due: afterwards every member has every earlier multicast.
    fn run_ack_barrier(&mut self, network: &mut SimulatedNetwork) {
        if !self.sequence.ack_barrier.is_some_and(|ack_barrier| ack_barrier.is_due()) {
            return;
        }
        self.sequence.ack_barriers += 1;
        self.sequence.run = OperationRun { started: network.now(), ..OperationRun::default() };
        for rank in (0..self.ranks()).map(Rank) {
            let op = self.sequence.run.op;
            self.start(network, rank, op, operation::ack_barrier_contribution(), OperationMode::Aggregated);
        }
        if let Some(ack_barrier) = &mut self.sequence.ack_barrier {
            ack_barrier.note_contributions();
        }
        self.run_until_settled(network, &mut NoObserver);
    }

    /// Runs until the operation has ended on every member, or no event can end it.
    fn run_until_settled(&mut self, network: &mut SimulatedNetwork, observer: &mut dyn CollectiveObserver) {
        let is_long = !self.sequence.run.posted.is_empty();
        let segments = if is_long { self.parameters.segments() } else { 1 };
        let results = u64::from(self.ranks()) * u64::from(segments);
        let hung_at = self.sequence.run.started + self.parameters.hang_timeout.times(u64::from(segments));
        let mut settled = false;
        let mut spare = Vec::new(); // Two lists take turns, so that neither is allocated again.
        while !settled {
            network.run(self, |driver, network| {
                !driver.sequence.run.events.is_empty()
                    || driver.is_settled(network, results)
                    || network.now() > hung_at
            });
            let mut events = std::mem::replace(&mut self.sequence.run.events, std::mem::take(&mut spare));
            let quiet = events.is_empty();
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
            spare = events;
            // With no event left, an operation that has not completed never will: the observer misses its result.
            settled = self.is_settled(network, results) || quiet || network.now() > hung_at;
        }
        let run = &self.sequence.run;
        self.sequence.hung |= run.completed + run.failed < results;
    }

    fn is_settled(&self, network: &SimulatedNetwork, results: u64) -> bool {
        let over = self.sequence.run.completed + self.sequence.run.failed >= results;
        match self.parameters.pace {
            OperationPacing::BackToBack => over,
            OperationPacing::Drained => over && self.is_at_rest(network),
        }
    }

    /// The payload of a rank, if it has one in this operation.
    fn payload_of(&self, rank: Rank, op: OpId, observer: &mut dyn CollectiveObserver) -> Option<Payload> {
        let (whole, segment) = (op.0 / self.parameters.segments(), op.0 % self.parameters.segments());
        if !self.parameters.operation.uses_payload_of(rank, OpId(whole), self.ranks()) {
            return None;
        }
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
        let (contribution, manner) = self.parameters.operation.contribution(rank, own, &self.parameters.contents);
        if let Some(ack_barrier) = self.sequence.ack_barrier.as_mut().filter(|_| rank.0 == 0) {
            ack_barrier.note_multicast();
        }
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
        if let Some(left) = left.get_mut(rank.index()) {
            left.get_or_insert(cause);
        }
    }
}
