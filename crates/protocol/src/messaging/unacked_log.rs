//! Numbered letters: each is told exactly once and, where that matters, in order, whatever rails do to it (P-84, P-85).
//!
//! [`UnackedLog`] keeps what the peer has not confirmed. [`ReorderBuffer`] knows what has come.

use std::collections::{BTreeMap, VecDeque};

use super::matching::MessageContents;
use super::packet::ControlMessage;
use super::rails::{RailIndex, RailPacketId};
use super::{MAX_RETRANSMITS, REPAIR_WINDOW};

/// The letters of a parcel, without the bytes of messages: of a message it can only be told that it is lost.
#[derive(Debug)]
pub(super) enum BatchMessages {
    One(ControlMessage<'static>),
    Several(Vec<ControlMessage<'static>>),
}

impl BatchMessages {
    fn as_slice(&self) -> &[ControlMessage<'static>] {
        match self {
            Self::One(letter) => std::slice::from_ref(letter),
            Self::Several(letters) => letters,
        }
    }

    fn count(&self) -> u64 {
        self.as_slice().len() as u64
    }
}

/// Letters that went out together.
#[derive(Debug)]
struct Batch {
    first: u64,
    count: u64,
    at: RailPacketId,
    /// Here unless the driver has it.
    bytes: Option<Vec<u8>>,
    /// To be sent again, if possible not on this rail.
    repeat: Option<RailIndex>,
    tries: u8,
    /// What can be written again if the parcel is spoiled where it waits. A message's bytes are here only once, in the parcel.
    letters: BatchMessages,
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
    repeats: usize,
    /// The peer has every letter below. What it has is swept out when there is time: not between a message and its answer.
    confirmed: u64,
}

/// What became of a request to send something again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ResendOutcome {
    /// It will be.
    Noted,
    /// Nothing of it is needed any more.
    Needless,
    /// It has been sent too often.
    TooOften,
}

impl UnackedLog {
    /// Everything is confirmed.
    pub(super) fn is_empty(&self) -> bool {
        self.batches.back().is_none_or(|batch| batch.is_confirmed(self.confirmed))
    }

    #[inline]
    pub(super) fn has_repeats(&self) -> bool {
        self.repeats > 0
    }

    pub(super) fn add(&mut self, first: u64, at: RailPacketId, letters: BatchMessages) {
        let count = letters.count();
        self.batches.push_back(Batch { first, count, at, bytes: None, repeat: None, tries: 0, letters });
    }

    /// A letter that went out, with the parcel it was in: the driver has a copy.
    #[inline]
    pub(super) fn add_kept(&mut self, first: u64, at: RailPacketId, letter: ControlMessage<'static>, bytes: Vec<u8>) {
        let (bytes, letters) = (Some(bytes), BatchMessages::One(letter));
        self.batches.push_back(Batch { first, count: 1, at, bytes, repeat: None, tries: 0, letters });
    }

    /// The letters of a parcel from this number on, as they can be written again.
    pub(super) fn letters(&self, first: u64) -> &[ControlMessage<'static>] {
        let index = self.batches.binary_search_by_key(&first, |batch| batch.first);
        index.map_or(&[], |index| self.batches[index].letters.as_slice())
    }

    /// The peer has every letter below `taken`.
    #[inline]
    pub(super) fn confirm(&mut self, taken: u64) {
        self.confirmed = taken;
        if self.repeats > 0 {
            // Nothing is sent again that has come.
            let repeated = self.batches.iter_mut().take_while(|batch| batch.is_confirmed(taken));
            self.repeats -= repeated.filter_map(|batch| batch.repeat.take()).count();
        }
    }

    /// Throws away what is confirmed.
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

    /// The driver gives a parcel back. It comes back from here if it is not needed.
    pub(super) fn give_back(&mut self, first: u64, at: RailPacketId, bytes: Vec<u8>) -> Option<Vec<u8>> {
        match self.find(first, at) {
            Some(batch) => {
                batch.bytes = Some(bytes);
                None
            }
            None => Some(bytes),
        }
    }

