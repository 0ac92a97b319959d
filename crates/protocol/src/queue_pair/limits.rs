//! The limits of a queue pair.

/// Requests of each kind that may be posted at once.
pub const MAX_POSTED_REQUESTS: usize = 1 << 14;
/// Messages in flight beyond which the end of every message requests an acknowledgement, unless the caller sends another request.
pub(crate) const MAX_UNREQUESTED_ACKS: usize = 7;
/// The longest message (IB specification, 9.7.1).
pub const MAX_QP_MESSAGE_BYTES: u32 = 1 << 31;
/// Packets with at most so many bytes of payload have a whole ICRC whatever the ends agreed on (P-28): it costs little there.
pub(super) const MAX_WHOLE_ICRC_BYTES: u32 = 1 << 10;
