//! A deterministic packet simulator that runs the protocol machines in virtual time, counted in picoseconds.
#![forbid(unsafe_code)]

mod arrival_check;
pub mod collective;
mod counters;
pub mod event_queue;
pub mod fault;
pub mod flows;
pub mod host_collective;
pub mod link_rate;
pub mod messaging;
mod network;
mod packet;
mod packet_body;
mod packet_check;
mod path_channels;
pub mod processor;
pub mod queue_pair;
mod residue;
#[cfg(feature = "sabotage")]
pub mod sabotage;
pub mod scenario;
pub mod segmented;
pub mod shared_fabric;
pub mod slab;
mod traffic;
pub mod workload;

pub use counters::{FabricCounters, LinkErrorCounters};
pub use network::{
    EcnMarking, EthernetParameters, Forwarding, LinkParameters, PauseThresholds, RouteChoice, Telemetry,
    TelemetryBucket,
};
pub use processor::{HostCosts, OsNoise, TransportService};
pub use residue::FabricResidue;
pub use traffic::{BackgroundTraffic, TrafficPattern, TrafficSummary};