    /// A parcel came spoiled.
    pub(super) fn ask_again(&mut self, at: RailPacketId) -> ResendOutcome {
        let needed = |batch: &&mut Batch| batch.at == at && !batch.is_confirmed(self.confirmed);
        let Some(batch) = self.batches.iter_mut().find(needed) else { return ResendOutcome::Needless };
        batch.tries += 1;
        if batch.tries > MAX_RETRANSMITS {
            return ResendOutcome::TooOften;
        }
        self.repeats += usize::from(batch.repeat.is_none());
        batch.repeat = Some(at.0);
        ResendOutcome::Noted
    }

    /// A rail is lost, and perhaps everything on it.
    pub(super) fn lose_rail(&mut self, rail: RailIndex) {
        let needed = |batch: &&mut Batch| batch.at.0 == rail && !batch.is_confirmed(self.confirmed);
        for batch in self.batches.iter_mut().filter(needed) {
            self.repeats += usize::from(batch.repeat.is_none());
            batch.repeat = Some(rail);
        }
    }

    /// The rail to avoid for the next parcel that goes out again, if there is one.
    pub(super) fn next_repeat(&self) -> Option<RailIndex> {
        if self.repeats == 0 {
            return None;
        }
        self.batches.iter().filter(|batch| batch.bytes.is_some()).find_map(|batch| batch.repeat)
    }

    /// Takes that parcel; the letter that it begins with.
    pub(super) fn take_repeat(&mut self) -> Option<(u64, Vec<u8>)> {
        let batch = self.batches.iter_mut().find(|batch| batch.bytes.is_some() && batch.repeat.is_some())?;
        batch.repeat = None;
        self.repeats -= 1;
        Some((batch.first, batch.bytes.take()?))
    }

    /// It went out again, there.
    pub(super) fn moved(&mut self, first: u64, to: RailPacketId) {
        let index = self.batches.binary_search_by_key(&first, |batch| batch.first).expect("just taken");
        self.batches[index].at = to;
    }
}

/// A letter that came before its turn.
#[derive(Debug)]
pub(super) enum EarlyMessage {
    /// A message or an announcement, with its tag.
    Message(u64, MessageContents),
    /// One whose turn does not matter: it has been dealt with.
    DealtWith,
}

/// Where a letter stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SequencePosition {
    Now,
    Later,
    /// It came before.
    Past,
    /// Further ahead than a peer may go.
    Beyond,
}

#[derive(Debug, Default)]
pub(super) struct ReorderBuffer {
    expected: u64,
    early: BTreeMap<u64, EarlyMessage>,
}

impl ReorderBuffer {
    /// Letters that have come, in order.
    pub(super) fn taken(&self) -> u64 {
        self.expected
    }

    pub(super) fn turn(&self, number: u64) -> SequencePosition {
        match number.checked_sub(self.expected) {
            None => SequencePosition::Past,
            Some(_) if self.early.contains_key(&number) => SequencePosition::Past,
            Some(0) => SequencePosition::Now,
            Some(ahead) if ahead < REPAIR_WINDOW => SequencePosition::Later,
            Some(_) => SequencePosition::Beyond,
        }
    }

    /// The letter whose turn it is has been dealt with.
    pub(super) fn advance(&mut self) {
        self.expected += 1;
    }

    pub(super) fn keep(&mut self, number: u64, early: EarlyMessage) {
        self.early.insert(number, early);
    }

    /// The next letter, if it came before its turn.
    #[inline]
    pub(super) fn next(&mut self) -> Option<EarlyMessage> {
        if self.early.is_empty() {
            return None;
        }
        let early = self.early.remove(&self.expected)?;
        self.expected += 1;
        Some(early)
    }
}
