//! The Quadrics network: Elite switches, Elan adapters and what runs on them (claims QN-1 to QN-16).
//!
//! In: parameters of the fabric and of the adapters, and what the nodes do. Out: how long it takes, in virtual
//! picoseconds. `quaternary_tree` and `source_route` are the shape, `wormhole` the switches in motion, `saturation` traffic and nothing else;
//! `elan` has the adapters, the hosts and their collectives.

mod elan;
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
pub use packet::{
    AckCombining, AckStatus, CircuitPriority, MulticastRule, PACKET_BYTES, QsnetParameters, wire_bytes,
};
pub use quaternary_tree::MAX_DIMENSION;
pub use saturation::{GroupedMulticasts, SaturationPattern, SaturationSummary, SaturationTraffic};
pub use wormhole::WormholeCounters;
