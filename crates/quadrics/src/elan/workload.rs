//! The workloads of a cluster: background traffic, repeated collectives, pings.

use protocol::collective::quadrics::{BroadcastSynchronization, PollBackoff, QuadricsMembers};
use units::SimSpan;

use super::super::saturation::SaturationPattern;
use super::costs::MemoryLocation;

/// Background traffic: one sender and one receiver on every node, always busy (QN-11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ElanBackground {
    /// The destinations, chosen anew for each message.
    pub pattern: SaturationPattern,
    /// Bytes of a message, from adapter memory to adapter memory.
    pub message_bytes: u32,
}

/// A collective operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElanCollective {
    /// *gsync*.
    TreeBarrier,
    /// *hgsync* and *hgsyncEvent*.
    PolledBarrier {
        /// How hosts detect the end.
        wake: HostWakeup,
        /// The back-off of the root's polls.
        back_off: PollBackoff,
    },
    /// A barrier that the switches fold, among all nodes.
    FoldedBarrier(SwitchFoldCosts),
    /// *bcast* and *hbcast*.
    Broadcast {
        /// How it synchronizes.
        synchronisation: BroadcastSynchronization,
        /// The size of the data.
        bytes: u32,
        /// The location of source and destination.
        memory: MemoryLocation,
        /// The buffers.
        buffers: BroadcastBuffers,
    },
}

/// A collective operation of a group, repeated.
#[derive(Clone, Debug)]
pub struct ElanWorkload {
    /// The operation.
    pub operation: ElanCollective,
    /// The nodes; one process of each receives.
    pub members: QuadricsMembers,
    /// Processes of each node, including that one.
    pub processes: u32,
    /// The root of its multicasts.
    pub multicast_root: u32,
    /// The number of calls, back to back.
    pub calls: u32,
    /// If the calls take longer they count as hanging.
    pub patience: SimSpan,
}

/// The library that a ping uses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ElanTransport {
    /// A remote DMA and its events (Elan3lib).
    Rdma,
    /// Tagged ports, which the thread processor matches (Elanlib, MPI).
    Tports,
}

/// How a host detects the end of a barrier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum HostWakeup {
    /// It polls a word (*hgsync*).
    Polling,
    /// It waits for an event (*hgsyncEvent*).
    Event,
}

/// The buffers of broadcasts (QN-10).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum BroadcastBuffers {
    /// At the same address on every node: no copy.
    Global,
    /// The system's buffers: one copy at each end.
    System,
}

/// Durations of a fold in a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchFoldCosts {
    /// From a word's arrival until it counts.
    pub receive: SimSpan,
    /// From the last word until the fold leaves, and for forwarding a result.
    pub fold: SimSpan,
}
