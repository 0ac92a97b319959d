//! The tests of `multi_receive.rs` once more, over UDP in place of shared memory.

#[path = "multi_receive.rs"]
mod multi_receive;
