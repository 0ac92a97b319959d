//! The tests of `closing.rs` once more, over UDP in place of shared memory.

#[path = "closing.rs"]
mod closing;
