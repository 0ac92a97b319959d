//! Packets between ranks of one host: one rail to each rank, a ring in shared memory.
//!
//! In: packets of the messaging machine. Out: [`transport::message_transport::TransportEvent`]s. `spsc_ring` is the protocol
//! between a writer and a reader, `mapped_ring` its memory, `ring_peer` both directions to a peer. [`ShmTransport`] connects a known
//! set of ranks in one `mapping`; [`PairTransport`] processes that meet two by two, in a [`PairMemory`] each.

#[cfg(test)]
mod loom_tests;
mod mapped_ring;
mod mapping;
mod pair_memory;
#[cfg(test)]
mod pair_tests;
mod pair_transport;
mod ring_peer;
mod shm_transport;
mod spsc_ring;

pub use pair_memory::{PairMemory, PeerEnd};
pub use pair_transport::PairTransport;
pub use shm_transport::ShmTransport;
