//! Hosts on one machine, for benchmarks, demos, tests and `pleach launch`: Linux network namespaces.
//!
//! ```no_run
//! let network = namespaces::NamespaceNetwork::new(4)?;
//! let server = network.host(0).start(std::process::Command::new("sleep").arg("1"))?;
//! let socket = network.host(1).inside(|| std::net::UdpSocket::bind((network.host(1).address(), 0)))??;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`NamespaceNetwork`] connects hosts by one bridge: host `h` has an address in 10.77.0.0/16 on a device `net0`, and its own
//! loopback. The bridge has its own namespace, so the network of the machine does not change. Multicast reaches all
//! hosts. The MTU is 9,000 bytes, or as [`NamespaceNetwork::with_mtu`] says. [`hosts`] has
//! hosts with several links each, which can be cut in every way. [`NamespaceSet`] and [`Namespace`] are the parts for other networks.
//!
//! Dropping a network deletes it. What a killed process leaves behind, the next process deletes when it creates its first
//! namespace. Needs root (CAP_NET_ADMIN and CAP_SYS_ADMIN) and iproute2.

mod command;
mod error;
pub mod hosts;
mod namespace;
mod network;
mod skipping;

pub use error::NamespaceError;
pub use namespace::{Namespace, NamespaceSet};
pub use network::{MAX_HOSTS, NamespaceHost, NamespaceNetwork};
pub use skipping::skip_test;
