//! Flows beside the operations of a scenario: traffic by pattern, and the messages of workloads.
//!
//! In: a fabric, classes of traffic, perhaps a workload. Out: completion times, throughput and repairs. The engine is part of the
//! network and shares it with any driver: its packets carry `FLOW_DRIVER`, so every collective can run
//! beside it. A host sends one packet of one flow whenever its link is free, flow by flow in turn; with DCQCN a flow also waits for
//! its rate. Receivers answer every few packets and report gaps; senders repair what is missing, and after a timeout take another
//! route.
//!
//! `flow` is one flow, `dcqcn` its rate, `engine` all of them, `class` the traffic patterns.

mod class;
mod dcqcn;
mod engine;
mod flow;
#[cfg(test)]
mod tests;

pub use class::{SizeDistribution, SizeDistributionError, TrafficClass, TrafficShape};
pub use dcqcn::DcqcnParameters;
pub(crate) use engine::FlowEngine;
pub use engine::{ClassRecord, FlowFailure, FlowParameters, FlowRecord};
pub(crate) use flow::FlowPacket;
