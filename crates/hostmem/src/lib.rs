//! Shared memory within one host: collectives of its ranks ([`team`]) and rings for messages ([`ring`]).

#![deny(unsafe_op_in_unsafe_fn)]

pub mod ring;
pub mod team;
