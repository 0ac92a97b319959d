//! Transfers: the parts of a message or a long vector from one process to another, exactly once and in any order.
//!
//! In: parts that arrive, acknowledgements, time. Out: which part to send next, and when to acknowledge. The bytes themselves stay
//! with the driver: it sends from the user's memory and combines each part with the user's vector as it arrives, so no part is
//! stored here. Both ends know name and length of a transfer from the schedule of their operation; nothing is announced.
//! Rules: docs/protocol.md P-86 to P-89, P-91, P-92.

mod incoming;
mod outgoing;
mod pacing;
mod part_limit;
#[cfg(test)]
mod tests;

pub use incoming::{BulkReceiver, PartArrival, TransferAcknowledgement};
pub use outgoing::{BulkSender, TransferPeerLost};
pub use pacing::TransferPacing;
pub use part_limit::{BASE_PACKET_BYTES, PartLimit};

/// A sender may send so many bytes before the receiver has granted anything (P-87).
pub const UNSOLICITED_BYTES: u32 = 512 << 10;
/// A receiver need not acknowledge a transfer of so many bytes when it is complete: packets of later operations show it (P-91).
pub const IMPLICIT_ACK_BYTES: u32 = 16 << 10;
