//! Runs the schedule of one rank for one operation.
//!
//! In: the contribution, and messages in any order, perhaps twice or early. Out: messages to send, then one result or
//! one failure. Rules: P-55, P-56.
//!
//! Round and sender identify a message. Messages that the schedule does not expect are dropped before they cost
//! memory, so the schedule bounds the memory for early messages.

use std::collections::VecDeque;
use std::fmt;

use reduce::ReductionKind;
use units::Rank;

use super::schedule::{CollectiveSchedule, RoundSteps, ScheduleError};
use super::step::{CombineMode, ReceiveStep, RoundEnd, VectorRange};
use super::work_vector::{WorkVector, fold_payloads};
use crate::Payload;

/// An action that the driver must carry out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScheduleAction {
    /// Send a message to a peer, reliably.
    Send {
        /// The peer.
        to: Rank,
        /// Identifies the message, together with the sender.
        round: u32,
        /// The contents; may be empty.
        payload: Payload,
    },
    /// The operation is complete at this rank.
    Complete {
        /// The rank's result ([`CollectiveSchedule::result_range`] of the vector); empty if it has none.
        result: Payload,
    },
    /// The operation has failed at this rank for good. The driver must tell the other ranks, which then call
    /// [`ScheduleExecutor::handle_loss`] or drop their executors.
    Failed {
        /// Why.
        cause: ScheduleFailure,
    },
}

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScheduleFailure {
    /// A peer's message has an unexpected length: the ranks called different collectives.
    WrongLength {
        /// The peer.
        from: Rank,
        /// The round of the message.
        round: u32,
        /// Expected length in bytes.
        expected: u32,
        /// Received length in bytes.
        got: u32,
    },
    /// A rank of the group is lost, or has failed in this operation.
    LostRank(Rank),
}

impl fmt::Display for ScheduleFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongLength { from, round, expected, got } => {
                write!(
                    f,
                    "{from} sent {got} bytes in round {round}, expected {expected}; do all ranks make the same call?"
                )
            }
            Self::LostRank(rank) => write!(f, "{rank} is lost"),
        }
    }
}

impl std::error::Error for ScheduleFailure {}

/// Messages that were dropped.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ScheduleExecutorCounters {
    /// Duplicates.
    pub duplicates: u32,
    /// Not in the schedule.
    pub foreign: u32,
    /// Received after the end of the operation.
    pub late: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ExecutorState {
    /// Not started; messages may arrive early.
    Ready,
    Running,
    Over,
}

/// A message that waits for its round, or for the other messages of its round.
#[derive(Debug)]
struct PendingMessage {
    round: u32,
    from: u32,
    payload: Payload,
}

impl PendingMessage {
    fn key(&self) -> (u32, u32) {
        (self.round, self.from)
    }
}

/// The state machine of one rank for one operation.
#[derive(Debug)]
pub struct ScheduleExecutor {
    schedule: CollectiveSchedule,
    vector: WorkVector,
    /// Sorted by round and sender: the next one needed comes first.
    pending: VecDeque<PendingMessage>,
    round: u32,
    state: ExecutorState,
    counters: ScheduleExecutorCounters,
}

impl ScheduleExecutor {
    /// An executor that has not started. Ranks without a contribution (in a barrier, or a broadcast or scatter from another
    /// rank) pass [`Payload::SizeOnly`] of the schedule's length.
    ///
    /// # Errors
    /// If the contribution and the schedule's vector differ in length.
    pub fn new(schedule: CollectiveSchedule, contribution: Payload) -> Result<Self, ScheduleError> {
        if contribution.len() != schedule.bytes() {
            return Err(ScheduleError::Contribution { schedule: schedule.bytes(), contribution: contribution.len() });
        }
        let vector = WorkVector::new(contribution);
        Ok(Self {
            schedule,
            vector,
            pending: VecDeque::new(),
            round: 0,
            state: ExecutorState::Ready,
            counters: ScheduleExecutorCounters::default(),
        })
    }

    /// Starts the schedule.
    ///
    /// # Panics
    /// If it is running already.
    pub fn start(&mut self, out: &mut Vec<ScheduleAction>) {
        assert!(self.state != ExecutorState::Running, "an executor is started once");
        if self.state == ExecutorState::Ready {
            self.state = ExecutorState::Running;
            self.enter(0, out);
            self.advance(out);
        }
    }

    /// Handles a peer's message, which may arrive before the start.
    pub fn handle_message(&mut self, from: Rank, round: u32, payload: Payload, out: &mut Vec<ScheduleAction>) {
        if self.state == ExecutorState::Over {
            self.counters.late = self.counters.late.saturating_add(1);
            return;
        }
        let Some(expected) = self.schedule.expected(round, from) else {
            self.counters.foreign = self.counters.foreign.saturating_add(1);
            return;
        };
        let (false, Err(position)) = (round < self.round, position(&self.pending, round, from)) else {
            self.counters.duplicates = self.counters.duplicates.saturating_add(1);
            return;
        };
        let (expected, got) = (expected.part.len(), payload.len());
        if got != expected {
            self.fail(ScheduleFailure::WrongLength { from, round, expected, got }, out);
            return;
        }
        self.pending.insert(position, PendingMessage { round, from: from.0, payload });
        if self.state == ExecutorState::Running && round == self.round {
            self.advance(out);
        }
    }

