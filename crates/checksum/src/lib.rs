//! Checksums.
//!
//! In: bytes, in one or several parts, and perhaps where to copy them. Out: a checksum to send, or to compare with a received one.
//!
//! CRCs of packets, by what they cover:
//! - [`crc32c`] covers memory to memory, including what links cannot see: buffers, copies, adapters;
//! - [`Icrc`] covers end node to end node, without the fields that switches change;
//! - [`vcrc`] covers one link; every switch computes it anew (claim SE-6).
//!
//! Checksums of messages (claim CK-2), by any [`Algorithm`], in three ways: [`value`] only reads, [`copy_then`] copies block by block and
//! reads each block while it is in the cache, [`copy`] copies and computes in one pass (claim CK-5); [`copy_to`] adds a hint about
//! the cache that holds the target. [`ChecksumState`] does the same incrementally.
//! [`SecretHash`] is the hash of MACs. [`detection`] measures which algorithm detects which errors, [`tuning`] which of the strong ones is fastest on this machine
//! (claim CK-3).

#![deny(unsafe_code)]

mod algorithm;
mod algorithm_state;
mod crc;
mod crc32c;
pub mod detection;
mod infiniband;
#[cfg(test)]
mod kernel_harness;
mod oneshot;
mod pass;
mod prefetch;
mod secret_hash;
mod simple_hashes;
mod state;
#[cfg(test)]
mod tests;
pub mod tuning;
mod vector_width;
mod xxh3;

pub use algorithm::{Algorithm, Strength, UnknownAlgorithm};
pub use crc::CrcKernel;
pub use crc32c::{crc32c, crc32c_words};
pub use infiniband::{Icrc, vcrc};
pub use oneshot::{copy, copy_then, copy_to, value};
pub use prefetch::TargetCache;
pub use secret_hash::SecretHash;
pub use state::ChecksumState;
