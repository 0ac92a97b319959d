//! Messages for a user who matches them himself (P-118): what is passed up. `user_matching` has the calls.

use units::Rank;

use super::matching::MessageContents;

/// Who pairs messages with receives.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum MessageMatching {
    /// The endpoint, by source and tag.
    #[default]
    ByEndpoint,
    /// The user: every message is passed up as a [`MessageArrival`].
    ByUser,
}

/// A message that waits for the user's decision.
#[derive(Debug)]
pub struct MessageArrival {
    pub(super) source: Rank,
    pub(super) tag: u64,
    pub(super) contents: MessageContents,
}

impl MessageArrival {
    /// The sender.
    pub fn source(&self) -> Rank {
        self.source
    }

    /// The message's tag.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Bytes of the message.
    pub fn length(&self) -> u64 {
        self.contents.length()
    }

    /// All bytes of an eager message; none for a long message, and for one whose sender lost the bytes.
    pub fn eager_bytes(&self) -> Option<&[u8]> {
        match &self.contents {
            MessageContents::Eager { bytes, .. } => Some(bytes),
            MessageContents::Rendezvous { .. } | MessageContents::Lost { .. } => None,
        }
    }

    /// The note of a long message (`MessagingEndpoint::send_lent`); none for an eager message.
    pub fn note(&self) -> Option<u128> {
        match self.contents {
            MessageContents::Rendezvous { note, .. } => Some(note),
            MessageContents::Eager { .. } | MessageContents::Lost { .. } => None,
        }
    }
}
