//! The Quadrics network: Elite switches, Elan adapters and their collectives (claims QN-1 to QN-16).
//!
//! In: parameters of the fabric and of the adapters, and the operations of the nodes. Out: durations, in virtual
//! picoseconds. `quaternary_tree` and `source_route` define the topology, `wormhole` simulates the switches, `saturation`
//! and `grouped_multicasts` run traffic alone; `elan` simulates the adapters, the hosts and their collectives.

#![forbid(unsafe_code)]

mod elan;
mod grouped_multicasts;
mod packet;
mod quaternary_tree;
mod saturation;
mod source_route;
mod wormhole;

pub use elan::{
    AtomicResult, BroadcastBuffers, DmaEvents, ElanAddress, ElanBackground, ElanCluster, ElanCollective, ElanCosts,
    ElanEvent, ElanGroup, ElanLibrary, ElanLibraryError, ElanTransport, ElanWorkload, FloodResult, HostWakeup,
    MemoryLocation, RemoteAtomic, SwitchFoldCosts, TportEnvelope, TportMatch, TportQueue, TportReceive, Vpid,
};
pub use grouped_multicasts::GroupedMulticasts;
pub use packet::{
    AckCombining, AckStatus, CircuitPriority, MulticastRule, PACKET_BYTES, QsnetParameters, wire_bytes,
};
pub use quaternary_tree::MAX_DIMENSION;
pub use saturation::{SaturationPattern, SaturationSummary, SaturationTraffic};
pub use wormhole::WormholeCounters;
