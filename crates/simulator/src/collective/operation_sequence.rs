//! Operations, one after the other: members come, some of them late, and what comes of it is told to a witness.
//!
//! Where members speak to all themselves, a census stands between two operations whenever it is due (P-95), as a round that
//! no user sees; and a member that has failed has left the group: it says nothing more, as its driver in the runtime does.

use protocol::Payload;
use protocol::aggregation::{AbortCause, AckBarrierCounter, Contribution, OperationMode, OperationStartError};
use units::{OpId, Rank, SimSpan, SimTime};

use super::deferred_event::DeferredEvent;
use super::driver::CollectiveDriver;
use super::operation;
use super::parameters::{ContributionContents, OperationPacing};
use super::{CollectiveObserver, CollectiveTiming, NoObserver};
use crate::network::SimulatedNetwork;
use faults::RandomStream;

/// The operation that is running.
#[derive(Default)]
pub(super) struct OperationRun {
    op: OpId,
    started: SimTime,
    pub(super) reduced: Option<SimTime>,
    completed: u32,
    failed: u32,
    last: SimTime,
    /// What members said during the last event, for the witness.
    news: Vec<News>,
}

enum News {
    Begun(Rank, OpId),
    Delivered(Rank, OpId, Payload),
    Failed(Rank, OpId, AbortCause),
}

/// What lasts from one operation to the next.
pub(super) struct OperationSequence {
    next: OpId,
    pub(super) round: OperationRun,
    /// Counts casts, where there are any.
    census: Option<AckBarrierCounter>,
    /// Operations of members that were none of the user's.
    censuses: u32,
    /// Who has left the group, and why; empty where nobody leaves.
    left: Vec<Option<AbortCause>>,
    lateness: RandomStream,
    /// An operation neither completed nor failed: a defect of the protocol, or of the plan's making.
    hung: bool,
}

impl OperationSequence {
    pub(super) fn new(census: Option<AckBarrierCounter>, leavers: usize, seed: u64) -> Self {
        Self {
            next: OpId(0),
            round: OperationRun::default(),
            census,
            censuses: 0,
            left: vec![None; leavers],
            lateness: RandomStream::new(seed, 0x1a7e),
            hung: false,
        }
    }

    pub(super) fn has_left(&self, rank: Rank) -> bool {
        self.left.get(rank.index()).is_some_and(Option::is_some)
    }
}

impl CollectiveDriver {
    pub(super) fn is_hung(&self) -> bool {
        self.course.hung
    }

    /// Runs one operation of all members.
    pub(super) fn run_one(
        &mut self,
        network: &mut SimulatedNetwork,
        witness: &mut dyn CollectiveObserver,
    ) -> CollectiveTiming {
        self.take_census(network);
        let (op, ranks) = (self.course.next, self.ranks());
        self.course.next = op.next();
        self.course.round = OperationRun { op, started: network.now(), ..OperationRun::default() };
        for rank in (0..ranks).map(Rank) {
            let own = self.own(rank, op, witness);
            match self.lateness(rank, op) {
                late if late == SimSpan::ZERO => self.begin(network, rank, own),
                late => self.send_mail(network, network.now() + late, DeferredEvent::Comes { rank, own }),
            }
        }
        self.settle(network, witness);
        let round = &self.course.round;
        CollectiveTiming {
            reduce: round.reduced.map(|at| at.since(round.started)),
            complete: (round.completed == ranks).then(|| round.last.since(round.started)),
        }
    }

    /// An operation to which all contribute, if one is due: then everyone has every cast before it.
    fn take_census(&mut self, network: &mut SimulatedNetwork) {
        if !self.course.census.is_some_and(|census| census.is_due()) {
            return;
        }
        self.course.censuses += 1;
        self.course.round = OperationRun { started: network.now(), ..OperationRun::default() };
        for rank in (0..self.ranks()).map(Rank) {
            self.start(network, rank, operation::ack_barrier_contribution(), OperationMode::Folded);
        }
        if let Some(census) = &mut self.course.census {
            census.note_contributions();
        }
        self.settle(network, &mut NoObserver);
    }

