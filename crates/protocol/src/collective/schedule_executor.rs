//! The machine that plays a plan for one rank and one operation.
//!
//! In: the contribution, and messages in any order, perhaps twice or early. Out: messages to send, then one result or one
//! failure. Rules: P-46, P-47.
//!
//! A message is named by its round and its sender. What the plan does not expect is dropped before it costs memory, so
//! what is kept early is bounded by the plan itself.

use std::collections::VecDeque;
use std::fmt;

use units::Rank;

use super::schedule::{CollectiveSchedule, ScheduleError};
use super::step::{CombineMode, RoundEnd, VectorRange};
use super::work_vector::{WorkVector, fold_payloads};
use crate::Payload;

/// Something that the driver must do. Every variant is a duty, never a hint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScheduleAction {
    /// Bring a message to a peer, reliably.
    Send {
        /// The peer.
        to: Rank,
        /// Names the message, together with the sender.
        round: u32,
        /// What it carries; may be empty.
        payload: Payload,
    },
    /// The operation is complete here.
    Complete {
        /// The result; empty for a barrier, and at all but the root of a reduce.
        result: Payload,
    },
    /// The operation has failed here for good. The others cannot know: the driver tells them, and whoever hears it calls
    /// [`ScheduleExecutor::handle_loss`] or drops its player.
    Failed {
        /// Why.
        cause: ScheduleFailure,
    },
}

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScheduleFailure {
    /// A peer's message has another length than the plan says: the ranks do not do the same collective.
    WrongLength {
        /// The peer.
        from: Rank,
        /// The round of the message.
        round: u32,
        /// Bytes that were expected.
        expected: u32,
        /// Bytes that came.
        got: u32,
    },
    /// A rank of the group is lost, or has failed in this operation.
    LostRank(Rank),
}

impl fmt::Display for ScheduleFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongLength { from, round, expected, got } => {
                write!(f, "{from} sent {got} bytes instead of {expected} in round {round}")
            }
            Self::LostRank(rank) => write!(f, "{rank} is lost"),
        }
    }
}

impl std::error::Error for ScheduleFailure {}

/// Messages that changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ScheduleExecutorCounters {
    /// Came a second time.
    pub duplicates: u32,
    /// Not in the plan.
    pub foreign: u32,
    /// Came when the operation was over.
    pub late: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ExecutorState {
    /// Messages may come, but the rank has not started.
    Ready,
    Playing,
    Over,
}

/// A message that waits for its round, or for the others of its round.
#[derive(Debug)]
struct PendingMessage {
    round: u32,
    from: u32,
    payload: Payload,
}

impl PendingMessage {
    fn name(&self) -> (u32, u32) {
        (self.round, self.from)
    }
}

/// One rank's machine for one operation.
#[derive(Debug)]
pub struct ScheduleExecutor {
    plan: CollectiveSchedule,
    vector: WorkVector,
    /// Sorted by name: what is needed next stands in front.
    held: VecDeque<PendingMessage>,
    round: u32,
    stage: ExecutorState,
    counters: ScheduleExecutorCounters,
}

impl ScheduleExecutor {
    /// A player that has not started. Who has nothing to contribute (a barrier; a broadcast, at all but the root) gives
    /// [`Payload::Absent`] of the plan's length.
    ///
    /// # Errors
    /// If the contribution has another length than the plan's vector.
    pub fn new(plan: CollectiveSchedule, contribution: Payload) -> Result<Self, ScheduleError> {
        if contribution.len() != plan.bytes() {
            return Err(ScheduleError::Contribution { plan: plan.bytes(), contribution: contribution.len() });
        }
        let vector = WorkVector::new(contribution);
        Ok(Self {
            plan,
            vector,
            held: VecDeque::new(),
            round: 0,
            stage: ExecutorState::Ready,
            counters: ScheduleExecutorCounters::default(),
        })
    }

    /// Starts to play.
    ///
    /// # Panics
    /// If it was started before.
    pub fn start(&mut self, out: &mut Vec<ScheduleAction>) {
        assert!(self.stage != ExecutorState::Playing, "a player is started once");
        if self.stage == ExecutorState::Ready {
            self.stage = ExecutorState::Playing;
            self.enter(0, out);
            self.advance(out);
        }
    }

    /// A message of a peer; it may come before the start.
    pub fn handle_message(&mut self, from: Rank, round: u32, payload: Payload, out: &mut Vec<ScheduleAction>) {
        if self.stage == ExecutorState::Over {
            self.counters.late = self.counters.late.saturating_add(1);
            return;
        }
        let Some(expected) = self.plan.expected(round, from) else {
            self.counters.foreign = self.counters.foreign.saturating_add(1);
            return;
        };
        let place = self.held.binary_search_by_key(&(round, from.0), PendingMessage::name);
        let (false, Err(place)) = (round < self.round, place) else {
            self.counters.duplicates = self.counters.duplicates.saturating_add(1);
            return;
        };
        let (expected, got) = (expected.part.len(), payload.len());
        if got != expected {
            self.fail(ScheduleFailure::WrongLength { from, round, expected, got }, out);
            return;
        }
        self.held.insert(place, PendingMessage { round, from: from.0, payload });
        if self.stage == ExecutorState::Playing && round == self.round {
            self.advance(out);
        }
    }

