//! The tests of `conformance.rs` once more, over UDP in place of shared memory.

#[path = "conformance.rs"]
mod conformance;
