//! A deterministic fabric that runs the protocol machines in virtual picoseconds.
#![forbid(unsafe_code)]

mod body;
pub mod collective;
mod counters;
pub mod exchange;
pub mod fault;
pub mod host_collective;
pub mod messaging;
mod network;
pub mod processor;
pub mod queue;
pub mod scenario;
pub mod technology;
mod traffic;

pub use counters::{Counters, LinkTally};
pub use network::{Forwarding, LinkParameters};
pub use processor::{HostCosts, Noise, Way};
pub use traffic::{Pattern, Traffic, TrafficSummary};
