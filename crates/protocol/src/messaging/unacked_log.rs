//! The log of control packets that the peer has not acknowledged (P-66, P-68).
//!
//! In: packets that were sent, acknowledgements, NACKs, failed rails. Out: packets to retransmit.

use std::collections::VecDeque;

use super::control_message::ControlMessage;
use super::limits::MAX_RETRANSMITS;
use super::rails::{RailIndex, RailPacketId};

/// The messages of a packet without the data of eager messages: once that is corrupt, only [`ControlMessage::Lost`] can be sent.
#[derive(Debug)]
pub(super) enum BatchMessages {
    One(ControlMessage<'static>),
    Several(Vec<ControlMessage<'static>>),
}

impl BatchMessages {
    fn as_slice(&self) -> &[ControlMessage<'static>] {
        match self {
            Self::One(message) => std::slice::from_ref(message),
            Self::Several(messages) => messages,
        }
    }

    fn count(&self) -> u64 {
        self.as_slice().len() as u64
    }
}

/// Messages that went out in one packet.
#[derive(Debug)]
struct Batch {
    first: u64,
    count: u64,
    at: RailPacketId,
    /// The packet, unless the driver holds it.
    bytes: Option<Vec<u8>>,
    /// To be retransmitted, preferably not on this rail.
    resend_avoiding: Option<RailIndex>,
    retransmits: u8,
    /// What to send if the packet is corrupted while it waits here. The data of eager messages exists only in the packet.
    messages: BatchMessages,
}

impl Batch {
    #[inline]
    fn is_confirmed(&self, below: u64) -> bool {
        self.first + self.count <= below
    }
}

#[derive(Debug, Default)]
pub(super) struct UnackedLog {
    batches: VecDeque<Batch>,
    /// Batches to be retransmitted.
    resends: usize,
    /// The peer acknowledged every message below. [`Self::sweep`] drops their batches later: not between a message and its reply.
    confirmed: u64,
}

/// The outcome of a NACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ResendOutcome {
    Scheduled,
    /// The packet is not in the log, or was acknowledged.
    NotNeeded,
    /// It was retransmitted [`MAX_RETRANSMITS`] times.
    LimitReached,
}

impl UnackedLog {
    /// Every message is acknowledged.
    pub(super) fn is_empty(&self) -> bool {
        self.batches.back().is_none_or(|batch| batch.is_confirmed(self.confirmed))
    }

    #[inline]
    pub(super) fn has_resends(&self) -> bool {
        self.resends > 0
    }

    pub(super) fn add(&mut self, first: u64, at: RailPacketId, messages: BatchMessages) {
        let (count, resend_avoiding) = (messages.count(), None);
        self.batches.push_back(Batch { first, count, at, bytes: None, resend_avoiding, retransmits: 0, messages });
    }

    /// Adds a message with a copy of its packet: the driver returns nothing for it.
    #[inline]
    pub(super) fn add_with_packet(
        &mut self,
        first: u64,
        at: RailPacketId,
        message: ControlMessage<'static>,
        bytes: Vec<u8>,
    ) {
        let (bytes, messages) = (Some(bytes), BatchMessages::One(message));
        self.batches.push_back(Batch { first, count: 1, at, bytes, resend_avoiding: None, retransmits: 0, messages });
    }

    /// The messages of the batch that starts with this sequence number.
    pub(super) fn messages(&self, first: u64) -> &[ControlMessage<'static>] {
        let index = self.batches.binary_search_by_key(&first, |batch| batch.first);
        index.map_or(&[], |index| self.batches[index].messages.as_slice())
    }

    /// The peer acknowledged every message below `acked`.
    #[inline]
    pub(super) fn confirm(&mut self, acked: u64) {
        self.confirmed = acked;
        if self.resends > 0 {
            let confirmed = self.batches.iter_mut().take_while(|batch| batch.is_confirmed(acked));
            self.resends -= confirmed.filter_map(|batch| batch.resend_avoiding.take()).count();
        }
    }

    /// Drops acknowledged batches.
    pub(super) fn sweep(&mut self, mut recycle: impl FnMut(Vec<u8>)) {
        while self.batches.front().is_some_and(|batch| batch.is_confirmed(self.confirmed)) {
            let Some(batch) = self.batches.pop_front() else { break };
            batch.bytes.into_iter().for_each(&mut recycle);
        }
    }

    fn find(&mut self, first: u64, at: RailPacketId) -> Option<&mut Batch> {
        let index = self.batches.binary_search_by_key(&first, |batch| batch.first).ok()?;
        self.batches.get_mut(index).filter(|batch| batch.at == at && !batch.is_confirmed(self.confirmed))
    }

    /// The driver returns a packet. The log returns it too if it does not need it.
    pub(super) fn give_back(&mut self, first: u64, at: RailPacketId, bytes: Vec<u8>) -> Option<Vec<u8>> {
        match self.find(first, at) {
            Some(batch) => {
                batch.bytes = Some(bytes);
                None
            }
            None => Some(bytes),
        }
    }

    /// A packet arrived corrupt.
    pub(super) fn handle_nack(&mut self, at: RailPacketId) -> ResendOutcome {
        let needed = |batch: &&mut Batch| batch.at == at && !batch.is_confirmed(self.confirmed);
        let Some(batch) = self.batches.iter_mut().find(needed) else { return ResendOutcome::NotNeeded };
        batch.retransmits += 1;
        if batch.retransmits > MAX_RETRANSMITS {
            return ResendOutcome::LimitReached;
        }
        self.resends += usize::from(batch.resend_avoiding.is_none());
        batch.resend_avoiding = Some(at.0);
        ResendOutcome::Scheduled
    }

    /// A rail failed: every unacknowledged packet on it may be lost.
    pub(super) fn lose_rail(&mut self, rail: RailIndex) {
        let needed = |batch: &&mut Batch| batch.at.0 == rail && !batch.is_confirmed(self.confirmed);
        for batch in self.batches.iter_mut().filter(needed) {
            self.resends += usize::from(batch.resend_avoiding.is_none());
            batch.resend_avoiding = Some(rail);
        }
    }

    /// The rail to avoid for the next retransmission, if one is due.
    pub(super) fn next_resend(&self) -> Option<RailIndex> {
        if self.resends == 0 {
            return None;
        }
        self.batches.iter().filter(|batch| batch.bytes.is_some()).find_map(|batch| batch.resend_avoiding)
    }

    /// Takes the packet to retransmit, with the sequence number of its first message.
    pub(super) fn take_resend(&mut self) -> Option<(u64, Vec<u8>)> {
        let due = |batch: &&mut Batch| batch.bytes.is_some() && batch.resend_avoiding.is_some();
        let batch = self.batches.iter_mut().find(due)?;
        batch.resend_avoiding = None;
        self.resends -= 1;
        Some((batch.first, batch.bytes.take()?))
    }

    /// That packet was retransmitted under this id.
    pub(super) fn note_resent(&mut self, first: u64, to: RailPacketId) {
        let index = self.batches.binary_search_by_key(&first, |batch| batch.first).expect("take_resend found it");
        self.batches[index].at = to;
    }
}
