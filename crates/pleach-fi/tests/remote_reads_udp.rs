//! The tests of `remote_reads.rs` once more, over UDP in place of shared memory.

#[path = "remote_reads.rs"]
mod remote_reads;
