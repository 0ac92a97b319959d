//! The tests of `lost_peers.rs` once more, over UDP in place of shared memory.

#[path = "lost_peers.rs"]
mod lost_peers;
