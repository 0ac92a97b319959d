//! One UDP transport: the sockets of a process, what travels over them, and the clock.
//!
//! Reading order: [`Clock`], then [`udp`]: an [`udp::Endpoint`] owns the sockets of a process and its queue pairs, gives
//! packets to the machines, and carries out what they ask. [`edges`] carries the frames of aggregation trees.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod carrier;
mod clock;
pub mod edges;
pub mod udp;

pub use clock::Clock;
