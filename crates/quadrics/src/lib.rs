//! The Quadrics network: Elite switches, Elan adapters and their collectives (claims QN-1 to QN-16).
//!
//! In: parameters of the fabric and of the adapters, and the operations of the nodes. Out: durations, in virtual
//! picoseconds. `quaternary_tree` and `source_route` define the topology, `wormhole` simulates the switches, `saturation`
//! and `grouped_multicasts` run traffic alone; `elan` simulates the adapters, the hosts and their collectives. `qsnet_run` runs what a
//! scenario asks for, with faults and an observer; `fabric_links` says which cable of a fabric is which link.

#![forbid(unsafe_code)]

mod elan;
mod fabric_links;
mod grouped_multicasts;
mod packet;
mod qsnet_run;
mod quaternary_tree;
mod saturation;
mod source_route;
mod wormhole;

pub use elan::{
    AtomicResult, BroadcastBuffers, DmaEvents, ElanAddress, ElanBackground, ElanCluster, ElanCollective, ElanCosts,
    ElanEvent, ElanGroup, ElanLibrary, ElanLibraryError, ElanTransport, ElanWorkload, FloodResult, HostWakeup,
    MemoryLocation, RemoteAtomic, RetryPolicy, SwitchFoldCosts, TportEnvelope, TportMatch, TportQueue, TportReceive,
    Vpid,
};
pub use grouped_multicasts::GroupedMulticasts;
pub use packet::{
    AckCombining, AckStatus, CircuitPriority, MulticastRule, PACKET_BYTES, QsnetParameters, wire_bytes,
};
pub use qsnet_run::{BroadcastContents, QsnetCollective, QsnetRun};
pub use quaternary_tree::MAX_DIMENSION;
pub use saturation::{SaturationPattern, SaturationSummary, SaturationTraffic};
pub use wormhole::WormholeCounters;
