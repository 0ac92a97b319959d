//! The progress engine: drives the protocol machines over the transport and host memory.
//!
//! [`aggregation`] runs members and nodes of aggregation trees, [`network`] the collectives among the leaders of hosts,
//! [`messaging`] checked messages between processes.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod aggregation;
pub mod messaging;
pub mod network;
