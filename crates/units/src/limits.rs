//! The limits, in one place. Every number from outside is checked against one of these.

/// The most children of an aggregation node.
pub const MAX_CHILDREN: usize = 1 << 12;
/// The most copies of a packet in replication.
pub const MAX_COPIES: u8 = 16;
/// The most operations of one group in flight.
pub const MAX_GROUP_WINDOW: u32 = 1 << 10;
/// Smallest and largest path MTU, in payload bytes (IB specification, 9.5.6).
pub const MIN_MTU: u32 = 256;
/// See [`MIN_MTU`].
pub const MAX_MTU: u32 = 4096;
/// The largest path MTU between two Pleach endpoints whose links carry it: beyond InfiniBand's, nearly as long as a UDP datagram
/// can be.
pub const MAX_JUMBO_MTU: u32 = 62 << 10;
/// The path MTU between two Pleach endpoints is a multiple of this many bytes.
pub const MTU_STEP: u32 = 64;

/// The most paths of a connection.
pub const MAX_PATHS: usize = 16;
/// The most packets that a receiver keeps while an earlier one is missing, and so the most that a connection has in flight.
pub const MAX_REORDER_PACKETS: u32 = 256;

/// Whether a path to a verbs adapter may have this MTU: one of InfiniBand's.
pub const fn is_infiniband_mtu(bytes: u32) -> bool {
    bytes.is_power_of_two() && bytes >= MIN_MTU && bytes <= MAX_MTU
}

/// Whether a path between two Pleach endpoints may have this MTU. InfiniBand's are among them. The others fill the packets of a link:
/// one with an MTU of 1,500 carries 1,408 bytes and not only 1,024.
pub const fn is_valid_mtu(bytes: u32) -> bool {
    bytes.is_multiple_of(MTU_STEP) && bytes >= MIN_MTU && bytes <= MAX_JUMBO_MTU
}

const _: () = assert!(is_valid_mtu(MIN_MTU) && is_valid_mtu(MAX_MTU) && is_valid_mtu(MAX_JUMBO_MTU));
const _: () = assert!(is_infiniband_mtu(MIN_MTU) && is_infiniband_mtu(MAX_MTU));
const _: () = assert!(MIN_MTU.is_power_of_two() && MAX_MTU.is_power_of_two() && MIN_MTU < MAX_MTU);
const _: () = assert!(MAX_CHILDREN <= u16::MAX as usize);
