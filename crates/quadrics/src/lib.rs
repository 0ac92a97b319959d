//! The Quadrics network: Elite switches, Elan adapters and what runs on them (claims QN-1 to QN-16).
//!
//! In: parameters of the fabric and of the adapters, and what the nodes do. Out: how long it takes, in virtual
//! picoseconds. `tree` and `route` are the shape, `wormhole` the switches in motion, `flood` traffic and nothing else;
//! `elan` has the adapters, the hosts and their collectives.

mod elan;
mod flood;
mod packet;
mod route;
mod tree;
mod wormhole;

pub use elan::{
    Address, Atomic, Background, Buffers, Cluster, ElanCosts, Envelope, Event, Events, Fetched, Flooded, FoldCosts,
    Group, Library, LibraryError, Match, Memory, Operation, Receive, TaggedPort, Task, Via, Vpid, Wake,
};
pub use flood::{Flood, FloodPattern, FloodSummary, GroupedMulticasts};
pub use packet::{Answer, Combining, FabricParameters, MulticastRule, PACKET_BYTES, Priority, wire_bytes};
pub use tree::MAX_DIMENSION;
pub use wormhole::WormholeCounters;
