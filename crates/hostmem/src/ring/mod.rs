//! Packets between ranks of one host: one rail to each rank, a ring in shared memory.
//!
//! In: packets of the messaging machine. Out: [`transport::message_transport::TransportEvent`]s. `spsc_ring` is the protocol
//! between a writer and a reader, `mapping` the memory, `shm_transport` drives both.

#[cfg(test)]
mod loom_tests;
mod mapping;
mod shm_transport;
mod spsc_ring;

pub use shm_transport::ShmTransport;
