//! Checked messages: tagged, of any length, every byte covered from the sender's memory to the receiver's (claim CK-1).
//!
//! In: sends and receives of the user; parcels that came over rails, and rails that were lost. Out: parcels to transmit,
//! and completions. Rules: docs/protocol.md P-80 to P-93.
//!
//! A *rail* is a reliable, ordered way to a peer: a queue pair, or a ring in shared memory. It repairs what a network can do to
//! a packet. What happens behind the packet's check (in an adapter, on a bus, in memory) the seal of a *parcel* finds, and
//! then the parcel is asked for again, by another rail if there is one.
//!
//! Reading order: `packet` says how bytes are laid out and `checksum_policy` how they are covered; `unacked_log` makes numbered letters
//! exactly-once; `inline_send` is the short way for short messages; `fragments` and `fragment_sizer` move long messages over `rails`; `matching` finds who wants what; `peer` sends and `receive_path`
//! takes; [`MessagingEndpoint`] holds them together.

mod checksum_policy;
mod endpoint;
mod fragment_sizer;
mod fragments;
mod inline_send;
mod matching;
mod packet;
mod peer;
mod rails;
mod receive_path;
mod settings;
#[cfg(test)]
mod tests;
mod unacked_log;

pub use checksum_policy::ChecksumPolicy;
pub use endpoint::{
    InPlaceBuffers, MessageCompletion, MessageFailure, MessagePostError, MessagingAction, MessagingCounters,
    MessagingEndpoint, PeerLossCause, RejectedPost,
};
pub use matching::{MessageSelector, ProbedMessage, ReceiveId, SendId};
pub use packet::{MESSAGE_HEADER_BYTES, has_body};
pub use rails::RailIndex;
pub use settings::MessagingSettings;

/// Letters that may be on their way to a peer, not confirmed by it: messages and announcements.
const CONTROL_WINDOW: u64 = 1024;
/// The same for answers about long messages, which must get through when messages may not.
const REPLY_WINDOW: u64 = CONTROL_WINDOW + CONTROL_WINDOW / 2;
/// The same for repairs, which must get through when nothing else may.
const REPAIR_WINDOW: u64 = 2 * CONTROL_WINDOW;
/// A letter counts for so many bytes of credit on top of its data.
const CONTROL_MESSAGE_COST_BYTES: u64 = 64;
/// Times that one parcel may be asked for again.
const MAX_RETRANSMITS: u8 = 16;
/// Spoiled parcels in a row after which a peer counts as one that sends garbage.
const MAX_CONSECUTIVE_CORRUPT: u32 = 256;
/// Sends to one peer, and receives, that may wait at once.
pub const MAX_PENDING: usize = 1 << 16;
/// The longest message.
pub const MAX_MESSAGE_BYTES: u64 = 1 << 40;
