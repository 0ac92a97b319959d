//! The progress engine: drives the protocol machines over the transport and host memory.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod aggregation;
pub mod messaging;
pub mod network;