    /// Handles the loss or failure of a rank: the operation fails at this rank too, unless it is over.
    pub fn handle_loss(&mut self, lost: Rank, out: &mut Vec<ScheduleAction>) {
        if self.state != ExecutorState::Over {
            self.fail(ScheduleFailure::LostRank(lost), out);
        }
    }

    /// The schedule.
    pub fn schedule(&self) -> &CollectiveSchedule {
        &self.schedule
    }

    /// The current round.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// True if the operation is complete or has failed.
    pub fn is_over(&self) -> bool {
        self.state == ExecutorState::Over
    }

    /// The messages dropped so far.
    pub fn counters(&self) -> ScheduleExecutorCounters {
        self.counters
    }

    /// The peers whose messages are missing in the current round.
    pub fn waiting_for(&self) -> impl Iterator<Item = Rank> + '_ {
        let round = if self.state == ExecutorState::Running { self.round } else { u32::MAX };
        let receives = self.schedule.receives(round).map(|receive| receive.from);
        receives.filter(|from| position(&self.pending, self.round, *from).is_err())
    }

    /// Enters the first round, from this one on, that may have steps, and sends its messages.
    fn enter(&mut self, round: u32, out: &mut Vec<ScheduleAction>) {
        self.round = self.schedule.next_round(round);
        for send in self.schedule.sends(self.round) {
            out.push(ScheduleAction::Send { to: send.to, round: self.round, payload: self.vector.part(send.part) });
        }
    }

    /// Completes all rounds whose messages are here.
    fn advance(&mut self, out: &mut Vec<ScheduleAction>) {
        while let Some(steps) = self.schedule.round(self.round) {
            let is_missing = |receive: ReceiveStep| position(&self.pending, self.round, receive.from).is_err();
            if steps.receives().any(is_missing) {
                return;
            }
            let kind = self.schedule.kind();
            apply(kind, &steps, &mut self.vector, &mut self.pending, self.round);
            if let RoundEnd::FoldKept(part) = steps.end() {
                self.fold_kept(part);
            }
            if self.pending.is_empty() {
                self.pending = VecDeque::new(); // Frees memory: early messages are rare, and there may be a million ranks.
            }
            self.enter(self.round + 1, out);
        }
        let range = self.schedule.result_range();
        let result = match range.len() {
            bytes if bytes == self.schedule.bytes() => self.vector.take(),
            0 => Payload::EMPTY,
            _ => self.vector.part(range),
        };
        self.finish(ScheduleAction::Complete { result }, out);
    }

    /// Folds the contributions of all ranks to a range in the prescribed order (P-57).
    fn fold_kept(&mut self, part: VectorRange) {
        let kept = self.pending.partition_point(|pending| pending.round <= self.round);
        let mut contributions = vec![None; self.schedule.size() as usize];
        let mine = self.vector.part(part);
        contributions[self.schedule.rank().index()] = mine.bytes();
        for pending in self.pending.range(..kept) {
            contributions[pending.from as usize] = pending.payload.bytes();
        }
        let (Some(order), Some(kind)) = (self.schedule.order(), self.schedule.kind()) else {
            unreachable!("only an ordered reduction keeps contributions")
        };
        let folded = if contributions.iter().all(Option::is_some) {
            let folded = order.fold(kind, |rank| contributions[rank.index()].unwrap_or_default());
            folded.expect("lengths are checked on receive").into()
        } else {
            Payload::SizeOnly { bytes: part.len() }
        };
        self.vector.replace(part, folded);
        self.pending.drain(..kept);
    }

    fn fail(&mut self, cause: ScheduleFailure, out: &mut Vec<ScheduleAction>) {
        self.finish(ScheduleAction::Failed { cause }, out);
    }

    /// Pushes the last action and frees all memory.
    fn finish(&mut self, last: ScheduleAction, out: &mut Vec<ScheduleAction>) {
        self.state = ExecutorState::Over;
        self.pending = VecDeque::new();
        self.vector = WorkVector::new(Payload::EMPTY);
        out.push(last);
    }
}

/// Combines the messages of a round with the vector: first those of lower ranks with each other, then their fold with the vector, then
/// that with those of higher ranks (P-56).
fn apply(
    kind: Option<ReductionKind>,
    steps: &RoundSteps<'_>,
    vector: &mut WorkVector,
    pending: &mut VecDeque<PendingMessage>,
    round: u32,
) {
    let mut left: Option<(VectorRange, Payload)> = None;
    for receive in steps.receives().filter(|receive| receive.apply != CombineMode::Keep) {
        let (part, payload) = (receive.part, take(pending, round, receive.from));
        // Empty ranges and barriers need no arithmetic.
        let Some(kind) = kind.filter(|_| receive.apply != CombineMode::Replace) else {
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
    if let (Some((part, sum)), Some(kind)) = (left, kind) {
        vector.fold_left(kind, part, sum);
    }
}

/// The place of a message among those that wait; otherwise where it belongs.
fn position(pending: &VecDeque<PendingMessage>, round: u32, from: Rank) -> Result<usize, usize> {
    pending.binary_search_by_key(&(round, from.0), PendingMessage::key)
}

/// Removes a message that is known to be here.
fn take(pending: &mut VecDeque<PendingMessage>, round: u32, from: Rank) -> Payload {
    let message = position(pending, round, from).ok().and_then(|position| pending.remove(position));
    message.expect("all messages of the round are here").payload
}
