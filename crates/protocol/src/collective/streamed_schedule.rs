//! Runs the schedule of one rank as a stream: parts of a vector are sent on while later parts still arrive.
//!
//! In: how much of each message has been received and folded. Out: which message to receive now, and how much of each message may be
//! sent. The bytes stay with the driver. Messages are received round by round, because a later fold needs the earlier one (P-56); a
//! message may be sent as far as no receive of an earlier round can still change it. Rules: P-55, P-56, P-90.

use super::algorithm::CollectiveAlgorithm;
use super::collective_operation::CollectiveOperation;
use super::schedule::CollectiveSchedule;
use super::step::{ReceiveStep, SendStep, VectorRange};

/// Where the present value of a range is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeSource {
    /// Nothing was received into it yet: in this rank's contribution.
    Input,
    /// In the result buffer.
    Output,
}

/// A message to receive now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamedReceive {
    /// The round of the message.
    pub round: u32,
    /// Source, range and how to combine it.
    pub step: ReceiveStep,
    /// Where the range's present value is, with which the message is folded.
    pub operand: RangeSource,
}

/// A message to send, as far as it is available.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamedSend {
    /// The round of the message.
    pub round: u32,
    /// Destination and range.
    pub step: SendStep,
    /// Where the bytes are.
    pub source: RangeSource,
}

/// The state of one rank in one streamed operation.
#[derive(Debug)]
pub struct StreamedSchedule {
    schedule: CollectiveSchedule,
    /// The round whose message is received now; the number of rounds at the end.
    round: u32,
    /// That message.
    receive: Option<StreamedReceive>,
    /// Bytes of it that were combined with the vector, without a gap.
    received: u32,
    /// The first round whose messages have not been handed out for sending.
    next_send: u32,
    /// Ranges that receives of earlier rounds have filled, with the rounds.
    written: Vec<(u32, VectorRange)>,
}

impl CollectiveAlgorithm {
    /// True if the algorithm can run this collective among so many ranks as a stream: at most one message arrives per round, no range is
    /// sent and folded at once, and no message consists of bytes that were received and others that were not.
    ///
    /// Two ranks that exchange whole vectors are the exception: each sends its contribution while it folds the other's into the result,
    /// so the stream needs two buffers ([`Self::needs_two_buffers`]).
    ///
    /// Blocks that a rank already has stay in its contribution. If the result buffer of an allgather or gather is another one, whoever
    /// runs the stream copies the rank's own block. An exclusive scan needs two buffers.
    pub const fn can_stream(self, collective: &CollectiveOperation, ranks: u32) -> bool {
        match self {
            Self::RecursiveDoubling => ranks == 2 && self.needs_two_buffers(collective),
            Self::Tree { radix: 2 } => matches!(
                collective,
                CollectiveOperation::Barrier
                    | CollectiveOperation::Broadcast { .. }
                    | CollectiveOperation::Reduce { .. }
                    | CollectiveOperation::AllReduce { .. }
            ),
            Self::Direct => !matches!(collective, CollectiveOperation::AllToAll),
            Self::RecursiveHalving | Self::Rabenseifner | Self::Ring | Self::Chain | Self::ScatterAllgather => true,
            _ => false,
        }
    }

    /// True if a stream of this collective sends what it folds: input and result must be two buffers.
    pub const fn needs_two_buffers(self, collective: &CollectiveOperation) -> bool {
        matches!((self, collective), (Self::RecursiveDoubling, CollectiveOperation::AllReduce { .. }))
    }
}

impl StreamedSchedule {
    /// Runs a schedule from its first round; none if its algorithm cannot run as a stream.
    pub fn new(schedule: CollectiveSchedule) -> Option<Self> {
        if !schedule.algorithm().can_stream(&schedule.collective(), schedule.size()) {
            return None;
        }
        let mut streamed = Self { schedule, round: 0, receive: None, received: 0, next_send: 0, written: Vec::new() };
        streamed.enter(0);
        Some(streamed)
    }

    /// The schedule.
    pub fn schedule(&self) -> &CollectiveSchedule {
        &self.schedule
    }

    /// True if every message has been received.
    pub fn is_received(&self) -> bool {
        self.round == self.schedule.rounds()
    }

    /// The message to receive now; none at the end.
    pub fn receive(&self) -> Option<StreamedReceive> {
        self.receive
    }

    /// So many bytes of the present message are combined with the vector. True if it is complete and the next message may be received.
    pub fn note_received(&mut self, bytes: u32) -> bool {
        self.received = bytes;
        let Some(receive) = self.receive.filter(|receive| bytes >= receive.step.part.len()) else { return false };
        self.written.push((receive.round, receive.step.part));
        self.enter(self.round + 1);
        true
    }

    /// The next message that may be sent in part or soon; each is returned once, in the order of rounds.
    pub fn next_send(&mut self) -> Option<StreamedSend> {
        // Messages of the round after the present one may start: they forward what arrives now.
        while self.next_send <= self.round.saturating_add(1) && self.next_send < self.schedule.rounds() {
            let round = self.next_send;
            self.next_send += 1;
            if let Some(step) = self.schedule.sends(round).next() {
                let of_present =
                    self.receive().filter(|receive| receive.round < round).map(|receive| receive.step.part);
                let is_filled = of_present.is_some_and(|part| overlap(part, step.part));
                let source = if is_filled { RangeSource::Output } else { self.source_of(step.part, round) };
                return Some(StreamedSend { round, step, source });
            }
        }
        None
    }

    /// How many bytes of a message, from its start, have their final value (P-90).
    pub fn available(&self, send: &StreamedSend) -> u32 {
        let part = send.step.part;
        let mut end = part.end;
        for round in self.round..send.round {
            for receive in self.schedule.receives(round).filter(|receive| overlap(receive.part, part)) {
                let filled =
                    if round == self.round { receive.part.start + self.received } else { receive.part.start };
                if filled < receive.part.end {
                    end = end.min(filled.max(part.start));
                }
            }
        }
        end - part.start
    }

    /// Enters the first round from this one on in which a message of some bytes arrives.
    fn enter(&mut self, round: u32) {
        self.received = 0;
        self.round = self.schedule.next_round(round);
        while self.round < self.schedule.rounds() {
            if let Some(step) = self.schedule.receives(self.round).find(|step| !step.part.is_empty()) {
                let operand = self.source_of(step.part, self.round);
                self.receive = Some(StreamedReceive { round: self.round, step, operand });
                return;
            }
            self.round = self.schedule.next_round(self.round + 1);
        }
        self.receive = None;
    }

    /// Where a range is that a message of this round needs. What the round itself receives, its messages do not contain.
    fn source_of(&self, part: VectorRange, round: u32) -> RangeSource {
        let is_written = self.written.iter().any(|(filled, range)| *filled < round && overlap(*range, part));
        if is_written { RangeSource::Output } else { RangeSource::Input }
    }
}

fn overlap(one: VectorRange, other: VectorRange) -> bool {
    one.start < other.end && other.start < one.end
}
