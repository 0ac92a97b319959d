//! The limits, in one place. Everything that comes from outside is measured against one of these.

/// Most children that one aggregation node folds.
pub const MAX_CHILDREN: usize = 1 << 12;
/// Most copies of a packet that replication may ask for.
pub const MAX_COPIES: u8 = 16;
/// Operations of one group that may be in flight at once.
pub const MAX_GROUP_WINDOW: u32 = 1 << 10;
/// Smallest and largest path MTU, in payload bytes (IB specification, 9.5.6).
pub const MIN_MTU: u32 = 256;
/// See [`MIN_MTU`].
pub const MAX_MTU: u32 = 4096;
/// Between two ends of ours packets may be longer than InfiniBand knows, where the links between them carry such: nearly as long as a
/// datagram can be.
pub const MAX_JUMBO_MTU: u32 = 62 << 10;
/// The payload of a full long packet is so many bytes, some number of times.
pub const JUMBO_MTU_STEP: u32 = 64;

/// Ways that one connection may have.
pub const MAX_PATHS: usize = 16;
/// Packets that a receiver keeps although an earlier one is missing, and so the most that a connection has in flight.
pub const MAX_REORDER_PACKETS: u32 = 256;

/// Whether a path may have this MTU; that of a long one only two ends of ours know.
pub const fn is_valid_mtu(bytes: u32) -> bool {
    let is_known = bytes.is_power_of_two() && bytes >= MIN_MTU && bytes <= MAX_MTU;
    is_known || (bytes.is_multiple_of(JUMBO_MTU_STEP) && bytes > MAX_MTU && bytes <= MAX_JUMBO_MTU)
}

const _: () = assert!(is_valid_mtu(MIN_MTU) && is_valid_mtu(MAX_MTU) && is_valid_mtu(MAX_JUMBO_MTU));
const _: () = assert!(MIN_MTU.is_power_of_two() && MAX_MTU.is_power_of_two() && MIN_MTU < MAX_MTU);
const _: () = assert!(MAX_CHILDREN <= u16::MAX as usize);
