//! Shared memory within one host: collectives of its ranks ([`team`]) and rings for messages ([`ring`]).

#![deny(unsafe_op_in_unsafe_fn)]

mod cache_hints;
mod futex;
pub mod ring;
mod shared_word;
mod shm_file;
pub mod team;
