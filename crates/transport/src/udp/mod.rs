//! Queue pairs over UDP, as RoCEv2 packets.
//!
//! Reading order: [`Endpoint`] holds the sockets (`port`) and the queue pairs (`queue_pair`) of a process. `send_batch`
//! groups packets for one system call, `posted_buffers` holds what the user has posted, `endpoint_paths` reacts to links
//! that fail, `datagram_queue_pairs` is for datagrams and multicast.

mod chunk_assembler;
pub(crate) mod connected_socket;
mod counters;
mod datagram_queue_pairs;
mod endpoint;
mod endpoint_chunks;
mod endpoint_datagrams;
mod endpoint_paths;
mod endpoint_send;
mod epoll_set;
mod event;
pub(crate) mod fault_injector;
pub(crate) mod link_monitor;
mod local_address;
mod long_packets;
mod options;
mod packet_protection;
pub(crate) mod port;
mod posted_buffers;
mod queue_pair;
mod queue_pair_setup;
pub(crate) mod send_batch;

pub use counters::EndpointCounters;
pub use endpoint::Endpoint;
pub use event::{EndpointEvent, QueuePairError};
pub use fault_injector::FaultInjector;
pub use link_monitor::link_mtu_bytes;
pub use local_address::local_address_towards;
pub use options::{EndpointOptions, LinkCut};
pub use packet_protection::PacketSecurity;
pub use port::{RECEIVE_BUFFER_BYTES, ReceiveMode, UdpPortIndex};
pub use queue_pair_setup::{QueuePairSetup, UdpRoute};
