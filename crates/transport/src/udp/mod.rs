//! Queue pairs over UDP, as RoCEv2 packets.

mod datagram_queue_pairs;
mod endpoint;
mod epoll_set;
pub(crate) mod fault_injector;
pub(crate) mod link_monitor;
mod options;
pub(crate) mod port;
mod queue_pair;
mod queue_pair_timers;
pub(crate) mod send_batch;

pub use endpoint::Endpoint;
pub use fault_injector::FaultInjector;
pub use link_monitor::link_mtu_bytes;
pub use options::{EndpointCounters, EndpointOptions, LinkCut};
pub use port::{RECEIVE_BUFFER_BYTES, ReceiveMode, UdpPortIndex};
pub use queue_pair::{EndpointEvent, QueuePairError, QueuePairSetup, UdpRoute};
