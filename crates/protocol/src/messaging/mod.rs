//! Checked messages: tagged, of any length, covered by a checksum from the sender's memory to the receiver's (claim CK-1).
//!
//! In: sends and receives of the user; packets that arrived over rails, and rails that failed. Out: packets to transmit, and
//! completions. Rules: docs/protocol.md P-62 to P-75.
//!
//! A *rail* is a reliable, ordered channel to a peer: a queue pair, or a ring in shared memory. It repairs what a network does to
//! its own packets. The checksum of a message packet finds corruption behind the rail's check (in an adapter, on a bus, in
//! memory); the receiver then asks for the packet again, over another rail if there is one.
//!
//! Messages of up to `eager_bytes` are sent at once. Longer ones use a rendezvous: RTS, CTS, fragments, FIN. All control messages
//! and eager messages of a peer carry sequence numbers and are delivered exactly once.
//!
//! Reading order: `packet` and `control_message` define the layout, `checksum_policy` how it is covered. `unacked_log` and
//! `reorder_buffer` make numbered messages exactly-once. `fragments` and `fragment_sizer` cut long messages, `rails` chooses where
//! they go, `matching` pairs messages with receives. `peer` holds the state of one peer; `inline_send`, `control_send`,
//! `fragment_send` and `receive_path` are its methods by direction. [`MessagingEndpoint`] holds the peers.

mod action;
mod arrival;
mod checksum_policy;
mod completion;
mod control_message;
mod control_send;
mod endpoint;
mod endpoint_shared;
mod fragment_send;
mod fragment_sizer;
mod fragments;
mod inline_send;
mod lent_buffer;
mod limits;
mod matching;
mod packet;
mod peer;
mod rails;
mod receive_path;
mod reorder_buffer;
mod settings;
#[cfg(test)]
mod tests;
mod unacked_log;
mod user_matching;

pub use action::{InPlaceBuffers, MessagingAction};
pub use arrival::{MessageArrival, MessageMatching};
pub use checksum_policy::ChecksumPolicy;
pub use completion::{MessageCompletion, MessageFailure, MessagePostError, PeerLossCause, RejectedPost};
pub use endpoint::MessagingEndpoint;
pub use endpoint_shared::MessagingCounters;
pub use lent_buffer::LentBytesMut;
pub use limits::{MAX_MESSAGE_BYTES, MAX_PENDING};
pub use matching::{MessageSelector, ProbedMessage, ReceiveId, SendId};
pub use packet::{MESSAGE_HEADER_BYTES, has_body};
pub use rails::RailIndex;
pub use settings::MessagingSettings;
