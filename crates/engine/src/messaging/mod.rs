//! Checked messages between processes: the port of `protocol::messaging`, run over real rails.
//!
//! In: sends and receives of the user. Out: completions. A [`Messenger`] turns a [`MessageTransport`], which knows how parcels travel:
//! [`UdpTransport`] over queue pairs of an [`transport::udp::Endpoint`], [`ShmTransport`] through rings in shared memory, [`TransportMux`] each
//! to whom it reaches. There are no threads: whoever waits turns it.

mod messenger;
#[cfg(test)]
mod tests;
mod transport_mux;
mod udp_transport;

pub use hostmem::ring::ShmTransport;
pub use messenger::{CorruptionStage, Messenger, PacketCorrupter};
pub use transport::carrier::{MessageTransport, TransportEvent};
pub use transport_mux::TransportMux;
pub use udp_transport::UdpTransport;
