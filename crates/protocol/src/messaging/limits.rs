//! The limits of messaging.

/// Unacknowledged eager messages and RTS per peer.
pub(super) const CONTROL_WINDOW: u64 = 1024;
/// The same for CTS and FIN, which must get through when messages may not.
pub(super) const REPLY_WINDOW: u64 = CONTROL_WINDOW + CONTROL_WINDOW / 2;
/// The same for NACKs and closed rails, which must get through when nothing else may.
pub(super) const REPAIR_WINDOW: u64 = 2 * CONTROL_WINDOW;
/// Bytes of credit that a message costs in addition to its data.
pub(super) const CONTROL_MESSAGE_COST_BYTES: u64 = 64;
/// Retransmissions of one packet before its peer counts as lost.
pub(super) const MAX_RETRANSMITS: u8 = 16;
/// Corrupt packets in a row before their sender counts as lost.
pub(super) const MAX_CONSECUTIVE_CORRUPT: u32 = 256;
/// Sends to one peer, and receives, that may be pending at once.
pub const MAX_PENDING: usize = 1 << 16;
/// The longest message.
pub const MAX_MESSAGE_BYTES: u64 = 1 << 40;
