//! Who wants what: receives that wait for messages, and messages that wait for receives (P-80).
//!
//! Messages of one pair are looked at in the order in which they were sent, receives in the order in which they were posted.

use std::collections::VecDeque;

use checksum::tuning::ChecksumChoice;
use units::Rank;

/// Names a send until it completes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SendId(pub u64);

/// Names a receive until it completes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ReceiveId(pub u64);

/// What a receive is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageSelector {
    /// From whom; none: from anyone.
    pub source: Option<Rank>,
    /// Bits that the tag must have,
    pub tag: u64,
    /// where this has a one.
    pub mask: u64,
}

impl MessageSelector {
    /// A message from this rank with exactly this tag.
    pub fn from(source: Rank, tag: u64) -> Self {
        Self { source: Some(source), tag, mask: u64::MAX }
    }

    /// Any message.
    pub const ANY: Self = Self { source: None, tag: 0, mask: 0 };

    #[inline]
    fn fits(&self, source: Rank, tag: u64) -> bool {
        self.source.is_none_or(|wanted| wanted == source) && (self.tag ^ tag) & self.mask == 0
    }
}

/// A message that a probe found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbedMessage {
    /// From this rank.
    pub source: Rank,
    /// With this tag.
    pub tag: u64,
    /// Of so many bytes.
    pub length: u64,
}

/// A receive that waits.
#[derive(Debug)]
pub(super) struct WaitingReceive {
    pub(super) id: ReceiveId,
    pub(super) wanted: MessageSelector,
    pub(super) buffer: Vec<u8>,
}

/// What of a message is here.
#[derive(Debug)]
pub(super) enum MessageContents {
    /// All of it, with the value of its bytes if they are covered: they may lie here for long.
    Whole { bytes: Vec<u8>, choice: Option<ChecksumChoice>, seal: u64 },
    /// The word that it exists.
    Announced { transfer: u64, length: u64 },
    /// The word that its sender has it no more.
    Lost { length: u64 },
}

impl MessageContents {
    fn length(&self) -> u64 {
        match self {
            Self::Whole { bytes, .. } => bytes.len() as u64,
            Self::Announced { length, .. } | Self::Lost { length } => *length,
        }
    }
}

/// A message that waits.
#[derive(Debug)]
pub(super) struct UnexpectedMessage {
    pub(super) source: Rank,
    pub(super) tag: u64,
    pub(super) contents: MessageContents,
}

#[derive(Debug, Default)]
pub(super) struct MatchQueues {
    posted: VecDeque<WaitingReceive>,
    unexpected: VecDeque<UnexpectedMessage>,
}

impl MatchQueues {
    pub(super) fn waiting_receives(&self) -> usize {
        self.posted.len()
    }

    /// The first receive that wants such a message.
    #[inline]
    pub(super) fn find(&mut self, source: Rank, tag: u64) -> Option<usize> {
        // Most often it is the one that has waited longest.
        if self.posted.front()?.wanted.fits(source, tag) {
            return Some(0);
        }
        self.posted.iter().position(|posted| posted.wanted.fits(source, tag))
    }

    /// The buffer of a receive that was found.
    #[inline]
    pub(super) fn buffer(&mut self, index: usize) -> &mut Vec<u8> {
        &mut self.posted[index].buffer
    }

    #[inline]
    pub(super) fn take(&mut self, index: usize) -> WaitingReceive {
        let posted = if index == 0 { self.posted.pop_front() } else { self.posted.remove(index) };
        posted.expect("it was found")
    }

    pub(super) fn post(&mut self, posted: WaitingReceive) {
        self.posted.push_back(posted);
    }

    /// Takes back a receive that nothing has come for.
    pub(super) fn cancel(&mut self, id: ReceiveId) -> Option<WaitingReceive> {
        let index = self.posted.iter().position(|posted| posted.id == id)?;
        self.posted.remove(index)
    }

    pub(super) fn keep(&mut self, message: UnexpectedMessage) {
        self.unexpected.push_back(message);
    }

    /// The first message that is wanted.
    #[inline]
    pub(super) fn take_unexpected(&mut self, wanted: &MessageSelector) -> Option<UnexpectedMessage> {
        let index = self.unexpected.iter().position(|message| wanted.fits(message.source, message.tag))?;
        self.unexpected.remove(index)
    }

    pub(super) fn probe(&self, wanted: &MessageSelector) -> Option<ProbedMessage> {
        let message = self.unexpected.iter().find(|message| wanted.fits(message.source, message.tag))?;
        Some(ProbedMessage { source: message.source, tag: message.tag, length: message.contents.length() })
    }

    /// A rank is gone: receives from it alone will never be served, and what it announced will never come.
    pub(super) fn forget(&mut self, rank: Rank) -> Vec<WaitingReceive> {
        self.unexpected.retain(|message| {
            message.source != rank || !matches!(message.contents, MessageContents::Announced { .. })
        });
        let (gone, left): (Vec<_>, Vec<_>) =
            self.posted.drain(..).partition(|posted| posted.wanted.source == Some(rank));
        self.posted = left.into();
        gone
    }
}
