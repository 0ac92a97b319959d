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
use super::{CollectiveObserver, CollectiveTiming, NoObserver};
use crate::network::SimulatedNetwork;

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
        let (op, ranks) = (self.sequence.next, self.ranks());
        self.sequence.next = op.next();
        self.sequence.run = OperationRun { op, started: network.now(), ..OperationRun::default() };
        for rank in (0..ranks).map(Rank) {
            let own = self.payload_of(rank, op, observer);
            match self.arrival_delay(rank, op) {
                late if late == SimSpan::ZERO => self.begin(network, rank, own),
                late => self.defer(network, network.now() + late, DeferredEvent::LateEntry { rank, own }),
            }
        }
        self.run_until_settled(network, observer);
        let run = &self.sequence.run;
        CollectiveTiming {
            reduce: run.reduced.map(|at| at.since(run.started)),
            complete: (run.completed == ranks).then(|| run.last.since(run.started)),
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
            self.start(network, rank, operation::ack_barrier_contribution(), OperationMode::Aggregated);
        }
        if let Some(ack_barrier) = &mut self.sequence.ack_barrier {
            ack_barrier.note_contributions();
        }
        self.run_until_settled(network, &mut NoObserver);
    }

    /// Runs until the operation has ended on every member, or no event can end it.
    fn run_until_settled(&mut self, network: &mut SimulatedNetwork, observer: &mut dyn CollectiveObserver) {
        let ranks = self.ranks();
        let hung_at = self.sequence.run.started + self.parameters.hang_timeout;
        let mut settled = false;
        while !settled {
            network.run(self, |driver, network| {
                !driver.sequence.run.events.is_empty() || driver.is_settled(network, ranks) || network.now() > hung_at
            });
            let quiet = self.sequence.run.events.is_empty();
            for events in self.sequence.run.events.drain(..) {
                match events {
                    OperationEvent::Started(rank, op) => observer.started(rank, op),
                    OperationEvent::Delivered(rank, op, result) => observer.delivered(rank, op, &result),
                    OperationEvent::Failed(rank, op, cause) => observer.failed(rank, op, cause),
                }
            }
            // With no event left, an operation that has not completed never will: the observer misses its result.
            settled = self.is_settled(network, ranks) || quiet || network.now() > hung_at;
        }
        let run = &self.sequence.run;
        self.sequence.hung |= run.completed + run.failed < ranks;
    }

    fn is_settled(&self, network: &SimulatedNetwork, ranks: u32) -> bool {
        let over = self.sequence.run.completed + self.sequence.run.failed >= ranks;
        match self.parameters.pace {
            OperationPacing::BackToBack => over,
            OperationPacing::Drained => over && self.is_at_rest(network),
        }
    }

    /// The payload of a rank, if it has one in this operation.
    fn payload_of(&self, rank: Rank, op: OpId, observer: &mut dyn CollectiveObserver) -> Option<Payload> {
        if !self.parameters.operation.uses_payload_of(rank, op, self.ranks()) {
            return None;
        }
        Some(match self.parameters.contents {
            ContributionContents::SizeOnly { bytes } => Payload::SizeOnly { bytes },
            ContributionContents::Real { .. } => observer.contribution(rank, op).into(),
        })
    }

    /// The delay of a rank's entry after the first rank's.
    fn arrival_delay(&self, rank: Rank, op: OpId) -> SimSpan {
        let most = self.parameters.arrival_skew.as_picos();
        let draw = u64::from(op.0) * u64::from(self.ranks()) + u64::from(rank.0);
        SimSpan::from_picos(if most == 0 { 0 } else { self.sequence.lateness.below(draw, most + 1) })
    }

    /// A rank enters the present operation.
    pub(super) fn begin(&mut self, network: &mut SimulatedNetwork, rank: Rank, own: Option<Payload>) {
        let op = self.sequence.run.op;
        self.sequence.run.events.push(OperationEvent::Started(rank, op));
        let (contribution, manner) = self.parameters.operation.contribution(rank, own, &self.parameters.contents);
        if let Some(ack_barrier) = self.sequence.ack_barrier.as_mut().filter(|_| rank.0 == 0) {
            ack_barrier.note_multicast();
        }
        self.start(network, rank, contribution, manner);
    }

    fn start(
        &mut self,
        network: &mut SimulatedNetwork,
        rank: Rank,
        contribution: Contribution,
        manner: OperationMode,
    ) {
        let op = self.sequence.run.op;
        if let Some(cause) = self.sequence.left.get(rank.index()).copied().flatten() {
            return self.note_failure(rank, op, cause);
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
            Err(OperationStartError::WindowFull | OperationStartError::OperationsPending) => {
                unreachable!("an operation starts after the last one has ended")
            }
        }
        let participant = self.wiring.nodes.len() as u32 + rank.0;
        self.perform_actions(network, participant, outbox);
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
