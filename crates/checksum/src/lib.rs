//! Integrity codes over bytes.
//!
//! In: bytes, in one piece or in several that need not lie together, and perhaps where to copy them. Out: a code to send
//! along, or to compare with the one that came.
//!
//! Codes of packets, each for one stretch of the way:
//! - [`crc32c`] goes from memory to memory, past what links cannot see: buffers, copies, adapters;
//! - [`Icrc`] goes from end node to end node, over what no switch changes;
//! - [`vcrc`] goes over one link, and every switch computes it anew (claim SE-6).
//!
//! Codes of messages (claim CK-2), any of [`Algorithm`], in three ways: [`value`] looks at bytes, [`copy_then`] copies them
//! block by block and looks at each block while it is in the cache, [`copy`] copies and looks in one pass (claim CK-5);
//! [`copy_to`] is told whose cache the target is in. [`ChecksumState`] does the same piece by piece. [`linear`] is for the sums of reductions. Which code finds what is measured by
//! [`detection`]; which is fastest here, among those that find enough, by [`tuning`] (claim CK-3).

#![deny(unsafe_code)]

mod algorithm;
mod crc;
mod crc32c;
pub mod detection;
mod infiniband;
#[cfg(test)]
mod kernel_harness;
pub mod linear;
mod pass;
mod prefetch;
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
pub use prefetch::TargetCache;
pub use state::{ChecksumState, copy, copy_then, copy_to, value};
