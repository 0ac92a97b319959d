//! Checked messages: tagged, of any length, every byte covered from the sender's memory to the receiver's (claim CK-1).
//!
//! In: sends and receives of the user; parcels that came over rails, and rails that were lost. Out: parcels to transmit,
//! and completions. Rules: docs/protocol.md P-80 to P-93.
//!
//! A *rail* is a reliable, ordered way to a peer: a queue pair, or a ring in shared memory. It repairs what a network can do to
//! a packet. What happens behind the packet's check (in an adapter, on a bus, in memory) the seal of a *parcel* finds, and
//! then the parcel is asked for again, by another rail if there is one.
//!
//! Reading order: `parcel` says how bytes are laid out and `seal` how they are covered; `letter` makes numbered letters
//! exactly-once; `brief` is the short way for short messages; `pieces` and `pipeline` move long messages over `rails`; `matching` finds who wants what; `peer` sends and `taking`
//! takes; [`Port`] holds them together.

mod brief;
mod letter;
mod matching;
mod parcel;
mod peer;
mod pieces;
mod pipeline;
mod port;
mod rails;
mod seal;
mod settings;
mod taking;
#[cfg(test)]
mod tests;

pub use matching::{Found, ReceiveId, SendId, Wanted};
pub use parcel::{HEADER_BYTES, has_body};
pub use port::{Cause, Completion, Counters, Duty, Failure, Port, PostError, Refused, Rooms};
pub use rails::RailIndex;
pub use seal::Sealing;
pub use settings::Settings;

/// Letters that may be on their way to a peer, not confirmed by it: messages and announcements.
const WINDOW: u64 = 1024;
/// The same for answers about long messages, which must get through when messages may not.
const ANSWER_WINDOW: u64 = WINDOW + WINDOW / 2;
/// The same for repairs, which must get through when nothing else may.
const REPAIR_WINDOW: u64 = 2 * WINDOW;
/// A letter counts for so many bytes of credit on top of its data.
const LETTER_COST: u64 = 64;
/// Times that one parcel may be asked for again.
const MAX_TRIES: u8 = 16;
/// Spoiled parcels in a row after which a peer counts as one that sends garbage.
const MAX_SPOILED_IN_A_ROW: u32 = 256;
/// Sends to one peer, and receives, that may wait at once.
pub const MAX_WAITING: usize = 1 << 16;
/// The longest message.
pub const MAX_MESSAGE: u64 = 1 << 40;
