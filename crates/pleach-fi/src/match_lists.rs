//! Posted receives and unexpected messages of an endpoint, and which of them belong together.
//!
//! Messages of a peer are offered in the order of sending, receives match in the order of posting. Tagged and untagged messages have
//! lists of their own.

use std::collections::VecDeque;

use protocol::messaging::MessageArrival;

use crate::envelope::Envelope;
use crate::message_port::PeerIndex;
use crate::user_memory::UserBuffer;

/// Who sent a message: a peer, or the endpoint itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MessageSource {
    Peer(PeerIndex),
    Own,
}

/// Which messages a receive takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReceiveFilter {
    /// None for any.
    pub(crate) source: Option<MessageSource>,
    pub(crate) tag: u64,
    /// Bits of the tag that need not match.
    pub(crate) ignore: u64,
}

impl ReceiveFilter {
    pub(crate) fn accepts(&self, source: MessageSource, tag: u64) -> bool {
        self.source.is_none_or(|wanted| wanted == source) && (self.tag ^ tag) & !self.ignore == 0
    }
}

/// A receive without a message.
#[derive(Debug)]
pub(crate) struct FabricReceive {
    pub(crate) context: usize,
    pub(crate) filter: ReceiveFilter,
    pub(crate) buffer: UserBuffer,
    pub(crate) wants_completion: bool,
    /// The buffer takes several messages: its number.
    pub(crate) multi: Option<u64>,
}

impl FabricReceive {
    /// Whether it waits for one message from anybody. A buffer for several is only space: programs post it without waiting.
    pub(crate) fn waits_for_any(&self) -> bool {
        self.filter.source.is_none() && self.multi.is_none()
    }
}

/// What is known of an unexpected message.
#[derive(Debug)]
pub(crate) enum FabricMessageBody {
    /// From a peer, with so many bytes before the user's.
    Remote(MessageArrival, usize),
    /// From this endpoint, copied.
    Copied(Vec<u8>),
    /// From this endpoint, still in the memory of this send.
    Lent(u64, UserBuffer),
}

/// A message without a receive.
#[derive(Debug)]
pub(crate) struct FabricMessage {
    pub(crate) source: MessageSource,
    pub(crate) envelope: Envelope,
    /// Bytes of the user's message.
    pub(crate) length: usize,
    pub(crate) body: FabricMessageBody,
}

#[derive(Debug, Default)]
pub(crate) struct MatchLists {
    pub(crate) posted: VecDeque<FabricReceive>,
    pub(crate) unexpected: VecDeque<FabricMessage>,
}

impl MatchLists {
    /// The first receive that takes such a message.
    pub(crate) fn find_posted(&self, source: MessageSource, tag: u64) -> Option<usize> {
        self.posted.iter().position(|posted| posted.filter.accepts(source, tag))
    }

    /// The first message that such a receive takes.
    pub(crate) fn find_unexpected(&self, filter: &ReceiveFilter) -> Option<usize> {
        let tag = |message: &FabricMessage| message.envelope.tag.unwrap_or(0);
        self.unexpected.iter().position(|message| filter.accepts(message.source, tag(message)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(source: MessageSource, tag: u64) -> FabricMessage {
        let envelope = Envelope { tag: Some(tag), data: None };
        FabricMessage { source, envelope, length: 0, body: FabricMessageBody::Copied(Vec::new()) }
    }

    #[test]
    fn receives_match_by_source_and_by_the_bits_that_count() {
        let mut lists = MatchLists::default();
        lists.unexpected.push_back(message(MessageSource::Peer(1), 0xff01));
        lists.unexpected.push_back(message(MessageSource::Peer(2), 0xff02));
        lists.unexpected.push_back(message(MessageSource::Own, 0xaa02));
        let find = |source, tag, ignore| lists.find_unexpected(&ReceiveFilter { source, tag, ignore });
        assert_eq!(find(None, 0xff02, 0), Some(1));
        assert_eq!(find(None, 0x02, 0xff00), Some(1), "the first of two");
        assert_eq!(find(Some(MessageSource::Own), 0x02, 0xff00), Some(2));
        assert_eq!(find(Some(MessageSource::Peer(1)), 0xff02, 0), None);
        assert_eq!(find(None, 0, u64::MAX), Some(0));
    }

    #[test]
    fn the_oldest_receive_that_fits_gets_the_message() {
        let mut lists = MatchLists::default();
        for (context, ignore) in [(1, 0), (2, u64::MAX), (3, 0)] {
            let filter = ReceiveFilter { source: None, tag: 5, ignore };
            let buffer = UserBuffer::one(std::ptr::null_mut(), 0);
            lists.posted.push_back(FabricReceive { context, filter, buffer, wants_completion: true, multi: None });
        }
        assert_eq!(lists.find_posted(MessageSource::Own, 9), Some(1));
        assert_eq!(lists.find_posted(MessageSource::Own, 5), Some(0));
    }
}
