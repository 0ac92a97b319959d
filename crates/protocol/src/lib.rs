//! The protocol state machines: no I/O, no clock, no randomness.
//!
//! Each machine (host member, aggregation node, queue pair, messaging port) takes frames, multicasts, reports of
//! damage and the time from a driver, and returns actions that the driver must carry out, for example in an
//! [`aggregation::Outbox`]. The simulator and the engine are drivers; a machine cannot tell them apart.
//! docs/protocol.md contains the rules that the code cites as `P-n`.
//!
//! Reading order: [`connection`] makes an edge reliable, [`aggregation`] folds contributions over edges,
//! [`collective`] does the same without aggregation nodes, [`transfer`] carries its long vectors, [`queue_pair`] and
//! [`messaging`] carry point-to-point messages.
#![forbid(unsafe_code)]

pub mod aggregation;
mod buffer_pool;
mod buffer_slice;
pub mod collective;
pub mod connection;
pub mod datagram;
pub mod messaging;
mod payload;
pub mod queue_pair;
mod replay_window;
#[cfg(feature = "sabotage")]
pub mod sabotage;
pub mod transfer;

pub use buffer_pool::BufferPool;
pub use buffer_slice::{BufferSlice, LentBytes, SharedBytes};
pub use payload::{Payload, PayloadBytes};
pub use replay_window::ReplayWindow;
