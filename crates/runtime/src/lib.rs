//! The real world: sockets, clocks, processes. Drives the same protocol machines as the simulator does.
//!
//! Reading order: [`Clock`], then [`udp`]: an [`udp::Endpoint`] owns the sockets of a process and its queue pairs, gives
//! packets to the machines, and carries out what they ask.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod aggregation;
pub mod bootstrap;
mod clock;
pub mod control;
pub mod heap;
pub mod job;
pub mod messaging;
pub mod network;
pub mod shm;
pub mod udp;

pub use clock::Clock;