    /// A rank of the group is lost or has given up: the operation fails here too, unless it is over.
    pub fn handle_loss(&mut self, lost: Rank, out: &mut Vec<ScheduleAction>) {
        if self.stage != ExecutorState::Over {
            self.fail(ScheduleFailure::LostRank(lost), out);
        }
    }

    /// The plan.
    pub fn plan(&self) -> &CollectiveSchedule {
        &self.plan
    }

    /// The round in which the rank is.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// True if the operation is complete or has failed.
    pub fn is_over(&self) -> bool {
        self.stage == ExecutorState::Over
    }

    /// Messages that changed nothing so far.
    pub fn counters(&self) -> ScheduleExecutorCounters {
        self.counters
    }

    /// The peers whose messages keep the rank in its round.
    pub fn waiting_for(&self) -> impl Iterator<Item = Rank> + '_ {
        let round = if self.stage == ExecutorState::Playing { self.round } else { u32::MAX };
        let receives = self.plan.receives(round).map(|receive| receive.from);
        receives.filter(|from| self.held.binary_search_by_key(&(self.round, from.0), PendingMessage::name).is_err())
    }

    /// Goes to the first round from this one on that has something to do, and sends what it sends.
    fn enter(&mut self, round: u32, out: &mut Vec<ScheduleAction>) {
        self.round = self.plan.next_round(round);
        for send in self.plan.sends(self.round) {
            out.push(ScheduleAction::Send { to: send.to, round: self.round, payload: self.vector.part(send.part) });
        }
    }

    /// Plays all rounds whose messages are here.
    fn advance(&mut self, out: &mut Vec<ScheduleAction>) {
        while self.round < self.plan.rounds() {
            if self.waiting_for().next().is_some() {
                return;
            }
            self.apply();
            if let RoundEnd::FoldKept(part) = self.plan.closing(self.round) {
                self.fold_kept(part);
            }
            if self.held.is_empty() {
                self.held = VecDeque::new(); // A million ranks would each keep room for messages that rarely come early.
            }
            self.enter(self.round + 1, out);
        }
        let result = if self.plan.has_result() { self.vector.take() } else { Payload::EMPTY };
        self.finish(ScheduleAction::Complete { result }, out);
    }

    /// Uses the messages of the round: those of lower ranks are folded first, then their sum with what is here, then that
    /// with those of higher ranks (P-47).
    fn apply(&mut self) {
        let Self { plan, vector, held, round, .. } = self;
        let kind = || plan.kind();
        let mut left: Option<(VectorRange, Payload)> = None;
        for receive in plan.receives(*round).filter(|receive| receive.apply != CombineMode::Keep) {
            let (part, payload) = (receive.part, take(held, *round, receive.from));
            // Empty parts need no arithmetic, and a barrier has none.
            let Some(kind) = kind().filter(|_| receive.apply != CombineMode::Replace) else {
                vector.replace(part, payload);
                continue;
            };
            if receive.apply == CombineMode::FoldLeft {
                let sum = match left.take() {
                    Some((_, sum)) => fold_payloads(kind, sum, &payload),
                    None => payload,
                };
                left = Some((part, sum));
                continue;
            }
            if let Some((part, sum)) = left.take() {
                vector.fold_left(kind, part, sum);
            }
            vector.fold_right(kind, part, &payload);
        }
        if let (Some((part, sum)), Some(kind)) = (left, kind()) {
            vector.fold_left(kind, part, sum);
        }
    }

    /// Folds everyone's contribution to a part in the prescribed order (P-48).
    fn fold_kept(&mut self, part: VectorRange) {
        let kept = self.held.partition_point(|held| held.round <= self.round);
        let mut contributions = vec![None; self.plan.size() as usize];
        let mine = self.vector.part(part);
        contributions[self.plan.rank().index()] = mine.bytes();
        for held in self.held.range(..kept) {
            contributions[held.from as usize] = held.payload.bytes();
        }
        let (Some(order), Some(kind)) = (self.plan.order(), self.plan.kind()) else {
            unreachable!("only an ordered reduction keeps contributions")
        };
        let folded = if contributions.iter().all(Option::is_some) {
            let folded = order.fold(kind, |rank| contributions[rank.index()].unwrap_or_default());
            folded.expect("lengths were checked when the messages came").into()
        } else {
            Payload::Absent { bytes: part.len() }
        };
        self.vector.replace(part, folded);
        self.held.drain(..kept);
    }

    fn fail(&mut self, cause: ScheduleFailure, out: &mut Vec<ScheduleAction>) {
        self.finish(ScheduleAction::Failed { cause }, out);
    }

    /// Says the last word, and lets go of all memory.
    fn finish(&mut self, last: ScheduleAction, out: &mut Vec<ScheduleAction>) {
        self.stage = ExecutorState::Over;
        self.held = VecDeque::new();
        self.vector = WorkVector::new(Payload::EMPTY);
        out.push(last);
    }
}

/// A message that is known to be here.
fn take(held: &mut VecDeque<PendingMessage>, round: u32, from: Rank) -> Payload {
    let place = held.binary_search_by_key(&(round, from.0), PendingMessage::name);
    let message = place.ok().and_then(|place| held.remove(place));
    message.expect("the round is played when all its messages are here").payload
}
