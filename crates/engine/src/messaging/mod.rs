//! Checked messages between processes: the machine of `protocol::messaging` over real rails.
//!
//! In: sends and receives of the user. Out: completions. A [`Messenger`] drives a [`MessageTransport`]: [`UdpTransport`] over
//! queue pairs of an [`transport::udp::Endpoint`], [`ShmTransport`] through rings in shared memory, or [`TransportMux`],
//! which chooses between them by rank, or [`PairMux`], which does so for peers that connect when they are first needed. There are no threads: [`Messenger::turn`] does the work.

mod messenger;
mod pair_mux;
#[cfg(test)]
mod tests;
mod transport_mux;
mod udp_transport;

pub use hostmem::ring::{PairMemory, PairTransport, PeerEnd, ShmTransport};
pub use messenger::{CorruptionStage, Messenger, PacketCorrupter};
pub use pair_mux::{PairMux, WakeAddress};
pub use transport::message_transport::{MessageTransport, SendReport, TransportEvent};
pub use transport_mux::TransportMux;
pub use udp_transport::UdpTransport;