    /// Lets things happen until everyone has ended, or nobody ever will.
    fn settle(&mut self, network: &mut SimulatedNetwork, witness: &mut dyn CollectiveObserver) {
        let ranks = self.ranks();
        let hung_at = self.course.round.started + self.parameters.patience;
        let mut settled = false;
        while !settled {
            network.run(self, |driver, network| {
                !driver.course.round.news.is_empty() || driver.is_settled(network, ranks) || network.now() > hung_at
            });
            let quiet = self.course.round.news.is_empty();
            for news in self.course.round.news.drain(..) {
                match news {
                    News::Begun(rank, op) => witness.begun(rank, op),
                    News::Delivered(rank, op, result) => witness.delivered(rank, op, &result),
                    News::Failed(rank, op, cause) => witness.failed(rank, op, cause),
                }
            }
            // With nothing left to happen, what has not completed never will: the witness misses it.
            settled = self.is_settled(network, ranks) || quiet || network.now() > hung_at;
        }
        let round = &self.course.round;
        self.course.hung |= round.completed + round.failed < ranks;
    }

    fn is_settled(&self, network: &SimulatedNetwork, ranks: u32) -> bool {
        let over = self.course.round.completed + self.course.round.failed >= ranks;
        match self.parameters.pace {
            OperationPacing::BackToBack => over,
            OperationPacing::Drained => over && self.is_at_rest(network),
        }
    }

    /// What a rank has to say.
    fn own(&self, rank: Rank, op: OpId, witness: &mut dyn CollectiveObserver) -> Option<Payload> {
        if !self.parameters.task.is_heard(rank, op, self.ranks()) {
            return None;
        }
        Some(match self.parameters.contents {
            ContributionContents::SizeOnly { bytes } => Payload::Absent { bytes },
            ContributionContents::Real { .. } => witness.contribution(rank, op).into(),
        })
    }

    /// How much later than the first a rank comes.
    fn lateness(&self, rank: Rank, op: OpId) -> SimSpan {
        let most = self.parameters.late.as_picos();
        let draw = u64::from(op.0) * u64::from(self.ranks()) + u64::from(rank.0);
        SimSpan::from_picos(if most == 0 { 0 } else { self.course.lateness.below(draw, most + 1) })
    }

    /// A rank comes to the operation that is running.
    pub(super) fn begin(&mut self, network: &mut SimulatedNetwork, rank: Rank, own: Option<Payload>) {
        let op = self.course.round.op;
        self.course.round.news.push(News::Begun(rank, op));
        let (contribution, manner) = self.parameters.task.part(rank, own, &self.parameters.contents);
        if let Some(census) = self.course.census.as_mut().filter(|_| rank.0 == 0) {
            census.note_cast();
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
        let op = self.course.round.op;
        if let Some(cause) = self.course.left.get(rank.index()).copied().flatten() {
            return self.note_failure(rank, op, cause);
        }
        let mut outbox = std::mem::take(&mut self.outbox);
        match self.wiring.members[rank.index()].start_as(network.now(), contribution, manner, &mut outbox) {
            Ok(_) => {}
            Err(OperationStartError::NoWayUp(cause)) => self.note_failure(rank, op, cause),
            Err(OperationStartError::WindowFull | OperationStartError::Behind) => {
                unreachable!("an operation starts when the last one is over")
            }
        }
        let party = self.wiring.nodes.len() as u32 + rank.0;
        self.carry_out(network, party, outbox);
    }

    /// A member has a result.
    pub(super) fn note_completion(&mut self, network: &SimulatedNetwork, rank: Rank, op: OpId, result: Payload) {
        let at = network.now() + network.parameters().adapter_delay;
        let OperationSequence { round, censuses, .. } = &mut self.course;
        round.completed += 1;
        round.last = round.last.max(at);
        round.news.push(News::Delivered(rank, OpId(op.0.wrapping_sub(*censuses)), result));
    }

    /// A member's operation has failed.
    pub(super) fn note_failure_of(&mut self, rank: Rank, op: OpId, cause: AbortCause) {
        let op = OpId(op.0.wrapping_sub(self.course.censuses));
        self.note_failure(rank, op, cause);
    }

    fn note_failure(&mut self, rank: Rank, op: OpId, cause: AbortCause) {
        let OperationSequence { round, left, .. } = &mut self.course;
        round.failed += 1;
        round.news.push(News::Failed(rank, op, cause));
        if let Some(left) = left.get_mut(rank.index()) {
            left.get_or_insert(cause);
        }
    }
}
