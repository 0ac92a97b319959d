//! One streamed operation of this process: its schedule, its memory, and the message that it receives now.

use protocol::collective::{CollectiveSchedule, StreamedReceive, StreamedSchedule, StreamedSend};
use protocol::transfer::{BulkReceiver, PartArrival};
use transport::edges::UnverifiedPart;
use units::Rank;

use super::StreamBuffers;
use crate::network::tree_operation::OperationHandle;

pub(super) struct StreamOperation {
    pub handle: OperationHandle,
    pub fingerprint: u32,
    /// The leaders, in the communicator of all ranks.
    pub leaders: Vec<Rank>,
    streamed: StreamedSchedule,
    pub buffers: StreamBuffers,
    element: u32,
    window: u32,
    /// The message that is received now.
    receiving: Option<(StreamedReceive, BulkReceiver)>,
    /// Messages that are not fully sent.
    sends: Vec<StreamedSend>,
}

/// What became of a part.
pub(super) enum PartOutcome {
    /// It is combined with the vector, or dropped; if `completed`, it was the last one of its message.
    Handled { completed: bool },
    /// Its message is complete.
    AlreadyComplete,
    /// Its message is not open yet.
    Early,
    /// It does not fit the operation.
    Mismatch,
    /// It is not intact.
    Damaged,
}

impl StreamOperation {
    pub(super) fn new(
        handle: OperationHandle,
        schedule: CollectiveSchedule,
        leaders: Vec<Rank>,
        buffers: StreamBuffers,
        window: u32,
    ) -> Option<Self> {
        let fingerprint = schedule.fingerprint();
        let element = schedule.kind().map_or(1, |kind| kind.element_size() as u32);
        let streamed = StreamedSchedule::new(schedule)?;
        let (receiving, sends) = (None, Vec::new());
        let mut operation =
            Self { handle, fingerprint, leaders, streamed, buffers, element, window, receiving, sends };
        operation.open_next();
        Some(operation)
    }

    pub(super) fn element(&self) -> u32 {
        self.element
    }

    /// The rank and round of the message that is received now.
    pub(super) fn awaited(&self) -> Option<(Rank, u32)> {
        self.receiving.as_ref().map(|(receive, _)| (self.leaders[receive.step.from.index()], receive.round))
    }

    pub(super) fn is_received(&self) -> bool {
        self.streamed.is_received()
    }

    /// The present transfer, with its sender and length.
    pub(super) fn transfer_mut(&mut self) -> Option<(Rank, u32, u32, &mut BulkReceiver)> {
        let (receive, transfer) = self.receiving.as_mut()?;
        let from = self.leaders[receive.step.from.index()];
        Some((from, receive.round, receive.step.part.len(), transfer))
    }

    /// Handles a part from a rank: combines it with the vector, if it is new and its turn.
    pub(super) fn handle_part(
        &mut self,
        (from, round): (Rank, u32),
        (offset, length): (u32, u32),
        (acknowledge_now, probe): (bool, u8),
        part: UnverifiedPart<'_>,
    ) -> PartOutcome {
        let Some((receive, transfer)) = &mut self.receiving else { return PartOutcome::AlreadyComplete };
        if round != receive.round {
            return if round < receive.round { PartOutcome::AlreadyComplete } else { PartOutcome::Early };
        }
        if self.leaders[receive.step.from.index()] != from || length != receive.step.part.len() {
            return PartOutcome::Mismatch;
        }
        let bytes = part.len() as u32;
        let is_intact = match transfer.classify(offset, bytes) {
            PartArrival::New => {
                let start = (receive.step.part.start + offset) as usize;
                let kind = self.streamed.schedule().kind();
                self.buffers.combine(kind, receive.step.apply, receive.operand, start, part)
            }
            PartArrival::Dropped => part.verify().is_some(),
            PartArrival::Malformed => return PartOutcome::Mismatch,
        };
        if !is_intact {
            return PartOutcome::Damaged;
        }
        if transfer.note_arrival(offset, bytes, acknowledge_now, probe) != PartArrival::New {
            return PartOutcome::Handled { completed: false };
        }
        let completed = self.streamed.note_received(transfer.contiguous());
        PartOutcome::Handled { completed }
    }

    /// Opens the message after one that is complete.
    pub(super) fn open_next(&mut self) {
        self.receiving = self
            .streamed
            .receive()
            .map(|receive| (receive, BulkReceiver::new(receive.step.part.len(), self.element, self.window)));
    }

    /// A message that may be sent from now on, with where its bytes are.
    pub(super) fn next_send(&mut self) -> Option<(StreamedSend, *const u8)> {
        loop {
            let send = self.streamed.next_send()?;
            if send.step.part.is_empty() {
                continue;
            }
            self.sends.push(send);
            return Some((send, self.buffers.range(send.source, send.step.part).as_ptr()));
        }
    }

    /// Reports how many bytes of each message that was not fully available may be sent now: its round, and the bytes.
    pub(super) fn update_availability(&mut self, mut report: impl FnMut(u32, u32)) {
        let streamed = &self.streamed;
        self.sends.retain(|send| {
            let bytes = streamed.available(send);
            report(send.round, bytes);
            bytes < send.step.part.len()
        });
    }
}
