//! Tag matching: posted receives, and messages that arrived before their receive (P-62).
//!
//! Messages of one pair match in the order in which they were sent, receives in the order in which they were posted.

use std::collections::VecDeque;

use checksum::tuning::ChecksumChoice;
use units::Rank;

/// Identifies a send until it completes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SendId(pub u64);

/// Identifies a receive until it completes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ReceiveId(pub u64);

/// Which messages a receive or probe matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageSelector {
    /// The sender; none matches any.
    pub source: Option<Rank>,
    /// The tag, compared in the bits of `mask`.
    pub tag: u64,
    /// The bits of the tag that must match.
    pub mask: u64,
}

impl MessageSelector {
    /// Messages from this rank with exactly this tag.
    pub fn exact(source: Rank, tag: u64) -> Self {
        Self { source: Some(source), tag, mask: u64::MAX }
    }

    /// Any message.
    pub const ANY: Self = Self { source: None, tag: 0, mask: 0 };

    #[inline]
    fn matches(&self, source: Rank, tag: u64) -> bool {
        self.source.is_none_or(|wanted| wanted == source) && (self.tag ^ tag) & self.mask == 0
    }
}

/// A message that a probe found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbedMessage {
    /// The sender.
    pub source: Rank,
    /// The tag.
    pub tag: u64,
    /// Bytes.
    pub length: u64,
}

/// A posted receive that has no message yet.
#[derive(Debug)]
pub(super) struct WaitingReceive {
    pub(super) id: ReceiveId,
    pub(super) selector: MessageSelector,
    pub(super) buffer: Vec<u8>,
}

/// What is known of an arrived message.
#[derive(Debug)]
pub(super) enum MessageContents {
    /// All of it, with the checksum of its bytes if there is one: they may stay in memory for long.
    Eager { bytes: Vec<u8>, choice: Option<ChecksumChoice>, checksum: u64 },
    /// Its RTS.
    Rendezvous { transfer: u64, length: u64, note: u128 },
    /// The sender's copy was corrupted.
    Lost { length: u64 },
}

impl MessageContents {
    pub(super) fn length(&self) -> u64 {
        match self {
            Self::Eager { bytes, .. } => bytes.len() as u64,
            Self::Rendezvous { length, .. } | Self::Lost { length } => *length,
        }
    }

    /// Bytes of credit that its data used.
    pub(super) fn credit_bytes(&self) -> u64 {
        match self {
            Self::Eager { bytes, .. } => bytes.len() as u64,
            Self::Rendezvous { .. } => 0,
            // It holds no bytes, but was charged for them.
            Self::Lost { length } => *length,
        }
    }
}

/// A message without a receive.
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

    /// The first receive that matches such a message.
    #[inline]
    pub(super) fn find(&mut self, source: Rank, tag: u64) -> Option<usize> {
        // Most often the oldest receive matches.
        if self.posted.front()?.selector.matches(source, tag) {
            return Some(0);
        }
        self.posted.iter().position(|posted| posted.selector.matches(source, tag))
    }

    /// The buffer of a receive that was found.
    #[inline]
    pub(super) fn buffer(&mut self, index: usize) -> &mut Vec<u8> {
        &mut self.posted[index].buffer
    }

    #[inline]
    pub(super) fn take(&mut self, index: usize) -> WaitingReceive {
        let posted = if index == 0 { self.posted.pop_front() } else { self.posted.remove(index) };
        posted.expect("the index comes from find")
    }

    pub(super) fn post(&mut self, posted: WaitingReceive) {
        self.posted.push_back(posted);
    }

    /// Removes a receive that has no message yet.
    pub(super) fn cancel(&mut self, id: ReceiveId) -> Option<WaitingReceive> {
        let index = self.posted.iter().position(|posted| posted.id == id)?;
        self.posted.remove(index)
    }

    pub(super) fn add_unexpected(&mut self, message: UnexpectedMessage) {
        self.unexpected.push_back(message);
    }

    /// The first unexpected message that matches.
    #[inline]
    pub(super) fn take_unexpected(&mut self, selector: &MessageSelector) -> Option<UnexpectedMessage> {
        let index = self.unexpected.iter().position(|message| selector.matches(message.source, message.tag))?;
        self.unexpected.remove(index)
    }

    pub(super) fn probe(&self, selector: &MessageSelector) -> Option<ProbedMessage> {
        let message = self.unexpected.iter().find(|message| selector.matches(message.source, message.tag))?;
        Some(ProbedMessage { source: message.source, tag: message.tag, length: message.contents.length() })
    }

    /// A rank is lost. Discards its RTS, and returns the receives that only it could complete.
    pub(super) fn remove_rank(&mut self, rank: Rank) -> Vec<WaitingReceive> {
        self.unexpected.retain(|message| {
            message.source != rank || !matches!(message.contents, MessageContents::Rendezvous { .. })
        });
        let (gone, left): (Vec<_>, Vec<_>) =
            self.posted.drain(..).partition(|posted| posted.selector.source == Some(rank));
        self.posted = left.into();
        gone
    }
}
