//! Integrity codes over bytes.
//!
//! In: bytes, in one piece or in several that need not lie together. Out: a code to send along, or to
//! compare with the one that came. Nothing is copied and nothing is allocated.
//!
//! Three codes, each for one stretch of a packet's way:
//! - [`crc32c`] goes from memory to memory, past what links cannot see: buffers, copies, adapters;
//! - [`Icrc`] goes from end node to end node, over what no switch changes;
//! - [`vcrc`] goes over one link, and every switch computes it anew (claim SE-6).

#![forbid(unsafe_code)]

mod castagnoli;
mod infiniband;

pub use castagnoli::crc32c;
pub use infiniband::{Icrc, vcrc};
