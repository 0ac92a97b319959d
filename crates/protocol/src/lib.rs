//! The protocol machines: no I/O, no clock, no randomness.
//!
//! Every party (host endpoint, aggregation node) is a machine that a driver feeds with frames, multicasts, reports
//! of damage and the time, and that answers with duties in an [`aggregation::Outbox`] which the driver lends.
//! The simulator and the runtime are such drivers; a machine cannot tell them apart. The rules that the code cites
//! as `P-n` stand in docs/protocol.md.
//!
//! Reading order: [`connection`] makes an edge reliable, [`aggregation`] folds what comes over the edges.
#![forbid(unsafe_code)]

pub mod aggregation;
pub mod collective;
pub mod connection;
pub mod datagram;
pub mod messaging;
mod payload;
pub mod queue_pair;

pub use payload::{BufferPool, BufferSlice, Payload, PayloadBytes};
